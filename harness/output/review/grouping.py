"""The cases of a review by what is to be done about them, and what holds a whole comparison back."""

from __future__ import annotations

__all__ = ["Found", "Groups", "grouped", "shortcomings", "total", "wrong_twins"]

from collections.abc import Mapping
from dataclasses import dataclass

from harness.judgement.limits import wrong_twin
from harness.output.review.model import Card, CaseReview, Review
from harness.output.review.wording import label
from harness.output.sentences import leading

_OF_STATUS: Mapping[str, str] = {
    "regression": "slower",
    "missing": "missing",
    "inconclusive": "inconclusive",
    "improvement": "faster",
    "new": "new",
    "unchanged": "same",
    "identical": "same",
}
_ENDED_EARLY = ("budget-spent", "interrupted")
"""Reasons for which a planted twin stays without a verdict although the comparison is sound."""


@dataclass(frozen=True, slots=True)
class Found:
    """A case and the card that it was compared on."""

    card: Card
    case: CaseReview

    @property
    def label(self) -> str:
        return label(self.card, self.case)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Every case of a review, in one group."""

    slower: tuple[Found, ...]
    """The most first."""
    broken: tuple[Found, ...]
    """Failed at head."""
    missing: tuple[Found, ...]
    invalid: tuple[Found, ...]
    """With those that failed at base, or nobody can tell where."""
    inconclusive: tuple[Found, ...]
    faster: tuple[Found, ...]
    """The most first."""
    new: tuple[Found, ...]
    same: tuple[Found, ...]
    """Unchanged or identical."""

    @property
    def failing(self) -> tuple[Found, ...]:
        return (*self.slower, *self.broken, *self.missing)

    @property
    def unjudged(self) -> tuple[Found, ...]:
        return (*self.invalid, *self.inconclusive)


def total(review: Review) -> int:
    return sum(len(card.cases) for card in review.cards)


def grouped(review: Review) -> Groups:
    found: dict[str, list[Found]] = {name: [] for name in Groups.__dataclass_fields__}
    for card in review.cards:
        for case in card.cases:
            found[_group(case)].append(Found(card, case))
    found["slower"].sort(key=lambda each: -_size(each.case))
    found["faster"].sort(key=lambda each: _size(each.case))
    return Groups(**{name: tuple(members) for name, members in found.items()})


def _group(case: CaseReview) -> str:
    if case.status == "failed" and case.side == "head":
        return "broken"
    return _OF_STATUS.get(case.status, "invalid")


def _size(case: CaseReview) -> float:
    change = leading(case)[0]
    return change.effect if change else 0.0


def shortcomings(card: Card) -> list[str]:
    """Sentences on what keeps a card's verdicts from being all that they should be."""
    told = {
        "No case was compared.": not card.cases,
        "Interrupted: verdicts rest on what was finished.": not card.complete,
        "The test of the comparison itself went wrong: its verdicts are not to be trusted.": bool(
            wrong_twins(card)
        ),
        "The comparison reports a problem of its own.": bool(card.problem),
    }
    return [sentence for sentence, holds in told.items() if holds]


def wrong_twins(card: Card) -> list[CaseReview]:
    """Twins by which a kernel differs from itself, or a slowdown that was planted was not found."""
    return [
        twin
        for twin in card.twins
        if wrong_twin(twin.case, twin.status, complete=twin.reason not in _ENDED_EARLY)
    ]
