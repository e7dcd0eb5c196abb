"""Searches a short series by least squares over all divisions into levels.

1. Outliers are set aside as in a long series, except the newest two points, which may begin a level.
2. Of all divisions into 1, 2, 3, ... levels, dynamic programming finds the one with the least squared
   residuals: Auger & Lawrence, Bulletin of Mathematical Biology 51 (1989) 39-54.
3. Schwarz's criterion decides the number of levels (Annals of Statistics 6 (1978) 461-464). The likelihood
   allows for autocorrelated noise, of which true steps leave much less.
4. The noise is estimated from the residuals of those levels. So even a large step is not taken for noise.
5. The least significant step is removed until all remaining steps are significant.

A step must pass two tests. One is Student's test of robust levels. The other does not assume normal noise: it
counts how many points of the longer side, outliers included, lie among those of the shorter side. Two
alternating levels and heavy tails fail it. So does a level that lasts no longer than other stretches of the
series make likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness.judgement.statistics.paired import Floats, median
from harness.judgement.statistics.windows import (
    BURST,
    CANDIDATE,
    CLIP,
    CLIPPED_SQUARE,
    FEWEST,
    FEWEST_QUIET,
    MOST_RHO,
    Q80,
    REACH,
    YOUNG,
    Beside,
    BlockNoise,
    Bools,
    LevelShift,
    clipped,
    edge_levels,
    places,
    searched,
    tested,
)

LONGEST = 255
"""Most points of a series for this search: its cost grows with the square of their number."""
_MOST_LEVELS = 20
_FURTHER = 2
"""Levels tried beyond the criterion's choice. The criterion often misses a last step, and the
tests decide."""
_PER_STEP, _LAST_LESS = 3.75, 1.25
"""Penalty of a step, in logarithms of the number of points, and its discount if the last level is short."""
_RHO, _RHO_WEIGHT = 0.05, 12.0
"""Autocorrelation assumed for a series that cannot show its own, and the weight of the assumption
in points."""
_WANDER = 0.8
"""Autocorrelation from which it explains a series as well as steps do. The level then drifts."""
_NEAR, _NEAR_WEIGHT = 12, 12.0
"""Points on a side that determine the local noise, and the weight of all other points."""
_SIDE, _SIDE_WEIGHT = 24, 6.0
"""Points that determine a side's own noise, and the weight of both sides' points."""
_FIGURES = 200.0
"""Number of points that a p-value refers to. A step can be at any of them except near a series' ends."""
_IN_FULL = 0.2
"""Autocorrelation up to which points count in full in the counting test."""
_FEWEST_COUNTED = 8
"""Fewest points of a series for the counting test."""
_STAYS = 3
"""Fewest other stretches from which a typical length is known. A single one may be a throttled card, and two
may be a level and an outlier."""
_THIRD, _THIRD_SHARE = 0.5, 0.8
"""A point belongs to a third level if it is nearer to the middle than the first share of the way to both
levels.

The second number is the share of such points that makes a third level.
"""
_IN_A_ROW = 0.1
"""Largest probability of a run of points beyond the middle that is not taken for chance."""
_DF_PER_FIGURE = 1.0


@dataclass(frozen=True, slots=True)
class _Fit:
    """The residuals and noise of a series divided into levels."""

    residuals: Floats
    """Residuals, with outliers clipped."""
    raw: float
    """Standard deviation of a residual."""
    sd: float
    """The same, but not below the smallest that matters."""
    rho: float
    df: float
    criterion: float


