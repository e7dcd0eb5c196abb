"""Several processes as one estimate: formulas by hand, and chances that are what they say."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import scipy  # its parts load when they are used

from harness.judgement.statistics.moderated import (
    DEFAULT_PRIOR,
    PROPORTION,
    Moderated,
    Prior,
    fit_prior,
    moderate,
    prior_of_case,
)
from harness.judgement.statistics.paired import ProcessEffect


def effect(value, standard_error=0.0, df=29):
    return ProcessEffect(value, standard_error, df, 50)


def effects(values, standard_error=0.0, df=29):
    return [effect(float(value), standard_error, df) for value in values]


def as_often_as(rate, count, trials):
    return scipy.stats.binomtest(int(count), trials, rate).pvalue > 1e-3


class TestModerate:
    def test_two_processes_by_hand(self):
        found = moderate(effects([0.010, 0.014], 0.002, 10**6), Prior(variance=5e-6, df=10, inflation=1.5))
        # Expected 1.5 * 4e-6 + 5e-6 = 11e-6, worth 10; observed 2 * 0.002**2 = 8e-6, worth 1.
        variance = (10 * 11e-6 + 8e-6) / 11
        assert found.mean == pytest.approx(0.012)
        assert found.standard_error == pytest.approx(math.sqrt(variance / 2))
        assert found.df == pytest.approx(11)
        assert (found.processes, found.excess) == (2, False)

    def test_two_processes_with_errors_of_their_own(self):
        found = moderate([effect(1, 0.5), effect(4, 1.0)], Prior(variance=1.0, df=20))
        # Each squared error weighs 29, and 5 what is common to both: the root of 0.25 by 1, and a correction.
        common = 0.5 * 29 / 2 / math.exp(scipy.special.digamma(29 / 2))
        one, other = 1 + (29 * 0.25 + 5 * common) / 34, 1 + (29 * 1.0 + 5 * common) / 34
        mean = (1 / one + 4 / other) / (1 / one + 1 / other)
        spread = (mean - 1) ** 2 / one + (4 - mean) ** 2 / other
        assert (found.mean, found.df) == pytest.approx((mean, 21))
        assert found.standard_error == pytest.approx(math.sqrt((20 + spread) / 21 / (1 / one + 1 / other)))

    def test_what_is_common_to_processes_is_the_variance_of_a_quad(self):
        """A block four times as long has half the error: both say the same of a quad."""
        long, short = ProcessEffect(0.0, 0.5, 10**6, 200), ProcessEffect(3.0, 1.0, 10**6, 50)
        found = moderate([long, short], Prior(variance=0.0, df=20))
        assert found.mean == pytest.approx(3 * 0.2, rel=1e-4)

    def test_a_process_that_scatters_far_hardly_counts(self):
        quiet, wild = effects([0.01, 0.01, 0.01], 0.001), effect(0.2, 0.1)
        found = moderate([*quiet, wild], Prior(variance=1e-8, df=30))
        assert found.mean == pytest.approx(0.01, abs=1e-4)
        assert found.standard_error < 0.001

    def test_processes_that_are_alike_count_alike(self):
        values = np.random.default_rng(4).normal(0, 1, 5)
        assert moderate(effects(values, 0.3), Prior(1.0, 10)).mean == pytest.approx(values.mean())

    def test_the_larger_the_effect_the_more_processes_may_differ(self):
        prior = Prior(variance=0.0, df=10, proportion=0.02)
        one = moderate(effects([0.5, 0.5], 1e-9), prior)
        # Agreeing processes are worth one of eleven degrees of freedom.
        assert one.standard_error == pytest.approx(0.01 * math.sqrt(10 / 11 / 2), rel=1e-6)
        assert not moderate(effects([0.49, 0.51], 1e-9), prior).excess
        assert moderate(effects([-0.01, 0.01], 1e-9), prior).excess

    def test_one_process_has_the_prior_alone(self):
        found = moderate([effect(0.01, 0.003)], Prior(variance=16e-6, df=12))
        assert found.standard_error == pytest.approx(0.005)
        assert (found.mean, found.df) == pytest.approx((0.01, 12))
        assert (found.processes, found.excess) == (1, False)

    def test_a_prior_of_great_weight_is_the_variance(self):
        found = moderate(effects([-1, 0, 1]), Prior(variance=9.0, df=1e9))
        assert found.standard_error == pytest.approx(math.sqrt(3))
        assert found.df == pytest.approx(1e9)

    def test_a_prior_of_no_weight_leaves_students_t(self):
        values = np.random.default_rng(1).normal(0.3, 1, 6)
        found = moderate(effects(values), Prior(variance=1.0, df=1e-9))
        peer = scipy.stats.ttest_1samp(values, 0, alternative="greater")
        assert found.p_above(0) == pytest.approx(peer.pvalue)

    def test_the_prior_is_worth_no_more_than_the_quads_it_rests_on(self):
        few, prior = effects([0, 1], 1.0, df=2), Prior(variance=0.0, df=100)
        assert moderate(few[:1], prior).df == pytest.approx(2)
        assert moderate(few, prior).df == pytest.approx(2 * 2 + 1)
        # With a variance of its own, much larger than theirs, the quads hardly matter.
        assert moderate(few, Prior(variance=100.0, df=100)).df == pytest.approx(101)

    def test_excess_begins_at_one_in_a_thousand(self):
        prior = Prior(variance=1.0, df=10)
        # Of two values the variance is half their distance squared.
        distance = math.sqrt(2 * scipy.stats.f.isf(0.001, 1, 10))
        assert not moderate(effects([0, distance * 0.999]), prior).excess
        found = moderate(effects([0, distance * 1.001]), prior)
        assert found.excess
        assert found.df == 1
        assert found.standard_error == pytest.approx(distance * 1.001 / 2)

    def test_no_process(self):
        with pytest.raises(ValueError, match="at least one"):
            moderate([], DEFAULT_PRIOR)

    def test_swapping_arms_negates(self):
        values = np.random.default_rng(2).normal(0.001, 0.0005, 8)
        one, other = (moderate(effects(sign * values, 0.0003), DEFAULT_PRIOR) for sign in (1, -1))
        assert other.mean == pytest.approx(-one.mean)
        assert other.standard_error == pytest.approx(one.standard_error)
        assert other.low(0.01) == pytest.approx(-one.high(0.01))
        assert other.p_below(-0.002) == pytest.approx(one.p_above(0.002))

    def test_the_order_of_processes_does_not_matter(self):
        rng = np.random.default_rng(3)
        values = rng.normal(0, 1, 8)
        found = [moderate(effects(rng.permutation(values)), Prior(1.0, 10)) for _ in range(10)]
        assert np.ptp([each.mean for each in found]) < 1e-15
        assert np.ptp([each.standard_error for each in found]) < 1e-15

    @pytest.mark.parametrize("count", [1, 2, 4, 8])
    @pytest.mark.parametrize("errors_too", [False, True])
    def test_it_is_wrong_as_often_as_it_says(self, count, errors_too):
        """Cases whose variance follows the prior, and so the moderated t is exact."""
        rng = np.random.default_rng(count)
        trials, df = 6000, 12
        scale = df / rng.chisquare(df, trials)
        variance = 0.5 if errors_too else 1.0
        values = np.sqrt(scale)[:, np.newaxis] * rng.standard_normal((trials, count))
        error = math.sqrt(1 - variance)
        prior = Prior(variance=variance, df=df)
        found = [moderate(effects(row, error, df=10**6), prior) for row in values]
        for rate in (0.05, 0.01):
            assert as_often_as(rate, sum(each.low(rate) > 0 for each in found), trials)
            assert as_often_as(rate, sum(each.high(rate) < 0 for each in found), trials)
        assert as_often_as(0.001, sum(each.excess for each in found), trials) or count == 1
        assert not any(each.excess for each in found) or count > 1

    @pytest.mark.parametrize("count", [2, 4, 8])
    def test_errors_that_differ_make_it_wrong_no_oftener(self, count):
        """The errors of some processes are ten times those of others; and they are estimates themselves."""
        rng = np.random.default_rng(100 + count)
        trials, df = 4000, 5
        wrong = Counter[float]()
        for _ in range(trials):
            errors = 10 ** rng.uniform(-1, 0, count)
            scale = math.sqrt(df / rng.chisquare(df))
            values = rng.standard_normal(count) * np.hypot(0.3 * scale, errors)
            own = errors * np.sqrt(rng.chisquare(3, count) / 3)
            given = [effect(*each, df=3) for each in zip(values.tolist(), own.tolist(), strict=True)]
            found = moderate(given, Prior(variance=0.09, df=df))
            wrong.update(rate for rate in (0.05, 0.01, 0.002) if found.low(rate) > 0)
        for rate in (0.05, 0.01, 0.002):
            assert scipy.stats.binomtest(wrong[rate], trials, rate, alternative="greater").pvalue > 1e-3


class TestBounds:
    @pytest.mark.parametrize("df", [1, 4.5, 31, 207])
    @pytest.mark.parametrize("alpha", [0.1, 1e-3, 2e-4, 1e-5])
    def test_they_are_students(self, df, alpha):
        found = Moderated(0.01, 0.002, df, 2, excess=False)
        reach = scipy.stats.t.isf(alpha, df) * 0.002
        assert found.low(alpha) == pytest.approx(0.01 - reach)
        assert found.high(alpha) == pytest.approx(0.01 + reach)
        assert found.p_above(0.004) == pytest.approx(scipy.stats.t.sf(3, df))
        assert found.p_below(0.004) == pytest.approx(scipy.stats.t.cdf(3, df))

    @pytest.mark.parametrize("alpha", [0.1, 1e-3, 2e-4])
    def test_a_bound_is_where_the_p_value_is_its_chance(self, alpha):
        found = moderate(effects([0.010, 0.012, 0.011], 0.001), DEFAULT_PRIOR)
        assert found.p_above(found.low(alpha)) == pytest.approx(alpha)
        assert found.p_below(found.high(alpha)) == pytest.approx(alpha)

    def test_no_noise_at_all(self):
        found = moderate(effects([0.01, 0.01]), Prior(variance=0.0, df=10))
        assert found.low(1e-4) == found.high(1e-4) == 0.01
        assert (found.p_above(0.009), found.p_above(0.01), found.p_below(0.011)) == (0, 1, 0)

    def test_a_difference_where_none_can_be(self):
        assert moderate(effects([0.01, 0.02]), Prior(variance=0.0, df=10)).excess


class TestPrior:
    @pytest.mark.parametrize(
        "values",
        [
            (-1e-9, 10, 1),
            (1, 0, 1),
            (1, 10, 0),
            (math.nan, 10, 1),
            (1, math.inf, 1),
            (1, 10, math.nan),
            (1, 10, 1, -0.1),
            (1, 10, 1, math.inf),
        ],
    )
    def test_what_cannot_be(self, values):
        with pytest.raises(ValueError, match="expected finite numbers"):
            Prior(*values)


class TestPriorOfCase:
    CARD = Prior(variance=1e-6, df=8, inflation=2.0, proportion=0.02)

    @pytest.mark.parametrize("had", [[], effects([0.1])])
    def test_of_a_case_without_a_history_the_card_tells_less(self, had):
        found = prior_of_case(self.CARD, had)
        assert found == Prior(variance=1e-6, df=5, inflation=2.0, proportion=0.02)
        few = Prior(variance=1e-6, df=4)
        assert prior_of_case(few, had) == few

    def test_its_own_history_is_shrunk_by_hand(self):
        # Observed 5e-6 of 4 degrees of freedom, where 1e-6 and twice 0.5e-6 were expected, worth 8.
        found = prior_of_case(self.CARD, effects([-0.003, -0.001, 0, 0.001, 0.003], math.sqrt(0.5e-6)))
        assert found.variance == pytest.approx((8 * 2e-6 + 4 * 5e-6) / 12 - 1e-6)
        assert (found.df, found.inflation, found.proportion) == (8, 2.0, 0.02)

    def test_processes_that_agree_make_it_no_quieter_than_a_quarter_of_the_card(self):
        found = prior_of_case(self.CARD, effects([0.1] * 100, 1e-4))
        assert (found.variance, found.df) == (0.25e-6, 8)

    def test_a_history_adds_to_what_little_a_card_knows(self):
        assert prior_of_case(Prior(variance=1e-6, df=4), effects([0.1, 0.101, 0.102], 1e-4)).df == 6

    @pytest.mark.parametrize("beyond", [0.999, 1.001])
    def test_a_spread_that_the_card_does_not_explain_speaks_for_itself(self, beyond):
        values = np.array([-1.0, 0.0, 1.0]) * math.sqrt(beyond * scipy.stats.f.isf(0.001, 2, 8) * 3e-6)
        found = prior_of_case(self.CARD, effects(values, 0.001))
        observed = np.var(values, ddof=1)
        if beyond > 1:
            assert (found.variance, found.df) == pytest.approx((observed - 2e-6, 2))
        else:
            assert (found.variance, found.df) == pytest.approx(((8 * 3e-6 + 2 * observed) / 10 - 2e-6, 8))

    def test_a_card_of_no_variance_at_all(self):
        still = Prior(variance=0.0, df=8)
        assert prior_of_case(still, effects([0.125] * 3)).variance == 0
        found = prior_of_case(still, effects([0.1, 0.2, 0.3]))
        assert (found.variance, found.df) == pytest.approx((0.01, 2))


def history(rng, cases, processes=8, *, variance=0.0, inflation=1.0, df=None, errors=(0.0002, 0.001)):
    """Cases of a card whose processes spread as that prior says, with errors from quads between those."""
    found = []
    for error in np.exp(rng.uniform(*np.log(errors), cases)):
        scale = 1 if df is None else df / rng.chisquare(df)
        values = rng.normal(0, math.sqrt((inflation * error**2 + variance) * scale), processes)
        own = error * np.sqrt(rng.chisquare(29, processes) / 29)
        found.append([effect(*each) for each in zip(values.tolist(), own.tolist(), strict=True)])
    return found


class TestFitPrior:
    @pytest.mark.parametrize(
        ("processes", "df", "least"), [(4, 5, 0.35), (4, 10, 0.35), (8, 5, 0.6), (8, 25, 0.6), (24, 25, 0.75)]
    )
    def test_it_is_limmas(self, processes, df, least):
        """Variances drawn from a scaled F, and its two parameters found again."""
        given = history(
            np.random.default_rng(df), 1000, processes, variance=0.0005**2, df=df, errors=(1e-7, 1.1e-7)
        )
        found = fit_prior(given)
        assert found.variance**0.5 == pytest.approx(0.0005, rel=0.06)
        # From below, as it is a lower bound: the fewer processes, the less a case says of its variance.
        assert least * df <= found.df <= 1.2 * df
        assert found.inflation < 1.2
        assert found.proportion == PROPORTION

    @pytest.mark.parametrize(
        ("sd", "inflation"), [(0.0005, 1.0), (0.0, 1.0), (0.0, 3.0), (0.0005, 2.0), (0.001, 1.0)]
    )
    def test_variance_and_inflation_are_told_apart(self, sd, inflation):
        given = history(
            np.random.default_rng(4), 200, variance=sd**2, inflation=inflation, errors=(0.0002, 0.002)
        )
        found = fit_prior(given)
        assert found.variance**0.5 == pytest.approx(sd, abs=0.0002)
        assert found.inflation == pytest.approx(inflation, rel=0.2)
        assert found.df >= 20

    @pytest.mark.parametrize("cases", [3, 10, 30])
    def test_the_variance_is_seldom_too_small(self, cases):
        rng = np.random.default_rng(cases)
        given = [history(rng, cases, variance=0.0005**2, errors=(0.0002, 0.0003)) for _ in range(80)]
        found = [fit_prior(each) for each in given]
        short = sum(each.variance + (each.inflation - 1) * 0.00025**2 < 0.0005**2 for each in found)
        # An upper bound of 80 %, if ranks of an estimate were even: somewhat more often than one in five.
        assert scipy.stats.binomtest(short, 80, 0.25, alternative="greater").pvalue > 1e-3
        assert np.median([each.variance for each in found]) ** 0.5 < 0.0007

    def test_a_quiet_card_has_none(self):
        """The quads' scatter is more than enough for the spread of processes."""
        found = fit_prior(history(np.random.default_rng(5), 30, inflation=0.6))
        assert found.variance == 0
        assert found.inflation == 1

    @pytest.mark.parametrize("times", [20, 1e6])
    def test_one_wild_case_does_little(self, times):
        given = history(np.random.default_rng(6), 20, variance=0.0005**2)
        wild = [[effect(times * each.value, each.standard_error) for each in given[0]], *given[1:]]
        one, other = fit_prior(given), fit_prior(wild)
        assert one.variance <= other.variance < 1.5 * one.variance
        assert other.inflation < 1.5
        assert other.df >= 4

    @pytest.mark.parametrize(
        ("cases", "processes", "most"), [(1, 3, 4), (1, 24, 23), (3, 8, 21), (200, 8, 200)]
    )
    def test_no_more_degrees_of_freedom_than_the_history_has(self, cases, processes, most):
        given = history(np.random.default_rng(7), cases, processes, variance=0.0005**2)
        assert 4 <= fit_prior(given).df <= most

    def test_the_order_of_the_history_does_not_matter(self):
        given = history(np.random.default_rng(8), 12, variance=0.0005**2, df=8)
        one, other = fit_prior(given), fit_prior([case[::-1] for case in given[::-1]])
        assert (one.variance, one.df, one.inflation) == pytest.approx(
            (other.variance, other.df, other.inflation)
        )

    def test_cases_of_one_process_are_left_out(self):
        given = history(np.random.default_rng(9), 12, variance=0.0005**2)
        assert fit_prior([*given, [effect(1.0)], []]) == fit_prior(given)

    def test_nothing_but_such(self):
        with pytest.raises(ValueError, match="two processes"):
            fit_prior([[effect(1.0)], []])

    def test_processes_that_all_agree(self):
        found = fit_prior([effects([0.1] * 8)] * 10)
        assert (found.variance, found.inflation) == (0, 1)

    def test_what_a_history_says_keeps_later_errors_at_their_rate(self):
        rng = np.random.default_rng(10)
        truth = {"variance": 0.0004**2, "inflation": 1.8, "df": 15}
        prior = fit_prior(history(rng, 40, **truth))
        for processes in (2, 4, 8):
            fresh = [moderate(case, prior) for case in history(rng, 3000, processes, **truth)]
            wrong = sum(each.low(0.01) > 0 for each in fresh)
            assert scipy.stats.binomtest(wrong, 3000, 0.01, alternative="greater").pvalue > 1e-3
