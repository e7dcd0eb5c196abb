"""Effects of one process: known answers, symmetries, and errors that are what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # its parts load when they are used

from harness.judgement.statistics.paired import (
    MIN_QUADS,
    OrderBias,
    Tail,
    clock_exponent,
    log_ratios,
    losses,
    more_quads,
    order_bias,
    order_effect,
    process_effect,
    tail_of,
    tick_error,
)
from tests.support import no_oftener_than

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


def tail(processes):
    return tail_of([losses(orders, values) for orders, values in processes])


def as_often_as(rate, count, trials):
    """Whether `count` of `trials` agrees with `rate`: exact two-sided binomial test at 0.001."""
    return scipy.stats.binomtest(int(count), trials, rate).pvalue > 1e-3


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
        peer = scipy.stats.ttest_ind(ratios, np.zeros(count), equal_var=False, trim=0.2)
        assert found.value == pytest.approx(scipy.stats.trim_mean(ratios, 0.2))
        assert found.value / found.standard_error == pytest.approx(peer.statistic)
        assert 2 * scipy.stats.t.sf(abs(peer.statistic), found.df) == pytest.approx(peer.pvalue)

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
        assert as_often_as(0.1, (np.abs(t) > scipy.stats.t.isf(0.05, found[0].df)).sum(), trials)


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
            assert no_oftener_than(rate, (t > scipy.stats.t.isf(rate / 2, found[0].df)).sum(), len(t))

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
        peer = scipy.stats.mannwhitneyu(ratios[first], ratios[~first], method="asymptotic")
        assert order_effect(orders, ratios) == pytest.approx(peer.pvalue)

    def test_it_is_as_rare_as_it_says(self):
        rng = np.random.default_rng(10)
        p_values = np.array(
            [order_effect(random_orders(rng, 50), rng.standard_t(2, 50)) for _ in range(2000)]
        )
        assert as_often_as(0.05, (p_values < 0.05).sum(), 2000)
        assert no_oftener_than(0.001, int((p_values < 0.001).sum()), 2000)

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


class TestOrderBias:
    @staticmethod
    def measured(
        rng, count=60, *, falls=(0, 0, 0, 0), after_base=0.0, after_head=0.0, effect=0.0, noise=0.001
    ):
        """A process whose slots cost more by their place, or by which kernel ran before."""
        orders = random_orders(rng, count)
        head = head_slots(orders)
        logs = 14 + np.array(falls) + effect * head + noise * rng.standard_normal((count, 4))
        # What ran before the first slot of a quad is left out of it.
        before = np.concatenate([np.full((count, 1), -1), head[:, :-1]], axis=1)
        logs += after_base * ((head == 1) & (before == 0)) + after_head * ((head == 0) & (before == 1))
        return orders, np.exp(logs)

    def test_by_hand(self):
        # In ABBA 2, 4 and 6 % where BAAB has 1 %, in the first of head's slots alone.
        abba = [[1, math.exp(own), 1, 1] for own in (0.02, 0.04, 0.06, 0.02, 0.06)]
        baab = [[1, 1, math.exp(0.01), math.exp(-0.01)]] * 4
        found = order_bias([(["ABBA"] * 5 + ["BAAB"] * 4, abba + baab)])
        apart = scipy.stats.mannwhitneyu([1, 2, 3, 1, 3], [0] * 4, method="asymptotic").pvalue
        assert (found.between_p, found.carried_p) == pytest.approx((apart, apart))
        # Of the middle slots, the second over the third: 4 % and -1 %.
        assert found.carried == pytest.approx((0.04 - -0.01) / 2)

    def test_what_head_loses_after_base_is_carried(self):
        found = order_bias([self.measured(np.random.default_rng(20), 400, after_base=0.01)])
        assert found.carried == pytest.approx(0.005, abs=0.0003)
        assert found.carried_p < 1e-6
        # What each loses after the other is no favour to either.
        both = order_bias([self.measured(np.random.default_rng(20), 400, after_base=0.01, after_head=0.01)])
        assert both.carried == pytest.approx(0, abs=0.0003)

    def test_what_falls_in_every_quad_is_between_the_orders(self):
        found = order_bias([self.measured(np.random.default_rng(21), 400, falls=(0.02, 0, 0, 0))])
        assert found.between_p < 1e-6
        assert found.carried == pytest.approx(0, abs=0.0003)

    @pytest.mark.parametrize("effect", [0.0, 0.3])
    def test_neither_an_effect_nor_a_drift_is_any(self, effect):
        drift = (0, 0.01, 0.02, 0.03)
        found = order_bias(
            [self.measured(np.random.default_rng(22), 400, falls=drift, effect=effect) for _ in range(2)]
        )
        assert found.carried == pytest.approx(0, abs=0.0003)
        assert found.between_p > 0.001
        assert found.doubt(0.001) == 0

    def test_processes_that_differ_are_not_taken_for_it(self):
        """One had mostly ABBA, and a larger effect."""
        rng = np.random.default_rng(23)
        found = [self.measured(rng, effect=size) for size in (0.0, 0.05)]
        lopsided = []
        for wanted, (orders, times) in zip(("ABBA", "BAAB"), found, strict=True):
            kept = [n for n, order in enumerate(orders) if order == wanted or n % 4 == 0]
            lopsided.append(([orders[n] for n in kept], times[kept]))
        assert order_bias(lopsided).between_p > 0.001

    def test_it_is_as_rare_as_it_says(self):
        rng, trials = np.random.default_rng(24), 2000
        found = [order_bias([self.measured(rng, 6) for _ in range(4)]) for _ in range(trials)]
        assert no_oftener_than(0.05, sum(each.between_p < 0.05 for each in found), trials)
        assert no_oftener_than(0.05, sum(each.carried_p < 0.05 for each in found), trials)
        assert no_oftener_than(0.002, sum(each.doubt(0.001) > 0 for each in found), trials)

    def test_a_stray_slot_moves_nothing_much(self):
        orders, times = self.measured(np.random.default_rng(25), 100)
        spoilt = times.copy()
        spoilt[3, 1] *= 50
        one, other = order_bias([(orders, times)]), order_bias([(orders, spoilt)])
        assert other.carried == pytest.approx(one.carried, abs=2e-4)

    def test_swapping_arms_negates(self):
        orders, times = self.measured(np.random.default_rng(26), 50, after_base=0.01)
        swapped = [SWAPPED[order] for order in orders]
        one, other = order_bias([(orders, times)]), order_bias([(swapped, times)])
        assert other == OrderBias(one.between_p, -one.carried, one.carried_p)

    @pytest.mark.parametrize(("p_value", "doubt"), [(0.5, 0), (0.0011, 0), (0.0009, 0.04)])
    def test_the_doubt_is_twice_what_is_carried_where_that_is_no_chance(self, p_value, doubt):
        for carried in (0.02, -0.02):
            assert OrderBias(0.5, carried, p_value).doubt(0.001) == doubt

    @pytest.mark.parametrize("processes", [[], [([], np.empty((0, 4)))], [(["ABBA"] * 9, np.ones((9, 4)))]])
    def test_what_cannot_tell(self, processes):
        assert order_bias(processes) == OrderBias(1, 0, 1)


class TestTail:
    BASE = (["ABBA", "BAAB"] * 10, np.full((20, 4), 100.0))

    @staticmethod
    def strayed(times=3.0, head=(), base=()):
        """Twenty quads of slots of 100, of which a slot of head's or of base's took so many times as long."""
        orders, values = TestTail.BASE
        values = values.copy()
        for quad in head:
            values[quad, 1 if orders[quad] == "ABBA" else 0] *= times
        for quad in base:
            values[quad, 0 if orders[quad] == "ABBA" else 1] *= times
        return orders, values

    def test_none(self):
        assert tail([self.BASE]) == Tail(0, 0, 40, 0.0, 1.0, 1.0)
        assert tail([]) == Tail(0, 0, 0, 0.0, 1.0, 1.0)

    def test_by_hand(self):
        found = tail([self.strayed(head=(0, 1, 2, 3, 4, 5), base=(8,))])
        assert (found.base, found.head, found.slots) == (1, 6, 40)
        # Six of head's 40 slots cost two more than usual, and one of base's.
        assert found.cost == pytest.approx((6 - 1) * 2 / 40)
        assert found.p_slower == pytest.approx(scipy.stats.binomtest(6, 7, alternative="greater").pvalue)
        assert found.p_faster == pytest.approx(scipy.stats.binomtest(1, 7, alternative="greater").pvalue)

    def test_processes_add_up(self):
        found = tail([self.strayed(head=(0, 3)), self.strayed(head=(1, 2, 5))])
        assert (found.base, found.head, found.slots) == (0, 5, 80)
        assert found.cost == pytest.approx(5 * 2 / 80)
        assert found.p_slower == pytest.approx(0.5**5)

    def test_a_quad_counts_once_by_what_it_lost_more_on(self):
        orders, values = self.strayed(times=5.0, head=(0, 1), base=(0,))
        values[1, 2] *= 2.0  # of ABBA, one more of head's... or of BAAB, of base's
        found = tail([(orders, values)])
        assert (found.head, found.base) == (2, 2)
        # The first quad lost as much on both: it says nothing. The second lost 4 on head and 1 on base.
        assert (found.p_slower, found.p_faster) == pytest.approx((0.5, 1.0))
        assert found.cost == pytest.approx((4 - 1) / 40)

    @pytest.mark.parametrize(("times", "strays"), [(1.09, 0), (1.11, 2)])
    def test_a_slot_strays_from_a_tenth_on(self, times, strays):
        assert tail([self.strayed(times=times, head=(0, 1))]).head == strays

    @pytest.mark.parametrize(("deviations", "strays"), [(5.5, 0), (6.5, 1)])
    def test_and_beyond_six_standard_deviations_of_its_own_arm(self, deviations, strays):
        orders, values = ["ABBA"] * 20, np.full((20, 4), 100.0)
        noise = 0.05
        # Head's slots are half at 5 % to either side; base's do not vary.
        values[:, 1] *= math.exp(noise)
        values[:, 2] *= math.exp(-noise)
        values[0, 1:3] = 100 * math.exp(0)
        values[1, 1] = 100 * math.exp(deviations * 1.4826 * noise)
        found = tail([(orders, values)])
        assert (found.base, found.head) == (0, strays)

    def test_a_slower_head_is_no_tail_and_hides_none(self):
        rng = np.random.default_rng(30)
        found = tail([quads(rng, effect=1.0) for _ in range(4)])
        assert (found.base, found.head, found.cost) == (0, 0, 0)
        orders, times = quads(rng, effect=1.0)
        times[0, 1 if orders[0] == "ABBA" else 0] *= 2
        assert tail([(orders, times)]).head == 1

    def test_swapping_arms_swaps_slower_and_faster(self):
        orders, values = self.strayed(head=(0, 1, 2, 6), base=(8,))
        one = tail([(orders, values)])
        other = tail([([SWAPPED[order] for order in orders], values)])
        assert other == Tail(one.head, one.base, one.slots, -one.cost, one.p_faster, one.p_slower)

    def test_it_is_as_rare_as_it_says(self):
        """Both arms stray alike: by a twentieth of slots, in bursts that hit several quads in a row."""
        rng, trials = np.random.default_rng(31), 1500
        p_values = []
        for _ in range(trials):
            orders, times = quads(rng, 100)
            burst = np.repeat(rng.random(20) < 0.3, 20).reshape(100, 4)
            times = times * np.where(burst & (rng.random((100, 4)) < 0.3), rng.uniform(1.5, 11, (100, 4)), 1)
            p_values.append(tail([(orders, times)]).p_slower)
        for rate in (0.05, 0.01, 0.002):
            assert no_oftener_than(rate, sum(p_value < rate for p_value in p_values), trials)

    @pytest.mark.parametrize(("share", "times"), [(0.08, 11.0), (0.05, 3.0)])
    def test_strays_that_a_trimmed_mean_hardly_sees_are_found(self, share, times):
        """In eight processes of fifty quads, nearly always."""
        rng, trials = np.random.default_rng(32), 100
        seen = 0
        for _ in range(trials):
            processes = []
            for _ in range(8):
                orders, values = quads(rng, 50)
                struck = (head_slots(orders) == 1) & (rng.random((50, 4)) < share)
                processes.append((orders, np.where(struck, times * values, values)))
            found = tail(processes)
            seen += found.p_slower < 0.002 and found.cost > 0.02
            trimmed = [process_effect(log_ratios(*each)).value for each in processes]
            assert abs(np.median(trimmed)) < found.cost / 4
        assert seen >= 99


class TestMoreQuads:
    @staticmethod
    def ratios(count, error, effect=0.0):
        """So many, with this standard error."""
        values = np.tile([-1.0, 1.0], count)[:count]
        values -= process_effect(values).value
        return effect + error / process_effect(values).standard_error * values

    @pytest.mark.parametrize(("at_least", "at_most", "wanted"), [(6, 100, 6), (50, 100, 50), (50, 20, 20)])
    def test_it_begins_with_the_least(self, at_least, at_most, wanted):
        assert more_quads([], 0.001, at_least=at_least, at_most=at_most) == wanted

    def test_it_ends_where_it_knows_enough(self):
        assert more_quads(self.ratios(10, 0.00099), 0.001, at_least=6, at_most=100) == 10
        assert more_quads(self.ratios(10, 0.00101), 0.001, at_least=6, at_most=100) > 10

    def test_it_ends_where_it_may_go_no_further(self):
        assert more_quads(self.ratios(10, 0.1), 0.001, at_least=6, at_most=10) == 10
        assert more_quads(self.ratios(10, 0.1), 0.001, at_least=6, at_most=12) == 12

    def test_the_next_batch_is_as_many_as_the_scatter_says(self):
        # 1.96 times the variance asks for 98, and a tenth more.
        assert more_quads(self.ratios(50, 0.0014), 0.001, at_least=6, at_most=400) == 108

    def test_it_is_no_more_than_three_times_as_many_and_three_more_at_least(self):
        assert more_quads(self.ratios(10, 1.0), 0.001, at_least=6, at_most=400) == 30
        assert more_quads(self.ratios(10, 0.00101), 0.001, at_least=6, at_most=400) == 13

    @pytest.mark.parametrize("sign", [1, -1])
    def test_a_fortieth_of_its_effect_is_enough(self, sign):
        rough = self.ratios(10, 0.0049, sign * 0.2)
        assert more_quads(rough, 0.001, at_least=6, at_most=100) == 10
        assert more_quads(self.ratios(10, 0.0051, sign * 0.2), 0.001, at_least=6, at_most=100) > 10

    def test_near_the_margin_the_end_does_not_depend_on_what_was_read(self):
        """Blocks of the same scatter end alike, whatever their effect up to 1.5 %."""
        rng = np.random.default_rng(40)
        for _ in range(50):
            noise = rng.normal(0, rng.uniform(0.0005, 0.005), 100)
            ends = []
            for effect in (0.0, 0.0025, -0.0025, 0.01, 0.015):
                count = 0
                while (wanted := more_quads(noise[:count] + effect, 0.0005, at_least=6, at_most=100)) > count:
                    count = wanted
                ends.append(count)
            assert len(set(ends)) == 1


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
