"""Output files of a review: comment, check run, runner annotations, and a page.

The job with the card writes them. The page has no scripts and sends no requests, so it works from a disk.
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
    group_of,
    grouped,
    outcome,
    review_outcome,
    units_of,
)
from harness.report.pull_request.comment_markdown import View, comment, listed, summary
from harness.report.pull_request.plots import across, scale_of, tick_label
from harness.report.table import CLOSING, Cell, Column, Sheet, opening
from harness.report.words.of_verdict import sentence, verdict_columns
from harness.suite.case_id import size_label
from harness.system.cache import write_atomically

CHECK_NAME = "GPU performance"


def check_name(*, partial: bool = False) -> str:
    """Return the check run's name. A check of some cases has a different name, so that it is not mistaken for
    all.
    """
    return f"{CHECK_NAME} of some cases" if partial else CHECK_NAME


_MOST = 10
"""Annotations of each kind that GitHub shows for a step."""
_SUMMARY_BYTES = 65_535
_TITLE_CHARACTERS = 255
_NAMED = 8
"""Most cases of one kernel in its note, and most sizes in one list."""
PAGE_BYTES = 16 * 2**20
_VERDICTS = {"slower": "is slower", "broken": "fails at head", "missing": "is missing at head"}
"""Words for a kernel whose worst case is in this group. Cases of other groups could not be judged."""

Level = Literal["failure", "warning"]


@dataclass(frozen=True, slots=True)
class _Annotation:
    """A note at a line, or on a kernel whose line is unknown."""

    place: SourceLine | None
    level: Level
    title: str
    message: str


def workflow_command(name: str, message: str, properties: Mapping[str, str]) -> str:
    """Return a workflow command: ``::error file=a.cu,line=3::message``.

    Any text is escaped for the runner: actions/toolkit, packages/core/src/command.ts.
    """
    escaped = {
        key: _escaped(value).replace(":", "%3A").replace(",", "%2C") for key, value in properties.items()
    }
    told = ",".join(f"{key}={value}" for key, value in escaped.items())
    return f"::{name} {told}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def check_run(review: Review, links: Links) -> dict[str, Any]:
    """Return the body of POST /repos/{owner}/{repo}/check-runs, without `head_sha`."""
    found = review_outcome(review)
    placed = [note for note in _notes(grouped(review)) if note.place]
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
                for note in _first(placed)
                if (place := note.place)
            ],
        },
    }
    return {**request, "details_url": links.run} if links.run else request


def workflow_commands(review: Review) -> list[str]:
    """Return a line for each note, errors first. A workflow prints them to annotate the source."""
    notes, commands = _notes(grouped(review)), []
    for name, level in (("error", "failure"), ("warning", "warning")):
        for note in _first([note for note in notes if note.level == level]):
            place = {"file": note.place.path, "line": str(note.place.line)} if note.place else {}
            commands.append(workflow_command(name, note.message, {**place, "title": note.title}))
    return commands


def _notes(groups: Groups) -> list[_Annotation]:
    """Return a note for each kernel that needs attention, the worst first."""
    kernels: dict[tuple[str, str, SourceLine | None], list[CaseOnCard]] = {}
    for found in (*groups.failing, *groups.unjudged):
        card, kernel = found.card, found.case.kernel
        kernels.setdefault((card.suite, kernel, card.places.get(kernel)), []).append(found)
    notes = []
    for (suite, kernel, place), cases in kernels.items():
        verdict = _VERDICTS.get(group_of(cases[0].case), "")
        level: Level = "failure" if verdict else "warning"
        title = _cut(f"{suite}.{kernel} {verdict or 'could not be judged'}")
        notes.append(_Annotation(place, level, title, _message(cases)))
    return notes


def _message(found: Sequence[CaseOnCard]) -> str:
    """Return the message: ``At 1024 on NVIDIA H200: 1.70 % slower (+1.63 to +1.77 %) in 2 processes. The
    code: …``
    """
    sizes: dict[tuple[str, str], list[str]] = {}
    for each in found:
        # Without characters that could make the name a link or a mention.
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
    """Return the annotations to show. The last one counts the rest."""
    shown = list(notes[:_MOST])
    if left := len(notes) - len(shown):
        told = f"{shown[-1].message} {counted(left, 'more kernel')}: see the job's summary."
        shown[-1] = replace(shown[-1], message=told)
    return shown


def _cut(text: str) -> str:
    return text if len(text) <= _TITLE_CHARACTERS else f"{text[: _TITLE_CHARACTERS - 1]}…"


def page(review: Review, links: Links) -> str:
    view = View(
        review=review,
        links=links,
        paragraphs=20,
        names=20,
        log_characters=8000,
        heading="h1",
        has_sign=False,
        scrolls=True,
    )
    style = (Path(__file__).parent / "review.css").read_text(encoding="utf-8")
    return view.fitted(
        "review.html.j2",
        PAGE_BYTES,
        opening=opening(review_outcome(review).headline, style),
        closing=CLOSING,
        cards=[_of_card(card) for card in review.cards if card.cases],
        across=across,
        outcome=outcome,
        tick_label=tick_label,
    )


def _of_card(card: CardReview) -> Mapping[str, object]:
    figures = _figures(card)
    return {
        "card": card,
        "cases": [CaseOnCard(card, case) for case in card.cases],
        "scale": scale_of(card),
        "head": figures.html_head(),
        "rows": list(figures.html_rows()),
    }


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
    """Return the name and content of each file."""
    return {
        "review.json": encode(review),
        "comment.md": comment(review, links).encode(),
        "summary.md": summary(review, links).encode(),
        "review.html": page(review, links).encode(),
        "check.json": msgspec.json.format(msgspec.json.encode(check_run(review, links)), indent=2),
        "annotations.txt": "".join(f"{line}\n" for line in workflow_commands(review)).encode(),
    }


def write_faces(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write each file completely or not at all. Raises StoreError if the folder is not writable."""
    try:
        for name, content in files.items():
            write_atomically(folder / name, content)
    except OSError as error:
        raise StoreError(
            f"Cannot write the report to {folder}: {error.strerror or error}. Choose another folder."
        ) from None
