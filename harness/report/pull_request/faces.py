"""The faces of a review: files that the job with the card hands on, the check run, lines that a runner
reads, and a page that needs nothing else: no script, no request, and it works from a disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.errors import StoreError
from harness.numbers import counted, number
from harness.records.types import Verdict
from harness.report.document.document import CardReview, Review, SourceLine, encode
from harness.report.document.outcome import (
    CaseOnCard,
    Groups,
    Links,
    facts,
    grouped,
    is_by_card,
    outcome,
    review_outcome,
    units_of,
)
from harness.report.pull_request.comment_markdown import (
    Item,
    Part,
    Scale,
    View,
    axis_svg,
    body,
    comment,
    did_not_fit,
    fit,
    fixed,
    listed,
    scale_of,
    strip_svg,
    summary,
)
from harness.report.table import CLOSING, Cell, Column, Sheet, opening
from harness.report.templates import code
from harness.report.words.of_verdict import sentence, verdict_columns
from harness.suite.case_id import size_label
from harness.system.cache import write_atomically

CHECK_NAME = "GPU performance"


def check_name(*, partial: bool = False) -> str:
    """The check run's name. A check of some cases has another one: it must not pass for that of all."""
    return f"{CHECK_NAME} of some cases" if partial else CHECK_NAME


_MOST = 10
"""Annotations of a kind that GitHub shows of a step."""
_SUMMARY_BYTES = 65_535
_TITLE_CHARACTERS = 255
_NAMED = 8
"""Cases of one kernel that its note names, and sizes that it names together."""
PAGE_BYTES = 16 * 2**20
_UNJUDGED = "could not be judged"

Level = Literal["failure", "warning"]


@dataclass(frozen=True, slots=True)
class _Annotation:
    """What is said beside one line, or of one kernel whose line is not known."""

    place: SourceLine | None
    level: Level
    title: str
    message: str


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


def workflow_command(name: str, message: str, properties: Mapping[str, str]) -> str:
    """``::error file=a.cu,line=3::message``, whatever the texts hold, escaped as the runner undoes it:
    actions/toolkit, packages/core/src/command.ts.
    """
    escaped = {
        key: _escaped(value).replace(":", "%3A").replace(",", "%2C") for key, value in properties.items()
    }
    told = ",".join(f"{key}={value}" for key, value in escaped.items())
    return f"::{name} {told}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def check_run(review: Review, links: Links) -> dict[str, Any]:
    """The body of POST /repos/{owner}/{repo}/check-runs, but for `head_sha`."""
    found = review_outcome(review)
    placed = [(note.place, note) for note in _first(_notes(grouped(review), placed=True)) if note.place]
    request: dict[str, Any] = {
        "name": CHECK_NAME,
        "status": "completed",
        "conclusion": found.conclusion,
        "output": {
            "title": _cut(found.headline),
            "summary": comment(review, links, limit_bytes=_SUMMARY_BYTES),
            "annotations": [
                {
                    "path": place.path,
                    "start_line": place.line,
                    "end_line": place.line,
                    "annotation_level": note.level,
                    "title": note.title,
                    "message": note.message,
                }
                for place, note in placed
            ],
        },
    }
    return {**request, "details_url": links.run} if links.run else request


def workflow_commands(review: Review) -> list[str]:
    """A line for each note, errors first: what a workflow prints to have them shown beside the source."""
    notes, commands = _notes(grouped(review)), []
    for name, level in (("error", "failure"), ("warning", "warning")):
        for note in _first([note for note in notes if note.level == level]):
            place = {"file": note.place.path, "line": str(note.place.line)} if note.place else {}
            commands.append(workflow_command(name, note.message, {**place, "title": note.title}))
    return commands


def _notes(groups: Groups, *, placed: bool = False) -> list[_Annotation]:
    """One for each kernel that somebody has to look at, the worst first; or of those whose line is known."""
    kernels: dict[tuple[str, str, SourceLine | None], list[CaseOnCard]] = {}
    for found in (*groups.failing, *groups.unjudged):
        card, kernel = found.card, found.case.kernel
        kernels.setdefault((card.suite, kernel, card.places.get(kernel)), []).append(found)
    notes = []
    for (suite, kernel, place), cases in kernels.items():
        verdict = _verdict(cases[0].case)
        level: Level = "warning" if verdict == _UNJUDGED else "failure"
        if place or not placed:
            notes.append(_Annotation(place, level, _cut(f"{suite}.{kernel} {verdict}"), _message(cases)))
    return notes


