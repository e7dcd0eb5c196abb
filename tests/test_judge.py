"""Judgements of made-up processes by hand, and of simulated ones by how often they are wrong."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from harness.judge import Flag, Leg, Policy, confirm, judge
from harness.statistics.moderated import DEFAULT_PRIOR, Prior, fit_prior, moderate
from harness.statistics.paired import ProcessEffect, log_ratios, process_effect
from harness.statistics.rates import clopper_pearson

QUIET = Prior(variance=0.0001**2, df=100)
POLICY = Policy()


def leg(*percent, name="time", error=0.0002, prior=QUIET):
    """One of processes with these effects."""
    return Leg(name, tuple(ProcessEffect(math.log1p(each / 100), error, 29, 50) for each in percent), prior)


def no_oftener_than(rate, count, trials):
    """Whether `count` of `trials` agrees with a rate so small, or smaller: exact binomial test at 0.001."""
    return stats.binomtest(int(count), trials, rate, alternative="greater").pvalue > 1e-3


class TestPolicy:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"margin": 0}, "0 < margin < tolerance"),
            ({"margin": -0.1}, "0 < margin < tolerance"),
            ({"margin": 0.01}, "0 < margin < tolerance"),
            ({"margin": math.nan}, "0 < margin < tolerance"),
            ({"tolerance": 1.0}, "tolerance < 1"),
            ({"confidence": 0.5}, "confidence 0.5"),
            ({"confidence": 1.0}, "confidence 1.0"),
            ({"confirm": 0.0}, "confirm 0.0"),
            ({"looks": ()}, "increase"),
            ({"looks": (2, 2, 8)}, "increase"),
            ({"looks": (4, 2, 8)}, "increase"),
            ({"looks": (0, 2, 8)}, "increase"),
            ({"looks": (2, 4)}, "a share for each of 2 looks"),
            ({"spending": (0.2, 0.3, 0.6)}, "sum to 1"),
            ({"spending": (0.0, 0.5, 0.5)}, "positive shares"),
            ({"spending": (-0.5, 1.0, 0.5)}, "positive shares"),
        ],
    )
    def test_what_cannot_be(self, changes, words):
        with pytest.raises(ValueError, match=words):
            Policy(**changes)

    def test_looks_spend_the_error_and_no_more(self):
        assert [POLICY.alpha(look) for look in range(3)] == pytest.approx([2e-4, 3e-4, 5e-4])

    def test_one_look(self):
        assert Policy(looks=(3,), spending=(1.0,)).alpha(0) == pytest.approx(0.001)


class TestJudge:
    @pytest.mark.parametrize(
        ("legs", "status", "by"),
        [
            ([leg(1, 1.02)], "slower", "time"),
            ([leg(-1, -1.02)], "faster", "time"),
            ([leg(0, 0.02)], "same", None),
            ([leg(0.24, 0.25)], "same", None),
            ([leg(1.5, -1.5, error=0.02)], "undecided", None),
            ([leg(0.0, 0.1, error=0.02)], "undecided", None),
            ([leg(1), leg(1.5, name="cycles")], "slower", "time"),
            ([leg(0, 0), leg(2, 2, name="cycles")], "slower", "cycles"),
            ([leg(2, 2, name="cycles"), leg(0, 0)], "slower", "cycles"),
            ([leg(0, 0), leg(-2, -2, name="cycles")], "faster", "cycles"),
            ([leg(-2, -2), leg(2, 2, name="cycles")], "faster", "time"),
            ([leg(2, 2), leg(-2, -2, name="cycles")], "slower", "time"),
            ([leg(-2, -2, name="cycles"), leg(2, 2)], "slower", "time"),
            ([leg(0, 0), leg(0.1, 0, name="cycles")], "same", None),
            ([leg(0, 0), leg(0, 0, name="cycles", error=0.02)], "undecided", None),
            ([leg(0, 0, error=0.02), leg(0, 0, name="cycles")], "undecided", None),
            ([leg(2, 2, name="cycles")], "slower", "cycles"),
        ],
    )
    def test_known_answers(self, legs, status, by):
        for look in range(3):
            found = judge(legs, POLICY, look)
            assert (found.status, found.leg) == (status, by)

    @pytest.mark.parametrize("direction", ["slower", "faster"])
    @pytest.mark.parametrize("look", [0, 1, 2])
    @pytest.mark.parametrize("names", [("time",), ("time", "cycles")])
    def test_a_bound_must_pass_the_margin(self, names, look, direction):
        """Just beyond and just short of it, at the error that this look may spend on each leg."""
        alpha = 0.001 * POLICY.spending[look] / len(names)
        sign = 1 if direction == "slower" else -1
        reach = moderate(leg(0, 0).effects, QUIET).high(alpha)
        otherwise = "same" if look == 2 else "undecided"
        for beyond, status in ((1e-7, direction), (-1e-7, otherwise)):
            value = 100 * math.expm1(math.log1p(sign * 0.0025) + sign * (reach + beyond))
            found = judge([leg(value, value, name=name) for name in names], POLICY, look)
            assert found.status == status
            p_value = found.p_slower if direction == "slower" else found.p_faster
            assert p_value == pytest.approx(0.001 * POLICY.spending[look], rel=0.01)

    @pytest.mark.parametrize("value", [0.4, -0.4])
    def test_what_looks_beyond_the_margin_is_looked_at_again(self, value):
        """It is tolerable for sure, but another look may find it beyond the margin for sure too."""
        legs = [Leg("time", leg(value, value, error=0.0008).effects, DEFAULT_PRIOR)]
        assert [judge(legs, POLICY, look).status for look in range(3)] == ["undecided", "undecided", "same"]

    @pytest.mark.parametrize("sign", [1, -1])
    def test_both_bounds_must_be_within_the_tolerance(self, sign):
        policy = Policy(margin=0.0099)
        reach = moderate(leg(0, 0).effects, QUIET).high(0.001)
        for beyond, status in ((1e-7, "undecided"), (-1e-7, "same")):
            value = 100 * math.expm1(math.log1p(sign * 0.01) - sign * (reach - beyond))
            assert judge([leg(value, value)], policy, 0).status == status

    def test_the_numbers_beside_it(self):
        times, cycles = leg(0.9, 1.0, 1.1, 1.0), leg(0.3, 0.1, name="cycles")
        found = judge([times, cycles], POLICY, 1)
        estimate = moderate(times.effects, QUIET)
        assert list(found.estimates) == ["time", "cycles"]
        interval = found.estimates["time"]
        assert interval.effect == pytest.approx(0.01, rel=1e-3)
        assert math.log1p(interval.low) == pytest.approx(estimate.low(0.0005))
        assert math.log1p(interval.high) == pytest.approx(estimate.high(0.0005))
        assert (interval.processes, interval.quads) == (4, 200)
        assert (found.estimates["cycles"].processes, found.estimates["cycles"].quads) == (2, 100)
        assert found.p_slower == pytest.approx(2 * estimate.p_above(math.log1p(0.0025)))
        assert found.p_faster == pytest.approx(1, abs=1e-3)
        reach = stats.t.isf(1.5e-4, estimate.df) + stats.t.isf(0.1, estimate.df)
        assert math.log1p(found.smallest_visible) == pytest.approx(
            math.log1p(0.0025) + reach * estimate.standard_error
        )

    def test_the_smallest_visible_slowdown_is_seen_nine_times_in_ten(self):
        rng = np.random.default_rng(1)
        prior = Prior(variance=0.001**2, df=30)
        visible = judge([leg(0, 0, error=0, prior=prior)], POLICY, 0).smallest_visible
        trials, seen = 3000, 0
        for _ in range(trials):
            sd = 0.001 * math.sqrt(30 / rng.chisquare(30))
            values = 100 * np.expm1(math.log1p(visible) + sd * rng.standard_normal(2))
            seen += judge([leg(*values, error=0, prior=prior)], POLICY, 0).status == "slower"
        # The error is not known beforehand, which the formula leaves out.
        assert 0.86 < seen / trials < 0.94

    def test_the_smallest_visible_slowdown_is_times(self):
        slow, quiet = leg(0, 0, error=0.002), leg(0, 0, name="cycles")
        found = judge([quiet, slow], POLICY, 0).smallest_visible
        assert found > 2 * judge([quiet], POLICY, 0).smallest_visible
        assert found == judge([slow, quiet], POLICY, 0).smallest_visible

    @pytest.mark.parametrize("legs", [[], [leg(1), leg(1)], [leg()], [leg(1), leg(name="cycles")]])
    def test_legs_that_cannot_be(self, legs):
        with pytest.raises(ValueError, match="at least one"):
            judge(legs, POLICY, 0)

    @pytest.mark.parametrize("look", [-1, 3])
    def test_a_look_that_is_not_planned(self, look):
        with pytest.raises(ValueError, match="expected 0 to 2"):
            judge([leg(1)], POLICY, look)

    def test_swapping_arms_swaps_slower_and_faster(self):
        rng = np.random.default_rng(2)
        opposite = {"slower": "faster", "faster": "slower", "same": "same", "undecided": "undecided"}
        # The margin is a ratio either way, 1.0025 and 0.9975, which are no inverses: hence a small one.
        policy = Policy(margin=1e-9)
        for _ in range(300):
            values = rng.normal(rng.normal(0, 0.5), 0.1, 4)
            one = leg(*values, error=0.0007)
            other = Leg("time", tuple(ProcessEffect(-e.value, 0.0007, 29, 50) for e in one.effects), QUIET)
            forth, back = judge([one], policy, 1), judge([other], policy, 1)
            # A tolerance of 1 % has the same trouble.
            assert back.status == opposite[forth.status] or abs(values.mean()) > 0.3
            assert back.p_slower == pytest.approx(forth.p_faster, abs=1e-6)

    def test_neither_the_order_of_processes_nor_of_legs_matters(self):
        rng = np.random.default_rng(3)
        for _ in range(100):
            values, others = rng.normal(0.5, 0.3, 4), rng.normal(0.5, 0.3, 4)
            one = judge([leg(*values), leg(*others, name="cycles")], POLICY, 1)
            other = judge([leg(*others[::-1], name="cycles"), leg(*values[::-1])], POLICY, 1)
            assert (one.status, one.leg, one.excess) == (other.status, other.leg, other.excess)
            assert one.p_slower == pytest.approx(other.p_slower)
            assert one.smallest_visible == pytest.approx(other.smallest_visible)

    def test_nothing_undecided_is_ever_called_the_same(self):
        """What each status promises, over a thousand cases of all sorts."""
        rng = np.random.default_rng(4)
        seen: Counter[tuple[str, bool]] = Counter()
        for _ in range(1000):
            look = int(rng.integers(0, 3))
            legs = [
                leg(
                    *rng.normal(rng.normal(0, 0.7), 10 ** rng.uniform(-2, 0), POLICY.looks[look]),
                    name=name,
                    error=10 ** rng.uniform(-4, -2),
                    prior=DEFAULT_PRIOR,
                )
                for name in ("time", "cycles")[: rng.integers(1, 3)]
            ]
            found = judge(legs, POLICY, look)
            seen[found.status, found.excess] += 1
            estimates = {each.name: moderate(each.effects, each.prior) for each in legs}
            assert found.excess == any(each.excess for each in estimates.values())
            if found.status == "same":
                assert all(each.high(0.001) < math.log1p(0.01) for each in estimates.values())
                assert all(each.low(0.001) > math.log1p(-0.01) for each in estimates.values())
            elif found.status == "slower":
                assert found.estimates[str(found.leg)].low > 0.0025
            elif found.status == "faster":
                assert found.estimates[str(found.leg)].high < -0.0025
            else:
                assert found.leg is None
            if found.excess and look < 2:
                assert found.status == "undecided"
        assert len(seen) >= 7


class TestExcess:
    WILD = (0.0, 4.0, 4.1, 3.9, 4.0, 4.0, 4.1, 3.9)

    @pytest.mark.parametrize("look", [0, 1])
    @pytest.mark.parametrize("cycles", [False, True])
    def test_nothing_is_decided_before_the_last_look(self, look, cycles):
        wild = leg(*self.WILD[: POLICY.looks[look]], name="cycles" if cycles else "time")
        found = judge([leg(5, 5), wild] if cycles else [wild], POLICY, look)
        assert (found.status, found.leg, found.excess) == ("undecided", None, True)

    def test_at_the_last_look_processes_speak_for_themselves(self):
        values = (4.0, 4.4, 4.1, 3.9, 3.6, 4.0, 4.5, 3.5)
        found = judge([leg(*values)], POLICY, 2)
        assert (found.status, found.leg, found.excess) == ("slower", "time", True)
        peer = stats.ttest_1samp(np.log1p(np.array(values) / 100), math.log1p(0.0025), alternative="greater")
        assert found.p_slower == pytest.approx(peer.pvalue)

    def test_and_may_leave_it_open(self):
        assert judge([leg(-9.0, *self.WILD[1:])], POLICY, 2).status == "undecided"
        assert judge([leg(-4.0, 4.0)], POLICY, 2).status == "undecided"

    def test_an_interval_from_two_that_are_worlds_apart(self):
        effects = (ProcessEffect(-9.0, 0.001, 29, 50), ProcessEffect(9.0, 0.001, 29, 50))
        found = judge([Leg("time", effects, QUIET)], POLICY, 2)
        assert found.status == "undecided"
        assert found.estimates["time"].low == pytest.approx(-1)
        assert 1e300 < found.estimates["time"].high < math.inf  # JSON has no infinity


class TestConfirm:
    def test_known_answers(self):
        flagged = {
            "still slower": Flag("slower", leg(1, 1)),
            "still faster": Flag("faster", leg(-1, -1)),
            "gone": Flag("slower", leg(0, 0)),
            "turned": Flag("slower", leg(-1, -1)),
            "within the margin": Flag("slower", leg(0.25, 0.25)),
            "too noisy": Flag("slower", leg(1, 1, error=0.02)),
            "in cycles": Flag("slower", leg(1, 1, name="cycles")),
            "apart": Flag("slower", leg(0.5, 5)),
        }
        assert confirm(flagged, POLICY) == {"still slower", "still faster", "in cycles"}

    def test_none_flagged(self):
        assert confirm({}, POLICY) == frozenset()

    def test_the_more_are_flagged_the_surer_each_must_be(self):
        reach = moderate(leg(0, 0).effects, QUIET).high(0.00499)
        weak = Flag("slower", leg(*[100 * math.expm1(math.log1p(0.0025) + reach)] * 2))
        assert confirm({"weak": weak}, POLICY) == {"weak"}
        assert confirm({"weak": weak, "gone": Flag("slower", leg(0, 0))}, POLICY) == {"weak"}
        gone = {str(index): Flag("slower", leg(0, 0)) for index in range(2)}
        assert confirm({"weak": weak, **gone}, POLICY) == frozenset()

    def test_a_false_alarm_is_seldom_confirmed(self):
        """Ten at the margin itself, all flagged: some confirmed in no more than one suite of a hundred."""
        rng = np.random.default_rng(5)
        suites, wrong = 600, 0
        for _ in range(suites):
            flagged = {}
            for index in range(10):
                sd = 0.0005 * math.sqrt(30 / rng.chisquare(30))
                values = 100 * np.expm1(math.log1p(0.0025) + sd * rng.standard_normal(2))
                flagged[str(index)] = Flag("slower", leg(*values, error=0, prior=DEFAULT_PRIOR))
            wrong += bool(confirm(flagged, POLICY))
        assert no_oftener_than(0.01, wrong, suites)


def drifting(rng, shape):
    """A steady drift of some percent in the course of a process, both arms alike."""
    slope = 0.02 * rng.standard_normal((*shape[:-2], 1))
    return (slope * np.linspace(0, 1, shape[-2] * 4)).reshape(shape)


def bimodal(rng, shape):
    """Two states 2 % apart, whichever arm runs, and a switch every seven slots or so."""
    switches = rng.random((*shape[:-2], shape[-2] * 4)) < 0.15
    return 0.02 * (np.cumsum(switches, axis=-1) % 2).reshape(shape)


def throttled(rng, shape):
    """A clock that steps 6 % down, 12 % down and back up, for stretches of eight quads or so."""
    steps = rng.random((*shape[:-2], shape[-2] * 4)) < 0.03
    return 0.06 * (np.cumsum(steps, axis=-1) % 3).reshape(shape)


def heavy_tailed(rng, shape):
    """Student's t with two degrees of freedom, and every fiftieth slot takes five times as long."""
    return 0.001 * rng.standard_t(2, shape) + math.log(5) * (rng.random(shape) < 0.02)


