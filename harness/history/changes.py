"""From a series to its changes: what moved, when, by how much, and whether the code or the card did it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from harness.history.facts import Commits
from harness.history.figures import HEADLINES
from harness.history.series import Series
from harness.records import Row
from harness.statistics.changepoints import ChangePoint, Level, find_changes

Kind = Literal["regression", "improvement", "environment"]
Attribution = Literal["code", "clocks", "thermal", "power", "environment", "unknown"]
Floats = npt.NDArray[np.float64]

SMALLEST = 0.01
"""The smallest relevant change of a case whose noise nobody has calibrated."""
TIMED = (*HEADLINES.values(), "time_ms")
"""Metrics that have cycles behind them."""
BUILT = ("registers", "local_bytes")
"""Metrics that nothing but the build decides: no card can move them."""
SIGNIFICANCE = 0.001
"""The largest p-value of a change. A history is searched again after every commit, so noise has many chances:
docs/history.md has what this and the other one came to."""
SIGNIFICANCE_OF_FEW = 0.002
"""The same where there are fewer points than MANY, and so few searches, and noise is hardly known."""
MANY = 40
_WINDOW = 30
"""Most points on each side of a change that are looked at for what stood beside the figure."""
_CLOCK_APART = 0.004
"""A smaller move of the clock is none: a step of 15 MHz is 0.75 % at 2 GHz, and medians wander less."""
_SHARE = 1 / 3
"""Of a change: what may be left of it in cycles where the clock explains it."""
_WARMER_C = 5.0
_AT_LIMIT = 0.95
_ENOUGH, _FEWEST = 10, 3
"""Figures of an epoch, from which on its noise is known, and below which there is none."""
_CLOCKED = 0.97
"""Of the clock that is usual in an epoch: a point below it is shown as set aside by its clock."""


RecordOf = Callable[[Series, int], Row | None]
"""What the record of a run says of a point of a series, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(ChangePoint):
    """A step of a series: `at`, `first` and `last` are points, `good` and `bad` positions of commits."""

    id: str
    card: str
    case: str
    kind: Kind
    attribution: Attribution
    good: int
    """The commit of the last point that is surely before."""
    bad: int
    """The commit of the first point that is surely after: the change is in good+1..bad."""
    cycles_effect: float | None = None
    """Of the cycles a launch takes; None where the clock is not known."""
    clock_before: float | None = None
    clock_after: float | None = None
    static: tuple[str, ...] = ()
    """What changed in the build, such as "registers 40 → 64"."""
    epoch: int = 0

    @property
    def commits(self) -> int:
        return self.bad - self.good


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    series: Series
    changes: tuple[Change, ...]
    levels: tuple[Level, ...]
    outliers: tuple[int, ...]
    clocked: tuple[int, ...]
    """Points whose clock was well below what is usual."""
    noise: float
    floor: float
    """The smallest change that counts."""


def change_id(card: str, case: str, metric: str, commit: str) -> str:
    """Of a change, by the first commit that surely has it."""
    return hashlib.sha256(repr((card, case, metric, commit)).encode()).hexdigest()[:10]


def analyse(
    series: Series,
    floor: float | None,
    commits: Commits,
    record: RecordOf = lambda _series, _point: None,
) -> Analysed:
    """Search each epoch by itself: what moves between two of them is neither's.

    `floor` is the smallest visible change that the card's calibration knows; None without one. `record`
    is what tells of a point's build.
    """
    smallest = floor or SMALLEST
    changes: list[Change] = []
    levels: list[Level] = []
    outliers: list[int] = []
    noises: list[tuple[int, float]] = []
    searched = series.case.direction != "none"
    for number in range(len(series.epochs) if searched else 0):
        points = np.flatnonzero(series.epoch == number)
        significance = SIGNIFICANCE if points.size >= MANY else SIGNIFICANCE_OF_FEW
        found = find_changes(series.values[points], smallest=smallest, significance=significance)
        levels += [
            replace(level, start=int(points[level.start]), stop=int(points[level.stop - 1]) + 1)
            for level in found.levels
        ]
        outliers += points[list(found.outliers)].tolist()
        noises.append((int(np.isfinite(series.values[points]).sum()), found.noise))
        steps = [
            replace(step, at=int(points[step.at]), first=int(points[step.first]), last=int(points[step.last]))
            for step in found.changes
        ]
        edges = [int(points[0]), *(step.at for step in steps), int(points[-1]) + 1]
        for step, low, high in zip(steps, edges, edges[2:], strict=False):
            changes.append(_change(series, step, low, high, number, commits, record))
    return Analysed(
        series=series,
        changes=tuple(sorted(changes, key=lambda change: change.at)),
        levels=tuple(sorted(levels, key=lambda level: level.start)),
        outliers=tuple(sorted(outliers)),
        clocked=_clocked(series) if searched else (),
        noise=_noise(noises),
        floor=smallest,
    )


