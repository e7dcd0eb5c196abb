"""Judgements of made-up processes by hand, and of simulated ones by how often they are wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import scipy  # its parts load when they are used

from harness.judgement.judge import Direction, MetricEffects, MetricName, Policy, judge, p_again
from harness.judgement.statistics.moderated import DEFAULT_PRIOR, Prior, fit_prior, moderate, prior_of_case
from harness.judgement.statistics.paired import ProcessEffect, log_ratios, more_quads, process_effect
from harness.judgement.statistics.rates import clopper_pearson, holm
from tests.support import no_oftener_than

QUIET = Prior(variance=0.0001**2, df=100)
POLICY = Policy()
MARGIN = math.log1p(POLICY.margin)
NAMES: tuple[MetricName, ...] = ("time", "cycles")


def metric(*percent, name: MetricName = "time", error=0.0002, prior=QUIET):
    """Return effects of processes on a metric."""
    return MetricEffects(
        name, tuple(ProcessEffect(math.log1p(each / 100), error, 29, 50) for each in percent), prior
    )


def cycles(*percent, error=0.0002, prior=QUIET):
    return metric(*percent, name="cycles", error=error, prior=prior)


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
            ({"flag": 0.0}, "flag 0.0"),
            ({"flag": 1.0}, "flag 1.0"),
            ({"looks": ()}, "increase"),
            ({"looks": (2, 2, 8)}, "increase"),
            ({"looks": (4, 2, 8)}, "increase"),
            ({"looks": (0, 2, 8)}, "increase"),
            ({"looks": (2, 4)}, "a share for each of 2 looks"),
            ({"spending": (0.2, 0.3, 0.6)}, "sum to 1"),
            ({"same_spending": (0.0, 0.5, 0.5)}, "positive shares"),
            ({"same_spending": (-0.5, 1.0, 0.5)}, "positive shares"),
        ],
    )
    def test_what_cannot_be(self, changes, words):
        with pytest.raises(ValueError, match=words):
            Policy(**changes)

    def test_looks_spend_the_error_and_no_more(self):
        looks = range(3)
        assert [POLICY.flag_alpha(look) for look in looks] == pytest.approx([0.002, 0.003, 0.005])
        assert [POLICY.same_alpha(look) for look in looks] == pytest.approx([3.2e-4, 2.4e-4, 2.4e-4])
        assert [POLICY.confirm_share(look) for look in looks] == pytest.approx([0.2, 0.3, 0.5])

    def test_the_last_look_there_is_has_what_later_ones_would_have_had(self):
        looks = range(3)
        assert [POLICY.flag_alpha(look, last=True) for look in looks] == pytest.approx([0.01, 0.008, 0.005])
        assert [POLICY.same_alpha(look, last=True) for look in looks] == pytest.approx([8e-4, 4.8e-4, 2.4e-4])
        assert [POLICY.confirm_share(look, last=True) for look in looks] == pytest.approx([1, 0.8, 0.5])


class TestJudge:
    @pytest.mark.parametrize("tell", [None, False, True])
    @pytest.mark.parametrize(
        ("metrics", "status", "by"),
        [
            ([metric(1, 1.02)], "slower", ("time",)),
            ([metric(-1, -1.02)], "faster", ("time",)),
            ([metric(0, 0.02)], "same", ()),
            ([metric(0.24, 0.25)], "same", ()),
            ([metric(1.5, -1.5, error=0.02)], "undecided", ()),
            ([metric(0.0, 0.1, error=0.02)], "undecided", ()),
            ([cycles(2, 2)], "slower", ("cycles",)),
            ([metric(1), cycles(1.5)], "slower", ("time", "cycles")),
            ([cycles(-1, -1), metric(-2, -2)], "faster", ("time", "cycles")),
            ([metric(0, 0), cycles(0.1, 0)], "same", ()),
            # They contradict each other, and time is sure.
            ([metric(2, 2), cycles(0, 0)], "slower", ("time",)),
            ([metric(-2, -2), cycles(2, 2)], "faster", ("time",)),
            ([cycles(-2, -2), metric(2, 2)], "slower", ("time",)),
            ([metric(0, 0, error=0.02), cycles(0, 0)], "undecided", ()),
        ],
    )
    def test_known_answers(self, metrics, status, by, tell):
        for look in range(3):
            found = judge(metrics, POLICY, look, cycles_tell=tell)
            assert (found.status, found.metrics) == (status, by)

    @pytest.mark.parametrize(
        ("tell", "status", "by"),
        [(None, "undecided", ()), (False, "same", ()), (True, "slower", ("cycles",))],
    )
    def test_where_time_says_the_same_and_cycles_do_not_it_matters_whether_they_tell(self, tell, status, by):
        for look in range(3):
            found = judge([metric(0, 0), cycles(2, 2)], POLICY, look, cycles_tell=tell)
            assert (found.status, found.metrics, found.apart) == (status, by, True)

    @pytest.mark.parametrize(
        ("metrics", "tell", "status", "by"),
        [
            ([metric(2, 2, error=0.002), cycles(1, 1, error=0.005)], None, "slower", ("time",)),
            ([metric(-2, -2, error=0.002), cycles(-1, -1, error=0.005)], False, "faster", ("time",)),
            ([metric(1, 1, error=0.005), cycles(2, 2, error=0.002)], True, "slower", ("cycles",)),
            ([metric(1, 1, error=0.005), cycles(2, 2, error=0.002)], None, "undecided", ()),
            ([metric(1, 1, error=0.005), cycles(2, 2, error=0.002)], False, "undecided", ()),
            ([metric(0, 0, error=0.002), cycles(0, 0, error=0.005)], False, "same", ()),
            ([metric(0, 0, error=0.002), cycles(0, 0, error=0.005)], None, "undecided", ()),
            ([metric(0, 0, error=0.002), cycles(0, 0, error=0.005)], True, "undecided", ()),
        ],
    )
    def test_one_that_is_sure_waits_for_the_other_until_the_last_look(self, metrics, tell, status, by):
        for look in range(2):
            assert judge(metrics, POLICY, look, cycles_tell=tell).status == "undecided"
            final = judge(metrics, POLICY, look, last=True, cycles_tell=tell)
            assert (final.status, final.metrics, final.apart) == (status, by, False)
        planned = judge(metrics, POLICY, 2, cycles_tell=tell)
        assert (planned.status, planned.metrics) == (status, by)

    @pytest.mark.parametrize(("time", "status"), [(2, "slower"), (-2, "faster"), (0, "same")])
    def test_cycles_that_scatter_far_more_than_times_are_left_out(self, time, status):
        metrics = [metric(time, time, error=0.001), cycles(5, -3, error=0.05)]
        found = judge(metrics, POLICY, 0)
        assert (found.status, found.apart) == (status, False)
        assert set(found.estimates) == {"time", "cycles"}
        assert found.metrics == (() if status == "same" else ("time",))

    @pytest.mark.parametrize("direction", ["slower", "faster"])
    @pytest.mark.parametrize(("look", "last"), [(0, False), (1, False), (1, True), (2, False)])
    @pytest.mark.parametrize(
        ("others", "share"),
        [
            pytest.param([], 1, id="time"),
            pytest.param([None], 1, id="both must"),
            pytest.param([-5], 0.5, id="one alone has half"),
        ],
    )
    def test_a_bound_must_pass_the_margin(self, others, share, look, last, direction):
        """Just beyond and just short of it, at the error that this look may spend."""
        sign = 1 if direction == "slower" else -1
        reach = moderate(metric(0, 0).effects, QUIET).high(share * POLICY.flag_alpha(look, last=last))
        for beyond in (1e-7, -1e-7):
            value = 100 * math.expm1(math.log1p(sign * 0.0025) + sign * (reach + beyond))
            beside = [cycles(*[value if other is None else sign * other] * 2) for other in others]
            found = judge([metric(value, value), *beside], POLICY, look, last=last)
            assert (found.status == direction) is (beyond > 0)

    @pytest.mark.parametrize("value", [0.4, -0.4])
    def test_what_looks_beyond_the_margin_is_looked_at_again(self, value):
        """It is tolerable for sure, but another look may find it beyond the margin for sure too."""
        metrics = [metric(value, value, error=0.0014)]
        assert [judge(metrics, POLICY, look).status for look in range(3)] == [
            "undecided",
            "undecided",
            "same",
        ]
        assert judge(metrics, POLICY, 0, last=True).status == "same"

    @pytest.mark.parametrize(("look", "last"), [(0, False), (0, True), (2, False)])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_both_bounds_must_be_within_the_tolerance(self, sign, look, last):
        policy = Policy(margin=0.0099)
        reach = moderate(metric(0, 0).effects, QUIET).high(policy.same_alpha(look, last=last))
        for beyond, status in ((1e-7, "undecided"), (-1e-7, "same")):
            value = 100 * math.expm1(math.log1p(sign * 0.01) - sign * (reach - beyond))
            assert judge([metric(value, value)], policy, look, last=last).status == status

    def test_apart_means_further_than_chance_and_the_margin_allow(self):
        reach = 2 * moderate(metric(0, 0).effects, QUIET).high(POLICY.flag / 2)
        for beyond in (1e-6, -1e-6):
            value = 100 * math.expm1(reach + MARGIN + beyond)
            for metrics in ([metric(0, 0), cycles(value, value)], [metric(value, value), cycles(0, 0)]):
                assert judge(metrics, POLICY, 0).apart is (beyond > 0)
        assert not judge([metric(5, 5)], POLICY, 0).apart

    def test_the_numbers_beside_it(self):
        times, others = metric(0.9, 1.0, 1.1, 1.0), cycles(0.3, 0.1)
        found = judge([times, others], POLICY, 1)
        estimate = moderate(times.effects, QUIET)
        assert list(found.estimates) == ["time", "cycles"]
        interval = found.estimates["time"]
        assert interval.effect == pytest.approx(0.01, rel=1e-3)
        assert math.log1p(interval.low) == pytest.approx(estimate.low(0.0005))
        assert math.log1p(interval.high) == pytest.approx(estimate.high(0.0005))
        assert (interval.processes, interval.quads) == (4, 200)
        assert (found.estimates["cycles"].processes, found.estimates["cycles"].quads) == (2, 100)

    def test_the_smallest_visible_slowdown_is_times(self):
        slow, quiet = metric(0, 0, error=0.002), cycles(0, 0)
        found = judge([quiet, slow], POLICY, 0).smallest_visible
        assert found > 1.5 * judge([quiet], POLICY, 0).smallest_visible
        assert found == judge([slow, quiet], POLICY, 0).smallest_visible

    @pytest.mark.parametrize("metrics", [[], [metric(1), metric(1)], [metric()], [metric(1), cycles()]])
    def test_metrics_that_cannot_be(self, metrics):
        with pytest.raises(ValueError, match="at least one"):
            judge(metrics, POLICY, 0)

    @pytest.mark.parametrize("look", [-1, 3])
    def test_a_look_that_is_not_planned(self, look):
        with pytest.raises(ValueError, match="expected 0 to 2"):
            judge([metric(1)], POLICY, look)

    def test_swapping_arms_swaps_slower_and_faster(self):
        rng = np.random.default_rng(2)
        opposite = {"slower": "faster", "faster": "slower", "same": "same", "undecided": "undecided"}
        # The margin is a ratio either way, 1.0025 and 0.9975, which are no inverses: hence a small one.
        policy = Policy(margin=1e-9)
        seen = Counter[str]()
        for _ in range(300):
            rows = rng.normal(rng.normal(0, 0.3), 0.1, (2, 4))
            tell = (None, False, True)[rng.integers(0, 3)]
            there, back = (
                [metric(*rows[0], error=0.0007), cycles(*rows[1], error=0.0007)],
                [metric(*_swapped(rows[0]), error=0.0007), cycles(*_swapped(rows[1]), error=0.0007)],
            )
            one, other = (judge(metrics, policy, 2, cycles_tell=tell) for metrics in (there, back))
            # A tolerance of 1 % has the same trouble as the margin.
            assert other.status == opposite[one.status] or np.abs(rows.mean(axis=1)).max() > 0.6
            assert (other.apart, other.excess) == (one.apart, one.excess)
            seen[one.status] += 1
        assert min(seen[status] for status in ("slower", "faster", "same")) > 20

    def test_neither_the_order_of_processes_nor_of_metrics_matters(self):
        rng = np.random.default_rng(3)
        for _ in range(100):
            values, others = rng.normal(0.5, 0.3, 4), rng.normal(0.5, 0.3, 4)
            one = judge([metric(*values), cycles(*others)], POLICY, 2, cycles_tell=True)
            other = judge([cycles(*others[::-1]), metric(*values[::-1])], POLICY, 2, cycles_tell=True)
            assert (one.status, one.metrics, one.excess) == (other.status, other.metrics, other.excess)
            assert one.smallest_visible == pytest.approx(other.smallest_visible)

    def test_nothing_undecided_is_ever_called_the_same(self):
        """What each status promises, over eight hundred cases of all sorts."""
        rng = np.random.default_rng(4)
        seen: Counter[tuple[str, int]] = Counter()
        for _ in range(800):
            look, tell = int(rng.integers(0, 3)), (None, False, True)[rng.integers(0, 3)]
            metrics = [
                metric(
                    *rng.normal(rng.normal(0, 0.7), 10 ** rng.uniform(-2, 0), POLICY.looks[look]),
                    name=name,
                    error=10 ** rng.uniform(-4, -2.5),
                    prior=DEFAULT_PRIOR,
                )
                for name in NAMES[: int(rng.integers(1, 3))]
            ]
            found = judge(metrics, POLICY, look, cycles_tell=tell)
            seen[found.status, len(found.metrics)] += 1
            estimates = {each.name: moderate(each.effects, each.prior) for each in metrics}
            assert found.excess == any(each.excess for each in estimates.values())
            errors = [estimates[name].standard_error for name in NAMES if name in estimates]
            scattered = len(errors) == 2 and errors[1] > 3 * errors[0]  # of cycles, next to times
            if found.excess and look == 0:
                assert found.status == "undecided"
            if found.status in ("slower", "faster"):
                assert set(found.metrics) <= set(estimates)
                if len(found.metrics) < len(metrics):
                    assert found.apart or look == 2 or scattered
                    assert found.metrics == ("time",) or tell is True
                for name in found.metrics:
                    low, high = (estimates[name].low(0.005), estimates[name].high(0.005))
                    assert low > MARGIN if found.status == "slower" else high < math.log1p(-0.0025)
            else:
                assert found.metrics == ()
            if found.status == "same":
                both = tell is not False and not scattered
                telling = [each for name, each in estimates.items() if name == "time" or both]
                assert all(each.high(3.2e-4) < math.log1p(0.01) for each in telling)
                assert all(each.low(3.2e-4) > math.log1p(-0.01) for each in telling)
        assert len(seen) == 6


def _swapped(percent):
    """Return the effects with head and base exchanged."""
    return 100 * np.expm1(-np.log1p(np.asarray(percent) / 100))


class TestExcess:
    @pytest.mark.parametrize("beside", [False, True])
    def test_two_processes_that_differ_by_more_than_explained_decide_nothing(self, beside):
        wild = metric(50.0, 50.2, name="cycles" if beside else "time")
        metrics = [metric(50, 50), wild] if beside else [wild]
        found = judge(metrics, POLICY, 0)
        assert (found.status, found.metrics, found.excess) == ("undecided", (), True)

    @pytest.mark.parametrize("look", [1, 2])
    def test_more_of_them_speak_for_themselves(self, look):
        values = (4.0, 4.4, 4.1, 3.9, 3.6, 4.0, 4.5, 3.5)[: POLICY.looks[look]]
        found = judge([metric(*values)], POLICY, look)
        assert (found.status, found.metrics, found.excess) == ("slower", ("time",), True)
        peer = scipy.stats.ttest_1samp(np.log1p(np.array(values) / 100), MARGIN, alternative="greater")
        assert peer.pvalue < POLICY.flag_alpha(look)

    def test_and_may_leave_it_open(self):
        assert judge([metric(-9.0, 4.0, 4.1, 3.9, 4.0, 4.0, 4.1, 3.9)], POLICY, 2).status == "undecided"
        assert judge([metric(-4.0, 4.0)], POLICY, 2).status == "undecided"

    def test_an_interval_from_two_that_are_worlds_apart(self):
        effects = (ProcessEffect(-9.0, 0.001, 29, 50), ProcessEffect(9.0, 0.001, 29, 50))
        found = judge([MetricEffects("time", effects, QUIET)], POLICY, 2)
        assert found.status == "undecided"
        assert found.estimates["time"].low == pytest.approx(-1)
        assert 1e300 < found.estimates["time"].high < math.inf  # JSON has no infinity


def again(direction: Direction, *metrics, look=2, last=False):
    return p_again(direction, metrics, POLICY, look, last=last)


class TestConfirm:
    def test_a_p_value_by_hand(self):
        value = metric(0.3, 0.3)
        alone = moderate(value.effects, QUIET).p_above(MARGIN)
        assert 1e-4 < alone < 0.02
        shares = [0.2, 0.3, 0.5]
        assert [again("slower", value, look=look) for look in range(3)] == pytest.approx(
            [alone / share for share in shares]
        )
        assert again("slower", value, look=0, last=True) == pytest.approx(alone)
        value = metric(-0.3, -0.3)
        below = moderate(value.effects, QUIET).p_below(math.log1p(-0.0025))
        assert again("faster", value, look=2) == pytest.approx(below / 0.5)

    def test_the_metric_that_says_least_counts(self):
        sure, weak = metric(2, 2), cycles(0.3, 0.3)
        assert again("slower", sure, weak) == again("slower", weak) > again("slower", sure)

    def test_cycles_that_scatter_far_more_than_times_do_not_count(self):
        sure = metric(2, 2, error=0.001)
        assert again("slower", sure, cycles(3, 1, error=0.05)) == again("slower", sure)

    def test_it_is_no_more_than_one(self):
        assert again("slower", metric(-2, -2), look=0) == again("faster", metric(2, 2)) == 1

    @pytest.mark.parametrize("direction", ["slower", "faster"])
    def test_the_larger_the_effect_the_smaller_it_is(self, direction):
        sign = 1 if direction == "slower" else -1
        values = [0.1, 0.25, 0.3, 0.4, 0.6, 1.0]
        found = [again(direction, metric(sign * value, sign * value)) for value in values]
        assert found == sorted(found, reverse=True)
        assert found[0] > 0.5 > found[-1]

    def test_none_flagged(self):
        assert holm({}, POLICY.confirm) == frozenset()

    def test_the_more_are_flagged_the_surer_each_must_be(self):
        assert holm({"weak": 0.00049}, POLICY.confirm) == {"weak"}
        assert holm({"weak": 0.00049, "gone": 1.0}, POLICY.confirm) == {"weak"}
        assert holm({"weak": 0.00049, "gone": 1.0, "too": 1.0}, POLICY.confirm) == frozenset()
        assert holm({"weak": 0.00049, "gone": 1.0, "sure": 1e-9}, POLICY.confirm) == {"weak", "sure"}

    def test_what_is_confirmed_before_the_last_look_would_be_so_after_it(self):
        """p-values only fall as looks are added, and a case that is settled no other way stays in."""
        rng = np.random.default_rng(5)
        confirmed = 0
        for _ in range(500):
            early = {str(index): 10 ** rng.uniform(-5, 0) for index in range(rng.integers(1, 8))}
            late = {name: p_value * rng.uniform(0, 1) ** 2 for name, p_value in early.items()}
            assert holm(early, POLICY.confirm) <= holm(late, POLICY.confirm)
            assert holm(late, POLICY.confirm) <= holm(dict(list(late.items())[:1]), POLICY.confirm) | set(
                list(late)[1:]
            )
            confirmed += len(holm(early, POLICY.confirm))
        assert confirmed > 100


# Simulations: from processes to what becomes of a case

Drawn = Callable[[Sequence[int], int], Sequence[Sequence[Sequence[ProcessEffect]]]]
"""So many more processes of these cases: of each case, by metric, their effects."""


class Played:
    """Cases as a comparison would judge them, each for itself: called, and then confirmed or not."""

    def __init__(self, draw: Drawn, cases: int, policy=POLICY, priors=(DEFAULT_PRIOR, DEFAULT_PRIOR)):
        self.draw, self.policy, self.priors, self.processes = draw, policy, priors, 0
        self.first: Counter[str] = Counter()
        """How they came out of the first looks."""
        self.confirmed: Counter[str] = Counter()
        self.refuted = 0
        """Called slower or faster, and then the same."""
        flags: dict[int, tuple[Direction, tuple[MetricName, ...]]] = {}
        for case, metrics, look in self.looks(range(cases)):
            found = judge(metrics, policy, look)
            if found.status == "slower" or found.status == "faster":
                flags[case] = found.status, found.metrics
            if found.status != "undecided" or look == len(policy.looks) - 1:
                self.first[found.status] += 1
                self.done.add(case)
        least = dict.fromkeys(flags, 1.0)
        for case, metrics, look in self.looks(list(flags)):
            direction, names = flags[case]
            flagged = [each for each in metrics if each.name in names]
            least[case] = min(least[case], p_again(direction, flagged, policy, look))
            if holm({"it": least[case]}, policy.confirm):
                self.confirmed[direction] += 1
                self.done.add(case)
            elif judge(metrics, policy, look).status == "same":
                self.refuted += 1
                self.done.add(case)

    def looks(self, cases):
        """Each case that is not done, with its metrics, at each look."""
        seen: dict[int, tuple[list[ProcessEffect], ...]] = {}
        left, had, self.done = list(cases), 0, set[int]()
        for look, count in enumerate(self.policy.looks):
            if not left:
                return
            fresh = self.draw(left, count - had)
            self.processes += (count - had) * len(left)
            had = count
            for case, metrics in zip(left, fresh, strict=True):
                own = seen.setdefault(case, tuple([] for _ in metrics))
                for kept, more in zip(own, metrics, strict=True):
                    kept.extend(more)
                found = zip(NAMES, own, self.priors, strict=False)
                yield case, [MetricEffects(name, tuple(each), prior) for name, each, prior in found], look
            left = [case for case in left if case not in self.done]


def spread(rng, cases, effect, sd, *, df=math.inf) -> Drawn:
    """Processes about an effect in time; their variance is another one in each case where `df` is finite."""
    scale = np.ones(cases) if math.isinf(df) else np.sqrt(df / rng.chisquare(df, cases))

    def draw(which, count):
        values = effect + sd * scale[list(which), np.newaxis] * rng.standard_normal((len(which), count))
        return [[[ProcessEffect(value, 0.0, 3, 6) for value in row]] for row in values.tolist()]

    return draw


class TestPromises:
    """Processes that differ as the prior says, so that the chances are what they are said to be. Of slowdowns
    alone: what is said of a speed-up is the mirror image, which test_swapping_arms holds.
    """

    PRIOR = Prior(variance=0.001**2, df=5)

    def test_at_the_margin_a_flag_is_as_rare_as_said(self):
        """Nothing is called the same before, as that would hide errors; so the rate is met, nearly."""
        policy = Policy(margin=0.0099)
        rng, cases = np.random.default_rng(10), 6000
        played = Played(spread(rng, cases, math.log1p(0.0099), 0.001, df=5), cases, policy, (self.PRIOR,))
        wrong = played.first["slower"] + played.first["faster"]
        assert no_oftener_than(policy.flag, wrong, cases)
        assert clopper_pearson(wrong, cases, 0.999)[1] > policy.flag / 2
        assert no_oftener_than(policy.flag * policy.confirm, played.confirmed.total(), cases)

    def test_at_the_tolerance_same_is_as_rare_as_said(self):
        """In each of the two stages; a confidence of 98 % so that there is something to count."""
        policy = Policy(margin=0.0099, confidence=0.98)
        rng, cases = np.random.default_rng(11), 6000
        played = Played(spread(rng, cases, math.log1p(0.01), 0.001, df=5), cases, policy, (self.PRIOR,))
        assert no_oftener_than((1 - policy.confidence) / 2, played.first["same"], cases)
        assert clopper_pearson(played.first["same"], cases, 0.999)[1] > (1 - policy.confidence) / 4
        assert no_oftener_than((1 - policy.confidence) / 2, played.refuted, cases)

    def test_among_many_flagged_none_within_the_margin_is_confirmed_but_as_seldom_as_promised(self):
        """Ten at the margin itself, however they were flagged, with the least p-value of three looks; so
        often that some must be.
        """
        rng, suites, size = np.random.default_rng(12), 800, 10
        policy = Policy(confirm=0.02)
        draw = spread(rng, suites * size, MARGIN, 0.001, df=5)
        wrong = 0
        for first in range(0, suites * size, size):
            cases = range(first, first + size)
            seen: list[list[ProcessEffect]] = [[] for _ in cases]
            least = dict.fromkeys(map(str, cases), 1.0)
            for look, count in enumerate(POLICY.looks):
                fresh = draw(cases, count - len(seen[0]))
                for name, own, more in zip(least, seen, fresh, strict=True):
                    own.extend(more[0])
                    metrics = [MetricEffects("time", tuple(own), self.PRIOR)]
                    least[name] = min(least[name], p_again("slower", metrics, policy, look))
            wrong += bool(holm(least, policy.confirm))
        assert no_oftener_than(policy.confirm, wrong, suites)
        assert wrong > 0

    def test_a_metric_that_clocks_bend_makes_no_more_flags(self):
        """Time is at the margin and cycles are anywhere: together they err no more often than time alone."""
        rng, cases = np.random.default_rng(13), 4000
        policy = Policy(margin=0.0099)
        times = spread(rng, cases, math.log1p(0.0099), 0.001, df=5)
        others = spread(rng, cases, 0.0, 0.001, df=5)
        bent = rng.choice([-0.05, 0.0, 0.0099, 0.05], cases)

        def draw(which, count):
            moved = [
                [ProcessEffect(each.value + bent[case], 0.0, 3, 6) for each in metrics[0]]
                for case, metrics in zip(which, others(which, count), strict=True)
            ]
            return [[metrics[0], more] for metrics, more in zip(times(which, count), moved, strict=True)]

        played = Played(draw, cases, policy, (self.PRIOR, self.PRIOR))
        assert no_oftener_than(policy.flag, played.first["slower"], cases)
        assert no_oftener_than(policy.flag, played.first["faster"], cases)

    def test_the_smallest_visible_slowdown_is_found_and_confirmed_nine_times_in_ten(self):
        prior = Prior(variance=0.001**2, df=30)
        effects = tuple(ProcessEffect(0.0, 0.0, 29, 50) for _ in range(2))
        visible = judge([MetricEffects("time", effects, prior)], POLICY, 0).smallest_visible
        rng, cases = np.random.default_rng(14), 1500
        # The most that it may be called the same is not its matter: nothing is, with a margin so close.
        played = Played(spread(rng, cases, math.log1p(visible), 0.001, df=30), cases, POLICY, (prior,))
        found = played.confirmed["slower"]
        assert 0.86 < found / cases < 0.97


@pytest.mark.parametrize("noise", [0.001, 0.002, 0.004])
def test_blocks_that_end_when_they_seem_to_know_enough_make_no_more_flags(noise):
    """On a calibrated card, where the quads' own errors are what matters: these are too small by chance in
    some blocks, which end early.
    """
    rng, cases = np.random.default_rng(15), 1500
    prior = Prior(variance=0.0003**2, df=30)

    def draw(which, count):
        found = []
        for own in MARGIN + 0.0003 * rng.standard_normal((len(which), count)):
            rows = own[:, np.newaxis] + noise * rng.standard_normal((count, MOST_QUADS))
            found.append([[process_effect(row[: ended(row)]) for row in rows]])
        return found

    played = Played(draw, cases, Policy(tolerance=0.5), (prior,))
    assert no_oftener_than(1.2 * POLICY.flag, played.first["slower"], cases)
    assert no_oftener_than(0.0001, played.confirmed.total(), cases)


@pytest.mark.parametrize(("times", "rate"), [(1.5, 0.0005), (2, 0.001), (3, 0.005)])
def test_where_processes_differ_by_more_than_assumed_confirmation_holds_the_line(times, rate):
    """At the margin, on a card without history: many more are flagged than said, and few are confirmed."""
    rng, cases = np.random.default_rng(20), 5000
    played = Played(spread(rng, cases, MARGIN, times * 0.001), cases, priors=(DEFAULT_PRIOR,))
    assert no_oftener_than(rate, played.confirmed.total(), cases)
    alike = Played(spread(rng, cases, 0.0, times * 0.001), cases, priors=(DEFAULT_PRIOR,))
    assert no_oftener_than(0.0001, alike.confirmed.total(), cases)


@pytest.mark.parametrize("seed", [21, 22])
def test_a_wild_case_among_quiet_ones_is_judged_by_its_own_history(seed):
    """Its processes differ by 1 %, those of the card's other cases by 0.05 %."""
    rng, cases = np.random.default_rng(seed), 1500
    quiet, wild = (
        [
            [ProcessEffect(value, 0.0002, 29, 50) for value in row]
            for row in rng.normal(0, sd, (n, 8)).tolist()
        ]
        for sd, n in ((0.0005, 9), (0.01, 1))
    )
    prior = prior_of_case(fit_prior(quiet + wild), wild[0])
    played = Played(spread(rng, cases, 0.0, 0.01), cases, priors=(prior,))
    assert no_oftener_than(0.01, played.first["slower"], cases)
    assert no_oftener_than(0.01, played.first["faster"], cases)
    assert no_oftener_than(0.0001, played.confirmed.total(), cases)
    # What is 10 % slower is still found, but not by two processes.
    large = Played(spread(rng, 300, 0.1, 0.01), 300, priors=(prior,))
    assert large.confirmed["slower"] > 285


