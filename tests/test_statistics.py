"""Known answers, and the interval's promise kept on samples of many shapes."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from harness.judgement.statistics import CONFIDENCE, Summary, summarize

SCALE = 1.4826


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param([5.0], Summary(5.0, 5.0, 5.0, 0.0, 1), id="one"),
        pytest.param([4.0, 2.0], Summary(3.0, 2.0, 4.0, SCALE / 3, 2), id="two"),
        pytest.param([3.0, 1.0, 2.0], Summary(2.0, 1.0, 3.0, SCALE / 2, 3), id="three"),
        pytest.param([7.0] * 30, Summary(7.0, 7.0, 7.0, 0.0, 30), id="all the same"),
        pytest.param(list(range(1, 11)), Summary(5.5, 1, 10, SCALE * 2.5 / 5.5, 10), id="ten: too few"),
        pytest.param(list(range(1, 12)), Summary(6, 1, 11, SCALE * 3 / 6, 11), id="eleven: the extremes"),
        pytest.param(list(range(1, 21)), Summary(10.5, 3, 18, SCALE * 5 / 10.5, 20), id="twenty"),
        pytest.param([*range(1, 20), 10**9], Summary(10.5, 3, 18, SCALE * 5 / 10.5, 20), id="a stray slot"),
        pytest.param(list(range(1, 101)), Summary(50.5, 34, 67, SCALE * 25 / 50.5, 100), id="a hundred"),
    ],
)
def test_known_answers(times, expected):
    found = summarize(times)
    assert (found.median_ns, found.low_ns, found.high_ns) == (
        expected.median_ns,
        expected.low_ns,
        expected.high_ns,
    )
    assert found.spread == pytest.approx(expected.spread)
    assert found.count == expected.count


def test_the_half_width_is_relative():
    assert summarize(list(range(1, 21))).half_width == pytest.approx((18 - 3) / 2 / 10.5)
    assert summarize([5.0]).half_width == 0


@pytest.mark.parametrize("count", [1, 2, 7, 20, 31, 500])
def test_order_does_not_matter(count):
    rng = np.random.default_rng(count)
    times = rng.lognormal(7, 0.1, count).tolist()
    assert len({summarize(rng.permutation(times).tolist()) for _ in range(10)}) == 1


@pytest.mark.parametrize("count", [1, 5, 20, 333])
def test_times_scale(count):
    times = np.random.default_rng(1).lognormal(7, 0.1, count)
    one, many = summarize(times.tolist()), summarize((times * 1024).tolist())
    assert (many.median_ns, many.low_ns, many.high_ns) == (
        one.median_ns * 1024,
        one.low_ns * 1024,
        one.high_ns * 1024,
    )
    assert many.spread == pytest.approx(one.spread)


@pytest.mark.parametrize("count", [3, 8, 20, 100])
def test_the_sample_is_not_sorted_in_place(count):
    times = list(range(count, 0, -1))
    summarize(times)
    assert times == list(range(count, 0, -1))


def coverage(count: int, low: int) -> Fraction:
    """The exact probability that the median lies between the order statistics `low` and `count - 1 - low`."""
    outside = sum(math.comb(count, index) for index in range(low + 1))
    return 1 - Fraction(2 * outside, 2**count)


@pytest.mark.parametrize("count", [*range(11, 40), 99, 100, 257, 998, 999, 1000, 1001, 1999, 2000])
def test_the_interval_is_the_narrowest_that_keeps_its_promise(count):
    low = int(summarize(range(1, count + 1)).low_ns) - 1
    wanted = Fraction(CONFIDENCE).limit_denominator(1000)
    assert coverage(count, low) >= wanted
    assert coverage(count, low + 1) < wanted


def test_the_interval_narrows_as_times_are_added():
    widths = [
        (found.high_ns - found.low_ns) / count
        for count in (10, 30, 100, 300, 1000, 2000)
        for found in [summarize(range(1, count + 1))]
    ]
    assert all(later < earlier for earlier, later in pairwise(widths))


DISTRIBUTIONS = {
    "normal": (lambda rng, size: rng.normal(1000, 10, size), 1000.0),
    "lognormal": (lambda rng, size: rng.lognormal(7, 0.5, size), math.exp(7)),
    "exponential": (lambda rng, size: 1000 + rng.exponential(50, size), 1000 + 50 * math.log(2)),
    "heavy tail": (lambda rng, size: 1000 + rng.standard_cauchy(size), 1000.0),
    "two modes": (
        lambda rng, size: np.where(rng.random(size) < 0.3, 1200, 1000) + rng.uniform(-10, 10, size),
        1000 - 10 + 20 * 0.5 / 0.7,
    ),
}


@pytest.mark.parametrize("count", [8, 20, 101])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_interval_covers_the_median_as_often_as_it_says(name, count):
    draw, median = DISTRIBUTIONS[name]
    trials = 2000
    rng = np.random.default_rng(12345)
    inside = 0
    for times in draw(rng, (trials, count)):
        found = summarize(times.tolist())
        inside += found.low_ns <= median <= found.high_ns
    low = int(summarize(range(1, count + 1)).low_ns) - 1
    expected = float(coverage(count, low))
    # Four standard deviations of a binomial: with the seed fixed, a question of right or wrong.
    margin = 4 * math.sqrt(expected * (1 - expected) / trials)
    assert abs(inside / trials - expected) <= margin


def test_the_spread_is_the_relative_standard_deviation_of_normal_noise():
    times = np.random.default_rng(2).normal(1000, 20, 20_000)
    assert summarize(times.tolist()).spread == pytest.approx(0.02, rel=0.05)
