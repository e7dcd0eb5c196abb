"""From effects of processes to a judgement: slower, faster, the same, or not decided yet. Pure.

Every look at the data may decide, and each has its share of the error allowed in all (Bonferroni). So the
chance that a case whose effect is within the margin is ever called slower is at most 1 - confidence, and the
same for faster.
"""

from __future__ import annotations

__all__ = ["Direction", "Flag", "Interval", "Judgement", "Leg", "Policy", "Status", "confirm", "judge"]

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from harness.statistics.moderated import Moderated, Prior, moderate
from harness.statistics.paired import ProcessEffect
from harness.statistics.rates import holm

Direction = Literal["slower", "faster"]
Status = Literal["slower", "faster", "same", "undecided"]
LegName = Literal["time", "cycles"]

_POWER = 0.9
"""Of the smallest visible slowdown: nine times in ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What counts as slower, how surely, and when. Effects are head over base, minus 1."""

    margin: float = 0.0025
    """An effect up to this, either way, is nobody's business."""
    tolerance: float = 0.01
    """A case is the same once its effect is within this, either way, for sure."""
    confidence: float = 0.999
    looks: tuple[int, ...] = (2, 4, 8)
    """How many processes there are when a case is judged."""
    spending: tuple[float, ...] = (0.2, 0.3, 0.5)
    """Of 1 - confidence, the share of each look."""
    confirm: float = 0.01
    """The chance that among cases measured again any is confirmed wrongly."""

    def __post_init__(self) -> None:
        if not 0 < self.margin < self.tolerance < 1:
            raise ValueError(
                f"margin {self.margin} and tolerance {self.tolerance}: expected 0 < margin < tolerance < 1."
            )
        if not 0.5 < self.confidence < 1:
            raise ValueError(f"confidence {self.confidence}: expected between 0.5 and 1.")
        if not 0 < self.confirm < 1:
            raise ValueError(f"confirm {self.confirm}: expected between 0 and 1.")
        if not self.looks or self.looks[0] < 1 or any(a >= b for a, b in pairwise(self.looks)):
            raise ValueError(f"looks {self.looks}: expected numbers of processes that increase.")
        if len(self.spending) != len(self.looks):
            raise ValueError(
                f"spending {self.spending}: expected a share for each of {len(self.looks)} looks."
            )
        if not (all(share > 0 for share in self.spending) and math.isclose(math.fsum(self.spending), 1)):
            raise ValueError(f"spending {self.spending}: expected positive shares that sum to 1.")

    def alpha(self, look: int) -> float:
        """The error that a look may spend in one direction."""
        return (1 - self.confidence) * self.spending[look]


@dataclass(frozen=True, slots=True)
class Leg:
    """One quantity that head and base are compared by."""

    name: LegName
    effects: tuple[ProcessEffect, ...]
    prior: Prior


@dataclass(frozen=True, slots=True)
class Interval:
    """Head over base, minus 1: positive is slower, or more cycles."""

    effect: float
    low: float
    high: float
    """The two-sided interval with the policy's confidence."""
    processes: int
    quads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    status: Status
    leg: LegName | None
    """Which one decided that a case is slower or faster."""
    estimates: Mapping[str, Interval]
    """By leg."""
    p_slower: float
    """Of data as extreme, were no leg slower than the margin. It counts all legs, but not the other looks."""
    p_faster: float
    smallest_visible: float
    """The slowdown in time that is found nine times in ten with this much noise and this many processes."""
    excess: bool
    """Whether processes differ by more than the card's history explains."""


@dataclass(frozen=True, slots=True)
class Flag:
    """What a case was called, and the leg that did so measured again: fresh processes only."""

    direction: Direction
    leg: Leg