def _verdict(case: Verdict) -> str:
    if is_by_card(case):
        return _UNJUDGED
    if case.status == "failed":
        return "fails at head" if case.side == "head" else _UNJUDGED
    return {"regression": "is slower", "missing": "is missing at head"}.get(case.status, _UNJUDGED)


def _message(found: Sequence[CaseOnCard]) -> str:
    """``At 1024 on NVIDIA H200: 1.70 % slower (+1.63 to +1.77 %) in 2 processes. The code: …``"""
    sizes: dict[tuple[str, str], list[str]] = {}
    for each in found:
        # Without a sign that could make the name a link or a mention.
        device = re.sub(r"[^A-Za-z0-9 ()+-]", "-", each.card.device)
        size = size_label(each.case.sizes) or "its size"
        sizes.setdefault((device, sentence(each.case, units_of(each.card))), []).append(size)
    clauses = [
        f"At {listed(at[:_NAMED])}{' and more' if len(at) > _NAMED else ''} on {device}: {told}"
        for (device, told), at in sizes.items()
    ]
    left = len(clauses) - _NAMED
    more = f"And {counted(left, 'more case')}." if left > 0 else ""
    return " ".join(filter(None, (*clauses[:_NAMED], more)))


def _first(notes: Sequence[_Annotation]) -> list[_Annotation]:
    """The notes that are shown; the last of them tells of the others."""
    shown = list(notes[:_MOST])
    if left := len(notes) - len(shown):
        told = f"{shown[-1].message} {counted(left, 'more kernel')}: see the job's summary."
        shown[-1] = replace(shown[-1], message=told)
    return shown


def _cut(text: str) -> str:
    return text if len(text) <= _TITLE_CHARACTERS else f"{text[: _TITLE_CHARACTERS - 1]}…"


def page(review: Review, links: Links) -> str:
    view = View(
        review=review, links=links, paragraphs=20, names=20, log_characters=8000, heading="h1", sign=False
    )
    parts = body(view, [part for card in review.cards for part in _of_card(card)])
    return fit([fixed(opening(review_outcome(review).headline, _STYLE)), *parts, fixed(CLOSING)], PAGE_BYTES)


def _of_card(card: CardReview) -> list[Part]:
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
            items=(Item(_row(CaseOnCard(card, case), scale)) for case in card.cases),
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


def _row(found: CaseOnCard, scale: Scale) -> str:
    case = found.case
    strip = "<span></span>"
    if case.time:
        strip = strip_svg(scale, case.time, f"{found.label}: {outcome(case)}, {case.status}")
    return (
        f'<div class="row {case.status}"><span>{code(found.label)}</span>{strip}'
        f"<span>{outcome(case)} <b>{case.status}</b></span></div>"
    )


def _figures(card: CardReview) -> Sheet:
    names = [Cell(CaseOnCard(card, case).label, "code") for case in card.cases]
    others = [" · ".join((*facts(case), *_conditions(case))) for case in card.cases]
    columns = verdict_columns("case", names, card.cases, sizes=False)
    return Sheet(columns=[*columns, Column("else", others, text=True)])


def _conditions(case: Verdict) -> Iterator[str]:
    if case.temperature_c is not None:
        yield f"{number(case.temperature_c, 2)} °C"
    if case.power_w is not None:
        yield f"{number(case.power_w, 3)} W"
    if case.touched:
        yield f"touched {', '.join(f'{gate} {quads:,}' for gate, quads in case.touched.items())}"


def faces(review: Review, links: Links) -> dict[str, bytes]:
    """Each file's name and content."""
    return {
        "review.json": encode(review),
        "comment.md": comment(review, links).encode(),
        "summary.md": summary(review, links).encode(),
        "review.html": page(review, links).encode(),
        "check.json": msgspec.json.format(msgspec.json.encode(check_run(review, links)), indent=2),
        "annotations.txt": "".join(f"{line}\n" for line in workflow_commands(review)).encode(),
    }


def write_faces(folder: Path, files: Mapping[str, bytes]) -> None:
    """Each file whole or not at all. Raises StoreError where the folder cannot be written."""
    try:
        for name, content in files.items():
            write_atomically(folder / name, content)
    except OSError as error:
        raise StoreError(
            f"Cannot write the report to {folder}: {error.strerror or error}. Choose another folder."
        ) from None