class ExactSearch:
    """A series as logarithms without outliers, its noise, and the steps found in it."""

    def __init__(self, logs: Floats, kept: Bools, floor: float, smallest: float, significance: float) -> None:
        self._all, self._index = logs, np.append(np.flatnonzero(kept), logs.size)
        self.logs = logs = logs[kept]
        self.floor = floor
        self.smallest = smallest
        self.significance = significance
        self._divisions = _divisions(logs)
        self._fits = [_fit(logs, cuts, floor) for cuts in self._divisions]
        self._best = min(range(len(self._fits)), key=lambda k: self._fits[k].criterion)
        self._fit = self._fits[self._best]
        self._places_in_all = max(1.0, _FIGURES * (1 - (2 * FEWEST - 1) / logs.size))
        self._hints: dict[int, LevelShift] = {}
        self._tested: dict[tuple[int, int, int], tuple[Beside, float, float]] = {}
        self.noise = BlockNoise(
            sd=np.array([self._fit.sd]),
            raw=np.array([self._fit.raw]),
            rho=np.array([self._fit.rho]),
            df=np.array([self._fit.df]),
            fewest=np.array([FEWEST]),
        )

    def steps(self) -> list[LevelShift]:
        best: list[LevelShift] = []
        for cuts in self._divisions[self._best : self._best + 1 + _FURTHER]:
            steps = self._struck(cuts)
            if len(steps) > len(best):
                best = steps
        return best

    def hints(self) -> tuple[LevelShift, ...]:
        """Steps with a p-value of at most CANDIDATE, in order."""
        return tuple(self._hints[at] for at in sorted(self._hints))

    def block(self, _index: int) -> int:
        """Return 0: a short series has a single block of noise."""
        return 0

    def beside(self, low: int, at: int, high: int) -> Beside:
        fit = self._fit
        near = fit.residuals[max(low, at - _NEAR) : min(high, at + _NEAR)]
        both = _mixed(near, near.size - 2, fit.sd**2, _NEAR_WEIGHT)
        left, right = (
            math.sqrt(max(_mixed(side, side.size - 1, both, _SIDE_WEIGHT), self.floor**2))
            for side in (fit.residuals[low:at][-_SIDE:], fit.residuals[at:high][:_SIDE])
        )
        sd = max(math.sqrt(both), self.floor)
        edges = edge_levels(
            self.logs[low:at], self.logs[at:high], (left, right), fit.sd, fit.rho, self.smallest
        )
        return Beside(*edges, fit.df, sd, fit.rho)

    def _struck(self, cuts: Sequence[int]) -> list[LevelShift]:
        """Return the steps that remain after removing the least significant until all are significant."""
        left = list(cuts)
        while left:
            edges = [0, *left, self.logs.size]
            levels = [median(self.logs[a:b]) for a, b in pairwise(edges)]
            steps = [self._judged(edges, levels, k) for k in range(1, len(edges) - 1)]
            worst = max(range(len(steps)), key=lambda k: (steps[k].p_value, -steps[k].z))
            for step in steps:
                if step.p_value <= CANDIDATE:
                    self._hints[step.at] = step
            if steps[worst].p_value <= self.significance:
                return steps
            del left[worst]
        return []

    def _judged(self, edges: Sequence[int], levels: Sequence[float], k: int) -> LevelShift:
        low, at, high = edges[k - 1 : k + 2]
        if (low, at, high) not in self._tested:
            self._tested[low, at, high] = self._by_levels(low, at, high)
        beside, z, p_value = self._tested[low, at, high]
        if p_value <= CANDIDATE and self.logs.size >= _FEWEST_COUNTED:
            p_value = max(p_value, self._counted(edges, levels, k, beside))
        return LevelShift(low, at, high, z, p_value)

    def _by_levels(self, low: int, at: int, high: int) -> tuple[Beside, float, float]:
        """Return the levels beside a step, and the step's z and p-value by these levels."""
        short = min(at - low, high - at)
        beside, z = tested(self.beside, self.smallest, low, at, high)
        last = high == self.logs.size and high - at <= at - low
        p_value = searched(z, places(min(short, REACH), last=last, count=self.logs.size))
        return beside, z, min(p_value, self._places_in_all * math.erfc(z / math.sqrt(2)))

    def _counted(self, edges: Sequence[int], levels: Sequence[float], k: int, beside: Beside) -> float:
        """Return the p-value of a step by the points' sides of the middle, or by their ranks.

        A side extends as far as levels stay on their side of the middle.
        """
        at, middle = edges[k], (beside.before + beside.after) / 2
        is_up = beside.after > beside.before
        one, two = k - 1, k + 1
        while one > 0 and (levels[one - 1] < middle) == is_up:
            one -= 1
        while two < len(levels) and (levels[two] > middle) == is_up:
            two += 1
        low, high = max(edges[one], at - REACH), min(edges[two], at + REACH)
        start, middle_at, stop = (int(self._index[k]) if k else 0 for k in (low, at, high))
        before, after = self._all[start:middle_at], self._all[middle_at:stop]
        short, long = (after, before) if after.size <= before.size else (before, after)
        is_over = is_up == (after.size <= before.size)
        own = int(np.count_nonzero((short > middle) == is_over))
        young = at == edges[1] and self.logs.size < YOUNG
        if own < (FEWEST_QUIET if young else min(FEWEST, short.size)):
            return 1.0
        rate = (int(np.count_nonzero((long > middle) == is_over)) + 0.5) / (long.size + 1)
        spread = (1 + beside.rho) / (1 - beside.rho)
        sides = _of_sides(beside.rho, abs(beside.after - beside.before) / 2 / beside.sd)
        fewer = min(1.0, (1 + _IN_FULL) / (1 - _IN_FULL) / ((1 + sides) / (1 - sides)))
        last = edges[two] == self.logs.size and after.size <= before.size
        many = places(short.size, last=last, count=self.logs.size)
        counted = _binomial_tail(own, short.size, rate) ** fewer * (many if last else self._places_in_all)
        ranked = math.erfc(_rank_z(short, long) / math.sqrt(2 * spread)) * many
        is_beyond = (self._all > middle) == is_over
        is_beyond &= ~self._is_third(edges, middle, _THIRD * abs(beside.after - beside.before) / 2)
        stays = _stays(is_beyond, (middle_at, stop) if short is after else (start, middle_at))
        return float(min(1.0, max(min(counted, ranked), stays)))

    def _is_third(self, edges: Sequence[int], middle: float, near: float) -> Bools:
        """Return which points belong to levels halfway between two others."""
        starts = self._index[np.asarray(edges)]
        starts[0] = 0
        is_near = np.abs(self._all - middle) < near
        shares = np.add.reduceat(is_near, starts[:-1], dtype=np.float64) / np.diff(starts)
        return np.repeat(shares >= _THIRD_SHARE, np.diff(starts))


