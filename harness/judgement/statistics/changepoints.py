"""Finds where the level of a series changed, by how much and with which confidence. A point is a commit.

A change is a relative step that stays. Outliers, slow drift and autocorrelated noise are not changes. A short
stretch that came back is reported separately.

`exact` searches a series of up to 255 points for the best division. `windows` searches a longer series, and a
series without noise, such as a count of registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from harness.judgement.statistics.exact import LONGEST, ExactSearch, strays_of_few
from harness.judgement.statistics.paired import Floats, median
from harness.judgement.statistics.summary import CONFIDENCE
from harness.judgement.statistics.windows import (
    CLIP,
    FEWEST_QUIET,
    LEVEL,
    MOST_LOG,
    Q80,
    ROUNDING,
    Bools,
    Ints,
    LevelShift,
    WindowSearch,
    clipped,
    huber,
    is_quiet,
    mean_variance,
    relative,
    without_strays,
)

BRIEF = 6
"""Most points of a stretch that came back. A longer stretch is a level."""

_BACK = 0.5
"""Share of a stretch's effect that may remain after it came back."""
_FEWEST_FREE = 4
"""Points beyond one for each level that are needed to estimate the noise."""
_OFF = (3.3, 2.6, 2.2)
"""Standard deviations from the level beyond which the newest point, each of two, or each of more,
is off it."""
_OFF_UNKNOWN = 5.0
"""The same in smallest relevant changes, if the noise is unknown."""
_USUAL = 0.05
"""Share of the earlier points that may be as far from the level."""
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Half-width of a displayed interval, in standard deviations of a normal variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A step from one level to another. Indices refer to the values passed in, and levels have their unit."""

    at: int
    """Index of the first value of the new level."""
    first: int
    last: int
    """The new level began within first..last, inclusive, with 95 % confidence.

    `first` comes right after the last point of the old level, so it may be an index without a point.
    """
    before: float
    after: float
    """Levels beside the step, each from at most 50 points."""
    effect: float
    """after / before - 1."""
    low: float
    high: float
    """The ends of the effect's 99.9 % interval."""
    p_value: float
    """Upper bound of the probability that noise alone has a step as clear anywhere in 200 points.

    For the last step it holds for the series as it ends now. Looking after every new point means looking 200
    times.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The stretch between two changes: values[start:stop]."""

    start: int
    stop: int
    level: float
    """The median, in the values' unit."""
    sd: float
    """Robust relative standard deviation of a point from the level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A short stretch values[start:stop] off the level, after which the level came back."""

    start: int
    stop: int
    effect: float
    """Level of the stretch over the level beside it, minus 1."""
    low: float
    high: float
    """The ends of the effect's 99.9 % interval."""
    p_value: float
    """Upper bound of the probability that noise alone has a stretch as far off anywhere in 200 points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest points are off the level before them, too few for a verdict."""

    at: int
    """Index of the first of these points."""
    effect: float
    """Median of these points over the level before them, minus 1."""
    figures: int
    """Number of these points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segmentation:
    changes: tuple[ChangePoint, ...]
    levels: tuple[Level, ...]
    """Levels between the changes, one more than there are changes; empty without points."""
    outliers: tuple[int, ...]
    """Indices of excluded points: outliers, and the points of brief stretches."""
    noise: float
    """Robust relative standard deviation of a point from its level.

    NaN (unknown) if there are fewer than four points beyond one for each level.
    """
    autocorrelation: float
    """Autocorrelation of the noise between successive points, 0 to 0.95; 0 if unknown."""
    candidates: tuple[ChangePoint, ...] = ()
    """Other places with a p-value of at most CANDIDATE, each by itself. They divide no level.

    Together with other series they may count as evidence.
    """
    brief: tuple[Brief, ...] = ()
    """Stretches that came back. Their points are among the outliers."""
    newest: Newest | None = None


def find_changes(values: ArrayLike, *, smallest: float = 0.01, significance: float = 0.015) -> Segmentation:
    """Return the changes of level in `values`, a 1-D array in the order of commits.

    Values that are not finite or not positive are skipped. `smallest` is the smallest relative change worth a
    report: a change estimated to be smaller is left out, however certain. A drift of that size over 200
    points is no change either. `significance` is the largest p-value reported. A level has at least three
    points, or two if the series has no noise. Raises ValueError for an array that is not 1-D.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"values have {array.ndim} axes; expected one.")
    place = np.flatnonzero((array > 0) & (array < math.inf))
    if place.size == 0:
        return Segmentation(changes=(), levels=(), outliers=(), noise=math.nan, autocorrelation=0.0)
    logs = np.log(array[place])
    floor = math.log1p(smallest) / 20
    kept, rough, is_short = _kept(logs, floor)
    brief: list[Brief] = []
    while True:
        search: ExactSearch | WindowSearch
        if is_short:
            search = ExactSearch(logs, kept, floor, smallest, significance)
        else:
            search = WindowSearch(logs[kept], rough[kept], floor, smallest, significance)
        steps = search.steps()
        came_back = _came_back(search, steps)
        if not came_back:
            break
        for one, two in came_back:
            brief.append(_brief(search, one, two, place[kept]))
        places = np.flatnonzero(kept)
        for one, two in came_back:
            kept[places[one.at : two.at]] = False
    index = place[kept]
    changes = tuple(_change(search, step, index) for step in steps)
    known = index.size - len(steps) - 1 >= _FEWEST_FREE
    newest = _newest(logs, kept, place, changes, search, known=known)
    return Segmentation(
        changes=changes,
        levels=_levels(
            search.logs, [step.at for step in steps], [change.at for change in changes], array.size
        ),
        outliers=tuple(place[~kept & (place < (newest.at if newest else array.size))].tolist()),
        noise=float(np.median(search.noise.raw)) if known else math.nan,
        autocorrelation=float(np.median(search.noise.rho)) if known else 0.0,
        candidates=_candidates(changes, [_change(search, step, index) for step in search.hints()]),
        brief=tuple(sorted(brief, key=lambda one: one.start)),
        newest=newest,
    )


