"""Lines by which a step tells its runner something."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.errors import StoreError
from harness.numbers import counted
from harness.output.review.grouping import Found, Groups, Links, grouped, standing
from harness.output.review.markdown import comment, listed, summary
from harness.output.review.model import CaseReview, Place, Review, encode_review
from harness.output.review.page import page
from harness.output.sentences import sentence
from harness.spec.case_id import size_label
from harness.system.cache import write_atomically


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


CHECK_NAME = "GPU performance"
_MOST = 10
"""Annotations of a kind that GitHub shows of a step."""
_SUMMARY_BYTES = 65_535
_TITLE_CHARACTERS = 255
_NAMED = 8
"""Cases of one kernel that its note names, and sizes that it names together."""
_UNJUDGED = "could not be judged"

Level = Literal["failure", "warning"]


@dataclass(frozen=True, slots=True)
class _Note:
    """What is said beside one line, or of one kernel whose line is not known."""

    place: Place | None
    level: Level
    title: str
    message: str


def check_run(review: Review, links: Links) -> dict[str, Any]:
    """The body of POST /repos/{owner}/{repo}/check-runs, but for `head_sha`."""
    found = standing(review)
    notes = [note for note in _notes(grouped(review)) if note.place is not None]
    body: dict[str, Any] = {
        "name": CHECK_NAME,
        "status": "completed",
        "conclusion": found.conclusion,
        "output": {
            "title": _cut(found.headline),
            "summary": comment(review, links, limit_bytes=_SUMMARY_BYTES),
            "annotations": [_annotation(note) for note in _first(notes, _MOST)],
        },
    }
    return {**body, "details_url": links.run} if links.run else body


def workflow_commands(review: Review) -> list[str]:
    """A line for each note, errors first: what a workflow prints to have them shown beside the source."""
    notes = _notes(grouped(review))
    commands: tuple[tuple[str, Level], ...] = (("error", "failure"), ("warning", "warning"))
    return [
        _command(name, note)
        for name, level in commands
        for note in _first([note for note in notes if note.level == level], _MOST)
    ]


def _notes(groups: Groups) -> list[_Note]:
    """One for each kernel that somebody has to look at, the worst first."""
    kernels: dict[tuple[str, str, Place | None], list[Found]] = {}
    for found in (*groups.failing, *groups.unjudged):
        card, kernel = found.card, found.case.kernel
        kernels.setdefault((card.suite, kernel, card.places.get(kernel)), []).append(found)
    return [
        _Note(place, _level(found[0].case), f"{suite}.{kernel} {_verdict(found[0].case)}", _message(found))
        for (suite, kernel, place), found in kernels.items()
    ]


def _level(case: CaseReview) -> Level:
    return "failure" if _verdict(case) != _UNJUDGED else "warning"


def _verdict(case: CaseReview) -> str:
    if case.status == "failed":
        return "fails at head" if case.side == "head" else _UNJUDGED
    return {"regression": "is slower", "missing": "is missing at head"}.get(case.status, _UNJUDGED)


def _message(found: Sequence[Found]) -> str:
    """``At 1024 on NVIDIA H200: 1.70 % slower (+1.63 to +1.77 %) in 2 processes. The code: …``"""
    sizes: dict[tuple[str, str], list[str]] = {}
    for each in found:
        sizes.setdefault((_plain(each.card.device), sentence(each.case)), []).append(_size(each))
    clauses = [
        f"At {listed(at[:_NAMED])}{' and more' if len(at) > _NAMED else ''} on {device}: {told}"
        for (device, told), at in sizes.items()
    ]
    left = len(clauses) - _NAMED
    more = f"And {counted(left, 'more case')}." if left > 0 else ""
    return " ".join(filter(None, (*clauses[:_NAMED], more)))


def _size(found: Found) -> str:
    return size_label(found.case.sizes) or "its size"


def _plain(words: str) -> str:
    """The name of a device without a sign that could make it a link or a mention."""
    return re.sub(r"[^A-Za-z0-9 ()+-]", "-", words)


def _first(notes: Sequence[_Note], most: int) -> list[_Note]:
    """As many as are shown; the last of them tells of the others."""
    shown = list(notes[:most])
    if left := len(notes) - len(shown):
        told = f"{shown[-1].message} {counted(left, 'more kernel')}: see the job's summary."
        shown[-1] = replace(shown[-1], message=told)
    return shown


def _annotation(note: _Note) -> dict[str, Any]:
    assert note.place is not None
    return {
        "path": note.place.path,
        "start_line": note.place.line,
        "end_line": note.place.line,
        "annotation_level": note.level,
        "title": _cut(note.title),
        "message": note.message,
    }


def _command(name: str, note: _Note) -> str:
    properties = {"title": _cut(note.title)}
    if note.place:
        properties = {"file": note.place.path, "line": str(note.place.line), **properties}
    return workflow_command(name, note.message, properties)


def _cut(text: str) -> str:
    return text if len(text) <= _TITLE_CHARACTERS else f"{text[: _TITLE_CHARACTERS - 1]}…"


def faces(review: Review, links: Links) -> dict[str, bytes]:
    """Each file's name and content."""
    return {
        "review.json": encode_review(review),
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
