"""Where in a series of figures, one a commit, the level changed, by how much and how surely.

Figures are taken as logarithms: a change is relative. What is looked for is a step that stays. A stray figure or two,
a burst of a few that recovers, a slow wander and noise that carries over from one figure to the next are none.

The order of work:

1. Figures far from the median of the seven about them are set aside, where they are one or two in a row (the
   running median keeps steps: Tukey, Exploratory Data Analysis, 1977, chapter 7).
2. The noise, its variance and its autocorrelation, comes from differences of figures some places apart, which a
   few steps hardly touch (Wu & Zhao, Journal of the Royal Statistical Society B 69 (2007) 391-410, take
   differences for the same reason), in blocks of 128 figures, as noise need not stay the same.
3. Moving windows of several widths propose places (MOSUM: Eichinger & Kirch, Bernoulli 24 (2018) 526-564; several
   widths: Messer et al., Annals of Applied Statistics 8 (2014) 2027-2059).
4. The least sure one is struck out until all that are left are sure enough. Each is judged by Huber's estimates
   of the levels beside it (Annals of Mathematical Statistics 35 (1964) 73-101), the standard error of means of
   autocorrelated figures, and the number of places where chance could have done the same.

All is local: what is more than LOOK_AHEAD figures from the end does not depend on what is appended.
"""

from __future__ import annotations

__all__ = ["LOOK_AHEAD", "ChangePoint", "Level", "Segmentation", "find_changes"]

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

LOOK_AHEAD = 500
"""Figures after a change, beyond which nothing about it depends on more of them."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BLOCK = 128
"""Figures for which the noise is taken to be one."""
_REACH = 100
"""The most figures on a side that a test looks at."""
_LEVEL = 50
"""The most figures on a side that an effect is measured by."""
_SLOPE = 3e-5
"""How steep a slow wander of the level is, in logarithms per figure: 0.8 % in 200."""
_UNEVEN = 8
"""How many times as many figures the longer side of a test may have: far ones know less of the level here."""
_WIDTHS = (3, 6, 12, 24, 48, 96)
_FEWEST, _FEWEST_QUIET, _FEWEST_ROUGH = 3, 2, 6
_BURST = 6
"""A level of as few figures that goes back to where it was is no level."""
_STRAY = 5.0
"""Standard deviations from the running median, beyond which a figure is set aside."""
_LAGS = (5, 6, 7, 8)
_Q80 = 1.2815515655446004
"""The quantile 0.8 of the absolute value of a standard normal variable."""
_CLIP = 3.0
_CLIPPED_SQUARE = 0.995
"""The mean of the square of a standard normal variable that is clipped at 3."""
_HUBER = 1.7
_ROUGH = 0.07
_QUIET = 0.04
"""Share of figures that differ from the one before, up to which a series is one without noise."""
_MOST_RHO = 0.95
_SQRT_2PI = math.sqrt(2 * math.pi)
_TAIL = 1.2
_TAILN = 12
_SHORT = 10.0
_SHRINK = 0.5
_DFP = 1.5
_SPAN = 200
"""Figures for which a p-value counts the places where chance could have made a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A step from one level to another. Indices are into the values given; levels are in their unit."""

    at: int
    """Of the first value of the new level."""
    first: int
    last: int
    """The new level began at an index in first..last, both included: 95 % sure."""
    before: float
    after: float
    """Levels beside the step: of at most 50 values."""
    effect: float
    """after / before - 1."""
    low: float
    high: float
    """Of the effect: 95 % sure."""
    p_value: float
    """The chance that noise alone has a step as sure as this in some 200 values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What lies between two changes: values[start:stop]."""

    start: int
    stop: int
    level: float
    """In the values' unit."""
    sd: float
    """Of one value about the level, relative, strays left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segmentation:
    changes: tuple[ChangePoint, ...]
    levels: tuple[Level, ...]
    """One more than changes, from the first value to the last; none where there is no figure."""
    outliers: tuple[int, ...]
    """Indices of the values set aside: strays and bursts."""
    noise: float
    """Relative standard deviation of one value about its level."""
    autocorrelation: float
    """Of the noise, from one value to the next, within 0 to 0.95."""


@dataclass(frozen=True, slots=True)
class _Noise:
    """Of each block of figures."""

    sd: Floats
    rho: Floats
    df: Floats
    fewest: Ints
    """How many figures make a level."""

    def block(self, index: int) -> int:
        return min(index // _BLOCK, self.sd.size - 1)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step between logs[low:at] and logs[at:high], tested."""

    low: int
    at: int
    high: int
    difference: float
    standard_error: float
    df: float
    z: float
    """As a standard normal variable."""
    p_value: float