def exact_changes(values: ArrayLike) -> Segmentation:
    """Return the changes of values without noise, such as facts of a build: every difference counts.

    Values that are not finite are skipped; 0 is valid. The effect of a step from 0 is 1, since it has no
    ratio.
    """
    array = np.asarray(values, dtype=np.float64)
    place = np.flatnonzero(np.isfinite(array))
    starts = [at for at, figure in enumerate(array[place]) if not at or figure != array[place[at - 1]]]
    edges = [*starts, place.size]
    levels = tuple(
        Level(start=int(place[low]), stop=int(place[high - 1]) + 1, level=float(array[place[low]]), sd=0.0)
        for low, high in pairwise(edges)
    )
    changes = tuple(_exact_change(old, new) for old, new in pairwise(levels))
    return Segmentation(changes=changes, levels=levels, outliers=(), noise=0.0, autocorrelation=0.0)


def _exact_change(old: Level, new: Level) -> ChangePoint:
    effect = new.level / old.level - 1 if old.level else 1.0
    return ChangePoint(
        at=new.start,
        first=old.stop,
        last=new.start,
        before=old.level,
        after=new.level,
        effect=effect,
        low=effect,
        high=effect,
        p_value=0.0,
    )


def _kept(logs: Floats, floor: float) -> tuple[Bools, Bools, bool]:
    """Return which points are kept, which are so often outliers that they count as noise, and if the search
    is short.

    The short search is for a short series with noise.
    """
    kept, rough = without_strays(logs, floor)
    unlike = np.array([float(np.count_nonzero(np.abs(np.diff(logs)) > ROUNDING))])
    is_short = logs.size <= LONGEST and not bool(is_quiet(unlike, np.array([float(logs.size)]))[0])
    return (strays_of_few(logs, kept) if is_short else kept), rough, is_short


def _came_back(
    search: ExactSearch | WindowSearch, steps: Sequence[LevelShift]
) -> list[tuple[LevelShift, LevelShift]]:
    """Return pairs of steps with a few points between them, of which the second reverses the first.

    A further search leaves these points out. Without noise, two points are a level.
    """
    edges = [0, *(step.at for step in steps), search.logs.size]
    levels = [median(search.logs[a:b]) for a, b in pairwise(edges)]
    found = []
    for k, (one, two) in enumerate(pairwise(steps)):
        there, back = levels[k + 1] - levels[k], levels[k + 2] - levels[k + 1]
        is_few = two.at - one.at <= BRIEF and search.noise.fewest[search.block(one.at)] != FEWEST_QUIET
        if is_few and abs(there + back) < _BACK * max(abs(there), abs(back)):
            found.append((one, two))
    # In 1 2 1 2 1 every stretch is equally brief. The first and third are removed, and the second is brief no
    # more.
    return [pair for k, pair in enumerate(found) if k == 0 or pair[0] is not found[k - 1][1]]


def _levels(logs: Floats, cuts: Sequence[int], starts: Sequence[int], count: int) -> tuple[Level, ...]:
    levels = []
    edges = zip(pairwise([0, *cuts, logs.size]), pairwise([0, *starts, count]), strict=True)
    for (low, high), (start, stop) in edges:
        part = logs[low:high]
        level = median(part)
        off, rank = np.abs(part - level), int(0.8 * (part.size - 1))
        sd = float(np.partition(off, rank)[rank]) / Q80
        levels.append(Level(start=start, stop=stop, level=math.exp(level), sd=sd))
    return tuple(levels)


