"""A review on its way to a face: how cases, cards and commits are named and linked, and the title."""

from __future__ import annotations

__all__ = ["View", "title"]

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.output.review.grouping import Found, Groups, shortcomings
from harness.output.review.headline import headline
from harness.output.review.links import Links
from harness.output.review.markup import Part, code, fixed, link, listed
from harness.output.review.model import Review
from harness.output.review.outcome import standing
from harness.output.sentences import commit_label

_SIGNS: Mapping[str, str] = {
    "regression": "🔴",
    "invalid": "🟠",
    "inconclusive": "🟡",
    "empty": "⚪",
    "clean": "🟢",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A review on its way to a face, and how much the face shows before it folds."""

    review: Review
    links: Links
    paragraphs: int
    """Cases, or groups of them, of one kind that get a paragraph of their own."""
    names: int
    """Cases that are named in a row."""
    log_characters: int
    heading: str = "h3"
    sign: bool = True
    """Whether a coloured dot goes before the headline: not every machine has a font with one."""

    def name(self, found: Found) -> str:
        """A case, and its card where there are several."""
        where = f" on {code(found.card.device)}" if len(self.review.cards) > 1 else ""
        return f"{code(found.label)}{where}"

    def names_of(self, found: Sequence[Found]) -> str:
        """Names in a row, those of one card together."""
        of_cards: dict[str, list[str]] = defaultdict(list)
        for each in found[: self.names]:
            of_cards[each.card.device].append(code(each.label))
        several = len(self.review.cards) > 1
        told = [
            f"{listed(names)}{f' on {code(device)}' if several else ''}" for device, names in of_cards.items()
        ]
        left = len(found) - self.names
        return "; ".join([*told, f"{left:,} more"] if left > 0 else told)

    def place(self, found: Found) -> str:
        """Where the kernel begins, as a link to it at head; empty where that is not known."""
        where = found.card.places.get(found.case.kernel)
        if where is None:
            return ""
        repository, head = self.links.repository, self.review.head
        address = f"{repository}/blob/{head}/{where.path}#L{where.line}" if repository and head else ""
        shown = where.path.rpartition("/")[2] if address else where.path
        return link(address, code(f"{shown}:{where.line}"))


def title(view: View, groups: Groups) -> Part:
    """The headline, the commits, the cards, and what keeps verdicts from being all that they should be."""
    review = view.review
    devices = list(dict.fromkeys(card.device for card in review.cards))
    where = listed([code(device) for device in devices]) if len(devices) < 4 else f"{len(devices)} models"
    sign = f"{_SIGNS[standing(review).state]} " if view.sign else ""
    lines = [
        f"<{view.heading}>{sign}{headline(review, groups, code)}</{view.heading}>",
        f"<p>{_ends(view)}{' on ' if where else ''}{where}</p>",
    ]
    held: dict[str, int] = defaultdict(int)
    for card in review.cards:
        for sentence in shortcomings(card):
            held[sentence] += 1
    for sentence, cards in held.items():
        of = f" (On {cards} of {len(review.cards)} cards.)" if len(review.cards) > 1 else ""
        lines.append(f"<p><b>{sentence}</b>{of}</p>")
    return fixed("\n".join(lines))


def _ends(view: View) -> str:
    told = []
    for commit in (view.review.base, view.review.head):
        address = f"{view.links.repository}/commit/{commit}" if view.links.repository and commit else ""
        told.append(link(address, code(commit_label(commit))))
    return " → ".join(told)
