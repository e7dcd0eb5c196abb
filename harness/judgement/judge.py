"""Turns the effects of processes into a judgement: slower, faster, the same, or not decided yet. Pure.

Time and SM cycles are two metrics. Time is cycles over clock, and the clock varies. The effect of the code
lies between the effect on time and the effect on cycles. So a case is slower if both metrics are, and the
same if both are. If the metrics disagree, the clocks changed, and one metric has to decide.

Each look at the data may decide. The looks share the allowed error rate (Bonferroni). A case that a look
calls slower or faster is only flagged: new processes must confirm it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.errors import UsageError
from harness.judgement.statistics.moderated import Moderated, Prior, moderate
from harness.judgement.statistics.paired import ProcessEffect
from harness.records.types import Effect

Direction = Literal["slower", "faster"]
DIRECTIONS: tuple[Direction, ...] = ("slower", "faster")
Status = Literal["slower", "faster", "same", "undecided"]
MetricName = Literal["time", "cycles", "tail"]
"""Name of a metric. `judge` never gets `tail`: outliers are counted, not measured."""

SAME_AGAIN = 0.2
"""Share of the error of calling a case the same that is left for cases measured again."""
_POWER = 0.9
"""Probability with which the smallest visible slowdown is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits, error rates and looks of a judgement. Effects are head over base, minus 1."""

    margin: float = 0.0025
    """Largest effect, in either direction, that is neither slower nor faster."""
    tolerance: float = 0.01
    """A case is the same if its effect is certainly within this limit, in either direction."""
    confidence: float = 0.999
    looks: tuple[int, ...] = (2, 4, 8)
    """Numbers of processes after which a case is judged, for the first judgement and for its confirmation."""
    flag: float = 0.01
    """Probability of flagging a case within the margin as slower. The same for faster."""
    confirm: float = 0.001
    """Probability of confirming any flagged case of a comparison that is within the margin.

    It is a tenth of `flag`, because processes may differ by more than assumed.
    """
    spending: tuple[float, ...] = (0.2, 0.3, 0.5)
    """Share of each look in the error rates of flagging and confirming.

    Two processes agree by chance more often than four, so early looks get less.
    """
    same_spending: tuple[float, ...] = (0.4, 0.3, 0.3)
    """Share of each look in the error rate of calling a case the same. Most cases are, so the first look gets
    most."""

    def __post_init__(self) -> None:
        if not 0 < self.margin < self.tolerance < 1:
            raise ValueError(
                f"margin {self.margin} and tolerance {self.tolerance}: expected 0 < margin < tolerance < 1."
            )
        if not 0.5 < self.confidence < 1:
            raise ValueError(f"confidence {self.confidence}: expected between 0.5 and 1.")
        if not (0 < self.confirm < 1 and 0 < self.flag < 1):
            raise ValueError(f"flag {self.flag}, confirm {self.confirm}: expected between 0 and 1.")
        if not self.looks or self.looks[0] < 1 or any(a >= b for a, b in itertools.pairwise(self.looks)):
            raise ValueError(f"looks {self.looks}: expected numbers of processes that increase.")
        for spending in (self.spending, self.same_spending):
            if len(spending) != len(self.looks):
                raise ValueError(
                    f"spending {spending}: expected a share for each of {len(self.looks)} looks."
                )
            if not (all(share > 0 for share in spending) and math.isclose(math.fsum(spending), 1)):
                raise ValueError(f"spending {spending}: expected positive shares that sum to 1.")

    @property
    def tail_margin(self) -> float:
        """Return the largest tolerated mean cost of outliers, as a share of the usual time."""
        return 2 * self.tolerance

    def flag_alpha(self, look: int, *, last: bool = False) -> float:
        """Return the error rate of a look for flags in one direction. The `last` look also gets the rates of
        later looks.
        """
        return self.flag * _spent(self.spending, look, last=last)

    def same_alpha(self, look: int, *, last: bool = False, again: bool = False) -> float:
        """Return the error rate of a look for calling a case the same. Few cases are measured again, so those
        looks get less.
        """
        part = SAME_AGAIN if again else 1 - SAME_AGAIN
        return (1 - self.confidence) * part * _spent(self.same_spending, look, last=last)

    def confirm_share(self, look: int, *, last: bool = False) -> float:
        """Return the error rate of a look for confirming a case."""
        return _spent(self.spending, look, last=last)


def policy_of(
    usual: tuple[float, float], margin: float | None, tolerance: float | None, **more: Any
) -> Policy:
    """Return a policy with this margin and tolerance, or the `usual` ones for None, and `more` of its fields.

    Raises UsageError for contradictory values.
    """
    if tolerance is None:
        tolerance = usual[1] if margin is None else max(usual[1], 2 * margin)
    if margin is None:
        margin = min(usual[0], tolerance / 2)
    if margin >= tolerance:
        raise UsageError(
            f"A margin of {100 * margin:g} % is not below the tolerance of {100 * tolerance:g} %: give a "
            "smaller --margin or a larger --tolerance."
        )
    try:
        return Policy(margin=margin, tolerance=tolerance, **more)
    except ValueError as error:
        raise UsageError(f"These cannot be judged by: {error}") from None


def _spent(spending: Sequence[float], look: int, *, last: bool) -> float:
    return math.fsum(spending[look:]) if last else spending[look]


@dataclass(frozen=True, slots=True)
class MetricEffects:
    """The effects of a case's processes in one metric."""

    name: MetricName
    effects: tuple[ProcessEffect, ...]
    prior: Prior


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    status: Status
    metrics: tuple[MetricName, ...]
    """Metrics that decided, all or the chosen one."""
    estimates: Mapping[MetricName, Effect]
    smallest_visible: float
    """Slowdown in time that would be found and confirmed with a probability of 0.9 at this noise."""
    excess: bool
    """True if processes differ by more than the card's history explains."""
    apart: bool
    """True if time and cycles contradict each other: their intervals do not overlap."""


