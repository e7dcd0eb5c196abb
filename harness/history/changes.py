"""Finds the changes of a series: what changed, when, by how much, and whether the code or the
card caused it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from harness.history.asv_limits import Limit
from harness.history.figures import HEADLINES, Direction, Floats, SeriesCase, is_rate, timed_effect
from harness.history.series import Series, Shift
from harness.history.sources.our_records import Commits
from harness.judgement.statistics.changepoints import (
    Brief,
    ChangePoint,
    Level,
    Newest,
    Segmentation,
    exact_changes,
    find_changes,
)
from harness.judgement.statistics.drift import Drift, find_drift
from harness.judgement.statistics.group import Hint, confirmed
from harness.judgement.statistics.windows import LEVEL
from harness.records.types import Diagnosis, Row

Kind = Literal["regression", "improvement", "environment", "drift", "change"]
"""Kind of a change. It is `change` if better and worse are unknown."""
Attribution = Literal["code", "clocks", "thermal", "power", "environment", "unknown"]
Ints = npt.NDArray[np.int64]

SMALLEST = 0.01
"""Smallest relevant change of a case that was never calibrated."""
TIMED = (*HEADLINES.values(), "time_ms")
"""Metrics that cycles can be computed for."""
BUILT = ("registers", "local_bytes", "spill_bytes", "occupancy_percent", "loop_instructions")
"""Metrics that the build alone decides: they have no noise, and no card affects them."""
SIGNIFICANCE = 0.001
"""Largest p-value of a change. A history is searched again after every commit, so noise has many chances:
docs/history.md has the measured error rates of both limits."""
SIGNIFICANCE_OF_FEW = 0.002
"""The same for fewer points than MANY, which means fewer searches and a poorly known noise."""
MANY = 40
_WINDOW = 30
"""Most points on each side of a change from which companion values are taken."""
_DRIFT = 12
"""The same for each end of a drift."""
_NOTHING = 1e-300
"""Replaces a sum of squares that is 0."""
_CLOCK_APART = 0.004
"""Smallest relevant change of the clock. A step of 15 MHz is 0.75 % at 2 GHz, and medians vary less."""
_SHARE = 1 / 3
"""Share of a change that may remain in cycles if the clock explains the change."""
_WARMER_C = 5.0
_AT_LIMIT = 0.95
_ENOUGH, _FEWEST = 10, 3
"""Points of an epoch from which its noise is well known, and below which it is unknown."""
_CLOCKED = 0.97
"""Share of an epoch's usual clock below which a point is shown as disturbed by its clock."""


RecordOf = Callable[[Series, int], Row | None]
"""Returns the row of a record for a point of a series; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(ChangePoint):
    """A step of a series. `at`, `first` and `last` are points; `good` and `bad` are positions of commits."""

    id: str
    card: str
    case: str
    kind: Kind
    attribution: Attribution
    good: int
    """Commit of the last point that certainly precedes the change."""
    bad: int
    """Commit of the first point that certainly follows the change: the change is in good+1..bad."""
    cycles_effect: float | None = None
    """Effect on the cycles of a launch; None if the clock is unknown."""
    clock_before: float | None = None
    clock_after: float | None = None
    static: tuple[str, ...] = ()
    """Changes in the build, such as "registers 40 → 64"."""
    shifts: tuple[Shift, ...] = ()
    """Changes at that point in how the case was measured."""
    epoch: int = 0
    compared: bool = False
    """True if a comparison of two commits found the change, or narrowed its range."""
    diagnosis: Diagnosis | None = None
    """The reason that such a comparison found; None where nobody asked for it."""

    @property
    def commits(self) -> int:
        return self.bad - self.good

    @property
    def size(self) -> float:
        """Return the absolute logarithm of the ratio, to sort by."""
        return abs(math.log1p(max(self.effect, -0.999)))

    @property
    def sure_size(self) -> float:
        """Return the size at the end of the interval nearest to no change; 0 if the interval includes no
        change.
        """
        if not self.low * self.high > 0:
            return 0.0
        return abs(math.log1p(max(min(self.low, self.high, key=abs), -0.999)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    series: Series
    changes: tuple[Change, ...]
    levels: tuple[Level, ...]
    outliers: tuple[int, ...]
    clocked: tuple[int, ...]
    """Points whose clock was well below the usual one."""
    noise: float
    floor: float
    """Smallest change that counts."""
    candidates: tuple[Change, ...] = ()
    """Steps that are not certain by themselves, and count if another card certainly has the same step."""
    unjudged: Change | None = None
    """The newest points, if they are off their level and too few for a verdict. Interval and
    p-value are NaN."""
    limit: Limit | None = None
    """Regressions of this series that asv's configuration hides."""


