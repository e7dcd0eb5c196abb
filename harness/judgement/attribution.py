"""What an effect goes back to: the code, the clocks, heat, power, another process or the surroundings.

A time alone cannot tell. Cycles beside the time, the clocks that each arm saw, each arm's clock when it runs
alone, and what the gates caught can, mostly; where they cannot, there is no attribution.
"""

from __future__ import annotations

__all__ = ["Solo", "SoloBlocks", "attribute", "solo_of"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from harness.records import Attribution, Effect, Snapshot, Verdict

_CLOCKS_EQUAL = 0.002
"""Arms whose mean SM clocks in the quads are this close saw the same clock."""
_POWER_COUPLED = 0.003
"""Arms whose SM clocks, alone, are further apart than this draw different power."""
_SM_BOUND = 0.8
"""Clock exponent below which cycles follow the clock rather than the work."""
_HIDDEN = 0.0025
"""Change of cycles, at either end of its interval, from which on one without a change of time is told."""
_MOST = 0.5
"""Share of an effect that something must explain to be its cause."""
_TOUCHED_MATTERS = 0.1
"""Share of quads from which on an inconclusive case is put down to what touched them."""

_OF_GATE: Mapping[str, Attribution] = {
    "contention": "contention",
    "thermal-throttle": "thermal",
    "power-brake": "power",
    "memory-clock": "environment",
    "p-state": "environment",
    "sm-clock": "clocks",
    "clocks-apart": "clocks",
    "temperature": "thermal",
    "canary": "contention",
}
"""A canary is a fixed kernel: what slows it alone is something else on the card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solo:
    """One arm that ran by itself, back to back, for a second or more. None means it could not be told."""

    time_ns: float
    """Of one launch."""
    sm_clock_mhz: float | None = None
    """Mean."""
    power_w: float | None = None
    """Mean of what the power sensor said. Where that is itself a mean of the last second, the arm before is
    in it."""
    energy_j: float | None = None
    """Of one launch."""
    energy_error: float | None = None
    """Share by which the energy may be off, since the instants at which the counter moved are known only to
    within a sampling interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloBlocks:
    base: Solo
    head: Solo

    @property
    def clock_change(self) -> float | None:
        """Head's SM clock over base's, minus 1."""
        return _change(self.base.sm_clock_mhz, self.head.sm_clock_mhz)


def attribute(verdict: Verdict, solo: SoloBlocks | None = None) -> tuple[Attribution | None, str]:
    """Return what a case's outcome goes back to, and one sentence that says why.

    None where nothing that was measured tells, with a sentence if there is something to explain. An invalid
    case goes back to the gate that made it so.
    """
    cause, sentence = _judged(verdict, solo)
    return cause, sentence[:1].upper() + sentence[1:]


def _cycles_mislead(verdict: Verdict) -> bool:
    """Whether time is known to follow the clock too little for cycles to stand for work."""
    return verdict.clock_exponent is not None and verdict.clock_exponent < _SM_BOUND


def _work(verdict: Verdict) -> Effect | None:
    """The effect on cycles, where cycles stand for work."""
    return None if _cycles_mislead(verdict) else verdict.cycles


def _clock_gap(verdict: Verdict) -> float | None:
    """Base's SM clock in the quads over head's, minus 1: the effect on time, if that is cycles/clock."""
    base, head = _clocks_mhz(verdict)
    return _change(head, base)


def _clocks_mhz(verdict: Verdict) -> tuple[float | None, float | None]:
    base, head = verdict.base, verdict.head
    return base.sm_clock_mhz if base else None, head.sm_clock_mhz if head else None


def solo_of(
    snapshots: Sequence[Snapshot],
    started_ns: int,
    ended_ns: int,
    launches: int,
    *,
    time_ns: float | None = None,
    sm_clock_mhz: float | None = None,
) -> Solo:
    """Sum up an arm's solo block: so many launches, evenly spread from one moment to the other.

    Moments and snapshots (oldest first) are on the host monotonic clock. `time_ns`, of one launch, and
    `sm_clock_mhz` are the device's own if given; else the block's mean, flushes and gaps included, and the
    mean of the snapshots.
    """
    if launches < 1 or ended_ns <= started_ns:
        raise ValueError(f"expected launches in a span of time, got {launches} in {ended_ns - started_ns} ns")
    within = [snapshot for snapshot in snapshots if started_ns <= snapshot.at_ns <= ended_ns]
    launch_ns = (ended_ns - started_ns) / launches
    watts = _watts(within)
    return Solo(
        time_ns=launch_ns if time_ns is None else time_ns,
        sm_clock_mhz=_mean([s.sm_clock_mhz for s in within]) if sm_clock_mhz is None else sm_clock_mhz,
        power_w=_mean([snapshot.power_w for snapshot in within]),
        energy_j=watts[0] * launch_ns * 1e-9 if watts else None,
        energy_error=watts[1] if watts else None,
    )


def _watts(snapshots: Sequence[Snapshot]) -> tuple[float, float] | None:
    """Mean power from the energy counter, and the share by which it may be off.

    The counter stands still for about 100 ms at a time, so its value at the ends of the block is stale by an
    unknown part of that. Between the first and the last time it is seen to move it is not.
    """
    told = [(snapshot.at_ns, snapshot.energy_j) for snapshot in snapshots if snapshot.energy_j is not None]
    moves = [(before_ns, at_ns, joule) for (before_ns, old), (at_ns, joule) in pairwise(told) if joule > old]
    if len(moves) < 2:
        return None
    first, last = moves[0], moves[-1]
    # It moved somewhere between two snapshots: halfway, give or take half of that.
    span_ns = (last[0] + last[1] - first[0] - first[1]) / 2
    doubt_ns = (last[1] - last[0] + first[1] - first[0]) / 2
    return (last[2] - first[2]) / (span_ns * 1e-9), doubt_ns / span_ns


def _judged(verdict: Verdict, solo: SoloBlocks | None) -> tuple[Attribution | None, str]:
    time = verdict.time
    if verdict.status == "invalid":
        return _by_gates(verdict, verdict.reason)
    if time is None:
        return None, ""
    if hidden := _hidden_work(verdict, time):
        return "code", hidden
    if verdict.status in ("regression", "improvement"):
        return _of_effect(verdict, time, solo)
    if verdict.status in ("unchanged", "inconclusive"):
        return _of_no_effect(verdict, time, solo)
    return None, ""


def _hidden_work(verdict: Verdict, time: Effect) -> str:
    """Say so where the code takes more or fewer cycles and the power limit keeps that out of the time."""
    work = _work(verdict)
    if not verdict.power_capped or work is None or not (work.low > _HIDDEN or work.high < -_HIDDEN):
        return ""
    if _overlap(work, time) or _explains(time.effect, work.effect):
        return ""
    how = "hides it by clocking higher" if work.effect > 0 else "spends what that saves on a lower clock"
    return (
        f"{_changed(verdict, time)}: the code takes {_more_or_fewer(work)} cycles, and at its power limit "
        f"the card {how}{_energy(verdict)}."
    )


def _of_effect(verdict: Verdict, time: Effect, solo: SoloBlocks | None) -> tuple[Attribution | None, str]:
    changed = _changed(verdict, time)
    work, cycles = _work(verdict), verdict.cycles
    if cycles is not None and _agree(cycles, time):
        return "code", f"{changed}: the code takes {_more_or_fewer(cycles)} cycles{_coupled(verdict, solo)}."
    if _clocks_explain(verdict, time):
        why = f"{changed} while {_clocks(verdict)}, which explains it"
        return _behind_the_clocks(verdict, why, solo)
    if _clock_gap(verdict) is not None and (work is None or _overlap(work, time)):
        speed = "slower" if time.effect > 0 else "faster"
        why = f"{changed} while {_clocks(verdict)}, which does not explain it"
        return "code", f"{why}: the code is {speed}{_coupled(verdict, solo)}."
    cause, told = _by_gates(verdict, _largest(verdict.touched))
    return cause, f"{changed}, and neither cycles nor clocks tell why. {told}".rstrip()


def _of_no_effect(verdict: Verdict, time: Effect, solo: SoloBlocks | None) -> tuple[Attribution | None, str]:
    if coupled := _coupled(verdict, solo):
        return "power", f"{_changed(verdict, time)}, measured in turns at one clock{coupled}."
    touched = sum(verdict.touched.values())
    if verdict.status == "inconclusive" and touched >= _TOUCHED_MATTERS * time.quads:
        return _by_gates(verdict, _largest(verdict.touched))
    return None, ""


def _behind_the_clocks(verdict: Verdict, sentence: str, solo: SoloBlocks | None) -> tuple[Attribution, str]:
    """Name what set the arms' clocks apart, where something else tells that."""
    if coupled := _coupled(verdict, solo):
        return "power", f"{sentence}{coupled}."
    lowering = {c: n for c, n in verdict.touched.items() if _OF_GATE.get(c) in ("thermal", "power")}
    if gate := _largest(lowering):
        return _OF_GATE[gate], f"{sentence}; {gate} caught {lowering[gate]} quads."
    limit = "; the card was at its power limit" if verdict.power_capped else ""
    return "clocks", f"{sentence}{limit}."


def _by_gates(verdict: Verdict, code: str) -> tuple[Attribution | None, str]:
    told = ", ".join(f"{gate} {count}" for gate, count in verdict.touched.items() if count)
    return _OF_GATE.get(code), f"Quads touched: {told}." if told else ""


def _agree(cycles: Effect, time: Effect) -> bool:
    """Whether cycles changed about as time did, or account for most of its change."""
    moved = cycles.low > 0 or cycles.high < 0
    return (moved and _overlap(cycles, time)) or _explains(cycles.effect, time.effect)


def _overlap(one: Effect, other: Effect) -> bool:
    return one.low <= other.high and other.low <= one.high


def _clocks_explain(verdict: Verdict, time: Effect) -> bool:
    gap = _clock_gap(verdict)
    if gap is None or abs(gap) <= _CLOCKS_EQUAL:
        return False
    # Of a kernel that hardly follows the clock, a difference of clocks explains hardly anything.
    exponent = 1.0 if verdict.clock_exponent is None else min(max(verdict.clock_exponent, 0.0), 1.0)
    return _explains(gap * exponent, time.effect)


def _explains(part: float, whole: float) -> bool:
    return whole != 0 and part / whole >= _MOST


def _largest(touched: Mapping[str, int]) -> str:
    """Return the gate that caught most quads, the earlier one of two; empty where none caught any."""
    return max((code for code, count in touched.items() if count), key=lambda code: touched[code], default="")


def _changed(verdict: Verdict, time: Effect) -> str:
    text = f"time changed by {_percent(time.effect)}"
    if verdict.cycles is not None and (_work(verdict) is not None or _agree(verdict.cycles, time)):
        return f"{text} and cycles by {_percent(verdict.cycles.effect)}"
    if verdict.clock_exponent is not None and _cycles_mislead(verdict):
        exponent = f"{verdict.clock_exponent:.2f}"
        return f"{text} (cycles are left aside: time follows the clock with an exponent of only {exponent})"
    return text


def _more_or_fewer(cycles: Effect) -> str:
    return "more" if cycles.effect > 0 else "fewer"


def _clocks(verdict: Verdict) -> str:
    base, head = _clocks_mhz(verdict)
    return f"base saw an SM clock of {base:.1f} MHz and head of {head:.1f} MHz"


def _coupled(verdict: Verdict, solo: SoloBlocks | None) -> str:
    """Return a clause on the power that the arms draw, if their clocks differ when each runs alone."""
    change = None if solo is None else solo.clock_change
    if solo is None or change is None or abs(change) <= _POWER_COUPLED:
        return ""
    base, head = solo.base, solo.head
    drawn = (
        f", drawing {head.power_w:.0f} W against {base.power_w:.0f} W"
        if base.power_w is not None and head.power_w is not None
        else ""
    )
    return (
        f"; POWER-COUPLED: alone, head runs at {head.sm_clock_mhz:.1f} MHz and base at "
        f"{base.sm_clock_mhz:.1f} MHz ({_percent(change)}){drawn}{_energy(verdict)}"
    )


def _energy(verdict: Verdict) -> str:
    return f", energy per launch {_interval(verdict.energy)}" if verdict.energy else ""


def _interval(effect: Effect) -> str:
    return f"{_percent(effect.effect)} ({_percent(effect.low)} to {_percent(effect.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:+.2f} %"


def _change(base: float | None, head: float | None) -> float | None:
    return head / base - 1 if base and head is not None else None


def _mean(values: Sequence[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return fmean(told) if told else None
