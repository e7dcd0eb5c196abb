"""From effects of processes to a judgement: slower, faster, the same, or not decided yet. Pure.

Time and SM cycles are two metrics. Time is cycles over clock, or follows the clock less, and the clock does
what it likes: what the code itself did lies between the effect in time and the effect in cycles. So a case is
slower where both are, and the same where both are; where they disagree the clocks had a part in it, and one
of them has to be chosen.

Every look at the data may decide, and each has its share of the error allowed in all (Bonferroni). What a
look calls slower or faster is only flagged: fresh processes must say so again.
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
"""`judge` gets no tail, which is slots that stray: they are counted, not measured."""

SAME_AGAIN = 0.2
"""Share of the error of calling a case the same that looks at cases which are measured again may spend."""
_POWER = 0.9
"""Frequency with which the smallest visible slowdown is found: nine times in ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits, error rates and looks of a judgement. Effects are head over base, minus 1."""

    margin: float = 0.0025
    """Largest effect, either way, that is neither slower nor faster."""
    tolerance: float = 0.01
    """A case is the same once its effect is within this, either way, for sure."""
    confidence: float = 0.999
    looks: tuple[int, ...] = (2, 4, 8)
    """Number of processes when a case is judged: at first, and again when it is confirmed."""
    flag: float = 0.01
    """Chance that a case within the margin is flagged as slower and measured again. Equal for faster."""
    confirm: float = 0.001
    """The chance that among the cases of a comparison that are measured again any that is within the margin
    is confirmed: a tenth of a flag's, as processes may spread by more than is assumed."""
    spending: tuple[float, ...] = (0.2, 0.3, 0.5)
    """The share of each look in the errors of flags and of confirming them. Two processes that agree by
    chance are met more often than four, so they must say it more clearly."""
    same_spending: tuple[float, ...] = (0.4, 0.3, 0.3)
    """The shares for calling a case the same: most are, and the first look should settle them."""

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
        """Return the largest tolerated mean cost of strays, as a share of the usual time."""
        return 2 * self.tolerance

    def flag_alpha(self, look: int, *, last: bool = False) -> float:
        """The error that a look may spend on flags of one direction; the `last` also has the later ones'."""
        return self.flag * _spent(self.spending, look, last=last)

    def same_alpha(self, look: int, *, last: bool = False, again: bool = False) -> float:
        """The error that a look may spend on calling a case the same. Few cases are measured again, so the
        looks at those have the smaller part of it.
        """
        part = SAME_AGAIN if again else 1 - SAME_AGAIN
        return (1 - self.confidence) * part * _spent(self.same_spending, look, last=last)

    def confirm_share(self, look: int, *, last: bool = False) -> float:
        """The share of the error that a look may spend on confirming a case."""
        return _spent(self.spending, look, last=last)


def policy_of(
    usual: tuple[float, float], margin: float | None, tolerance: float | None, **more: Any
) -> Policy:
    """Return a policy by the margin and tolerance that were asked for, the `usual` ones for what was not, and
    `more` of its fields. Raises UsageError where they make no sense.
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
    """The effects of a case's processes in one quantity that head and base are compared by."""

    name: MetricName
    effects: tuple[ProcessEffect, ...]
    prior: Prior


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    status: Status
    metrics: tuple[MetricName, ...]
    """The metrics by which a case is slower or faster: all, or the one that was chosen."""
    estimates: Mapping[MetricName, Effect]
    smallest_visible: float
    """The slowdown in time that would be found and confirmed nine times in ten with this much noise."""
    excess: bool
    """True where processes differ by more than the card's history explains."""
    apart: bool
    """True where time and cycles contradict each other: no effect is in both intervals."""


def judge(
    metrics: Sequence[MetricEffects],
    policy: Policy,
    look: int,
    *,
    last: bool = False,
    again: bool = False,
    cycles_tell: bool | None = None,
) -> Judgement:
    """Judge a case at one look, the first being 0, by all its processes so far.

    A case is slower where the lower bounds of all metrics are above the margin: to be wrong, the one whose
    effect is smallest must be wrong, so together they err no more often than one (Berger, Technometrics 24
    (1982) 295-300). It is the same where each metric is within the tolerance for sure: two one-sided tests
    (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987) 657-680). Where metrics contradict
    each other, or at the last look, one may decide alone, with its share of the error: time, and then cycles
    if `cycles_tell`. Where they are known not to, time alone can say that a case is the same.

    Cycles that scatter far more than the times beside them are left out: a card that waits for its host
    counts on. `last` says that no further look can be had, whatever was planned, and `again` that the
    processes are those that were to confirm a case. Slower and faster come first: an effect can be sure and
    tolerable. So before the last look a case whose effect looks beyond the margin is not called the same. Two
    processes that differ by more than a metric's prior explains decide nothing.

    Raises ValueError for no metric, one without a process, two of one name, or a look that is not planned.
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
    """p-value that a case called slower or faster by these metrics is so, by all fresh processes at one look.

    It is that of the metric that says so least, over the look's share of the error. Cycles that scatter are
    left out, as ever.
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

    All metrics together decide. Where one metric may decide alone, time does, and then cycles. `alphas` holds
    the error rates for calling a change and for calling no change.
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
"""Standard error of the cycles, over that of the times, from which on they tell nothing that these do not."""


def _telling(found: Mapping[MetricName, Moderated]) -> Mapping[MetricName, Moderated]:
    time, cycles = found.get("time"), found.get("cycles")
    if time and cycles and cycles.standard_error > _SCATTERED * time.standard_error:
        return {"time": time}
    return found


def _apart(found: Mapping[MetricName, Moderated], policy: Policy) -> bool:
    """Return whether time and cycles are further apart than chance and the margin allow."""
    if len(found) < 2:
        return False
    tail = policy.flag / 2
    low, high = sorted(found.values(), key=lambda estimate: estimate.mean)
    return low.high(tail) + math.log1p(policy.margin) < high.low(tail)


def _is_same(estimate: Moderated, policy: Policy, error: float, *, last: bool) -> bool:
    # An effect that is tolerable and yet looks beyond the margin is worth another look, while there is one.
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
    """Return the smallest slowdown found at the last look and confirmed by as many processes again."""
    alpha = min(policy.flag, policy.confirm) * policy.spending[-1]
    most = policy.looks[-1]
    # More processes narrow it, and tell better how far processes differ.
    error = estimate.standard_error * math.sqrt(estimate.processes / most)
    at_last = Moderated(0.0, error, estimate.df + most - estimate.processes, most, excess=False)
    reach = at_last.quantile(alpha) + at_last.quantile((1 - _POWER) / 2)
    return _expm1(math.log1p(policy.margin) + reach * error)


def _expm1(value: float) -> float:
    """Like math.expm1, of a bound that one wild process can put anywhere."""
    return math.expm1(min(value, 700.0))  # JSON has no infinity
