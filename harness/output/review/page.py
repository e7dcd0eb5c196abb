"""A review as one page that needs nothing else: no script, no request, and it works from a disk."""

from __future__ import annotations

__all__ = ["LIMIT_BYTES", "page"]

import base64
import hashlib
import html
from collections.abc import Iterator

from harness.output.review.evidence import basis, foot
from harness.output.review.grouping import Found, grouped
from harness.output.review.links import Links
from harness.output.review.markup import Item, Part, code, fit, fixed
from harness.output.review.model import Card, CaseReview, Review
from harness.output.review.outcome import standing
from harness.output.review.plots import Scale, axis_svg, scale_of, strip_svg
from harness.output.review.sections import acted_on, changed_problem, fortunate
from harness.output.review.style import STYLE
from harness.output.review.view import View, title
from harness.output.review.wording import counted, duration, effect, facts, interval, outcome, percent

LIMIT_BYTES = 16 * 2**20
_CASE_COLUMNS = ("case", "base", "head", "change", "interval", "cycles", "visible from", "else", "verdict")


def page(review: Review, links: Links) -> str:
    view = View(
        review=review,
        links=links,
        paragraphs=20,
        names=20,
        log_characters=8000,
        heading="h1",
        sign=False,
    )
    groups = grouped(review)
    parts = [
        fixed(_opening(review)),
        title(view, groups),
        *acted_on(view, groups),
        *changed_problem(view),
        *fortunate(view, groups),
        *(part for card in review.cards for part in _of_card(card)),
        *basis(view),
        foot(view),
        fixed("</main></body></html>"),
    ]
    return fit(parts, LIMIT_BYTES)


def _opening(review: Review) -> str:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    rules = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(standing(review).headline)}</title>\n<style>{STYLE}</style></head><body><main>"
    )


def _of_card(card: Card) -> list[Part]:
    if not card.cases:
        return []
    scale = scale_of(card)
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
            more=lambda left: f"<p>{counted(left, 'case')} more did not fit here.</p>",
        ),
        Part(
            tier=2,
            opening=(
                "<details><summary>All figures</summary>\n"
                '<div class="scroll" role="region" aria-label="All figures" tabindex="0"><table>\n'
                f"<tr>{''.join(f'<th scope=col>{name}</th>' for name in _CASE_COLUMNS)}</tr>"
            ),
            items=(Item(_figures(Found(card, case))) for case in card.cases),
            closing="</table></div></details>",
            cases=len(card.cases),
            more=lambda left: f"<p>{counted(left, 'case')} more did not fit here.</p>",
        ),
    ]


def _row(found: Found, scale: Scale) -> str:
    case = found.case
    strip = strip_svg(scale, case.time, f"{found.label}: {outcome(case)}, {case.status}") if case.time else ""
    return (
        f'<div class="row {case.status}"><span>{code(found.label)}</span>{strip or "<span></span>"}'
        f"<span>{outcome(case)} <b>{case.status}</b></span></div>"
    )


def _figures(found: Found) -> str:
    case = found.case
    cells = (
        *(duration(side.time_ns if side else None) for side in (case.base, case.head)),
        effect(case.time) if case.time else "",
        interval(case.time) if case.time else "",
        effect(case.cycles) if case.cycles else "",
        "" if case.smallest_visible is None else percent(case.smallest_visible),
        " · ".join((*facts(case), *_surroundings(case))),
        case.status,
    )
    return f"<tr><td>{code(found.label)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _surroundings(case: CaseReview) -> Iterator[str]:
    if case.noise_floor is not None:
        yield f"floor {percent(case.noise_floor)}"
    if case.temperature_c is not None:
        yield f"{case.temperature_c:.0f} °C"
    if case.power_w is not None:
        yield f"{case.power_w:.0f} W"
    if case.touched:
        yield f"touched {', '.join(f'{code(gate)} {quads:,}' for gate, quads in case.touched.items())}"
