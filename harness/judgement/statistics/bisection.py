"""Finds the steps that comparisons of commits imply, and the pair to compare next. Pure functions.

Positions are commits in order: 0 is GOOD, and commits 1 to N are suspects. An answer is the measured change
between two positions, with its standard deviation. All changes are logarithms of ratios.

An explanation is a set of at most three commits that each made a step, with or without a creep. In a creep
every commit adds a little: its levels are a slope and a Brownian motion. Steps and slope have a normal prior
as wide as the whole change, so the likelihood of an explanation is a normal distribution in closed form.
Bayes' rule weighs all explanations against each other. This is Bayesian variable selection (Mitchell &
Beauchamp, Journal of the American Statistical Association 83 (1988) 1023-1032), applied to change points
(Fearnhead, Statistics and Computing 16 (2006) 203-213). One answer may be wrong and have any value (Box &
Tiao, Biometrika 55 (1968) 119-129).

The next question halves the probability of one step: probabilistic bisection (Horstein, IEEE Transactions on
Information Theory 9 (1963) 136-143; Waeber, Frazier & Henderson, SIAM Journal on Control and Optimization 51
(2013) 2261-2279).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, expit, ndtr

SURE = 0.99
"""Smallest probability at which a commit is named."""
BELIEVED = 0.999
"""Probability that an answer is right."""
_WRONG_BY = 3.0
"""Width of the range of wrong answers, in whole changes."""
_UNEVEN = 1 / 24
"""Standard deviation of levels between commits without a step, in whole changes. Every commit changes the
time a little."""
_CREEP = 0.05
"""Prior probability of a creep without a step."""
_WITH_CREEP = 0.05
"""Prior probability of a creep beside steps."""
_WANDERS = 0.3
"""Standard deviation of a creep from its slope, over all commits, in whole changes."""
_SHARE = 0.5
"""Smallest size of a step beside a creep, in whole changes. Smaller steps count as part of the creep."""
_STEPS = {1: 0.85, 2: 0.1, 3: 0.05}
"""Prior probability of each number of steps."""
_MATTERS = 1 / 6
"""Smallest size, in whole changes, of a step that an answer has to include."""
UNLIKELY = 1e-4
"""Prior weight of a commit that changes nothing compiled. A commit that does has weight 1."""
MOST_ASKED = 3
"""Most measurements of one pair. A fourth answer adds hardly anything."""
_CHECKED = 0.4
"""Smallest probability of a block of suspects from which it is checked against the measurable commit before
it."""
_ALL_BUT = 0.9
"""Share of the probability before a position that one block must have to be compared by itself."""
_STAYS_BROKEN = 0.8
"""Probability that a commit does not build when the commit next to it does not."""
_ROUNDING = 1e-9
_TELLS = (1 - SURE) / 4
"""Smallest uncertainty of an answer for which its question is worth asking."""

Pair = tuple[int, int]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answer:
    """The measured change between two positions, and its standard deviation."""

    after: int
    upto: int
    value: float
    deviation: float


@dataclass(frozen=True, slots=True)
class SoughtStep:
    """A step whose commit is being searched for."""

    likely: Floats
    """Probability that each suspect made it. They sum to 1."""
    size: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """A set of gaps between compared positions that each contain a step, with the set's probability."""

    gaps: tuple[int, ...]
    sizes: tuple[float, ...]
    chance: float
    creep: bool
    """True if the other commits added a little each."""
    crept: bool
    """True if the creep made most of the change: no step makes half of it."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """All explanations of the answers."""

    prior: Floats
    whole: float
    """Size of the whole change."""
    positions: tuple[int, ...]
    """Positions that were compared. Gap 0 is between the first two."""
    explanations: tuple[Explanation, ...]

    @property
    def creep(self) -> float:
        """Return the probability of a creep in which no commit made half of the change."""
        return sum(each.chance for each in self.explanations if each.crept)

    def steps(self) -> list[SoughtStep]:
        """Return the steps that matter, in order of their commits, for the most likely number of steps."""
        by_count: dict[int, list[Explanation]] = {}
        for each in self._by_steps:
            by_count.setdefault(len(each.gaps), []).append(each)
        some = max(by_count.values(), key=lambda some: sum(each.chance for each in some))
        steps = [self._step(some, number) for number in range(len(some[0].gaps))]
        largest = max(abs(step.size) for step in steps)
        return [step for step in steps if abs(step.size) >= min(_MATTERS * self.whole, largest)]

    @property
    def _by_steps(self) -> list[Explanation]:
        return [each for each in self.explanations if not each.crept]

    def _step(self, some: Sequence[Explanation], number: int) -> SoughtStep:
        likely = np.zeros_like(self.prior)
        size, total = 0.0, sum(each.chance for each in some)
        for each in some:
            suspects = slice(*self.positions[each.gaps[number] : each.gaps[number] + 2])
            likely[suspects] += each.chance * self.prior[suspects] / self.prior[suspects].sum()
            size += each.chance * each.sizes[number]
        return SoughtStep(likely / likely.sum(), size / total)

    def holds(self, after: int, upto: int) -> float:
        """Return the probability that a commit after one position, up to another, made a step."""
        inside = [
            self.prior[max(after, low) : max(min(upto, high), after, low)].sum() / self.prior[low:high].sum()
            for low, high in pairwise(self.positions)
        ]
        return math.fsum(
            each.chance * (1 - math.prod(1 - inside[gap] for gap in each.gaps)) for each in self._by_steps
        )

    def others(self, blocks: Sequence[Block]) -> float:
        """Return the probability that a commit outside some blocks made a step that matters."""
        outside = {
            gap
            for gap, (low, high) in enumerate(pairwise(self.positions))
            if not any(block.after <= low and high <= block.upto for block in blocks)
        }
        return math.fsum(
            each.chance
            for each in self.explanations
            if any(
                gap in outside and abs(size) > _MATTERS * self.whole
                for gap, size in zip(each.gaps, each.sizes, strict=True)
            )
        )

    def doubt(self, after: int, upto: int) -> float:
        """Return the standard deviation of a pair's change among explanations by steps."""
        values = [
            sum(
                size
                for gap, size in zip(each.gaps, each.sizes, strict=True)
                if after <= self.positions[gap] < upto
            )
            for each in self._by_steps
        ]
        chances = np.array([each.chance for each in self._by_steps])
        mean = np.average(values, weights=chances)
        return float(np.sqrt(np.average((np.array(values) - mean) ** 2, weights=chances)))