def judge(legs: Sequence[Leg], policy: Policy, look: int) -> Judgement:
    """Judge a case at one look, the first being 0, by all its processes so far.

    A case is slower where the lower bound of any leg is above the margin, and faster where an upper bound is
    below it on the other side; where two legs contradict each other, time wins. It is the same where each leg
    is within the tolerance for sure: two one-sided tests (Schuirmann, Journal of Pharmacokinetics and
    Biopharmaceutics 15 (1987) 657-680), each with an error of 1 - confidence. Slower and faster come first:
    an effect can be sure and tolerable. So before the last look a case whose effect looks beyond the margin
    is not called the same. Where processes of any leg differ more than its prior explains, nothing is decided
    before the last look.

    Raises ValueError for no leg, a leg without a process, two of one name, or a look that is not planned.
    """
    if not 0 <= look < len(policy.looks):
        raise ValueError(f"look {look}: expected 0 to {len(policy.looks) - 1}.")
    if not legs or len({leg.name for leg in legs}) < len(legs):
        raise ValueError(f"legs {[leg.name for leg in legs]}: expected at least one, and each once.")
    found = {
        leg.name: moderate(leg.effects, leg.prior) for leg in sorted(legs, key=lambda leg: leg.name != "time")
    }
    slower = {name: _p(estimate, "slower", policy) for name, estimate in found.items()}
    faster = {name: _p(estimate, "faster", policy) for name, estimate in found.items()}
    alpha = policy.alpha(look) / len(legs)
    excess = any(estimate.excess for estimate in found.values())
    status, leg = _decide(slower, faster, alpha)
    last = look == len(policy.looks) - 1
    if status == "undecided" and all(_is_same(each, policy, last=last) for each in found.values()):
        status = "same"
    if excess and not last:
        status, leg = "undecided", None
    return Judgement(
        status=status,
        leg=leg,
        estimates={each.name: _interval(found[each.name], each, policy) for each in legs},
        p_slower=min(1.0, len(legs) * min(slower.values())),
        p_faster=min(1.0, len(legs) * min(faster.values())),
        smallest_visible=_visible(next(iter(found.values())), policy, alpha),
        excess=excess,
    )


def confirm(flagged: Mapping[str, Flag], policy: Policy) -> frozenset[str]:
    """Which of the cases called slower or faster are so again, in processes that no one chose them by.

    Holm's step-down over all flagged (Scandinavian Journal of Statistics 6 (1979) 65-70): the chance
    that any case within the margin is confirmed is at most `policy.confirm`, however it was flagged.
    The two stages share no data: a false alarm must pass both by chance.
    """
    return holm(
        {
            name: _p(moderate(flag.leg.effects, flag.leg.prior), flag.direction, policy)
            for name, flag in flagged.items()
        },
        policy.confirm,
    )


def _p(estimate: Moderated, direction: Direction, policy: Policy) -> float:
    """p-value that the effect is beyond the margin."""
    if direction == "slower":
        return estimate.p_above(math.log1p(policy.margin))
    return estimate.p_below(math.log1p(-policy.margin))


def _decide(
    slower: Mapping[LegName, float], faster: Mapping[LegName, float], alpha: float
) -> tuple[Status, LegName | None]:
    """Slower before faster, and time before all."""
    if faster.get("time", 1.0) < alpha:
        return "faster", "time"
    for name, p_value in slower.items():
        if p_value < alpha:
            return "slower", name
    for name, p_value in faster.items():
        if p_value < alpha:
            return "faster", name
    return "undecided", None


def _is_same(estimate: Moderated, policy: Policy, *, last: bool) -> bool:
    # An effect that is tolerable and yet looks beyond the margin is worth another look, while there is one.
    if not last and not math.log1p(-policy.margin) <= estimate.mean <= math.log1p(policy.margin):
        return False
    error = 1 - policy.confidence
    low, high = estimate.low(error), estimate.high(error)
    return math.log1p(-policy.tolerance) < low and high < math.log1p(policy.tolerance)


def _interval(estimate: Moderated, leg: Leg, policy: Policy) -> Interval:
    tail = (1 - policy.confidence) / 2
    return Interval(
        effect=math.expm1(estimate.mean),
        low=math.expm1(estimate.low(tail)),
        high=_expm1(estimate.high(tail)),
        processes=estimate.processes,
        quads=sum(effect.quads for effect in leg.effects),
    )


def _visible(estimate: Moderated, policy: Policy, alpha: float) -> float:
    reach = estimate.quantile(alpha) + estimate.quantile(1 - _POWER)
    return _expm1(math.log1p(policy.margin) + reach * estimate.standard_error)


def _expm1(value: float) -> float:
    """Of a bound that one wild process with a plain t can put anywhere."""
    return math.expm1(min(value, 700.0))  # JSON has no infinity
