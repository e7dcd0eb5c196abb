"""Effects of one process: known answers, symmetries, and errors that are what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness.statistics.paired import (
    MIN_QUADS,
    clock_exponent,
    log_ratios,
    order_effect,
    process_effect,
    tick_error,
)

SWAPPED = {"ABBA": "BAAB", "BAAB": "ABBA"}


def random_orders(rng, count):
    return [("ABBA", "BAAB")[index] for index in rng.integers(0, 2, count)]


def head_slots(orders):
    """1 where a slot is head's, 0 where it is base's."""
    return np.array([[0, 1, 1, 0] if order == "ABBA" else [1, 0, 0, 1] for order in orders])


def quads(rng, count=50, *, effect=0.0, noise=0.001):
    orders = random_orders(rng, count)
    logs = 14 + head_slots(orders) * effect + noise * rng.standard_normal((count, 4))
    return orders, np.exp(logs)


def as_often_as(rate, count, trials):
    """Whether `count` of `trials` agrees with `rate`: exact two-sided binomial test at 0.001."""
    return stats.binomtest(int(count), trials, rate).pvalue > 1e-3


def no_oftener_than(rate, count, trials):
    return stats.binomtest(int(count), trials, rate, alternative="greater").pvalue > 1e-3


class TestLogRatios:
    def test_known_answers(self):
        found = log_ratios(["ABBA", "BAAB"], [[1, 2, 8, 4], [1, 2, 8, 4]])
        assert found == pytest.approx([math.log(2), -math.log(2)])

    def test_a_slowdown_of_a_tenth(self):
        found = log_ratios(["ABBA", "BAAB"], [[1, 1.1, 1.1, 1], [1.1, 1, 1, 1.1]])
        assert found == pytest.approx([math.log(1.1)] * 2)

    def test_swapping_arms_negates(self):
        orders, times = quads(np.random.default_rng(1))
        swapped = log_ratios([SWAPPED[order] for order in orders], times)
        assert swapped == pytest.approx(-log_ratios(orders, times), abs=0)

    @pytest.mark.parametrize("scale", [1e-9, 1024.0, 1e12])
    def test_the_unit_does_not_matter(self, scale):
        orders, times = quads(np.random.default_rng(2))
        assert log_ratios(orders, times * scale) == pytest.approx(log_ratios(orders, times), abs=1e-13)

    def test_what_a_quad_has_in_common_cancels_and_so_does_a_steady_drift(self):
        orders, times = quads(np.random.default_rng(3))
        common = np.exp(np.random.default_rng(4).normal(0, 0.3, (50, 1)))
        drift = np.exp(0.01 * np.arange(200).reshape(50, 4))
        assert log_ratios(orders, times * common * drift) == pytest.approx(
            log_ratios(orders, times), abs=1e-13
        )

    def test_no_quads(self):
        assert log_ratios([], np.empty((0, 4))).shape == (0,)

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
    def test_a_time_that_cannot_be(self, bad):
        with pytest.raises(ValueError, match="positive finite"):
            log_ratios(["ABBA", "ABBA"], [[1, 1, 1, 1], [1, 1, bad, 1]])

    @pytest.mark.parametrize("order", ["AABB", "abba", "", "ABAB"])
    def test_an_order_that_cannot_be(self, order):
        with pytest.raises(ValueError, match="expected ABBA or BAAB"):
            log_ratios(["ABBA", order], np.ones((2, 4)))

    @pytest.mark.parametrize("shape", [(2, 3), (3, 4), (2,), (2, 4, 1)])
    def test_a_shape_that_cannot_be(self, shape):
        with pytest.raises(ValueError, match="shape"):
            log_ratios(["ABBA", "BAAB"], np.ones(shape))


class TestProcessEffect:
    @pytest.mark.parametrize(
        ("ratios", "value", "standard_error", "df"),
        [
            # Winsorised: 2 2 2 3 4 5 6 7 7 7, whose squares about 4.5 sum to 42.5.
            pytest.param(range(10), 4.5, math.sqrt(42.5 / 30), 5, id="ten"),
            pytest.param([*range(9), 1e6], 4.5, math.sqrt(42.5 / 30), 5, id="a stray one"),
            pytest.param([-1e6, *range(1, 9), 1e6], 4.5, math.sqrt(42.5 / 30), 5, id="one to each side"),
            # Winsorised: 2 2 3 4 4, whose squares about 3 sum to 4.
            pytest.param([1, 2, 3, 4, 100], 3, math.sqrt(4 / 6), 2, id="five"),
            # Trimmed 0 1 5; winsorised 0 0 1 5 5, whose squares about 2.2 sum to 26.8.
            pytest.param([0, 0, 1, 5, 9], 2, math.sqrt(26.8 / 6), 2, id="lopsided"),
            pytest.param([1, 2, 3, 4, 5, 6, 7, 8, 9], 5, math.sqrt((2 * 3**2 * 2 + 10) / 42), 6, id="nine"),
            pytest.param([0.25] * 7, 0.25, 0, 4, id="all the same"),
        ],
    )
    def test_known_answers(self, ratios, value, standard_error, df):
        found = process_effect(list(ratios))
        assert found.value == pytest.approx(value)
        assert found.standard_error == pytest.approx(standard_error)
        assert (found.df, found.quads) == (df, len(ratios))

    @pytest.mark.parametrize("count", [5, 6, 9, 10, 24, 25, 50, 333])
    def test_it_is_yuens(self, count):
        ratios = np.random.default_rng(count).normal(0.3, 1, count)
        found = process_effect(ratios)
        # Against a sample that never varies Yuen's test of two samples is that of one.
        peer = stats.ttest_ind(ratios, np.zeros(count), equal_var=False, trim=0.2)
        assert found.value == pytest.approx(stats.trim_mean(ratios, 0.2))
        assert found.value / found.standard_error == pytest.approx(peer.statistic)
        assert 2 * stats.t.sf(abs(peer.statistic), found.df) == pytest.approx(peer.pvalue)

    def test_swapping_arms_negates(self):
        ratios = np.random.default_rng(5).standard_t(2, 50)
        one, other = process_effect(ratios), process_effect(-ratios)
        assert other.value == pytest.approx(-one.value)
        assert other.standard_error == pytest.approx(one.standard_error)

    def test_the_order_of_quads_does_not_matter(self):
        rng = np.random.default_rng(6)
        ratios = rng.standard_t(2, 50)
        assert len({process_effect(rng.permutation(ratios)) for _ in range(20)}) == 1

    def test_a_small_scatter_about_a_large_effect_is_not_lost_in_rounding(self):
        ratios = np.random.default_rng(7).normal(0, 1e-9, 50)
        assert process_effect(ratios + 3).standard_error == pytest.approx(
            process_effect(ratios).standard_error, rel=1e-3
        )

    def test_the_sample_is_not_sorted_in_place(self):
        ratios = np.arange(10.0)[::-1].copy()
        process_effect(ratios)
        assert (ratios == np.arange(10.0)[::-1]).all()

    @pytest.mark.parametrize("count", range(MIN_QUADS))
    def test_too_few(self, count):
        with pytest.raises(ValueError, match=f"{count} quads; at least 5"):
            process_effect([0.0] * count)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_a_ratio_that_cannot_be(self, bad):
        with pytest.raises(ValueError, match="finite"):
            process_effect([0, 0, bad, 0, 0, 0, 0])

    def test_a_table_is_not_a_sample(self):
        with pytest.raises(ValueError, match="axes"):
            process_effect(np.zeros((5, 5)))

    @pytest.mark.parametrize("count", [25, 50])
    @pytest.mark.parametrize("tail", ["normal", "heavy"])
    def test_the_standard_error_is_right(self, count, tail):
        rng = np.random.default_rng(count)
        trials = 2000
        draw = rng.standard_normal if tail == "normal" else lambda shape: rng.standard_t(2, shape)
        found = [process_effect(ratios) for ratios in draw((trials, count))]
        t = np.array([effect.value / effect.standard_error for effect in found])
        assert as_often_as(0.1, (np.abs(t) > stats.t.isf(0.05, found[0].df)).sum(), trials)


class TestTicks:
    """A timer that counts in ticks of 1, and slots of so many of them."""

    @staticmethod
    def measured(rng, ticks, trials, count=50, effect=0.0, noise=0.0):
        head = head_slots(["ABBA"] * count)
        starts = rng.random((trials, count, 4))
        ends = starts + ticks * np.exp(effect * head) + noise * rng.standard_normal(starts.shape)
        times = np.floor(ends) - np.floor(starts)
        return [
            process_effect(log_ratios(["ABBA"] * count, each), tick_error(1, ticks, count)) for each in times
        ]

    def test_ties_have_the_standard_error_of_the_timer(self):
        tied = np.zeros(50)
        assert process_effect(tied).standard_error == 0
        assert process_effect(tied, resolution=0.0006).standard_error == 0.0006

    def test_a_larger_error_stays(self):
        ratios = np.arange(10.0)
        assert process_effect(ratios, resolution=0.1) == process_effect(ratios)

    def test_the_error_of_the_timer(self):
        starts = np.random.default_rng(8).random((1000, 50, 4))
        times = np.floor(starts + 100.5) - np.floor(starts)
        ratios = log_ratios(["ABBA"] * 50_000, times.reshape(-1, 4)).reshape(-1, 50)
        assert tick_error(1, 100.5, 1) == pytest.approx(1.25 * ratios.std(), rel=0.02)
        values = [process_effect(each).value for each in ratios]
        assert tick_error(1, 100.5, 50) == pytest.approx(np.std(values), rel=0.1)
        assert tick_error(1, 100.5, 50) >= np.std(values) * 0.95

    @pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
    @pytest.mark.parametrize("ticks", [100.0, 100.25, 100.5, 400.3])
    def test_alike_arms_are_seldom_told_apart(self, ticks, noise):
        found = self.measured(np.random.default_rng(int(4 * ticks)), ticks, 2000, noise=noise)
        t = np.abs([effect.value / effect.standard_error for effect in found])
        for rate in (0.1, 0.01):
            assert no_oftener_than(rate, (t > stats.t.isf(rate / 2, found[0].df)).sum(), len(t))

    @pytest.mark.parametrize("effect", [0.0025, 0.005, 0.01])
    @pytest.mark.parametrize("ticks", [100.0, 100.1, 100.5])
    def test_an_effect_below_a_tick_is_seen(self, ticks, effect):
        found = self.measured(np.random.default_rng(9), ticks, 300, effect=effect)
        # Trimming takes a little of what only a few quads show, never more than a twentieth of a tick here.
        assert np.mean([each.value for each in found]) == pytest.approx(effect, abs=0.0006)


class TestOrderEffect:
    @pytest.mark.parametrize("ties", [False, True])
    @pytest.mark.parametrize("count", [12, 50])
    def test_it_is_mann_and_whitneys(self, count, ties):
        rng = np.random.default_rng(count)
        orders = random_orders(rng, count)
        ratios = rng.normal(0, 1, count)
        ratios = ratios.round(0) if ties else ratios
        first = np.array(orders) == "ABBA"
        peer = stats.mannwhitneyu(ratios[first], ratios[~first], method="asymptotic")
        assert order_effect(orders, ratios) == pytest.approx(peer.pvalue)

    def test_it_is_as_rare_as_it_says(self):
        rng = np.random.default_rng(10)
        p_values = np.array(
            [order_effect(random_orders(rng, 50), rng.standard_t(2, 50)) for _ in range(2000)]
        )
        assert as_often_as(0.05, (p_values < 0.05).sum(), 2000)
        assert no_oftener_than(0.001, (p_values < 0.001).sum(), 2000)

    def test_a_clock_that_falls_in_every_quad(self):
        rng = np.random.default_rng(11)
        orders = random_orders(rng, 50)
        falls = np.array([0, 0.004, 0.005, 0.005])
        times = np.exp(14 + falls + 0.001 * rng.standard_normal((50, 4)))
        assert order_effect(orders, log_ratios(orders, times)) < 1e-6
        # At random the order takes the bias away that either alone has.
        assert abs(process_effect(log_ratios(orders, times)).value) < 0.001
        assert process_effect(log_ratios(["ABBA"] * 50, times)).value > 0.0015

    @pytest.mark.parametrize(
        ("orders", "ratios"),
        [
            pytest.param(["ABBA"] * 20, range(20), id="one order only"),
            pytest.param(["ABBA"] * 20 + ["BAAB"] * 3, range(23), id="three of one"),
            pytest.param(["ABBA", "BAAB"] * 10, [0.0] * 20, id="all tied"),
            pytest.param([], [], id="none"),
        ],
    )
    def test_what_cannot_tell(self, orders, ratios):
        assert order_effect(orders, list(ratios)) == 1

    def test_swapping_orders_changes_nothing(self):
        rng = np.random.default_rng(12)
        orders, ratios = random_orders(rng, 30), rng.normal(0, 1, 30)
        assert order_effect([SWAPPED[order] for order in orders], ratios) == order_effect(orders, ratios)

    @pytest.mark.parametrize("ratios", [[0.0] * 9, [math.nan] + [0.0] * 9])
    def test_what_cannot_be(self, ratios):
        with pytest.raises(ValueError, match="10 finite log ratios"):
            order_effect(["ABBA", "BAAB"] * 5, ratios)


NOISE = 0.0005
"""Of a clock reading."""


def exponent_of(measured, noise=NOISE):
    times, clocks, orders = measured
    return clock_exponent(times, clocks, orders, noise)


class TestClockExponent:
    @staticmethod
    def measured(rng, kind, exponent, *, stray=0.0, effect=0.05, count=50, noise=NOISE, slot_noise=0.001):
        slots = 4 * count
        logs = {
            "locked": np.zeros(slots),
            "wander": 0.02 * np.cumsum(rng.standard_normal(slots)) / math.sqrt(slots),
            "steps": 0.02 * (np.cumsum(rng.random(slots) < 0.05) % 2),
            "one dip": 0.05 * (np.arange(slots) // 8 == 9),
        }[kind].reshape(count, 4)
        orders = random_orders(rng, count)
        times = 14 + effect * head_slots(orders) - exponent * logs
        times = times + slot_noise * rng.standard_normal((count, 4)) + (rng.random((count, 4)) < stray) * 1.6
        return np.exp(times), 1500 * np.exp(logs + noise * rng.standard_normal((count, 4))), orders

    @pytest.mark.parametrize("stray", [0.0, 0.03])
    @pytest.mark.parametrize("exponent", [0.0, 0.4, 1.0])
    @pytest.mark.parametrize("kind", ["wander", "steps", "one dip"])
    def test_it_is_found_however_the_clock_moves(self, kind, exponent, stray):
        rng = np.random.default_rng(13)
        found = [exponent_of(self.measured(rng, kind, exponent, stray=stray), NOISE) for _ in range(60)]
        told = np.array([each for each in found if each is not None])
        assert len(told) >= 55
        assert told[:, 0].mean() == pytest.approx(exponent, abs=0.02)
        # Noise in the clock takes off a little, hence three standard errors and not two.
        assert no_oftener_than(0.05, (np.abs(told[:, 0] - exponent) > 3 * told[:, 1]).sum(), len(told))

    def test_a_slower_head_is_no_slope(self):
        one = exponent_of(self.measured(np.random.default_rng(14), "steps", 1.0, effect=0.0), NOISE)
        other = exponent_of(self.measured(np.random.default_rng(14), "steps", 1.0, effect=0.5), NOISE)
        assert one == pytest.approx(other)

    def test_an_exact_relation(self):
        found = exponent_of(self.measured(np.random.default_rng(15), "steps", 0.73, noise=0, slot_noise=0), 0)
        assert found == pytest.approx((0.73, 0), abs=1e-6)

    @pytest.mark.parametrize(
        ("kind", "changes"),
        [
            pytest.param("locked", {}, id="a clock that stays"),
            pytest.param("locked", {"noise": 0.0}, id="one that never varies at all"),
            pytest.param("steps", {"slot_noise": 0.1}, id="times too noisy"),
            pytest.param("steps", {"count": 4}, id="too few quads"),
        ],
    )
    def test_it_is_not_told(self, kind, changes):
        measured = self.measured(np.random.default_rng(16), kind, 1.0, **changes)
        assert exponent_of(measured, NOISE) is None

    def test_it_is_not_told_where_noise_could_be_the_slope(self):
        measured = self.measured(np.random.default_rng(17), "steps", 1.0)
        assert exponent_of(measured, 0.0015) is not None
        assert exponent_of(measured, 0.0025) is None

    @pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
    @pytest.mark.parametrize("which", [0, 1])
    def test_what_cannot_be(self, bad, which):
        times, clocks, orders = self.measured(np.random.default_rng(18), "steps", 1.0)
        (times, clocks)[which][3, 2] = bad
        with pytest.raises(ValueError, match=f"Some {('times', 'clocks')[which]} are not"):
            clock_exponent(times, clocks, orders, NOISE)