def beliefs(prior: Floats, answers: Sequence[Answer]) -> Beliefs:
    """Weigh all explanations. `prior` holds the weight of each suspect. The first answer compares BAD with
    GOOD.
    """
    whole = abs(answers[0].value)
    ends = np.array([(each.after, each.upto) for each in answers])
    positions = np.unique(ends)
    starts = positions[:-1]
    measured = _Measured(
        spans=((ends[:, :1] <= starts) & (starts < ends[:, 1:])).astype(np.float64),
        weights=np.add.reduceat(prior, starts) / prior.sum(),
        values=np.array([each.value / whole for each in answers]),
        variances=np.array([(each.deviation / whole) ** 2 + _UNEVEN**2 for each in answers]),
    )
    most = min(len(_STEPS), starts.size)
    some = [_weighed(measured, 0, 1.0, _CREEP)]
    for count in range(1, most + 1):
        some.append(_weighed(measured, count, 0.0, (1 - _CREEP - _WITH_CREEP) * _STEPS[count]))
        some.append(_weighed(measured, count, 1.0, _WITH_CREEP * _STEPS[count]))
    total = np.logaddexp.reduce(np.concatenate([weighed.logs for weighed in some]))
    explanations = tuple(
        Explanation(
            tuple(gaps),
            tuple(whole * size for size in sizes),
            math.exp(log - total),
            creep=weighed.creep > 0,
            crept=weighed.creep > 0 and all(abs(size) < _SHARE for size in sizes),
        )
        for weighed in some
        for gaps, sizes, log in zip(
            weighed.gaps.tolist(), weighed.sizes.tolist(), weighed.logs.tolist(), strict=True
        )
    )
    return Beliefs(prior, whole, tuple(positions.tolist()), explanations)