def _change(search: ExactSearch | WindowSearch, step: LevelShift, index: Ints) -> ChangePoint:
    """Return a step as a change point. `index` has each point's index in the values."""
    low, high = max(step.low, step.at - LEVEL), min(step.high, step.at + LEVEL)
    beside = search.beside(low, step.at, high)
    off = beside.after - beside.before
    margin = _margin(beside.error, beside.df)
    first, last = _began(search.logs[low:high], step.at - low, beside.sd, beside.rho)
    return ChangePoint(
        at=int(index[step.at]),
        first=int(index[low + first - 1]) + 1,
        last=int(index[low + last]),
        before=math.exp(min(beside.before, MOST_LOG)),
        after=math.exp(min(beside.after, MOST_LOG)),
        effect=relative(off),
        low=relative(off - margin),
        high=relative(off + margin),
        p_value=step.p_value,
    )


def _candidates(changes: Sequence[ChangePoint], hints: Sequence[ChangePoint]) -> tuple[ChangePoint, ...]:
    """Return the hints that are neither a change nor a weaker form of another hint."""
    chosen: list[ChangePoint] = list(changes)
    for hint in sorted(hints, key=lambda one: one.p_value):
        if all(hint.first > other.last or hint.last < other.first for other in chosen):
            chosen.append(hint)
    return tuple(sorted(chosen[len(changes) :], key=lambda one: one.at))


def _margin(error: float, df: float) -> float:
    """Return half of a displayed interval."""
    return _t_of(_Z, df) * error


def _brief(search: ExactSearch | WindowSearch, one: LevelShift, two: LevelShift, index: Ints) -> Brief:
    """Return the stretch between two steps, compared with the levels beside it."""
    logs = search.logs
    around = np.concatenate((logs[one.low : one.at][-LEVEL:], logs[two.at : two.high][:LEVEL]))
    inside = logs[one.at : two.at]
    off = median(inside) - median(around)
    beside = search.beside(max(one.low, one.at - LEVEL), one.at, two.at)
    variance = mean_variance(inside.size, beside.rho) + mean_variance(around.size, beside.rho)
    margin = _margin(beside.sd * math.sqrt(variance), beside.df)
    return Brief(
        start=int(index[one.at]),
        stop=int(index[two.at - 1]) + 1,
        effect=relative(off),
        low=relative(off - margin),
        high=relative(off + margin),
        p_value=max(one.p_value, two.p_value),
    )


def _newest(
    logs: Floats,
    kept: Bools,
    place: Ints,
    changes: Sequence[ChangePoint],
    search: ExactSearch | WindowSearch,
    *,
    known: bool,
) -> Newest | None:
    """Return the last points that all lie off the level before them, on one side, and are no change yet."""
    own = np.flatnonzero(place >= (changes[-1].at if changes else 0))
    block = search.block(search.logs.size - 1)
    sd, df = float(search.noise.sd[block]), float(search.noise.df[block])
    for count in range(min(BRIEF, own.size - 1), 0, -1):
        earlier, last = own[:-count][-LEVEL:], logs[own[-count:]]
        before = logs[earlier]
        level = median(before[kept[earlier]] if kept[earlier].any() else before)
        off = last - level
        side = np.sign(off[0])
        least = float((side * off).min())
        limit = _OFF_UNKNOWN * math.log1p(search.smallest)
        if known and before.size > _FEWEST_FREE:
            limit = max(sd * _t_of(_OFF[min(count, len(_OFF)) - 1], df), math.log1p(search.smallest))
            usual = side * (before - level) >= least
            if np.count_nonzero(usual) > _USUAL * before.size:
                continue
        if least > limit:
            return Newest(at=int(place[own[-count]]), effect=relative(median(off)), figures=count)
    return None


def _t_of(z: float, df: float) -> float:
    """Return the Student's t with the tail probability of the normal `z`, by the inverse of `as_normal`."""
    return math.sqrt(df * math.expm1((z * (8 * df + 3) / (8 * df + 1)) ** 2 / df))


def _began(logs: Floats, at: int, sd: float, rho: float) -> tuple[int, int]:
    """Return the first and last place with 95 % of the likelihood of a step in `logs`; `at` is among them.

    The likelihood is that of an autoregression's innovations, with known levels and clipped squares.
    """
    old, new = logs - huber(logs[:at], sd), logs - huber(logs[at:], sd)
    limit = CLIP * sd * math.sqrt(1 - rho**2)
    stayed = clipped(old[1:] - rho * old[:-1], limit) ** 2
    came = clipped(new[1:] - rho * old[:-1], limit) ** 2
    went = clipped(new[1:] - rho * new[:-1], limit) ** 2
    # With the step at k, points before k stayed at the old level, point k changed, and later points
    # continued.
    cost = np.cumsum(stayed) - stayed + came + np.cumsum(went[::-1])[::-1] - went
    weight = np.exp((cost.min() - cost) / (2 * sd**2 * (1 - rho**2)))
    order = np.argsort(-weight, kind="stable")
    enough = int(np.searchsorted(np.cumsum(weight[order]), 0.95 * weight.sum())) + 1
    inside = order[:enough] + 1
    return min(int(inside.min()), at), max(int(inside.max()), at)