def find_changes(values: ArrayLike, *, smallest: float = 0.01, significance: float = 0.02) -> Segmentation:
    """The changes of level in `values`, one axis, in order; what is not finite or not positive is no figure.

    `smallest` is the least relative change worth a report: a smaller one is left out, however sure.
    `significance` bounds the p-value of what is reported. Raises ValueError for another number of axes.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"values have {array.ndim} axes; expected one.")
    with np.errstate(invalid="ignore"):
        place = np.flatnonzero((array > 0) & (array < math.inf))
    if place.size == 0:
        return Segmentation(changes=(), levels=(), outliers=(), noise=0.0, autocorrelation=0.0)
    logs = np.log(array[place])
    floor = math.log1p(smallest) / 20
    kept, rough = _kept(logs, floor)
    while True:
        series = _Series(logs[kept], rough[kept], floor, smallest, significance)
        steps, bursts = series.steps()
        if not bursts:
            break
        places = np.flatnonzero(kept)
        for low, high in bursts:
            kept[places[low:high]] = False
    return _segmentation(array.size, place, kept, logs, series, steps)


class _Series:
    """Figures as logarithms, strays left out, and what tests of them need."""

    def __init__(self, logs: Floats, rough: Bools, floor: float, smallest: float, significance: float) -> None:
        self.logs = logs
        self.floor = floor
        self.smallest = smallest
        self.significance = significance
        self.sums = np.concatenate(([0.0], np.cumsum(logs - logs[0])))
        self.rough = rough
        self.noise = _noise(logs, rough, floor)

    def steps(self) -> tuple[list[_Step], list[tuple[int, int]]]:
        """The steps that are sure, in order, and the bursts, which a further search must leave out."""
        cuts = self._candidates()
        if not cuts:
            return [], []
        self.noise = _noise(self._aligned(cuts), self.rough, self.floor, len(cuts))
        steps = self._struck([0, *cuts, self.logs.size])
        for _ in range(2):
            moved = [self._best_place(step) for step in steps]
            if moved == [step.at for step in steps]:
                break
            steps = self._struck([0, *sorted(set(moved)), self.logs.size])
        bursts = self._bursts(steps)
        return steps, bursts

    # Proposals -------------------------------------------------------------------------------------

    def _candidates(self) -> list[int]:
        """Places where some pair of adjacent windows differs by what could be a step."""
        count = self.logs.size
        found: list[tuple[float, int, int]] = []
        for width in _WIDTHS:
            least = max(_FEWEST_QUIET if width == _WIDTHS[0] else _FEWEST, width // _UNEVEN)
            if count < 2 * least or (width > _WIDTHS[0] and width // 2 > count):
                break
            at = np.arange(least, count - least + 1)
            score = np.abs(self._contrasts(at, width)) / self._errors(at, width)
            limit = np.full(at.size, _limit(self.significance, width))
            limit[at > count - width] = _limit(self.significance, least, 1)
            over = score - (limit - 0.7)
            found += [(float(over[k]), int(at[k]), width) for k in _peaks(over, max(1, width // 2))]
        chosen: list[int] = []
        for _, at_, width in sorted(found, reverse=True):
            apart = max(1, width // 4)
            if all(abs(at_ - other) > apart for other in chosen):
                chosen.append(at_)
        return sorted(chosen)

    def _contrasts(self, at: Ints, width: int) -> Floats:
        low, high = np.maximum(at - width, 0), np.minimum(at + width, self.logs.size)
        sums = self.sums
        middle = sums[at]
        result: Floats = (sums[high] - middle) / (high - at) - (middle - sums[low]) / (at - low)
        return result

    def _errors(self, at: Ints, width: int) -> Floats:
        """Standard errors of contrasts: those of whole windows by block, those cut short one by one."""
        noise, count = self.noise, self.logs.size
        blocks = np.minimum(at // _BLOCK, noise.sd.size - 1)
        errors = (noise.sd * np.sqrt(2 * _mean_variance(float(width), noise.rho)))[blocks]
        for cut in (slice(0, max(0, width - int(at[0]))), slice(max(0, count - width - int(at[0]) + 1), None)):
            ends, block = at[cut], blocks[cut]
            if ends.size:
                left = np.minimum(ends, width).astype(np.float64)
                right = np.minimum(count - ends, width).astype(np.float64)
                rho = noise.rho[block]
                variance = _mean_variance(left, rho) + _mean_variance(right, rho)
                errors[cut] = noise.sd[block] * np.sqrt(variance)
        return errors

    def _aligned(self, cuts: Sequence[int]) -> Floats:
        """The figures without the steps at the cuts."""
        jumps = np.zeros(self.logs.size)
        edges = [0, *cuts, self.logs.size]
        sums = self.sums
        for low, at, high in zip(edges, edges[1:], edges[2:], strict=False):
            left, right = max(low, at - _LEVEL), min(high, at + _LEVEL)
            jumps[at] = (sums[right] - sums[at]) / (right - at) - (sums[at] - sums[left]) / (at - left)
        return self.logs - np.cumsum(jumps)

    # Tests -----------------------------------------------------------------------------------------

    def _struck(self, edges: list[int]) -> list[_Step]:
        """Strikes out the least sure place until all are sure."""
        steps = [self._tested(*three) for three in zip(edges, edges[1:], edges[2:], strict=False)]
        while steps:
            worst = max(range(len(steps)), key=lambda k: (steps[k].p_value, -steps[k].z))
            if steps[worst].p_value <= self.significance:
                break
            del edges[worst + 1], steps[worst]
            for k in (worst - 1, worst):
                if 0 <= k < len(steps):
                    steps[k] = self._tested(edges[k], edges[k + 1], edges[k + 2])
        return steps

    def _tested(self, low: int, at: int, high: int) -> _Step:
        block = self.noise.block(at)
        df = float(self.noise.df[block])
        short = min(at - low, high - at, _REACH)
        reach = min(_REACH, max(40, 4 * short))
        left, right = self.logs[max(low, at - reach) : at], self.logs[at : min(high, at + reach)]
        before, after, error = self.levels(left, right, block)
        difference = after - before
        size = abs(difference)
        if short < self.noise.fewest[block] or abs(math.expm1(difference)) < self.smallest:
            return _Step(low, at, high, difference, error, df, 0.0, 1.0)
        z = _as_normal(size / error, df)
        last = high == self.logs.size
        p_value = _searched(z, short, high - at if last else 0)
        return _Step(low, at, high, difference, error, df, z, p_value)

    def levels(self, left: Floats, right: Floats, block: int) -> tuple[float, float, float]:
        """Just before and just after the place where two stretches touch, and the standard error of their
        difference.

        A slope that both have in common is taken off as far as it is surely there: that slopes are about
        _SLOPE is taken as known.
        """
        sd, rho = float(self.noise.sd[block]), float(self.noise.rho[block])
        before, after = _huber(left, sd), _huber(right, sd)
        limit = 2.5 * sd
        time_left = np.arange(left.size) - (left.size - 1) / 2
        time_right = np.arange(right.size) - (right.size - 1) / 2
        square = float(time_left @ time_left) + float(time_right @ time_right)
        slope = float(time_left @ np.clip(left - before, -limit, limit))
        slope = (slope + float(time_right @ np.clip(right - after, -limit, limit))) / square
        variance = sd**2 * (1 + rho) / (1 - rho) / square
        belief = _SLOPE**2 / (_SLOPE**2 + variance)
        error = sd**2 * float(_mean_variance(float(left.size), rho) + _mean_variance(float(right.size), rho))
        apart = (left.size + right.size) / 2
        error += apart**2 * _SLOPE**2 * (1 - belief)
        slope *= belief
        return before + slope * left.size / 2, after - slope * right.size / 2, math.sqrt(error)

    def _best_place(self, step: _Step) -> int:
        """Where between its neighbours the step fits best, in least squares."""
        fewest = int(self.noise.fewest[self.noise.block(step.at)])
        low, high = max(step.low, step.at - _REACH), min(step.high, step.at + _REACH)
        at = np.arange(low + fewest, high - fewest + 1)
        if at.size == 0:
            return step.at
        sums = self.sums
        mean = (sums[high] - sums[low]) / (high - low)
        excess = sums[at] - sums[low] - (at - low) * mean
        gain = excess**2 / ((at - low) * (high - at))
        return int(at[gain.argmax()])

    def _bursts(self, steps: Sequence[_Step]) -> list[tuple[int, int]]:
        found = []
        for one, two in zip(steps, steps[1:], strict=False):
            if two.at - one.at > _BURST or self.noise.fewest[self.noise.block(one.at)] == _FEWEST_QUIET:
                continue
            found.append((one.at, two.at))
        return found


def _kept(logs: Floats, floor: float) -> tuple[Bools, Bools]:
    """Which figures are no strays: not far from the running median, or in company. Then, where strays are so
    many that they are noise: there none is set aside.
    """
    kept, rough = np.ones(logs.size, dtype=np.bool_), np.zeros(logs.size, dtype=np.bool_)
    if logs.size < 5:
        return kept, rough
    off = logs - _running_median(logs)
    size = np.abs(off)
    scale = _smoothed(_by_block(size, _quantile_80)) / _Q80
    # The median of seven takes a part of the figure itself with it.
    far = size > _STRAY * np.maximum(1.1 * scale, floor)[_blocks(logs.size)]
    suspects = np.flatnonzero(far)
    if suspects.size == 0:
        return kept, rough
    sides = np.sign(off[suspects])
    starts = np.flatnonzero(np.concatenate(([True], (np.diff(suspects) > 1) | (sides[1:] != sides[:-1]))))
    lengths = np.diff(np.concatenate((starts, [suspects.size])))
    most = 1 if _is_quiet(np.diff(logs)) else 2
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        if length <= most:
            kept[suspects[start : start + length]] = False
    strays = _summed(_by_block(~kept, np.add.reduce))
    sizes = _summed(_by_block(np.ones(logs.size), np.add.reduce))
    rough = (strays > 2 + _ROUGH * sizes)[_blocks(logs.size)]
    return kept | rough, rough


def _noise(logs: Floats, rough: Bools, floor: float, fitted: int = 0) -> _Noise:
    """Variance and autocorrelation by block, from the blocks beside it too.

    Half the mean squared difference of figures h apart is the variance less the covariance at lag h. With h of
    5 to 8 it is the variance, with 1 that times one less the autocorrelation, if that falls off as in an
    autoregression of first order. Squares are clipped at nine times the variance that the quantile 0.8 tells.
    """
    count = logs.size
    blocks = max(1, count // _BLOCK)
    if count < 3:
        one = np.ones(1)
        return _Noise(floor * one, 0 * one, one, np.array([_FEWEST_QUIET]))
    near = np.diff(logs)
    quiet = _summed(_by_block((np.abs(near) > 1e-12).astype(np.float64), np.add.reduce))
    sizes = np.full(blocks, float(_BLOCK))
    sizes[-1] = count - _BLOCK * (blocks - 1)
    sizes = _summed(sizes)
    is_quiet = quiet <= np.maximum(2.0, _QUIET * sizes)
    roughness = _by_block(rough, np.add.reduce) > 0.5 * _by_block(np.ones(count), np.add.reduce)
    short = _half_square(near, floor, roughness)
    lags = [lag for lag in _LAGS if lag <= count // 4]
    if not lags:
        variance, rho = short, np.zeros(blocks)
    else:
        variance = np.mean([_half_square(logs[lag:] - logs[:-lag], floor, roughness) for lag in lags], axis=0)
        rho = np.clip(1 - short / variance, 0, _MOST_RHO)
        for _ in range(3):
            whole = 1 - rho ** (sum(lags) / len(lags))
            rho = np.clip(1 - short / variance * whole, 0, _MOST_RHO)
        variance /= 1 - rho ** (sum(lags) / len(lags))
        rho = np.maximum(rho - _SHRINK * (1 - rho) ** 2 / np.sqrt(sizes), 0)
        variance = np.maximum(variance, short)
    df = np.maximum(0.7 * (sizes - 2 - fitted) * ((1 - rho) / (1 + rho)) ** _DFP, 1.0)
    variance[is_quiet], rho[is_quiet], df[is_quiet] = 0.0, 0.0, 30.0
    return _Noise(np.sqrt(np.maximum(variance, floor**2)), rho, df, np.where(is_quiet, _FEWEST_QUIET, np.where(roughness, _FEWEST_ROUGH, _FEWEST)))


def _half_square(differences: Floats, floor: float, rough: Bools) -> Floats:
    size = np.abs(differences)
    blocks = rough.size
    scale = np.maximum(_smoothed(_by_block(size, _quantile_80, blocks)) / _Q80, floor)
    scale[rough] = math.inf
    limits = (_CLIP * scale)[np.minimum(np.arange(size.size) // _BLOCK, blocks - 1)]
    squares = np.minimum(size, limits) ** 2
    starts = np.arange(blocks) * _BLOCK
    sizes = np.diff(np.concatenate((starts, [size.size]))).astype(np.float64)
    half: Floats = _summed(np.add.reduceat(squares, starts)) / _summed(sizes) / (2 * _CLIPPED_SQUARE)
    return half


def _is_quiet(differences: Floats) -> bool:
    return bool((np.abs(differences) > 1e-12).sum() <= max(2.0, _QUIET * differences.size))


def _blocks(count: int) -> Ints:
    """Of each figure its block; the last block takes what is left over."""
    return np.minimum(np.arange(count) // _BLOCK, max(1, count // _BLOCK) - 1)


def _by_block(values: Floats | Bools, reduce: object, blocks: int = 0) -> Floats:
    blocks = blocks or max(1, (values.size + 1) // _BLOCK)
    whole = (blocks - 1) * _BLOCK
    result = np.empty(blocks)
    if whole:
        result[:-1] = reduce(values[:whole].reshape(-1, _BLOCK).T)  # type: ignore[operator]
    result[-1] = reduce(values[whole:])  # type: ignore[operator]
    return result


def _quantile_80(values: Floats) -> Floats:
    """Along the first axis; with a correction for few, so that one in five of them may be anything."""
    k = int(0.8 * (values.shape[0] - 1))
    result: Floats = np.partition(values, k, axis=0)[k]
    return result


def _summed(values: Floats) -> Floats:
    """With those of the blocks beside it."""
    if values.size == 1:
        return values
    result = values.copy()
    result[1:] += values[:-1]
    result[:-1] += values[1:]
    return result


def _smoothed(values: Floats) -> Floats:
    return _summed(values) / _summed(np.ones(values.size))


def _running_median(logs: Floats) -> Floats:
    """Of the seven about each, the ends mirrored, by the exchanges that leave the fourth in order in the middle."""
    padded = np.concatenate((logs[3:0:-1], logs, logs[-2:-5:-1]))
    p = [padded[k : k + logs.size] for k in range(7)]
    for a, b in ((0, 5), (0, 3), (1, 6), (2, 4), (0, 1), (3, 5), (2, 6), (2, 3), (3, 6), (4, 5), (1, 4), (1, 3), (3, 4)):
        p[a], p[b] = np.minimum(p[a], p[b]), np.maximum(p[a], p[b])
    return p[3]


def _mean_variance(count: float | Floats, rho: float | Floats) -> Floats:
    """Of the mean of `count` figures of variance 1, each correlated by `rho` with the next."""
    away = 1 - rho
    result: Floats = ((1 + rho) / away - 2 * rho * (1 - rho**count) / (count * away**2)) / count
    return result


def _peaks(over: Floats, apart: int) -> list[int]:
    """Of each stretch that is above zero, stretches closer than `apart` taken together, the highest place."""
    above = np.flatnonzero(over > 0)
    if above.size == 0:
        return []
    groups = np.split(above, np.flatnonzero(np.diff(above) > apart) + 1)
    return [int(group[over[group].argmax()]) for group in groups]


def _huber(values: Floats, sd: float) -> float:
    """The level of a few figures: their mean, where those far off count as less far."""
    ordered = np.sort(values)
    half = ordered.size // 2
    level = float(ordered[half] if ordered.size % 2 else (ordered[half - 1] + ordered[half]) / 2)
    limit = _HUBER * sd
    for _ in range(3):
        level += float(np.clip(values - level, -limit, limit).mean()) / 0.91
    return level


def _as_normal(t: float, df: float) -> float:
    """Student's t as a normal variable that is exceeded as seldom: Wallace, Annals of Mathematical Statistics
    30 (1959) 1124-1130.
    """
    return (8 * df + 1) / (8 * df + 3) * math.sqrt(df * math.log1p(t * t / df))


def _as_t(z: float, df: float) -> float:
    """The other way round."""
    return math.sqrt(df * math.expm1((z * (8 * df + 3) / (8 * df + 1)) ** 2 / df))


def _searched(z: float, short: int, after: int = 0) -> float:
    """The chance that noise has a step as sure as `z` somewhere in _SPAN figures, with `short` figures on its
    shorter side. Where it is the last one, with `after` figures after it, fewer places are possible.
    """
    places = 3 * _SPAN / short * (1 + _SHORT / short)
    if after:
        places = min(places, _TAIL * max(1.0, after / _TAILN))
    return min(1.0, math.erfc(z / math.sqrt(2)) + places * z * math.exp(-z * z / 2) / _SQRT_2PI)


@lru_cache(maxsize=256)
def _limit(significance: float, short: int, after: int = 0) -> float:
    """The z whose p-value is `significance`."""
    low, high = 0.0, 40.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _searched(middle, short, after) > significance else (low, middle)
    return high


def _segmentation(
    count: int, place: Ints, kept: Bools, logs: Floats, series: _Series, steps: Sequence[_Step]
) -> Segmentation:
    index = place[kept]
    changes = tuple(_change(series, step, index) for step in steps)
    edges = [0, *(change.at for change in changes), count]
    cuts = [0, *(step.at for step in steps), series.logs.size]
    levels = []
    for k in range(len(cuts) - 1):
        level, sd = _level(series.logs[cuts[k] : cuts[k + 1]])
        levels.append(Level(start=edges[k], stop=edges[k + 1], level=math.exp(level), sd=sd))
    noise = series.noise
    return Segmentation(
        changes=changes,
        levels=tuple(levels),
        outliers=tuple(place[~kept].tolist()),
        noise=float(np.median(noise.sd)),
        autocorrelation=float(np.median(noise.rho)),
    )


def _level(logs: Floats) -> tuple[float, float]:
    ordered = np.sort(logs)
    level = float(ordered[ordered.size // 2])
    off = np.abs(ordered - level)
    off.sort()
    return level, float(off[int(0.8 * (off.size - 1))]) / _Q80


def _change(series: _Series, step: _Step, index: Ints) -> ChangePoint:
    first, last = _began(series, step)
    block = series.noise.block(step.at)
    low, high = max(step.low, step.at - _LEVEL), min(step.high, step.at + _LEVEL)
    left, right = series.logs[low : step.at], series.logs[step.at : high]
    before, after, error = series.levels(left, right, block)
    difference = after - before
    margin = _as_t(1.959963984540054, step.df) * error
    return ChangePoint(
        at=int(index[step.at]),
        first=int(index[first]),
        last=int(index[last]),
        before=math.exp(before),
        after=math.exp(after),
        effect=math.expm1(difference),
        low=math.expm1(difference - margin),
        high=math.expm1(difference + margin),
        p_value=step.p_value,
    )


def _began(series: _Series, step: _Step) -> tuple[int, int]:
    """The places where the step can have been: 95 % of the likelihood."""
    block = series.noise.block(step.at)
    sd, rho = float(series.noise.sd[block]), float(series.noise.rho[block])
    low, high = max(step.low, step.at - _REACH), min(step.high, step.at + _REACH)
    logs = series.logs[low:high]
    left, right = _huber(series.logs[low : step.at], sd), _huber(series.logs[step.at : high], sd)
    innovation = sd**2 * (1 - rho**2)
    limit = _CLIP**2
    was, now = logs - left, logs - right
    cost_left = np.concatenate((was[:1] ** 2 * (1 - rho**2), (was[1:] - rho * was[:-1]) ** 2)) / innovation
    cost_right = np.concatenate((now[:1] ** 2 * (1 - rho**2), (now[1:] - rho * now[:-1]) ** 2)) / innovation
    cost_step = np.concatenate((now[:1] ** 2 * (1 - rho**2), (now[1:] - rho * was[:-1]) ** 2)) / innovation
    cost_left, cost_right, cost_step = (np.minimum(cost, limit) for cost in (cost_left, cost_right, cost_step))
    # With the step at k: figures before k by the left level, k itself by the step, those after it by the right.
    before = np.cumsum(cost_left) - cost_left
    after = np.cumsum(cost_right[::-1])[::-1] - cost_right
    log_likelihood = -(before + cost_step + after)[1:] / 2
    weight = np.exp(log_likelihood - log_likelihood.max())
    order = np.argsort(-weight, kind="stable")
    enough = int(np.searchsorted(np.cumsum(weight[order]), 0.95 * weight.sum())) + 1
    inside = order[:enough] + 1 + low
    return min(int(inside.min()), step.at), max(int(inside.max()), step.at)


def _unused(_: Iterable[int]) -> None: ...