# From quads on


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
"""Logarithms of times that slots have beside 0.1 % of noise, by case, process, quad and slot."""
OF_CLOCK = ("throttled", "bimodal")
"""Noise that cycles do not show."""


def measured(rng, noise, effect=0.0, apart=0.001) -> Drawn:
    """Both metrics, by way of quads in random order, until their times are known well enough. Processes
    differ by `apart` in some cases, by 0.4 of it in others.
    """

    def draw(which, count):
        shape = (len(which), count, MOST_QUADS, 4)
        base_first = rng.random(shape[:3]) < 0.5
        head = np.where(base_first[..., np.newaxis], [0, 1, 1, 0], [1, 0, 0, 1])
        own = apart * rng.uniform(0.4, 1, (len(which), 1)) * rng.standard_normal((len(which), count))
        work = 14 + head * (math.log1p(effect) + own[..., np.newaxis, np.newaxis])
        clocks = NOISES[noise](rng, shape)
        orders = np.where(base_first.ravel(), "ABBA", "BAAB").tolist()
        ratios_of = []
        for beyond in (clocks, np.zeros(shape) if noise in OF_CLOCK else clocks):
            values = np.exp(work + beyond + 0.001 * rng.standard_normal(shape))
            ratios_of.append(log_ratios(orders, values.reshape(-1, 4)).reshape(shape[:3]))
        ends = [[ended(row) for row in case] for case in ratios_of[0]]
        return [
            [
                [process_effect(row[:end]) for row, end in zip(ratios[case], ends[case], strict=True)]
                for ratios in ratios_of
            ]
            for case in range(len(which))
        ]

    return draw


