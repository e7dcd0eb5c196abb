"""Finds the cause of an effect: the code, the clocks, heat, power, another process or the environment.

A time alone cannot tell. Cycles beside the time, the clocks that each side saw, each side's clock when it ran
alone, and what the gates caught can, mostly; where they cannot, there is no attribution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from harness.records.types import Attribution, Effect, Snapshot, Verdict

_CLOCKS_EQUAL = 0.002
"""Two sides whose mean SM clocks in the quads are this close saw the same clock."""
POWER_COUPLED = 0.003
"""Two sides whose SM clocks, alone, are further apart than this draw different power."""
_SM_BOUND = 0.8
"""Clock exponent below which cycles follow the clock rather than the work."""
_HIDDEN = 0.0025
"""A change of cycles without a change of time is reported where its whole interval is beyond this."""
_MOST = 0.5
"""Share of an effect that something must explain to be its cause."""
_TOUCHED_MATTERS = 0.1
"""Share of touched quads from which on they are the cause of an inconclusive case."""

_OF_GATE: Mapping[str, Attribution] = {
    "contention": "contention",
    "thermal-throttle": "thermal",
    "power-brake": "power",
    "memory-clock": "environment",
    "p-state": "environment",
    "sm-clock": "clocks",
    "clocks-apart": "clocks",
    "temperature": "thermal",
    "canary": "contention",  # a fixed kernel: what slows it alone is something else on the card
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRun:
    """The measurements of one side that ran by itself, back to back, for a second or more. None: unknown."""

    time_ns: float
    """Time of one launch. The energy is of one launch too; clock and power are means."""
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    """Mean of the power sensor's readings; one that averages over a second still shows what ran before."""
    energy_j: float | None = None
    energy_error: float | None = None
    """Share by which the energy may be off: the counter is read only once in a sampling interval."""


def attribute(verdict: Verdict) -> Attribution | None:
    """Return the cause of a case's outcome, or None where the measurements show no cause.

    The cause of an invalid case is the gate that made it invalid.
    """
    time, status = verdict.time, verdict.status
    if status == "invalid":
        return _OF_GATE.get(verdict.reason)
    if time is None:
        return None
    # Cycles stand for work, except where time hardly follows the clock.
    misleads = verdict.clock_exponent is not None and verdict.clock_exponent < _SM_BOUND
    work = None if misleads else verdict.cycles
    hides = verdict.power_capped and work and (work.low > _HIDDEN or work.high < -_HIDDEN)
    if work and hides and not (_overlap(work, time) or _explains(time.effect, work.effect)):
        return "code"  # more or fewer cycles, which the power limit keeps out of the time
    if status in ("regression", "improvement"):
        return _of_effect(verdict, time, work)
    if status in ("unchanged", "inconclusive") and _coupled(verdict):
        return "power"
    matters = status == "inconclusive" and sum(verdict.touched.values()) >= _TOUCHED_MATTERS * time.quads
    return _OF_GATE.get(_largest(verdict.touched)) if matters else None


def _coupled(verdict: Verdict) -> bool:
    """Return whether the sides' clocks differ when each runs alone: they draw different power."""
    base, head = ((arm.alone_mhz if arm else None) for arm in (verdict.base, verdict.head))
    return bool(base and head is not None and abs(head / base - 1) > POWER_COUPLED)


def solo_of(
    snapshots: Sequence[Snapshot],
    started_ns: int,
    ended_ns: int,
    launches: int,
    *,
    time_ns: float | None = None,
    sm_clock_mhz: float | None = None,
) -> SoloRun:
    """Sum up one side's solo block: so many launches, evenly spread from one moment to the other.

    Moments and snapshots (oldest first) are on the host monotonic clock. `time_ns`, of one launch, and
    `sm_clock_mhz` are the device's own if given; else the block's mean, flushes and gaps included, and the
    mean of the snapshots.
    """
    if launches < 1 or ended_ns <= started_ns:
        raise ValueError(f"expected launches in a span of time, got {launches} in {ended_ns - started_ns} ns")
    within = [snapshot for snapshot in snapshots if started_ns <= snapshot.at_ns <= ended_ns]
    launch_ns = (ended_ns - started_ns) / launches
    watts = _watts(within)
    return SoloRun(
        time_ns=launch_ns if time_ns is None else time_ns,
        sm_clock_mhz=mean_of_known(s.sm_clock_mhz for s in within) if sm_clock_mhz is None else sm_clock_mhz,
        power_w=mean_of_known(snapshot.power_w for snapshot in within),
        energy_j=watts[0] * launch_ns * 1e-9 if watts else None,
        energy_error=watts[1] if watts else None,
    )


def _watts(snapshots: Sequence[Snapshot]) -> tuple[float, float] | None:
    """Mean power from the energy counter, and the share by which it may be off.

    The counter stands still for about 100 ms at a time, so only between its first and last seen move is it
    not stale by an unknown part of that.
    """
    known = [(snapshot.at_ns, snapshot.energy_j) for snapshot in snapshots if snapshot.energy_j is not None]
    moves = [(before_ns, at_ns, joule) for (before_ns, old), (at_ns, joule) in pairwise(known) if joule > old]
    if len(moves) < 2:
        return None
    first, last = moves[0], moves[-1]
    # It moved somewhere between two snapshots: halfway, give or take half of that.
    span_ns = (last[0] + last[1] - first[0] - first[1]) / 2
    doubt_ns = (last[1] - last[0] + first[1] - first[0]) / 2
    return (last[2] - first[2]) / (span_ns * 1e-9), doubt_ns / span_ns


def _of_effect(verdict: Verdict, time: Effect, work: Effect | None) -> Attribution | None:
    if (cycles := verdict.cycles) is not None:
        moved = cycles.low > 0 or cycles.high < 0
        if (moved and _overlap(cycles, time)) or _explains(cycles.effect, time.effect):
            return "code"
    base, head = ((arm.sm_clock_mhz if arm else None) for arm in (verdict.base, verdict.head))
    # The effect on time, if time is cycles over clock.
    gap = base / head - 1 if head and base is not None else None
    if gap is not None and abs(gap) > _CLOCKS_EQUAL:
        # Of a kernel that hardly follows the clock, a difference of clocks explains hardly anything.
        exponent = 1.0 if verdict.clock_exponent is None else min(max(verdict.clock_exponent, 0.0), 1.0)
        if _explains(gap * exponent, time.effect):
            return _behind_the_clocks(verdict)
    if gap is not None and (work is None or _overlap(work, time)):
        return "code"
    return _OF_GATE.get(_largest(verdict.touched))


def _behind_the_clocks(verdict: Verdict) -> Attribution:
    """Name what set the sides' clocks apart, where something else shows that."""
    if _coupled(verdict):
        return "power"
    lowering = {c: n for c, n in verdict.touched.items() if _OF_GATE.get(c) in ("thermal", "power")}
    gate = _largest(lowering)
    return _OF_GATE[gate] if gate else "clocks"


def _overlap(one: Effect, other: Effect) -> bool:
    return one.low <= other.high and other.low <= one.high


def _explains(part: float, whole: float) -> bool:
    return whole != 0 and part / whole >= _MOST


def _largest(touched: Mapping[str, int]) -> str:
    """Return the gate that caught most quads, the earlier one of two; empty where none caught any."""
    return max((code for code, count in touched.items() if count), key=lambda code: touched[code], default="")


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without such values."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
