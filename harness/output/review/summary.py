"""The summary of a job: all that a comment says with more of it unfolded, and every case with its interval.

GitHub takes <svg> and data: addresses out of what it renders, so the plots are text here; `page` draws them.
"""

from __future__ import annotations

__all__ = ["LIMIT_BYTES", "summary"]

import html

from harness.numbers import counted, effect, typeset
from harness.output.review.evidence import basis, every_case, foot
from harness.output.review.grouping import Found, grouped
from harness.output.review.links import Links
from harness.output.review.markup import Item, Part, code, fit
from harness.output.review.model import Card, Review
from harness.output.review.plots import Scale, axis_text, scale_of, strip_text
from harness.output.review.sections import acted_on, changed_problem, fortunate
from harness.output.review.view import View, title
from harness.output.sentences import leading

LIMIT_BYTES = 1024 * 1024
"""Of one step; GitHub drops a larger one whole."""
_COLUMNS = 41
_WIDEST = 32
"""Characters of a case's name."""


def summary(review: Review, links: Links) -> str:
    view = View(review=review, links=links, paragraphs=20, names=20, log_characters=8000)
    groups = grouped(review)
    parts = [
        title(view, groups),
        *acted_on(view, groups),
        *changed_problem(view),
        *fortunate(view, groups),
        *(_forest(card) for card in review.cards if any(case.time for case in card.cases)),
        *every_case(view),
        *basis(view),
        foot(view),
    ]
    return fit(parts, LIMIT_BYTES)


def _forest(card: Card) -> Part:
    """Each case that was measured on a line of its own, under one axis."""
    measured = [Found(card, case) for case in card.cases if case.time]
    widest = min(max(len(_name(found)) for found in measured), _WIDEST)
    scale = scale_of(card)
    return Part(
        tier=1,
        opening=(
            f"<p><b>{card.suite} on {code(card.device)}</b>: change of time; the dots are the margin.</p>\n"
            f"<pre>{' ' * widest}  {axis_text(scale, _COLUMNS)}"
        ),
        items=(Item(html.escape(_line(found, widest, scale))) for found in measured),
        closing="</pre>",
        cases=len(measured),
        more=lambda left: f"<p>{counted(left, 'case')} more did not fit into the plot.</p>",
    )


def _line(found: Found, widest: int, scale: Scale) -> str:
    name, case = _name(found), found.case
    name = name if len(name) <= widest else f"…{name[1 - widest :]}"
    cycles = f", cycles {effect(case.cycles)}" if leading(case)[1] == "cycles" else ""
    shown = f"{effect(case.time):>15} {case.status}{cycles}"
    return f"{name:{widest}}  {strip_text(scale, case.time, _COLUMNS)}  {typeset(shown)}"


def _name(found: Found) -> str:
    """Without the suite's: it is above the plot."""
    return found.label.removeprefix(f"{found.card.suite}.")