def judge(
    metrics: Sequence[MetricEffects],
    policy: Policy,
    look: int,
    *,
    last: bool = False,
    again: bool = False,
    cycles_tell: bool | None = None,
) -> Judgement:
    """Judge a case at a look (the first is 0) by all its processes so far.

    A case is slower if the lower bounds of all metrics are above the margin. All metrics must be wrong
    together, so the error rate is that of one metric (Berger, Technometrics 24 (1982) 295-300). A case is the
    same if every metric is within the tolerance: two one-sided tests (Schuirmann, Journal of Pharmacokinetics
    and Biopharmaceutics 15 (1987) 657-680). If metrics contradict each other, or at the last look, one metric
    may decide alone with its share of the error rate: time first, then cycles if `cycles_tell`. If
    `cycles_tell` is False, time alone can call a case the same.

    Cycles that scatter far more than times are ignored, because a card that waits for its host counts on.
    `last` says that no further look is possible. `again` says that the processes are to confirm a case.
    Slower and faster have priority, since an effect can be certain and still within the tolerance. So a case
    whose effect looks larger than the margin is not called the same before the last look. Two processes
    decide nothing if they differ by more than the prior explains.

    Raises ValueError for no metric, a metric without a process, two metrics of one name, or an unplanned
    look.
    """
    if not 0 <= look < len(policy.looks):
        raise ValueError(f"look {look}: expected 0 to {len(policy.looks) - 1}.")
    if not metrics or len({metric.name for metric in metrics}) < len(metrics):
        raise ValueError(
            f"metrics {[metric.name for metric in metrics]}: expected at least one, and each once."
        )
    found = _moderated(metrics)
    telling = _telling(found)
    last = last or look == len(policy.looks) - 1
    excess = any(estimate.excess for estimate in found.values())
    apart = _apart(telling, policy)
    status: Status = "undecided"
    rests_on: tuple[MetricName, ...] = ()
    if last or not (excess and min(each.processes for each in found.values()) < 3):
        alphas = policy.flag_alpha(look, last=last), policy.same_alpha(look, last=last, again=again)
        status, rests_on = _decide(telling, policy, alphas, last=last, apart=apart, cycles_tell=cycles_tell)
    return Judgement(
        status=status,
        metrics=rests_on,
        estimates={each.name: _interval(found[each.name], each, policy) for each in metrics},
        smallest_visible=_visible(next(iter(found.values())), policy),
        excess=excess,
        apart=apart,
    )


def p_again(
    direction: Direction, metrics: Sequence[MetricEffects], policy: Policy, look: int, *, last: bool = False
) -> float:
    """Return the p-value of a flagged direction by all confirming processes at one look.

    It is the largest p-value of the metrics, divided by the look's share of the error rate. Cycles that
    scatter are ignored.
    """
    found = _telling(_moderated(metrics))
    p_value = max(_p(estimate, direction, policy) for estimate in found.values())
    return min(1.0, p_value / policy.confirm_share(look, last=last))


