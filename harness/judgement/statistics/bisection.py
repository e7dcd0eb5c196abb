"""Which of many commits made a change: what answers of any sureness say together, and what to ask next. Pure.

Positions are commits in order, 0 the one that is good; the suspects are 1 to count. An answer is of a pair of
positions: how likely the change lies between them. Each is held to be wrong once in a thousand at the least,
however clear it is, so that what comes later can overrule it; less often only where it is just what is
expected, as what is wrong is so by any amount (Box & Tiao, Biometrika 55 (1968) 119-129). It is probabilistic
bisection (Horstein, IEEE Transactions on Information Theory 9 (1963) 136-143; Waeber, Frazier & Henderson,
SIAM Journal on Control and Optimization 51 (2013) 2261-2279). With clear answers it asks what bisection by
halves does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, expit, ndtr

SURE = 0.99
"""Probability that the named suspects must have together."""
BELIEVED = 0.999
"""The most that an answer is believed, either way, unless it is just what is expected of one of the ends."""
_WRONG_BY = 3.0
"""The span, in changes, over which answers that are wrong lie anywhere."""
_MOST_TIMES = 100.0
"""Largest factor by which the doubt in an answer shrinks if it is just what an end would give."""
UNLIKELY = 1e-4
"""Prior weight of a commit that touches nothing compiled, beside 1 for a commit that does."""
MOST_ASKED = 3
"""Largest number of times that one pair is measured. A fourth answer hardly adds to three."""
_CHECKED = 0.4
"""Smallest probability of a block of suspects that is compared with the measurable commit before it."""
_ALL_BUT = 0.9
"""Share of the suspicion before a position that one block must have to be asked for by itself."""
_STAYS_BROKEN = 0.8
"""Probability that a commit does not build when the commit next to it does not."""
_ROUNDING = 1e-9
_TELLS = (1 - SURE) / 4
"""Smallest uncertainty of an answer, known beforehand, for which its question is worth asking."""

Pair = tuple[int, int]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Observation:
    """An answer: the probability that the change is after one position, and at the other or before."""

    after: int
    upto: int
    chance: float
    believed: float = BELIEVED


def chance_of(effect: float, low: float, high: float, whole: float, reach: float) -> float:
    """Return the probability that an effect is the whole change and not zero.

    All numbers are logarithms of ratios. The interval reaches `reach` standard deviations either way. Two
    estimates are made, and the one closer to 0.5 is returned: the likelihood ratio, and the probability that
    the effect exceeds half of the change. The second one is for small deviations, where other commits may
    have a part in the effect.
    """
    size, along = abs(whole), math.copysign(effect, effect * whole)
    deviation, beyond = (high - low) / (2 * reach), along - size / 2
    if deviation <= 0:
        return float(beyond > 0)
    chances = float(ndtr(beyond / deviation)), float(expit(beyond * size / deviation**2))
    return min(chances, key=lambda chance: abs(chance - 0.5))


def believed(low: float, high: float, whole: float) -> float:
    """Return the most that an effect with such an interval is believed. All are logarithms of ratios.

    A wrong one lies anywhere, so seldom where the interval holds just what is expected of one of the ends.
    """
    if not whole or not (low <= 0 <= high or low <= whole <= high):
        return BELIEVED
    span = max(high - low, 1e-300)
    times = min(max(_WRONG_BY * abs(whole) / span, 1.0), _MOST_TIMES)
    return 1 - (1 - BELIEVED) / times


def beliefs(prior: Floats, answers: Collection[Observation]) -> Floats:
    """Return how likely each suspect is: the first is position 1. They sum to 1."""
    logs = np.log(prior)
    for answer in answers:
        chance = min(max(answer.chance, 1 - answer.believed), answer.believed)
        inside = np.zeros(prior.size, dtype=np.bool_)
        inside[answer.after : answer.upto] = True
        logs += np.where(inside, np.log(chance), np.log1p(-chance))
    likely: Floats = np.exp(logs - logs.max())
    likely /= likely.sum()
    return likely


@dataclass(frozen=True, slots=True)
class Block:
    """Suspects that no answer so far can tell apart: after one position, up to another."""

    after: int
    upto: int
    mass: float


def blocks(likely: Floats, cuts: Sequence[int]) -> list[Block]:
    """The suspects between positions that can be measured, which begin with 0 and end with the last."""
    total = np.concatenate(([0.0], np.cumsum(likely)))
    return [Block(low, high, float(total[high] - total[low])) for low, high in pairwise(cuts)]


def likeliest(likely: Floats, cuts: Sequence[int]) -> Block:
    return max(blocks(likely, cuts), key=lambda block: block.mass)


def nearest_before(position: int, positions: Sequence[int]) -> int:
    return max(each for each in positions if each < position)


def smallest_range(likely: Floats) -> Block:
    """Return the fewest suspects in a row that have what is needed to name them."""
    total = np.concatenate(([0.0], np.cumsum(likely)))
    # Of each start, where it has enough, if there is so much left.
    starts = np.flatnonzero(total <= 1 - SURE + _ROUNDING)
    ends = np.searchsorted(total, total[starts] + SURE - _ROUNDING)
    shortest = int(np.argmin(ends - starts))
    first, last = int(starts[shortest]), int(ends[shortest])
    return Block(first, last, float(total[last] - total[first]))


def suspected(likely: Floats) -> int:
    """Return how many suspects it takes, the likeliest first."""
    return int(np.searchsorted(np.cumsum(np.sort(likely)[::-1]), SURE - _ROUNDING)) + 1


def questions(
    likely: Floats,
    cuts: Sequence[int],
    measurable: Sequence[int],
    broken: Collection[int],
    asked: Counter[Pair],
    devices: int = 1,
) -> list[Pair]:
    """Return the pairs to compare next, one for each device at the most; none where all is said that can be.

    `cuts` are the positions worth asking for, `measurable` all that can be, in order. Beside `broken`
    ones, which cannot, others are likely broken too.
    """
    top = likeliest(likely, cuts)
    check = nearest_before(top.upto, measurable), top.upto
    if top.mass >= _CHECKED and not asked[check]:
        return [check]
    if top.mass >= SURE:
        return []
    chosen: list[Pair] = []
    levels = [(mass, pair) for mass, pair in _levels(blocks(likely, cuts)) if _TELLS < mass < 1 - _TELLS]
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
    """Return the value of a question with so much of the suspicion before a place: a bit at the target."""
    share = 0.5 * mass / target if mass < target else 1 - 0.5 * (1 - mass) / (1 - target)
    return float(entr(share) + entr(1 - share)) / math.log(2)


def _builds(position: int, broken: Collection[int]) -> float:
    """Return how likely a commit builds, so far from the nearest that does not."""
    if not broken:
        return 1.0
    return 1.0 - _STAYS_BROKEN ** min(abs(position - each) for each in broken)


def _levels(found: Sequence[Block]) -> list[tuple[float, Pair]]:
    """Return the positions that can be measured, with the probability that each is bad.

    A position is compared with the good end. Where the last block before it has nearly all of the
    probability, it is compared with the start of that block: if it is bad, no check remains.
    """
    levels: list[tuple[float, Pair]] = []
    mass = 0.0
    for block in found[:-1]:
        mass += block.mass
        alone = block.mass >= _ALL_BUT * mass
        levels.append((mass, (block.after if alone else 0, block.upto)))
    return levels
