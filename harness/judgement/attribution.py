"""Finds the cause of an effect: the code, the clocks, heat, power, another process or the environment.

Time alone cannot show the cause. The attribution also uses SM cycles, each side's clock in the comparison and
when it ran alone, and the quads that gates caught. If these do not show a cause, there is no attribution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from harness.records.types import Attribution, Effect, Snapshot, Verdict

_CLOCKS_EQUAL = 0.002
"""Largest relative difference of two mean SM clocks that counts as the same clock."""
POWER_COUPLED = 0.003
"""Relative difference of the SM clocks of two sides, each running alone, from which they draw different
power."""
_SM_BOUND = 0.8
"""Clock exponent below which cycles follow the clock rather than the work."""
_HIDDEN = 0.0025
"""Smallest change of cycles without a change of time that is reported. The whole interval must exceed it."""
_MOST = 0.5
"""Share of an effect that a cause must explain."""
_TOUCHED_MATTERS = 0.1
"""Share of touched quads from which the disturbance is the cause of an inconclusive case."""

_OF_GATE: Mapping[str, Attribution] = {
    "contention": "contention",
    "thermal-throttle": "thermal",
    "power-brake": "power",
    "memory-clock": "environment",
    "p-state": "environment",
    "sm-clock": "clocks",
    "clocks-apart": "clocks",
    "temperature": "thermal",
    "canary": "contention",  # The canary is a fixed kernel: only other work on the card can slow it.
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRun:
    """The measurements of one side that ran by itself, back to back, for a second or more. None: unknown."""

    time_ns: float
    """Time of one launch, in nanoseconds. Energy is per launch too; clock and power are means."""
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    """Mean of the power sensor's readings. A sensor that averages over a second still includes earlier work.
    """
    energy_j: float | None = None
    energy_error: float | None = None
    """Possible relative error of the energy: the counter is updated only once in a sampling interval."""


def attribute(verdict: Verdict) -> Attribution | None:
    """Return the cause of a case's outcome, or None if the measurements show no cause.

    The cause of an invalid case is the gate that made it invalid.
    """
    time, status = verdict.time, verdict.status
    if status == "invalid":
        return _OF_GATE.get(verdict.reason)
    if time is None:
        return None
    # Cycles measure the work of the code, unless the time hardly follows the clock.
    misleads = verdict.clock_exponent is not None and verdict.clock_exponent < _SM_BOUND
    work = None if misleads else verdict.cycles
    hides = verdict.power_capped and work and (work.low > _HIDDEN or work.high < -_HIDDEN)
    if work and hides and not (_overlap(work, time) or _explains(time.effect, work.effect)):
        return "code"  # The work changed, and the power limit hid the change from the time.
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
    """Summarize the block in which one side ran alone, with its launches spread evenly over the block.

    Moments and snapshots (oldest first) are on the host's monotonic clock. `time_ns` (of one launch) and
    `sm_clock_mhz` are the device's own values. Without them, the block's mean time is used, which includes
    flushes and gaps, and the mean clock of the snapshots.
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
    """Return the mean power from the energy counter, and its possible relative error.

    The counter is updated about every 100 ms. So only the energy between its first and last update in the
    block is used.
    """
    known = [(snapshot.at_ns, snapshot.energy_j) for snapshot in snapshots if snapshot.energy_j is not None]
    moves = [(before_ns, at_ns, joule) for (before_ns, old), (at_ns, joule) in pairwise(known) if joule > old]
    if len(moves) < 2:
        return None
    first, last = moves[0], moves[-1]
    # The update happened between two snapshots. Take the middle, with half the distance as the error.
    span_ns = (last[0] + last[1] - first[0] - first[1]) / 2
    doubt_ns = (last[1] - last[0] + first[1] - first[0]) / 2
    return (last[2] - first[2]) / (span_ns * 1e-9), doubt_ns / span_ns


def _of_effect(verdict: Verdict, time: Effect, work: Effect | None) -> Attribution | None:
    if (cycles := verdict.cycles) is not None:
        moved = cycles.low > 0 or cycles.high < 0
        if (moved and _overlap(cycles, time)) or _explains(cycles.effect, time.effect):
            return "code"
    base, head = ((arm.sm_clock_mhz if arm else None) for arm in (verdict.base, verdict.head))
    # Expected effect of the clocks on the time, if time is cycles over clock.
    gap = base / head - 1 if head and base is not None else None
    if gap is not None and abs(gap) > _CLOCKS_EQUAL:
        # If the kernel hardly follows the clock, a clock difference explains little.
        exponent = 1.0 if verdict.clock_exponent is None else min(max(verdict.clock_exponent, 0.0), 1.0)
        if _explains(gap * exponent, time.effect):
            return _behind_the_clocks(verdict)
    if gap is not None and (work is None or _overlap(work, time)):
        return "code"
    return _OF_GATE.get(_largest(verdict.touched))


def _behind_the_clocks(verdict: Verdict) -> Attribution:
    """Return the reason why the sides' clocks differ, if another measurement shows it."""
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
    """Return the gate that caught most quads, the earlier gate at a tie; empty if no gate caught any."""
    return max((code for code, count in touched.items() if count), key=lambda code: touched[code], default="")


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without such values."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
