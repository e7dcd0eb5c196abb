"""Searches a long series by moving windows. `exact` uses its estimates of levels and noise too.

1. Points far from the median of the seven around them are set aside, if they are single or two in a row. A
   running median keeps steps: Tukey, Exploratory Data Analysis (1977), chapter 7.
2. The variance and autocorrelation of the noise are estimated from differences of points a few places apart,
   between which there are few steps: Wu & Zhao, Journal of the Royal Statistical Society B 69 (2007) 391-410.
3. Moving windows of several widths propose places: MOSUM, Eichinger & Kirch, Bernoulli 24 (2018) 526-564, and
   with several widths Messer et al., Annals of Applied Statistics 8 (2014) 2027-2059.
4. The least significant place is removed until all remaining places are significant. A place is judged by
   robust levels on both sides, by the standard error of means of autocorrelated points, and by the number of
   places where chance could have done the same.

The search is local: a change more than LOOK_AHEAD points before the end does not depend on later points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.judgement.statistics.paired import Floats, median

LOOK_AHEAD = 800
"""Points after a change, beyond which further points do not influence it."""

CANDIDATE = 0.1
"""The largest p-value of a candidate."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BLOCK = 128
"""Number of points with a common estimate of the noise."""
_WIDTHS = (3, 6, 12, 24, 48, 96)
"""Widths of the windows that propose places."""
REACH = 100
"""Most points on a side that a test uses."""
NARROW, UNEVEN = 60, 4
"""Most points that a test uses on the longer side: this number, or this multiple of the shorter side.

Levels drift, so distant points do not help.
"""
LEVEL = 50
"""Most points on a side from which an effect is estimated."""
FEWEST, FEWEST_QUIET, FEWEST_ROUGH = 3, 2, 6
"""Fewest points of a level: with noise, without noise, and if outliers are part of the noise."""
BURST = 6
"""Most points between two steps that are not yet a level, if there is noise."""
_STRAY = 5.0
"""Standard deviations from the running median from which a point is an outlier."""
_ROUGH = 0.07
"""Share of outliers above which they are part of the noise."""
_QUIET = 0.04
"""Share of points that differ from the point before, up to which a series has no noise."""
SLOPE = 0.6 / 200
"""Standard deviation of the slope of a slow drift, in smallest relevant changes per point."""
YOUNG = 12
"""Number of points of a young series."""
_NEAR_LAGS, _LAGS = (2, 3), (5, 6, 7, 8)
"""Lags of the differences that estimate the noise. Short lags span fewer steps; long lags show
autocorrelation better."""
ROUNDING = 1e-12
"""Largest difference of logarithms that counts as no difference."""
MOST_LOG = 709.0
"""Largest logarithm of a float."""
MOST_RHO = 0.95
Q80 = 1.2815515655446004
"""The 0.8 quantile of the absolute value of a standard normal variable."""
CLIP, CLIPPED_SQUARE = 3.0, 0.995
"""Standard deviations at which squares are clipped, and the mean clipped square of a normal variable."""
_MIDDLE_OF_SEVEN = (
    *((0, 5), (0, 3), (1, 6), (2, 4), (0, 1), (3, 5), (2, 6)),
    *((2, 3), (3, 6), (4, 5), (1, 4), (1, 3), (3, 4)),
)
"""Comparisons that move the median of seven to the middle, in a third of the time of sorting."""
_HUBER, _HUBER_INSIDE = 1.7, 0.911
"""Standard deviations beyond which Huber's estimate reduces a point's weight, and the share of
points within."""

# Set by simulation, so that p-values hold for the kinds of noise in scripts/bench_changepoints.py.
_SCREEN = 0.7
"""Amount in z by which a proposal may miss the limit of significance."""
_PLACES, _SHORT = 400.0, 10.0
_LAST_PLACES, _LAST_FEW, _LAST_REACH, _LAST_YOUNG = 1.2, 3.5, 12.0, 100.0
_DF_PER_FIGURE, _DF_POWER = 0.7, 1.3
_RHO_BIAS, _RHO_SHRINK = 10.0, 0.5


