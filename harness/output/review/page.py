"""A review as one page that needs nothing else: no script, no request, and it works from a disk."""

from __future__ import annotations

from collections.abc import Iterator

from harness.numbers import number
from harness.output.review.grouping import Found, Links, facts, outcome, standing
from harness.output.review.markdown import (
    Item,
    Part,
    Scale,
    View,
    axis_svg,
    body,
    code,
    did_not_fit,
    fit,
    fixed,
    scale_of,
    strip_svg,
)
from harness.output.review.model import Card, CaseReview, Review
from harness.output.sentences import verdict_columns
from harness.output.sheet import CLOSING, Cell, Column, Sheet, opening

LIMIT_BYTES = 16 * 2**20
_STYLE = """\
code, pre { font: .87em/1.5 ui-monospace, monospace; background: var(--soft); border-radius: 4px }
code { padding: .1em .3em; unicode-bidi: isolate }
pre { padding: .7rem; overflow-x: auto; overflow-wrap: normal; unicode-bidi: plaintext }
summary { cursor: pointer; padding: .3rem 0 }
[align=right] { padding-left: .9rem }
.row { display: grid; grid-template-columns: minmax(9rem, 17rem) 1fr 14.5rem; gap: 0 .8rem;
  align-items: center; border-bottom: 1px solid var(--rule); padding: .1rem 0; font-size: .9rem }
.row > :last-child { text-align: right; font-variant-numeric: tabular-nums }
.row b { font-weight: 600 }
.axis text { fill: var(--muted); font-size: 11px }
svg { display: block; overflow: visible }
.zone { fill: var(--zone) }
.zero, .tick { stroke: var(--muted) }
.interval { stroke: var(--dot); stroke-width: 2 }
.process { fill: var(--dot); opacity: .45 }
.effect { fill: var(--dot) }
.row > :first-child { color: var(--text) }
.unchanged b, .identical b { font-weight: 400; color: var(--muted) }
.regression, .missing, .failed { color: var(--bad) }
.improvement { color: var(--good) }
.inconclusive, .invalid { color: var(--open) }
.regression .effect, .improvement .effect, .inconclusive .effect, .invalid .effect { fill: currentColor }
.regression .interval, .improvement .interval, .inconclusive .interval, .invalid .interval {
  stroke: currentColor }
@media (max-width: 42rem) {
  .row { grid-template-columns: 1fr auto; padding: .4rem 0 }
  .row > svg { grid-row: 2; grid-column: 1 / -1 }
  .row.axes > span { display: none }
}
@media print { details > * { display: block } }
"""


def page(review: Review, links: Links) -> str:
    view = View(
        review=review, links=links, paragraphs=20, names=20, log_characters=8000, heading="h1", sign=False
    )
    parts = body(view, [part for card in review.cards for part in _of_card(card)])
    return fit([fixed(opening(standing(review).headline, _STYLE)), *parts, fixed(CLOSING)], LIMIT_BYTES)


def _of_card(card: Card) -> list[Part]:
    if not card.cases:
        return []
    scale, figures = scale_of(card), _figures(card)
    return [
        fixed(f"<h2>{card.suite} on {code(card.device)}</h2>"),
        Part(
            tier=1,
            opening=(
                '<p class="muted">Change of time, %. Dots are processes, the shaded zone is the margin. '
                "The axis is logarithmic beyond the tolerance.</p>\n"
                f'<div class="row axes"><span></span>{axis_svg(scale)}<span></span></div>'
            ),
            items=(Item(_row(Found(card, case), scale)) for case in card.cases),
            cases=len(card.cases),
            more=lambda left: did_not_fit(left, "here"),
        ),
        Part(
            tier=2,
            opening=(
                "<details><summary>All figures</summary>\n"
                '<div class="scroll" role="region" aria-label="All figures" tabindex="0"><table>\n'
                f"{figures.html_head()}"
            ),
            items=map(Item, figures.html_rows()),
            closing="</table></div></details>",
            cases=len(card.cases),
            more=lambda left: did_not_fit(left, "here"),
        ),
    ]


def _row(found: Found, scale: Scale) -> str:
    case = found.case
    strip = "<span></span>"
    if case.time:
        strip = strip_svg(scale, case.time, f"{found.label}: {outcome(case)}, {case.status}")
    return (
        f'<div class="row {case.status}"><span>{code(found.label)}</span>{strip}'
        f"<span>{outcome(case)} <b>{case.status}</b></span></div>"
    )


def _figures(card: Card) -> Sheet:
    names = [Cell(Found(card, case).label, "code") for case in card.cases]
    others = [" · ".join((*facts(case), *_conditions(case))) for case in card.cases]
    columns = verdict_columns("case", names, card.cases, sizes=False)
    return Sheet(columns=[*columns, Column("else", others, text=True)])


def _conditions(case: CaseReview) -> Iterator[str]:
    if case.temperature_c is not None:
        yield f"{number(case.temperature_c, 2)} °C"
    if case.power_w is not None:
        yield f"{number(case.power_w, 3)} W"
    if case.touched:
        yield f"touched {', '.join(f'{gate} {quads:,}' for gate, quads in case.touched.items())}"