def _stays(is_beyond: Bools, stretch: tuple[int, int]) -> float:
    """Return the probability of so long a stretch beyond the middle, if the series were a two-state Markov
    chain.

    It is 0 if the points there follow each other no more often than by chance. The lengths of stretches of
    such a chain are geometric: Gabriel & Neumann, Quarterly Journal of the Royal Meteorological Society 88
    (1962) 90-95.
    """
    start, stop = stretch
    is_beyond = is_beyond.copy()
    is_beyond[start:stop] = False
    figures = int(np.count_nonzero(is_beyond))
    stays = int(np.count_nonzero(is_beyond[1:] & ~is_beyond[:-1])) + int(is_beyond[0])
    rate = figures / max(is_beyond.size - (stop - start), 1)
    if (
        stays < _STAYS
        or figures > BURST * stays
        or _binomial_tail(figures - stays, figures, rate) > _IN_A_ROW
    ):
        return 0.0  # first: levels of their own; second: chance
    times = 1 if stop == is_beyond.size else stays + 1
    return float(times * ((figures - stays + 0.5) / (figures + 1)) ** (stop - start - 1))


def strays_of_few(logs: Floats, kept: Bools) -> Bools:
    """Return which points of a short series are kept: the newest two too, and runs of outliers that may be a
    level.

    A run is on one side of the points around it. It may be a level if the nearest kept point before or after
    it is like it, or if it lies between these points.
    """
    kept = kept.copy()
    kept[-2:] = True
    gone, known = np.flatnonzero(~kept), np.flatnonzero(kept)
    over = np.array([logs[at] > median(logs[max(0, at - 3) : at + 4]) for at in gone.tolist()])
    ends = np.flatnonzero((np.diff(gone) > 1) | (over[1:] != over[:-1])) + 1
    for run in np.split(gone, ends) if gone.size else ():
        start, stop = int(run[0]), int(run[-1]) + 1
        level = median(logs[start:stop])
        unlike = abs(level - median(logs[max(0, start - 3) : stop + 3])) / 2
        off = [level - logs[beside] for beside in (*known[known < start][-1:], *known[known >= stop][:1])]
        if min(map(abs, off)) < unlike or len({bool(one > 0) for one in off}) == 2:
            kept[run] = True
    return kept