NOISES = {
    "quiet": lambda _, shape: np.zeros(shape),
    "drifting": drifting,
    "bimodal": bimodal,
    "throttled": throttled,
    "heavy-tailed": heavy_tailed,
}
"""What slots have on top of 0.1 % each: log times of cases, processes, quads and slots."""

QUADS = 25


def simulated(rng, noise, cases, effect=0.0, processes=2, apart=0.0005):
    """Process effects of cases, by way of quads in random order. Processes differ by `apart` in some cases,
    by 0.4 of it in others.
    """
    shape = (cases, processes, QUADS, 4)
    base_first = rng.random(shape[:3]) < 0.5
    head = np.where(base_first[..., np.newaxis], [0, 1, 1, 0], [1, 0, 0, 1])
    own = apart * rng.uniform(0.4, 1, (cases, 1)) * rng.standard_normal((cases, processes))
    logs = 14 + 0.001 * rng.standard_normal(shape) + NOISES[noise](rng, shape)
    times = np.exp(logs + head * (math.log1p(effect) + own[..., np.newaxis, np.newaxis]))
    orders = np.where(base_first.ravel(), "ABBA", "BAAB").tolist()
    ratios = log_ratios(orders, times.reshape(-1, 4)).reshape(shape[:3])
    return [[process_effect(each) for each in case] for case in ratios]