@dataclass(frozen=True, slots=True)
class BlockNoise:
    """The noise of each block of points, in logarithms."""

    sd: Floats
    """Standard deviation of one point, but not below the smallest that matters."""
    raw: Floats
    """Standard deviation of one point, without that limit."""
    rho: Floats
    """Autocorrelation between successive points."""
    df: Floats
    fewest: Ints
    """Fewest points of a level in the block."""


class Beside(NamedTuple):
    """Levels on both sides of a place, in logarithms."""

    before: float
    after: float
    error: float
    """Standard error of their difference."""
    df: float
    sd: float
    rho: float
    """Autocorrelation of the noise there."""


@dataclass(frozen=True, slots=True)
class LevelShift:
    """A step between logs[low:at] and logs[at:high], with its test."""

    low: int
    at: int
    high: int
    z: float
    p_value: float


class WindowSearch:
    """A series as logarithms without outliers, its noise, and the tests of places in it."""

    def __init__(
        self, logs: Floats, rough: Bools, floor: float, smallest: float, significance: float
    ) -> None:
        self.logs = logs
        self.rough = rough
        self.floor = floor
        self.smallest = smallest
        self.significance = significance
        self.sums = np.concatenate(([0.0], np.cumsum(logs - logs[0])))
        self.noise = _noise(logs, rough, floor, _NEAR_LAGS, ())
        self._hints: tuple[LevelShift, ...] | None = None

    def steps(self) -> list[LevelShift]:
        """Return the significant steps, in order."""
        cuts = self._proposals()
        # Estimate the noise again without the possible steps.
        self.noise = _noise(self._aligned(cuts), self.rough, self.floor, _LAGS, cuts)
        steps = self._struck(cuts)
        for _ in range(2):
            moved = sorted({self._best_place(step) for step in steps})
            if moved == [step.at for step in steps]:
                break
            steps = self._struck(moved)
        return steps

    def hints(self) -> tuple[LevelShift, ...]:
        """Return the steps that remain when all have a p-value of at most CANDIDATE."""
        return self._hints or ()

    def block(self, index: int) -> int:
        return min(index // _BLOCK, self.noise.sd.size - 1)

    def beside(self, low: int, at: int, high: int) -> Beside:
        """Return the levels of two adjacent stretches at the place where they meet."""
        block = self.block(at)
        sd, rho = float(self.noise.sd[block]), float(self.noise.rho[block])
        edges = edge_levels(self.logs[low:at], self.logs[at:high], (sd, sd), sd, rho, self.smallest)
        return Beside(*edges, float(self.noise.df[block]), sd, rho)

    def _proposals(self) -> list[int]:
        """Return places where adjacent windows may differ by a step; of places close together the most
        significant.
        """
        count, sums = self.logs.size, self.sums
        found: list[tuple[float, int, int]] = []
        most = _WIDTHS[-1]
        beyond = np.concatenate((np.full(most, sums[0]), sums, np.full(most, sums[-1])))
        for width in _WIDTHS:
            least = max(FEWEST_QUIET if width == _WIDTHS[0] else FEWEST, width // 8)
            if count < max(2 * least, width // 2):
                break
            at, here = np.arange(least, count - least + 1), sums[least : count - least + 1]
            left, right = (beyond[most + least + off :][: at.size] for off in (-width, width))
            # Mean of up to `width` points from each place on, minus the mean of those before it.
            contrasts = (right - here) / np.minimum(count - at, width) - (here - left) / np.minimum(at, width)
            over = np.abs(contrasts) / self._errors(at, width)
            tail = max(0, count - width + 1 - least)
            over[:tail] -= _limit(self.significance, width) - _SCREEN
            over[tail:] -= _limit(self.significance, least, last=True) - _SCREEN
            found += [(float(over[k]), int(at[k]), width) for k in _peaks(over, max(1, width // 2))]
        chosen: list[int] = []
        for _, place, width in sorted(found, reverse=True):
            if all(abs(place - other) > max(1, width // 4) for other in chosen):
                chosen.append(place)
        return sorted(chosen)

    def _errors(self, at: Ints, width: int) -> Floats:
        """Return the standard errors of the contrasts."""
        noise, count, start = self.noise, self.logs.size, int(at[0])
        blocks = np.minimum(at // _BLOCK, noise.sd.size - 1)
        errors: Floats = (noise.sd * np.sqrt(2 * mean_variance(width, noise.rho)))[blocks]
        # Windows that the ends cut short.
        begun = max(0, min(at.size, width - start))
        ending = max(begun, count - width + 1 - start)
        for cut in (slice(0, begun), slice(ending, at.size)):
            ends, block = at[cut], blocks[cut]
            if ends.size:
                rho = noise.rho[block]
                variance = mean_variance(np.minimum(ends, width), rho)
                variance += mean_variance(np.minimum(count - ends, width), rho)
                errors[cut] = noise.sd[block] * np.sqrt(variance)
        return errors

    def _aligned(self, cuts: Sequence[int]) -> Floats:
        """Return the points with the steps at the cuts removed."""
        jumps = np.zeros(self.logs.size)
        sums = self.sums
        for low, at, high in threes(cuts, self.logs.size):
            left, right = max(low, at - LEVEL), min(high, at + LEVEL)
            jumps[at] = (sums[right] - sums[at]) / (right - at) - (sums[at] - sums[left]) / (at - left)
        result: Floats = self.logs - np.cumsum(jumps)
        return result

    def _struck(self, cuts: Sequence[int]) -> list[LevelShift]:
        """Return the steps that remain after removing the least significant until all are significant."""
        steps = [self._judged(*three) for three in threes(cuts, self.logs.size)]
        self._hints = None
        while steps:
            worst = max(range(len(steps)), key=lambda k: (steps[k].p_value, -steps[k].z))
            if self._hints is None and steps[worst].p_value <= CANDIDATE:
                self._hints = tuple(steps)
            if steps[worst].p_value <= self.significance:
                break
            gone = steps.pop(worst)
            if worst > 0:
                steps[worst - 1] = self._judged(steps[worst - 1].low, steps[worst - 1].at, gone.high)
            if worst < len(steps):
                steps[worst] = self._judged(gone.low, steps[worst].at, steps[worst].high)
        return steps

    def _judged(self, low: int, at: int, high: int) -> LevelShift:
        block = self.block(at)
        short = min(at - low, high - at, REACH)
        if at - low < self._fewest_from(low, block) or high - at < self.noise.fewest[block]:
            return LevelShift(low, at, high, 0.0, 1.0)
        _, z = tested(self.beside, self.smallest, low, at, high)
        last = high == self.logs.size and high - at <= at - low
        return LevelShift(low, at, high, z, searched(z, places(short, last=last, count=self.logs.size)))

    def _fewest_from(self, low: int, block: int) -> int:
        """Return the fewest points of the level at `low`: two at the start of a young series, where the
        p-value decides.
        """
        fewest = int(self.noise.fewest[block])
        return min(fewest, FEWEST_QUIET) if low == 0 and self.logs.size < YOUNG else fewest

    def _best_place(self, step: LevelShift) -> int:
        """Return the place between its neighbours where the step fits best, by least squares."""
        block = self.block(step.at)
        low, high = max(step.low, step.at - REACH), min(step.high, step.at + REACH)
        at = np.arange(low + self._fewest_from(low, block), high - int(self.noise.fewest[block]) + 1)
        sums = self.sums
        excess = sums[at] - sums[low] - (at - low) * ((sums[high] - sums[low]) / (high - low))
        return int(at[(excess**2 / ((at - low) * (high - at))).argmax()])


def tested(
    beside: Callable[[int, int, int], Beside], smallest: float, low: int, at: int, high: int
) -> tuple[Beside, float]:
    """Return the levels beside a place between two others, and the z of their difference.

    z is 0 for a step below the smallest that matters.
    """
    reach = min(REACH, max(NARROW, UNEVEN * min(at - low, high - at)))
    found = beside(max(low, at - reach), at, min(high, at + reach))
    step = found.after - found.before
    if abs(relative(step)) < smallest:
        return found, 0.0
    return found, as_normal(abs(step) / found.error, found.df)


def without_strays(logs: Floats, floor: float) -> tuple[Bools, Bools]:
    """Return which points are kept, and which are outliers so frequent that they count as noise
    and are kept.
    """
    count = logs.size
    kept, rough = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    if count < 5:
        return kept, rough
    blocks = max(1, count // _BLOCK)
    block = np.minimum(np.arange(count) // _BLOCK, blocks - 1)
    off = logs - _running_median(logs)
    size = np.abs(off)
    # The running median includes the point itself, which makes the scale a tenth too small.
    scale = 1.1 * _with_neighbours(_quantile_80(size, blocks)) / _with_neighbours(np.ones(blocks)) / Q80
    suspects = np.flatnonzero(size > _STRAY * np.maximum(scale, floor)[block])
    if suspects.size == 0:
        return kept, rough
    unlike = np.concatenate(([0.0], np.abs(np.diff(logs)) > ROUNDING))
    sizes = _with_neighbours(_sum(np.ones(count), blocks))
    longest = np.where(is_quiet(_with_neighbours(_sum(unlike, blocks)), sizes), 1, 2)[block[suspects]]
    sides = np.sign(off[suspects])
    starts = np.flatnonzero(np.concatenate(([True], (np.diff(suspects) > 1) | (np.diff(sides) != 0))))
    lengths = np.diff(np.concatenate((starts, [suspects.size])))
    kept[suspects[np.repeat(lengths, lengths) <= longest]] = False
    strays = _with_neighbours(_sum((~kept).astype(np.float64), blocks))
    rough = (strays > 2 + _ROUGH * sizes)[block]
    return kept | rough, rough


def _noise(
    logs: Floats, rough: Bools, floor: float, lags: Sequence[int], fitted: Sequence[int]
) -> BlockNoise:
    """Return the noise of each block, estimated with the blocks beside it. `fitted` are the places of removed
    steps.

    Half the mean squared difference of points h apart is their variance minus their covariance. In a
    first-order autoregression that is the variance times 1 - rho**h. Two lags determine both unknowns.
    """
    count = logs.size
    blocks = max(1, count // _BLOCK)
    sizes = _with_neighbours(_sum(np.ones(count), blocks))
    if count < 3:
        return BlockNoise(np.full(1, floor), np.zeros(1), np.zeros(1), np.ones(1), np.array([FEWEST_QUIET]))
    near = np.abs(np.diff(logs))
    quiet = is_quiet(_with_neighbours(_sum((near > ROUNDING).astype(np.float64), blocks)), sizes)
    is_rough = _sum(rough.astype(np.float64), blocks) > 0.5 * _sum(np.ones(count), blocks)
    variance = _half_square(near, floor, is_rough)
    rho: Floats = np.zeros(blocks)
    # In a series so short, a step hardly moves the 0.8 quantile of the differences.
    far = [lag for lag in lags if lag <= count // 6]
    if lags and not far:
        far = [lag for lag in _NEAR_LAGS if lag <= count // 6]
    if far:
        apart = np.mean(
            [_half_square(np.abs(logs[lag:] - logs[:-lag]), floor, is_rough) for lag in far], axis=0
        )
        variance, rho = _autoregression(variance, apart, sum(far) / len(far), sizes)
    cuts = np.bincount(np.minimum(np.array(fitted, dtype=np.int64) // _BLOCK, blocks - 1), minlength=blocks)
    free = sizes - 2 - _with_neighbours(cuts.astype(np.float64))
    df = np.maximum(_DF_PER_FIGURE * free * ((1 - rho) / (1 + rho)) ** _DF_POWER, 1.0)
    variance[quiet], rho[quiet], df[quiet] = 0.0, 0.0, 30.0
    raw = np.sqrt(variance)
    fewest = np.where(quiet, FEWEST_QUIET, np.where(is_rough, FEWEST_ROUGH, FEWEST))
    return BlockNoise(np.maximum(raw, floor), raw, rho, df, fewest)


def _autoregression(near: Floats, far: Floats, lag: float, sizes: Floats) -> tuple[Floats, Floats]:
    """Return the variance and rho of autoregressions from the half squares at lag 1 (`near`) and at lag `lag`
    (`far`).
    """
    far = np.maximum(far, ROUNDING**2)
    rho: Floats = np.zeros(near.size)
    for _ in range(4):
        rho = np.clip(1 - near / far * (1 - rho**lag), 0, MOST_RHO)
    variance = np.maximum(far / (1 - rho**lag), near)
    # The estimate is biased downwards if rho is large. If rho is small the estimate is mostly chance, which
    # would cost power.
    rho = rho * (1 + _RHO_BIAS / sizes) - _RHO_SHRINK * (1 - rho) ** 4 / np.sqrt(sizes)
    return variance, np.clip(rho, 0, MOST_RHO)


def _half_square(sizes: Floats, floor: float, rough: Bools) -> Floats:
    """Return half the mean square of differences by block, clipped except in rough blocks."""
    blocks = rough.size
    counts = _with_neighbours(_sum(np.ones(sizes.size), blocks))
    scale = _with_neighbours(_quantile_80(sizes, blocks)) / _with_neighbours(np.ones(blocks)) / Q80
    limit = np.where(rough, math.inf, CLIP * np.maximum(scale, floor))
    block = np.minimum(np.arange(sizes.size) // _BLOCK, blocks - 1)
    squares = np.minimum(sizes, limit[block]) ** 2
    return _with_neighbours(_sum(squares, blocks)) / counts / (2 * CLIPPED_SQUARE)


def is_quiet(unlike: Floats, sizes: Floats) -> Bools:
    return unlike <= np.maximum(2.0, _QUIET * sizes)


def _sum(values: Floats, blocks: int) -> Floats:
    """Return the sum over each block. The last block has the remainder."""
    return np.add.reduceat(values, np.arange(blocks) * _BLOCK)


def _quantile_80(values: Floats, blocks: int) -> Floats:
    whole = (blocks - 1) * _BLOCK
    result = np.empty(blocks)
    if whole:
        rank = int(0.8 * (_BLOCK - 1))
        result[:-1] = np.partition(values[:whole].reshape(-1, _BLOCK), rank, axis=1)[:, rank]
    rank = int(0.8 * (values.size - whole - 1))
    result[-1] = np.partition(values[whole:], rank)[rank]
    return result


def _with_neighbours(values: Floats) -> Floats:
    """Return the sum of each value and its neighbours."""
    result = values.copy()
    result[1:] += values[:-1]
    result[:-1] += values[1:]
    return result


def _running_median(logs: Floats) -> Floats:
    """Return the median of the seven points around each point, mirrored at the ends."""
    padded = np.concatenate((logs[3:0:-1], logs, logs[-2:-5:-1]))
    seven = [padded[first : first + logs.size] for first in range(7)]
    for one, two in _MIDDLE_OF_SEVEN:
        seven[one], seven[two] = np.minimum(seven[one], seven[two]), np.maximum(seven[one], seven[two])
    return seven[3]


def edge_levels(
    left: Floats, right: Floats, sds: tuple[float, float], sd: float, rho: float, smallest: float
) -> tuple[float, float, float]:
    """Return the levels just before and after the place where two stretches meet, and the error of their
    difference.

    `sds` is the noise of one point on each side, and `sd` the noise that defines far points. Levels are
    Huber's estimates (Annals of Mathematical Statistics 35 (1964) 73-101). A slope common to both sides is
    subtracted as far as it is significant: its prior is a normal variable of mean 0.
    """
    before, after = huber(left, sd), huber(right, sd)
    time_left, time_right = centred(left.size), centred(right.size)
    square = (left.size**3 - left.size + right.size**3 - right.size) / 12
    limit = 2.5 * sd
    along = float(time_left @ clipped(left - before, limit) + time_right @ clipped(right - after, limit))
    believed = (SLOPE * smallest) ** 2
    doubt = sd**2 * (1 + rho) / (1 - rho) / square
    slope = along / square * believed / (believed + doubt)
    variance = sds[0] ** 2 * mean_variance(left.size, rho) + sds[1] ** 2 * mean_variance(right.size, rho)
    variance += ((left.size + right.size) / 2) ** 2 * believed * doubt / (believed + doubt)
    return before + slope * left.size / 2, after - slope * right.size / 2, math.sqrt(variance)


def mean_variance(count: int | Ints, rho: float | Floats) -> Any:
    """Return the variance of the mean of `count` points of variance 1 in a first-order autoregression."""
    away = 1 - rho
    return ((1 + rho) / away - 2 * rho * (1 - rho**count) / (count * away**2)) / count


def huber(values: Floats, sd: float) -> float:
    """Return the level of a few points: their mean, with less weight for points far off."""
    level = median(values)
    limit = _HUBER * sd
    for _ in range(2):
        level += float(np.add.reduce(clipped(values - level, limit))) / (_HUBER_INSIDE * values.size)
    return level


def clipped(values: Floats, limit: float) -> Floats:
    inside: Floats = np.minimum(np.maximum(values, -limit), limit)
    return inside


def centred(count: int) -> Floats:
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def relative(logs: float) -> float:
    """Return the relative change of a difference of logarithms, limited to the range of a float."""
    return math.expm1(min(logs, MOST_LOG))


def as_normal(t: float, df: float) -> float:
    """Return the normal quantile with the tail probability of Student's `t`: Wallace, Annals of Mathematical
    Statistics 30 (1959) 1124-1130.
    """
    return (8 * df + 1) / (8 * df + 3) * math.sqrt(df * math.log1p(t * t / df))


def places(short: int, *, last: bool, count: float) -> float:
    """Return the number of places in 200 points where noise could have a step with `short` points on its
    shorter side.

    `count` is the length of the series. The `last` step, at the end of the series, has few places. It has
    more in a young series, because 200 points hold many ends of young series.
    """
    most = min(_PLACES / short * (1 + _SHORT / short), 3.0 * count)
    if not last:
        return most
    young = max(1.0, (_LAST_YOUNG / count) ** 2)
    return min(most, _LAST_PLACES * max(1 + (_LAST_FEW / short) ** 8, short / _LAST_REACH) * young)


def searched(z: float, places_: float) -> float:
    """Return the probability that noise has a step as significant as `z` in this many places.

    A moving window exceeds z about z phi(z) times as often as it has places: Eichinger & Kirch, theorem 2.1.
    """
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return min(1.0, math.erfc(z / math.sqrt(2)) + places_ * z * density)


@lru_cache(maxsize=256)
def _limit(significance: float, short: int, *, last: bool = False) -> float:
    """Return the z with a p-value of `significance`."""
    many = places(short, last=last, count=math.inf)
    low, high = 1.0, 40.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if searched(middle, many) > significance else (low, middle)
    return high


def _peaks(over: Floats, apart: int) -> list[int]:
    """Return the places above zero that are the highest within `apart` places."""
    padded = np.concatenate(([-math.inf], over, [-math.inf]))
    tops = np.flatnonzero((over > 0) & (over >= padded[:-2]) & (over > padded[2:]))
    return [k for k in tops.tolist() if over[k] >= over[max(0, k - apart) : k + apart + 1].max()]


def threes(cuts: Sequence[int], count: int) -> list[tuple[int, int, int]]:
    """Return each cut with its neighbouring cuts or ends."""
    edges = [0, *cuts, count]
    return list(zip(edges, edges[1:], edges[2:], strict=False))