MOST_QUADS = 40


def ended(ratios):
    """How many quads a block has that ends once its effect is known to six tenths of the margin."""
    count = 0
    while (wanted := more_quads(ratios[:count], 0.0015, at_least=6, at_most=MOST_QUADS)) > count:
        count = wanted
    return count


@pytest.mark.parametrize("noise", NOISES)
class TestHowOftenItIsWrong:
    CASES = 800

    def test_alike_arms(self, noise):
        """No false alarm, and nearly every one of them is done at the first look."""
        played = Played(measured(np.random.default_rng(30), noise), self.CASES)
        assert no_oftener_than(0.001, played.first["slower"] + played.first["faster"], self.CASES)
        assert played.confirmed.total() == 0
        assert clopper_pearson(played.first["same"], self.CASES, 0.999)[0] > 0.98
        assert played.processes < 2.4 * self.CASES

    def test_an_effect_as_large_as_the_margin(self, noise):
        """The worst case that must not be called."""
        played = Played(measured(np.random.default_rng(31), noise, 0.0025), self.CASES)
        assert no_oftener_than(POLICY.flag, played.first["slower"] + played.first["faster"], self.CASES)
        assert no_oftener_than(0.0001, played.confirmed.total(), self.CASES)

    def test_two_percent_are_found_and_confirmed_at_the_first_looks(self, noise):
        cases = 300
        played = Played(measured(np.random.default_rng(32), noise, 0.02), cases)
        assert played.confirmed["slower"] == played.confirmed.total()
        assert clopper_pearson(played.confirmed.total(), cases, 0.999)[0] > 0.97
        assert played.processes < 4.5 * cases
