"""What a review comes to, and whether that lets a pull request pass."""

from __future__ import annotations

__all__ = ["Conclusion", "Standing", "State", "standing"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.output.review.grouping import Groups, grouped, wrong_twins
from harness.output.review.headline import headline
from harness.output.review.model import Review
from harness.records import nothing_compared

State = Literal["clean", "regression", "inconclusive", "invalid", "empty"]
Conclusion = Literal["success", "failure", "neutral"]

_CONCLUSIONS: Mapping[State, Conclusion] = {"clean": "success", "regression": "failure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    state: State
    """The worst of what was found; regression where a case is slower, missing, or fails at head."""
    conclusion: Conclusion
    """Of a check. Success is said only where every case of every card was judged and is fine."""
    headline: str
    """One sentence of plain text."""


def standing(review: Review) -> Standing:
    groups = grouped(review)
    state = _state(review, groups)
    return Standing(
        state=state,
        conclusion=_CONCLUSIONS.get(state, "neutral"),
        headline=headline(review, groups).replace("\N{NO-BREAK SPACE}", " "),
    )


def _state(review: Review, groups: Groups) -> State:
    if groups.failing:
        return "regression"
    if nothing_compared(case.status for card in review.cards for case in card.cases):
        return "empty"
    if groups.invalid or any(card.problem or wrong_twins(card) for card in review.cards):
        return "invalid"
    if groups.inconclusive or not all(card.complete for card in review.cards):
        return "inconclusive"
    return "clean" if all(card.cases for card in review.cards) else "empty"