def _moderated(metrics: Sequence[MetricEffects]) -> dict[MetricName, Moderated]:
    """Return the estimate in each metric, time first."""
    ordered = sorted(metrics, key=lambda metric: metric.name != "time")
    return {metric.name: moderate(metric.effects, metric.prior) for metric in ordered}


def _p(estimate: Moderated, direction: Direction, policy: Policy) -> float:
    """Return the one-sided p-value that the effect is beyond the margin."""
    if direction == "slower":
        return estimate.p_above(math.log1p(policy.margin))
    return estimate.p_below(math.log1p(-policy.margin))


def _decide(
    found: Mapping[MetricName, Moderated],
    policy: Policy,
    alphas: tuple[float, float],
    *,
    last: bool,
    apart: bool,
    cycles_tell: bool | None,
) -> tuple[Status, tuple[MetricName, ...]]:
    """Return the status, and the metrics that decided it.

    All metrics together decide. If one metric may decide alone, time is tried first, then cycles. `alphas`
    holds the error rates for calling a change and for calling no change.
    """
    (alpha, same), alone = alphas, apart or last
    for direction in DIRECTIONS:
        if all(_p(estimate, direction, policy) < alpha for estimate in found.values()):
            return direction, tuple(found)
    if alone and len(found) > 1:
        names: tuple[MetricName, ...] = ("time", "cycles") if cycles_tell else ("time",)
        for name, direction in itertools.product(names, DIRECTIONS):
            if _p(found[name], direction, policy) < alpha / 2:
                return direction, (name,)
    telling = [found["time"]] if alone and cycles_tell is False and "time" in found else found.values()
    if all(_is_same(each, policy, same, last=last) for each in telling):
        return "same", ()
    return "undecided", ()


_SCATTERED = 3.0
"""Ratio of the standard errors of cycles and times from which cycles are ignored."""


def _telling(found: Mapping[MetricName, Moderated]) -> Mapping[MetricName, Moderated]:
    time, cycles = found.get("time"), found.get("cycles")
    if time and cycles and cycles.standard_error > _SCATTERED * time.standard_error:
        return {"time": time}
    return found


def _apart(found: Mapping[MetricName, Moderated], policy: Policy) -> bool:
    """Return whether time and cycles differ by more than chance and the margin allow."""
    if len(found) < 2:
        return False
    tail = policy.flag / 2
    low, high = sorted(found.values(), key=lambda estimate: estimate.mean)
    return low.high(tail) + math.log1p(policy.margin) < high.low(tail)


def _is_same(estimate: Moderated, policy: Policy, error: float, *, last: bool) -> bool:
    # An effect within the tolerance that looks larger than the margin gets another look, while there is one.
    if not last and not math.log1p(-policy.margin) <= estimate.mean <= math.log1p(policy.margin):
        return False
    low, high = estimate.low(error), estimate.high(error)
    return math.log1p(-policy.tolerance) < low and high < math.log1p(policy.tolerance)


def _interval(estimate: Moderated, metric: MetricEffects, policy: Policy) -> Effect:
    tail = (1 - policy.confidence) / 2
    return Effect(
        effect=math.expm1(estimate.mean),
        low=math.expm1(estimate.low(tail)),
        high=_expm1(estimate.high(tail)),
        processes=estimate.processes,
        quads=sum(effect.quads for effect in metric.effects),
    )


def _visible(estimate: Moderated, policy: Policy) -> float:
    """Return the smallest slowdown that would be found at the last look and confirmed by as many new
    processes.
    """
    alpha = min(policy.flag, policy.confirm) * policy.spending[-1]
    most = policy.looks[-1]
    # More processes narrow the interval and estimate the spread between processes better.
    error = estimate.standard_error * math.sqrt(estimate.processes / most)
    at_last = Moderated(0.0, error, estimate.df + most - estimate.processes, most, excess=False)
    reach = at_last.quantile(alpha) + at_last.quantile((1 - _POWER) / 2)
    return _expm1(math.log1p(policy.margin) + reach * error)


def _expm1(value: float) -> float:
    """Return math.expm1 without overflow: one extreme process can make a bound very large."""
    return math.expm1(min(value, 700.0))  # JSON has no infinity.
