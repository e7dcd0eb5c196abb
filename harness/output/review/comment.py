"""The comment on a pull request: what a reviewer has to know, and the rest folded."""

from __future__ import annotations

__all__ = ["LIMIT_BYTES", "comment"]

from harness.output.review.evidence import basis, every_case, foot
from harness.output.review.grouping import grouped
from harness.output.review.links import Links
from harness.output.review.markup import Part, fit, fixed
from harness.output.review.model import Review
from harness.output.review.sections import acted_on, changed_problem, fortunate
from harness.output.review.view import View, title

LIMIT_BYTES = 65_536
"""GitHub takes as many characters; so many bytes are never more."""


def comment(review: Review, links: Links, *, marker: str = "", limit_bytes: int = LIMIT_BYTES) -> str:
    """The comment's body, whose first line is `marker`, an HTML comment, where one is given.

    Where not everything fits, what is folded goes first; of what somebody has to act on, at least the number
    of those that are not named is told.
    """
    view = View(review=review, links=links, paragraphs=8, names=6, log_characters=2000)
    groups = grouped(review)
    parts: list[Part] = [
        *([fixed(marker)] if marker else []),
        title(view, groups),
        *acted_on(view, groups),
        *changed_problem(view),
        *fortunate(view, groups),
        *every_case(view),
        *basis(view),
        foot(view),
    ]
    return fit(parts, limit_bytes)