@dataclass(frozen=True, slots=True)
class _Measured:
    """Answers in whole changes."""

    spans: Floats
    """1 where the pair of an answer (row) spans a gap (column)."""
    weights: Floats
    """Prior probability that a step is in a gap."""
    values: Floats
    variances: Floats


@dataclass(frozen=True, slots=True)
class _Weighed:
    """Sets of gaps as rows, the most likely sizes of their steps, and the logarithms of their weights."""

    gaps: NDArray[np.intp]
    sizes: Floats
    logs: Floats
    creep: float


def _weighed(measured: _Measured, count: int, creep: float, chance: float) -> _Weighed:
    """Weigh all sets of `count` gaps, with each answer as the wrong one. `chance` is their total prior
    probability.
    """
    choices = list(combinations(range(measured.weights.size), count))
    gaps = np.array(choices, dtype=np.intp).reshape(len(choices), count)
    prior = np.log(measured.weights[gaps]).sum(axis=1) + math.lgamma(count + 1) + math.log(chance)
    right = ~np.eye(measured.values.size, dtype=bool)
    right[0] = True  # The first answer is never taken as wrong.
    answers = np.where(right.all(axis=1), math.log(BELIEVED), math.log((1 - BELIEVED) / _WRONG_BY))
    logs, sizes = _likelihoods(measured, gaps, creep, right)
    logs += answers[:, None] + prior
    total = np.logaddexp.reduce(logs)
    mean = np.einsum("vs,vsn->sn", np.exp(logs - total), sizes)
    return _Weighed(gaps, mean, total, creep)