def judged(rng, noise, cases, effect=0.0, *, policy=POLICY, prior=DEFAULT_PRIOR, apart=0.0005):
    """How cases end, each as soon as a look decides, and how many processes it took them in all."""
    ended: Counter[str] = Counter()
    processes = 0
    open_cases: list[list[ProcessEffect]] = [[] for _ in range(cases)]
    for look, wanted in enumerate(policy.looks):
        more = wanted - (policy.looks[look - 1] if look else 0)
        fresh = simulated(rng, noise, len(open_cases), effect, more, apart)
        open_cases = [case + added for case, added in zip(open_cases, fresh, strict=True)]
        processes += more * len(open_cases)
        statuses = [judge([Leg("time", tuple(case), prior)], policy, look).status for case in open_cases]
        ended.update(status for status in statuses if status != "undecided")
        open_cases = [
            case for case, status in zip(open_cases, statuses, strict=True) if status == "undecided"
        ]
        if not open_cases:
            break
    ended["undecided"] = len(open_cases)
    return ended, processes


@pytest.mark.parametrize("noise", NOISES)
class TestHowOftenItIsWrong:
    CASES = 5000

    def test_alike_arms(self, noise):
        """No false alarm, and every one of them done at the first look or nearly so."""
        ended, processes = judged(np.random.default_rng(10), noise, self.CASES)
        assert no_oftener_than(0.001, ended["slower"], self.CASES)
        assert no_oftener_than(0.001, ended["faster"], self.CASES)
        assert clopper_pearson(ended["same"], self.CASES, 0.999)[0] > 0.99
        assert processes < 2.1 * self.CASES

    @pytest.mark.parametrize("sign", [1, -1])
    def test_an_effect_as_large_as_the_margin(self, noise, sign):
        """The worst case that must not be called: at most a thousandth in all looks together."""
        ended, _ = judged(np.random.default_rng(11), noise, self.CASES, sign * 0.0025)
        assert no_oftener_than(0.001, ended["slower"] + ended["faster"], self.CASES)

    def test_no_margin_to_speak_of(self, noise):
        """Without a margin to hide behind errors are as rare as said, or rarer."""
        ended, _ = judged(np.random.default_rng(12), noise, self.CASES, policy=Policy(margin=1e-7))
        assert no_oftener_than(0.001, ended["slower"], self.CASES)
        assert no_oftener_than(0.001, ended["faster"], self.CASES)

    @pytest.mark.parametrize(("effect", "status"), [(0.01, "slower"), (-0.01, "faster")])
    def test_one_percent_is_found(self, noise, effect, status):
        cases = 1000
        ended, processes = judged(np.random.default_rng(13), noise, cases, effect)
        assert clopper_pearson(ended[status], cases, 0.999)[0] > 0.99
        assert processes < 2.2 * cases

    def test_what_is_not_the_same_is_seldom_called_so(self, noise):
        """An effect as large as the tolerance is called the same a thousandth of the time, at each look."""
        policy = Policy(margin=0.0099)
        ended, _ = judged(np.random.default_rng(14), noise, 1000, 0.01, policy=policy)
        assert no_oftener_than(0.003, ended["same"], 1000)

    def test_a_prior_from_history_keeps_the_errors_as_rare(self, noise):
        rng = np.random.default_rng(15)
        prior = fit_prior(simulated(rng, noise, 24, processes=8))
        ended, _ = judged(rng, noise, 2000, policy=Policy(margin=1e-7, tolerance=0.02), prior=prior)
        assert no_oftener_than(0.001, ended["slower"] + ended["faster"], 2000)
        ended, _ = judged(rng, noise, 300, 0.01, prior=prior)
        assert ended["slower"] >= 297


def test_processes_may_differ_three_times_as_much_as_assumed():
    """On a card without history: 0.15 % and not 0.05 %."""
    ended, _ = judged(np.random.default_rng(20), "quiet", 10_000, apart=0.0015)
    assert no_oftener_than(0.001, ended["slower"], 10_000)
    assert no_oftener_than(0.001, ended["faster"], 10_000)