def _divisions(logs: Floats) -> list[tuple[int, ...]]:
    """Return the cuts with the least squared residuals for 1, 2, 3, ... levels."""
    count = logs.size
    centred = logs - logs.mean()
    sums = np.concatenate(([0.0], np.cumsum(centred)))
    squares = np.concatenate(([0.0], np.cumsum(centred**2)))
    index = np.arange(count + 1)
    sizes = index - index[:, None]
    cost = squares - squares[:, None] - (sums - sums[:, None]) ** 2 / np.maximum(sizes, 1)
    fewest = np.full((count + 1, 1), FEWEST)
    fewest[0] = FEWEST_QUIET if count < YOUNG else FEWEST
    cost[sizes < fewest] = math.inf
    least = cost[0]
    cuts_to: list[Floats] = []
    divisions: list[tuple[int, ...]] = [()]
    for _ in range(min(_MOST_LEVELS, count // FEWEST + 1) - 1):
        totals = least[:, None] + cost
        cuts_to.append(totals.argmin(axis=0))
        least = totals[cuts_to[-1], index]
        if not math.isfinite(least[count]):
            break
        cuts, end = [], count
        for came_from in reversed(cuts_to):
            end = int(came_from[end])
            cuts.append(end)
        divisions.append(tuple(reversed(cuts)))
    return divisions


def _fit(logs: Floats, cuts: Sequence[int], floor: float) -> _Fit:
    """Return the noise around the levels between `cuts`, and how well these explain it."""
    count = logs.size
    edges = np.array([0, *cuts, count])
    sizes = np.diff(edges)
    medians = [median(logs[a:b]) for a, b in pairwise(edges.tolist())]
    residuals = logs - np.repeat(medians, sizes)
    free = max(count - sizes.size, 1)
    size = np.sort(np.abs(residuals))
    scale = max(float(size[int(0.8 * (count - 1))]) / Q80 * math.sqrt(count / free), floor)
    # Use means without outliers. The median of two alternating levels would be one of them.
    means = np.add.reduceat(clipped(residuals, CLIP * scale), edges[:-1]) / sizes
    residuals = clipped(residuals - np.repeat(means, sizes), CLIP * scale)
    square = float(residuals @ residuals)
    raw = math.sqrt(square / free / CLIPPED_SQUARE)
    rho = _autocorrelation(residuals, edges[1:-1]) * min(1.0, (raw / floor) ** 2 / 4)
    rho = (rho * (count - sizes.size) + _RHO * _RHO_WEIGHT) / (count - sizes.size + _RHO_WEIGHT)
    rho = min(max(rho, 0.0), MOST_RHO)
    carried = min(rho, _WANDER)
    came = residuals[1:] - carried * residuals[:-1]
    variance = max(float(came @ came) / max(count - 1, 1), floor**2)
    is_last = bool(cuts) and sizes[-1] <= sizes[-2]
    price = _PER_STEP * len(cuts) - (_LAST_LESS if is_last else 0.0)
    return _Fit(
        residuals=residuals,
        raw=raw,
        sd=max(raw, floor),
        rho=rho,
        df=max(_DF_PER_FIGURE * free * (1 - rho**2) / (1 + rho**2), 1.0),
        criterion=count * math.log(variance) + price * math.log(count),
    )


def _autocorrelation(residuals: Floats, cuts: Floats) -> float:
    """Return the autocorrelation between successive points within a level.

    Estimating the levels reduces it by about (1 + 3 rho) over the number of points of a level: Kendall,
    Biometrika 41 (1954) 403-404.
    """
    count, square = residuals.size, float(residuals @ residuals)
    inside = np.ones(count - 1, dtype=np.bool_)
    inside[cuts - 1] = False
    pairs = int(np.count_nonzero(inside))
    if not pairs or not square:
        return 0.0
    rho = float((residuals[1:] * residuals[:-1])[inside].sum()) / pairs / (square / count)
    return rho + (1 + 3 * max(rho, 0.0)) * (cuts.size + 1) / count


def _mixed(residuals: Floats, free: int, variance: float, weight: float) -> float:
    """Return the variance of residuals, mixed with `variance`, which has the weight of `weight` points."""
    own = float(residuals @ residuals) * residuals.size / max(free, 1)
    return (own + weight * variance) / (residuals.size + weight)


def _binomial_tail(hits: int, trials: int, rate: float) -> float:
    """Return the probability of `hits` or more."""
    return sum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(hits, trials + 1))


def _of_sides(rho: float, away: float) -> float:
    """Return the autocorrelation of the side of a line on which points lie, `away` standard deviations from
    the level.

    Points that far out are hardly correlated. It is the first term of Pearson's tetrachoric series,
    Philosophical Transactions of the Royal Society A 195 (1900) 1-47.
    """
    beyond = math.erfc(away / math.sqrt(2)) / 2
    density = math.exp(-away * away / 2) / math.sqrt(2 * math.pi)
    return rho * density**2 / (beyond * (1 - beyond)) if beyond > 1e-9 else 0.0


def _rank_z(short: Floats, long: Floats) -> float:
    """Return the distance between the ranks of two samples, in standard deviations: Mann & Whitney, Annals of
    Mathematical Statistics 18 (1947) 50-60.
    """
    ranks = np.concatenate((short, long)).argsort(kind="stable").argsort(kind="stable") + 1
    above = float(ranks[: short.size].sum()) - short.size * (short.size + 1) / 2
    variance = short.size * long.size * (short.size + long.size + 1) / 12
    return abs(above - short.size * long.size / 2) / math.sqrt(variance)
