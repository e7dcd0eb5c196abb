"""Exact intervals of rates, and many hypotheses at once: textbook answers and the promises kept."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # its parts load when they are used

from harness.judgement.statistics.rates import clopper_pearson, false_alarm_bound, holm


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (0, 10, 0.0, 0.3085),
        (1, 10, 0.0025, 0.4450),
        (5, 10, 0.1871, 0.8129),
        (10, 10, 0.6915, 1.0),
        (8, 20, 0.1912, 0.6395),
        (0, 0, 0.0, 1.0),
    ],
)
def test_textbook_intervals(successes, trials, low, high):
    assert clopper_pearson(successes, trials) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("confidence", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("trials", [1, 7, 400])
def test_intervals_are_those_of_a_peer(trials, confidence):
    for successes in {0, 1, trials // 2, trials - 1, trials}:
        peer = scipy.stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
        assert clopper_pearson(successes, trials, confidence) == pytest.approx((peer.low, peer.high))


@pytest.mark.parametrize("rate", [0.001, 0.03, 0.5, 0.97])
def test_an_interval_covers_at_least_as_often_as_it_says(rate):
    trials = 40
    counts = np.arange(trials + 1)
    covered = [low <= rate <= high for low, high in (clopper_pearson(int(k), trials, 0.9) for k in counts)]
    assert scipy.stats.binom.pmf(counts, trials, rate)[covered].sum() >= 0.9


def test_three_thousand_clean_verdicts_bound_the_rate_by_a_thousandth():
    assert false_alarm_bound(0, 3000) == pytest.approx(0.001, rel=0.01)
    assert false_alarm_bound(0, 3000) == pytest.approx(1 - 0.05 ** (1 / 3000))


@pytest.mark.parametrize(("alarms", "verdicts"), [(0, 1), (1, 50), (3, 4000), (49, 50)])
def test_the_bound_is_where_so_few_are_as_rare_as_it_says(alarms, verdicts):
    bound = false_alarm_bound(alarms, verdicts, 0.99)
    assert scipy.stats.binom.cdf(alarms, verdicts, bound) == pytest.approx(0.01)


def test_of_nothing_nothing_is_known():
    assert false_alarm_bound(0, 0) == 1
    assert false_alarm_bound(5, 5) == 1


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0])
def test_a_confidence_that_cannot_be(confidence):
    with pytest.raises(ValueError, match="confidence"):
        clopper_pearson(1, 2, confidence)
    with pytest.raises(ValueError, match="confidence"):
        false_alarm_bound(1, 2, confidence)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 5), (6, 5), (0, -1)])
def test_counts_that_cannot_be(successes, trials):
    with pytest.raises(ValueError, match="cannot be"):
        clopper_pearson(successes, trials)
    with pytest.raises(ValueError, match="cannot be"):
        false_alarm_bound(successes, trials)


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        # Bounds 0.0125, 0.0167, 0.025, 0.05: the third smallest fails, and with it the fourth.
        pytest.param({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}, {"a", "d"}, id="textbook"),
        pytest.param({"a": 0.04, "b": 0.012, "c": 0.001}, {"a", "b", "c"}, id="all, the last at 0.05"),
        pytest.param({"a": 0.02, "b": 0.019, "c": 0.018}, set(), id="none below a third"),
        pytest.param({"a": 0.0, "b": 1.0}, {"a"}, id="the ends"),
        pytest.param({"a": 0.025, "b": 0.025}, {"a", "b"}, id="ties at the bound"),
        pytest.param({"only": 0.05}, {"only"}, id="one"),
        pytest.param({}, set(), id="none"),
    ],
)
def test_holm(p_values, rejected):
    assert holm(p_values, 0.05) == rejected


def test_holm_rejects_what_bonferroni_does_and_nothing_that_single_tests_do_not():
    rng = np.random.default_rng(1)
    for _ in range(300):
        p_values = {str(index): p for index, p in enumerate(rng.beta(0.3, 1, rng.integers(1, 12)))}
        found = holm(p_values, 0.05)
        assert {name for name, p in p_values.items() if p <= 0.05 / len(p_values)} <= found
        assert found <= {name for name, p in p_values.items() if p <= 0.05}
        assert found == holm(dict(reversed(p_values.items())), 0.05)


def test_holm_seldom_rejects_any_true_hypothesis():
    rng = np.random.default_rng(2)
    wrong = 0
    for _ in range(2000):
        p_values = {f"true {index}": p for index, p in enumerate(rng.random(5))}
        p_values |= {f"false {index}": p for index, p in enumerate(1e-4 * rng.random(5))}
        wrong += any(name.startswith("true") for name in holm(p_values, 0.05))
    assert scipy.stats.binomtest(wrong, 2000, 0.05, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_a_p_value_that_cannot_be(bad):
    with pytest.raises(ValueError, match="p-value of b"):
        holm({"a": 0.5, "b": bad}, 0.05)