def _noise(epochs: list[tuple[int, float]]) -> float:
    """Of the newest epoch with enough figures to know it by, else of the one with the most; NaN where these
    are too few to have any. `epochs` are pairs of figures and noise.
    """
    for figures, noise in reversed(epochs):
        if figures >= _ENOUGH:
            return noise
    figures, noise = max(epochs, default=(0, math.nan))
    return noise if figures >= _FEWEST else math.nan


def _change(
    series: Series,
    step: ChangePoint,
    low: int,
    high: int,
    epoch: int,
    commits: Commits,
    record: RecordOf,
) -> Change:
    own, case = series.epoch == epoch, series.case
    before = _beside(series, own, max(low, step.first - _WINDOW), step.first)
    after = _beside(series, own, step.last, min(high, step.last + _WINDOW))
    # There is one: a change has a level before it.
    good = int(np.flatnonzero(own[: step.first] & np.isfinite(series.values[: step.first]))[-1])
    slower = _log_time(series, step.after) - _log_time(series, step.before)
    clocks = before.get("sm_clock_mhz"), after.get("sm_clock_mhz")
    cycles = None
    if case.metric in TIMED and clocks[0] and clocks[1]:
        cycles = slower + math.log(clocks[1] / clocks[0])
    attribution = _attribution(series, epoch, slower, cycles, before, after)
    if attribution in ("code", "unknown") and _same_build(record(series, good), record(series, step.last)):
        attribution = "environment"
    return Change(
        id=change_id(series.card, case.name, case.metric, commits[int(series.positions[step.at])].hash),
        card=series.card,
        case=case.name,
        kind=_kind(attribution, slower),
        attribution=attribution,
        at=step.at,
        first=step.first,
        last=step.last,
        good=int(series.positions[good]),
        bad=int(series.positions[step.last]),
        before=step.before,
        after=step.after,
        effect=step.effect,
        low=step.low,
        high=step.high,
        p_value=step.p_value,
        cycles_effect=None if cycles is None else math.expm1(cycles),
        clock_before=clocks[0],
        clock_after=clocks[1],
        static=_static(before, after),
        epoch=epoch,
    )


def _log_time(series: Series, value: float) -> float:
    """A level as the logarithm of something of which less is better."""
    return -math.log(value) if series.case.direction == "higher" else math.log(value)


def _beside(series: Series, own: npt.NDArray[np.bool_], start: int, stop: int) -> dict[str, float]:
    """Medians of what stood beside the figure in points start..stop of one epoch."""
    there = own[start:stop] & np.isfinite(series.values[start:stop])
    figures_there = {name: figures[start:stop][there] for name, figures in series.beside.items()}
    known = {name: figures[np.isfinite(figures)] for name, figures in figures_there.items()}
    return {name: float(np.median(figures)) for name, figures in known.items() if figures.size}


def _attribution(
    series: Series,
    epoch: int,
    slower: float,
    cycles: float | None,
    before: dict[str, float],
    after: dict[str, float],
) -> Attribution:
    """Whether the clock explains a change: time is cycles over clock, so cycles stay where only it moved."""
    if series.case.metric in BUILT:
        return "code"
    if cycles is None:
        return "unknown"
    moved = cycles - slower
    explains = moved * slower < 0 and abs(moved) > _CLOCK_APART and abs(cycles) < _SHARE * abs(slower)
    if not explains:
        return "code"
    slow, fast = (after, before) if moved < 0 else (before, after)
    if slow.get("temperature_c", 0.0) - fast.get("temperature_c", math.inf) > _WARMER_C:
        return "thermal"
    try:
        limit_w = float(series.epochs[epoch].context["power_limit_w"])
    except (KeyError, ValueError):
        return "clocks"
    return "power" if slow.get("power_w", 0.0) > _AT_LIMIT * limit_w else "clocks"


def _same_build(before: Row | None, after: Row | None) -> bool:
    """Whether the same binary, or the same source without one, was launched in the same way on both sides."""
    if before is None or after is None or before.launch != after.launch:
        return False
    binaries = [row.resources.binary_sha256 if row.resources else None for row in (before, after)]
    if all(binaries):
        return binaries[0] == binaries[1]
    return bool(before.source_sha256) and before.source_sha256 == after.source_sha256


def _kind(attribution: Attribution, slower: float) -> Kind:
    if attribution not in ("code", "unknown"):
        return "environment"
    return "regression" if slower > 0 else "improvement"


def _static(before: dict[str, float], after: dict[str, float]) -> tuple[str, ...]:
    names = {"registers": "registers", "local_bytes": "bytes of local memory"}
    return tuple(
        f"{words} {before[name]:g} → {after[name]:g}"
        for name, words in names.items()
        if name in before and name in after and before[name] != after[name]
    )


def _clocked(series: Series) -> tuple[int, ...]:
    clock = series.beside.get("sm_clock_mhz")
    if clock is None:
        return ()
    usual = np.full(clock.size, np.nan)
    for number in range(len(series.epochs)):
        own = (series.epoch == number) & np.isfinite(clock)
        if own.any():
            usual[own] = np.median(clock[own])
    return tuple(np.flatnonzero(clock < _CLOCKED * usual).tolist())