def _likelihoods(
    measured: _Measured, gaps: NDArray[np.intp], creep: float, right: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return the logarithm of each set's likelihood, and the most likely sizes of its steps.

    Each row of `right` says which answers count, and gets a row in both results. An answer that does not
    count is passed as 0, for a pair that spans no gap.
    """
    spans, values = right[:, :, None] * measured.spans, right * measured.values
    along = spans @ measured.weights
    wandering = _WANDERS**2 * (spans * measured.weights) @ spans.swapaxes(1, 2)
    covariance = creep * (along[:, :, None] * along[:, None, :] + wandering)
    covariance += np.where(right, measured.variances, 1.0)[:, None, :] * np.eye(values.shape[1])
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, np.concatenate((spans, values[:, :, None]), axis=2))
    products = white.swapaxes(1, 2) @ white
    gram, along = products[:, :-1, :-1], products[:, :-1, -1][:, gaps]
    inner = gram[:, gaps[:, :, None], gaps[:, None, :]] + np.eye(gaps.shape[1])
    sizes = np.linalg.solve(inner, along[..., None])[..., 0].astype(np.float64)
    gain = (along * sizes).sum(axis=2) - np.linalg.slogdet(inner)[1]
    none = products[:, -1, -1] + 2 * np.log(root.diagonal(axis1=1, axis2=2)).sum(axis=1)
    none += right.sum(axis=1) * math.log(2 * math.pi)
    return (gain - none[:, None]) / 2, sizes


def chance_of(effect: float, low: float, high: float, whole: float, reach: float) -> float:
    """Return the probability that an effect is the whole change and not zero.

    All numbers are logarithms of ratios. The interval extends `reach` standard deviations in both directions.
    Two estimates are made, and the estimate closer to 0.5 is returned: the likelihood ratio, and the
    probability that the effect exceeds half of the change. The second estimate is for small deviations, where
    other commits may have contributed to the effect.
    """
    size, along = abs(whole), math.copysign(effect, effect * whole)
    deviation, beyond = (high - low) / (2 * reach), along - size / 2
    if deviation <= 0:
        return float(beyond > 0)
    chances = float(ndtr(beyond / deviation)), float(expit(beyond * size / deviation**2))
    return min(chances, key=lambda chance: abs(chance - 0.5))


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """Suspects after one position, up to another, that no answer so far can distinguish."""

    after: int
    upto: int
    mass: float


def blocks(likely: Floats, cuts: Sequence[int]) -> list[Block]:
    """Return the suspects between measurable positions. `cuts` begins with 0 and ends with the
    last position.
    """
    total = np.concatenate(([0.0], np.cumsum(likely)))
    return [Block(low, high, float(total[high] - total[low])) for low, high in pairwise(cuts)]


def likeliest(likely: Floats, cuts: Sequence[int]) -> Block:
    return max(blocks(likely, cuts), key=lambda block: block.mass)


def nearest_before(position: int, positions: Sequence[int]) -> int:
    return max(each for each in positions if each < position)


def smallest_range(likely: Floats) -> Block:
    """Return the shortest range of suspects that together reach the probability needed to name them."""
    total = np.concatenate(([0.0], np.cumsum(likely)))
    # The shortest such range from each start, if there is one.
    starts = np.flatnonzero(total <= 1 - SURE + _ROUNDING)
    ends = np.searchsorted(total, total[starts] + SURE - _ROUNDING)
    shortest = int(np.argmin(ends - starts))
    first, last = int(starts[shortest]), int(ends[shortest])
    return Block(first, last, float(total[last] - total[first]))


def suspected(likely: Floats) -> int:
    """Return how many of the most likely suspects together hold the step with probability SURE."""
    return int(np.searchsorted(np.cumsum(np.sort(likely)[::-1]), SURE - _ROUNDING)) + 1


def questions(
    likely: Floats,
    cuts: Sequence[int],
    measurable: Sequence[int],
    broken: Collection[int],
    asked: Counter[Pair],
    devices: int = 1,
    base: int = 0,
) -> list[Pair]:
    """Return the pairs to compare next, at most one for each device; none if the answers suffice.

    `likely` is for one step, and `base` is a position before it. `cuts` are the positions worth measuring,
    `measurable` all positions that can be compared, in order. Positions near a `broken` one are probably
    broken too.
    """
    top = likeliest(likely, cuts)
    check = nearest_before(top.upto, measurable), top.upto
    if top.mass >= _CHECKED and not asked[check]:
        return [check]
    if top.mass >= SURE:
        return []
    chosen: list[Pair] = []
    levels = [
        (mass, pair) for mass, pair in _levels(blocks(likely, cuts), base) if _TELLS < mass < 1 - _TELLS
    ]
    for number in range(devices):
        target = (number + 1) / (devices + 1)
        options = [
            (_gain(mass, target) * _builds(pair[1], broken), pair)
            for mass, pair in levels
            if asked[pair] < MOST_ASKED and pair not in chosen
        ]
        if options:
            chosen.append(max(options, key=lambda option: option[0])[1])
    if not chosen and asked[check] < MOST_ASKED:
        return [check]
    return chosen


def _gain(mass: float, target: float) -> float:
    """Return the value in bits of a question with this much probability before a position: highest at the
    target.
    """
    share = 0.5 * mass / target if mass < target else 1 - 0.5 * (1 - mass) / (1 - target)
    return float(entr(share) + entr(1 - share)) / math.log(2)


def _builds(position: int, broken: Collection[int]) -> float:
    """Return the probability that a commit builds, by its distance from the nearest that does not."""
    if not broken:
        return 1.0
    return 1.0 - _STAYS_BROKEN ** min(abs(position - each) for each in broken)


def _levels(found: Sequence[Block], base: int) -> list[tuple[float, Pair]]:
    """Return the measurable positions, with the probability that each is bad.

    A position is compared with the base. If the last block before it has nearly all of the probability, it is
    compared with the start of that block: if it is bad, no check remains.
    """
    levels: list[tuple[float, Pair]] = []
    mass = 0.0
    for block in found[:-1]:
        mass += block.mass
        alone = block.mass >= _ALL_BUT * mass
        levels.append((mass, (block.after if alone else base, block.upto)))
    return levels