def timed(change: Change, case: SeriesCase) -> Change:
    """Return a change with its size as a change of time if the figure is a rate: a plus is slower."""
    if not is_rate(case):
        return change
    effect, high, low = (timed_effect(each, case) for each in (change.effect, change.low, change.high))
    return replace(change, effect=effect, low=low, high=high)


def change_id(card: str, case: str, metric: str, commit: str) -> str:
    """Return the id of a change, by the first commit that certainly has it."""
    return hashlib.sha256(repr((card, case, metric, commit)).encode()).hexdigest()[:10]


def analyse(
    series: Series,
    floor: float | None,
    commits: Commits,
    record: RecordOf = lambda _series, _point: None,
    limit: Limit | None = None,
) -> Analysed:
    """Search each epoch separately. A difference between two epochs is no change of either.

    `floor` is the smallest visible change from the card's calibration, or None. `record` returns the record
    of a point's build. `limit` is stored in the result; if its threshold is below SMALLEST, changes of that
    size are searched for.
    """
    smallest = floor or min(SMALLEST, (limit and limit.threshold) or SMALLEST)
    searched = series.case.direction != "none"
    epochs = range(len(series.epochs) if searched else 0)
    found = [_search(series, number, smallest, commits, record) for number in epochs]
    return Analysed(
        series=series,
        changes=tuple(sorted((each for one in found for each in one.changes), key=lambda change: change.at)),
        levels=tuple(sorted((each for one in found for each in one.levels), key=lambda level: level.start)),
        outliers=tuple(sorted(at for one in found for at in one.outliers)),
        clocked=_clocked(series) if searched else (),
        noise=0.0 if _is_exact(series) and found else _noise([(one.figures, one.noise) for one in found]),
        floor=smallest,
        candidates=tuple(each for one in found for each in one.candidates),
        unjudged=next((one.unjudged for one in found if one.unjudged), None),
        limit=limit,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchedEpoch:
    """Steps found in one epoch."""

    changes: tuple[Change, ...]
    candidates: tuple[Change, ...]
    unjudged: Change | None
    """The newest points, if they are off their level; only for the newest epoch."""
    levels: tuple[Level, ...]
    outliers: tuple[int, ...]
    figures: int
    noise: float


def _is_exact(series: Series) -> bool:
    """Return True if the values have no noise, so that a single point suffices."""
    return series.case.metric in BUILT


def _search(
    series: Series, number: int, smallest: float, commits: Commits, record: RecordOf
) -> _SearchedEpoch:
    points = np.flatnonzero(series.epoch == number)
    values = series.values[points]
    significance = SIGNIFICANCE if points.size >= MANY else SIGNIFICANCE_OF_FEW
    if _is_exact(series):
        found = exact_changes(values)
    else:
        found = find_changes(values, smallest=smallest, significance=significance)
        found = _with_brief(found, series, values)
    is_newest = number == series.epoch[-1]
    slide = _slide(series, values, smallest, found.changes) if is_newest and not _is_exact(series) else None
    steps = [step for step in found.changes if not (slide and _is_part(step, slide))]
    edges = [0, *(step.at for step in steps), points.size]

    def change(step: ChangePoint, kind: Kind | None = None) -> Change:
        low = max(edge for edge in edges if edge < step.at) if kind is None else 0
        high = min(edge for edge in edges if edge > step.at)
        beside = int(points[low]), int(points[high - 1]) + 1
        return _change(series, _placed(step, points), *beside, number, commits, record, kind)

    changes = list(map(change, steps))
    if slide:
        changes.append(change(_step_of(slide, values), "drift"))
    newest = _newest_of(slide, values, smallest) if slide else found.newest
    early = newest if is_newest and newest and newest.at not in edges else None
    unsure = _unsure(early.at, values[edges[-2] :], edges[-2]) if early else None
    return _SearchedEpoch(
        changes=tuple(changes),
        candidates=tuple(map(change, found.candidates)),
        unjudged=change(unsure) if unsure else None,
        levels=tuple(_placed_level(level, points) for level in found.levels),
        outliers=tuple(points[list(found.outliers)].tolist()),
        figures=int(np.isfinite(values).sum()),
        noise=found.noise,
    )


def with_confirmed(analysed: Analysed, ids: Collection[str]) -> Analysed:
    """Return the same with the candidates of these ids as changes. They settle newest points at
    that place.
    """
    counting = [each for each in analysed.candidates if each.id in ids]
    left = tuple(each for each in analysed.candidates if each.id not in ids)
    early = analysed.unjudged
    judged = early is not None and any(each.at == early.at for each in counting)
    unjudged = None if judged else early
    return with_changes(replace(analysed, candidates=left, unjudged=unjudged), counting)


def with_changes(analysed: Analysed, changes: Sequence[Change]) -> Analysed:
    """Return the same with more changes. Each divides the level that contains it."""
    levels = _divided(analysed.levels, changes, analysed.series.values)
    in_order = tuple(sorted((*analysed.changes, *changes), key=lambda change: change.at))
    return replace(analysed, changes=in_order, levels=levels)


Evidence = tuple[str, Hint]
"""Id of a change or candidate, with its properties for other cards."""


def evidence_of(analysed: Iterable[Analysed]) -> list[Evidence]:
    """Return the changes and candidates of cards, so that other cards can be compared with them."""
    return [
        (change.id, _hint(change, sure=change in one.changes))
        for one in analysed
        for change in (*one.changes, *one.candidates)
        if change.kind != "drift"
    ]


def _hint(change: Change, *, sure: bool) -> Hint:
    place = {"machine": change.card, "case": change.case}
    return Hint(**place, good=change.good, bad=change.bad, effect=change.effect, sure=sure)


def confirmed_by(evidence: Sequence[Evidence]) -> frozenset[str]:
    """Return the ids of candidates that count, because another card certainly has the same change in the same
    case.
    """
    return frozenset(evidence[index][0] for index in confirmed([hint for _, hint in evidence]))


def _divided(levels: tuple[Level, ...], steps: Iterable[ChangePoint], values: Floats) -> tuple[Level, ...]:
    """Return the levels, divided at the steps."""
    for step in steps:
        levels = tuple(part for level in levels for part in _halves(level, step, values))
    return levels


def _halves(level: Level, step: ChangePoint, values: Floats) -> Iterator[Level]:
    """Yield a level, or its two parts if it contains the step."""
    if not level.start < step.at < level.stop:
        yield level
        return
    for start, stop, beside in ((level.start, step.at, step.before), (step.at, level.stop, step.after)):
        figures = values[start:stop][np.isfinite(values[start:stop])]
        middle = float(np.median(figures)) if figures.size else beside
        yield replace(level, start=start, stop=stop, level=middle)


def _placed(step: ChangePoint, points: Ints) -> ChangePoint:
    return replace(step, at=int(points[step.at]), first=int(points[step.first]), last=int(points[step.last]))


def _placed_level(level: Level, points: Ints) -> Level:
    return replace(level, start=int(points[level.start]), stop=int(points[level.stop - 1]) + 1)


def _with_brief(found: Segmentation, series: Series, values: Floats) -> Segmentation:
    """Return the segmentation with two steps and a level for each brief stretch that was worse."""
    worse = [one for one in found.brief if _is_worse(series, one.effect)]
    known = {step.at for step in found.changes}  # a stretch may end in a lasting level
    steps = [step for one in worse for step in _steps_of(one, values) if step.at not in known]
    within = {at for one in worse for at in range(one.start, one.stop)}
    return replace(
        found,
        changes=tuple(sorted((*found.changes, *steps), key=lambda step: step.at)),
        levels=_divided(found.levels, steps, values),
        outliers=tuple(at for at in found.outliers if at not in within),
    )


def _steps_of(one: Brief, values: Floats) -> tuple[ChangePoint, ChangePoint]:
    inside = _middle(values[one.start : one.stop])
    beside = inside / (1 + one.effect)
    back = one.stop + int(np.flatnonzero(np.isfinite(values[one.stop :]))[0])
    ends = 1 / (1 + one.high) - 1, 1 / (1 + one.low) - 1
    return (
        _step(one.start, beside, inside, one.low, one.high, one.p_value),
        _step(back, inside, beside, *ends, one.p_value),
    )


def _unsure(at: int, values: Floats, start: int) -> ChangePoint:
    """Return the step to the newest points, from the end of the level that starts at `start`."""
    before = values[: at - start]
    known = before[np.isfinite(before) & (before > 0)]
    return _step(at, _middle(known[-LEVEL:]), _middle(values[at - start :]), math.nan, math.nan, math.nan)


def _middle(values: Floats) -> float:
    """Return the median of the searched points. Zeros, which some tracks have, are skipped: they have no
    ratio.
    """
    return float(np.median(values[np.isfinite(values) & (values > 0)]))


def _step(at: int, before: float, after: float, low: float, high: float, p_value: float) -> ChangePoint:
    return ChangePoint(
        at=at,
        first=at,
        last=at,
        before=before,
        after=after,
        effect=after / before - 1,
        low=low,
        high=high,
        p_value=p_value,
    )


def _slide(series: Series, values: Floats, smallest: float, steps: Sequence[ChangePoint]) -> Drift | None:
    """Return the drift for the worse of the newest points, unless steps explain it better than a line."""
    found = find_drift(values, smallest=smallest)
    if found is None or not _is_worse(series, found.effect):
        return None
    there = _figures_of(found, values)
    logs = np.log(values[there])
    level = np.searchsorted([step.at for step in steps], there, side="right")
    by_steps = sum(_deviation(logs[level == each]) for each in np.unique(level))
    # Schwarz's criterion: each level costs two parameters, its height and its place, and so does the line.
    # Use exponential noise. With squares, a few outliers would dominate, and the rest would count for
    # nothing.
    more = 2 * np.unique(level).size - 1 - 2
    by_line = _deviation(logs - _line(found, logs.size))
    gain = 2 * logs.size * math.log(max(by_line, _NOTHING) / max(by_steps, _NOTHING))
    return found if gain < more * math.log(logs.size) else None


def _deviation(logs: Floats) -> float:
    """Return the sum of the distances of points from their median."""
    return float(np.abs(logs - np.median(logs)).sum())


def _is_part(step: ChangePoint, slide: Drift) -> bool:
    """Return True if a step is a part of a drift."""
    return slide.start < step.at < slide.stop and step.effect * slide.effect > 0


def _newest_of(slide: Drift, values: Floats, smallest: float) -> Newest | None:
    """Return the newest points that are off the drift. All of its points are off the level before it."""
    there = _figures_of(slide, values)
    newest = find_changes(values[there] / np.exp(_line(slide, there.size)), smallest=smallest).newest
    return newest and replace(newest, at=int(there[newest.at]))


def _figures_of(slide: Drift, values: Floats) -> Ints:
    window = values[slide.start : slide.stop]
    return slide.start + np.flatnonzero(np.isfinite(window) & (window > 0))


def _line(slide: Drift, count: int) -> Floats:
    """Return the drift over `count` points, as logarithms. Its ends are the middles of the first and last of
    ten blocks.
    """
    return math.log1p(slide.effect) / 0.9 * np.linspace(0, 1, count)


def _step_of(slide: Drift, values: Floats) -> ChangePoint:
    """Return the step from the best level to the newest point."""
    about = values[max(0, slide.best - _DRIFT // 2) : slide.best + _DRIFT // 2 + 1]
    best = float(np.nanmedian(about))
    step = _step(slide.best, best, best * (1 + slide.effect), slide.low, slide.high, slide.p_value)
    return replace(step, first=slide.best + 1, last=slide.stop - 1)


def _is_worse(series: Series, effect: float) -> bool:
    """Return True if an effect is for the worse; False if better and worse are unknown."""
    return series.case.direction == ("higher" if effect < 0 else "lower")


def _noise(epochs: list[tuple[int, float]]) -> float:
    """Return the noise of the newest epoch with enough points, else of the longest; NaN if that is too short.

    `epochs` are pairs of the number of points and the noise.
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
    kind: Kind | None,
) -> Change:
    own, case = series.epoch == epoch, series.case
    # A drift has two places, its start and its end, instead of two sides.
    reach, back = (_DRIFT, _DRIFT) if kind == "drift" else (_WINDOW, 0)
    before = _beside(series, own, max(low, step.first - reach), step.first)
    after = _beside(series, own, max(low, step.last - back), min(high, step.last + reach))
    # A level exists: a change has a level before it.
    good = int(np.flatnonzero(own[: step.first] & np.isfinite(series.values[: step.first]))[-1])
    slower = _slower(series, step)
    clocks = before.get("sm_clock_mhz"), after.get("sm_clock_mhz")
    cycles = None
    if case.metric in TIMED and clocks[0] and clocks[1]:
        cycles = slower + math.log(clocks[1] / clocks[0])
    attribution = _attribution(series, epoch, slower, cycles, before, after)
    if attribution in ("code", "unknown") and same_build(record(series, good), record(series, step.last)):
        attribution = "environment"
    named = low if kind == "drift" else step.at  # the best place may move with each point
    found = _kind(attribution, slower, case.direction)
    return Change(
        id=change_id(series.card, case.name, case.metric, commits[int(series.positions[named])].hash),
        card=series.card,
        case=case.name,
        kind=kind if kind and found != "environment" else found,
        attribution=attribution,
        good=int(series.positions[good]),
        bad=int(series.positions[step.last]),
        **asdict(step),
        cycles_effect=None if cycles is None else math.expm1(cycles),
        clock_before=clocks[0],
        clock_after=clocks[1],
        static=_static(before, after),
        shifts=tuple(each for each in series.shifts if kind is None and step.first <= each.at <= step.last),
        epoch=epoch,
    )


def unreported(analysed: Analysed, change: Change) -> str:
    """Return why asv's configuration hides a change for the worse; empty if it does not.

    A change below the threshold still counts in one case, as in asv: the newest level exceeds the level
    before the change by more than the threshold, and no later change reports that.
    """
    limit = analysed.limit
    if limit is None:
        return ""
    if limit.off_pattern:
        return limit.of_off
    if change.good < limit.first:
        return limit.of_first
    if limit.threshold is None or _growth(analysed, change) > limit.threshold:
        return ""
    if change.id in _exceeding(analysed, change.epoch, limit.threshold):
        return ""
    return limit.of_threshold


def _growth(analysed: Analysed, change: Change) -> float:
    """Return the relative growth of the time, or of another cost."""
    if analysed.series.case.metric in BUILT:  # the level may be 0
        return abs(change.effect)
    return math.expm1(_slower(analysed.series, change))


def _exceeding(analysed: Analysed, epoch: int, threshold: float) -> set[str]:
    """Return the ids of the steps that asv reports, searched like asv from the newest level backwards."""
    series, found = analysed.series, set[str]()
    steps = [each for each in analysed.changes if each.epoch == epoch and each.kind != "drift"]
    if not steps or series.case.metric in BUILT:
        return found
    newest = _log_time(series, steps[-1].after)
    for step in reversed(steps):
        before = _log_time(series, step.before)
        if newest - before > math.log1p(threshold):
            found.add(step.id)
            newest = before
    return found


def _slower(series: Series, step: ChangePoint) -> float:
    """Return the slowdown as a logarithm; for a value of the build, which may be 0, only its sign."""
    if series.case.metric in BUILT:
        return math.copysign(1.0, step.effect if series.case.direction != "higher" else -step.effect)
    return _log_time(series, step.after) - _log_time(series, step.before)


def _log_time(series: Series, value: float) -> float:
    """Return the logarithm of a level, converted so that less is better."""
    return -math.log(value) if series.case.direction == "higher" else math.log(value)


def _beside(series: Series, own: npt.NDArray[np.bool_], start: int, stop: int) -> dict[str, float]:
    """Return the medians of the companion values in points start..stop of one epoch."""
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
    """Return the attribution of a change: to the clock, if cycles stayed the same and the clock changed."""
    if series.case.metric in BUILT:
        return "code"
    if cycles is None:
        return "unknown"
    moved = cycles - slower
    if abs(moved) <= _CLOCK_APART or abs(cycles) >= _SHARE * abs(slower):
        return "code"
    slow, fast = (after, before) if moved < 0 else (before, after)
    if slow.get("temperature_c", 0.0) - fast.get("temperature_c", math.inf) > _WARMER_C:
        return "thermal"
    try:
        limit_w = float(series.epochs[epoch].context["power_limit_w"])
    except (KeyError, ValueError):
        return "clocks"
    return "power" if slow.get("power_w", 0.0) > _AT_LIMIT * limit_w else "clocks"


def same_build(before: Row | None, after: Row | None) -> bool:
    """Return whether both sides launched the same code in the same way.

    The code is the instructions if they can be separated from the rest of a binary, else the binary, or the
    source without a binary.
    """
    if before is None or after is None or before.launch != after.launch:
        return False
    built = [row.resources for row in (before, after)]
    binaries = [each and (each.code_sha256 or each.binary_sha256) for each in built]
    if all(binaries):
        return binaries[0] == binaries[1]
    return bool(before.source_sha256) and before.source_sha256 == after.source_sha256


def _kind(attribution: Attribution, slower: float, direction: Direction) -> Kind:
    if attribution not in ("code", "unknown"):
        return "environment"
    if direction == "unknown":
        return "change"
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
