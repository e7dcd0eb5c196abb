"""Static facts that a pull request changes, as a document and as a comment.

The compiling job passes the document to the job that may write. Anybody's pull request can write the
document, so it is checked by document/field_limits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from msgspec import Meta

from harness.numbers import counted
from harness.records.types import DifferenceStatus, LoopDifference, RiskKind
from harness.report.document.document import decode
from harness.report.document.field_limits import Commit, Identifier, Size, Text, Words
from harness.report.document.outcome import Links
from harness.report.pull_request.comment_markdown import COMMENT_BYTES, fitted, renderer
from harness.report.templates import Markup

STATIC_SCHEMA_VERSION = 1
_MOST_ROWS = 16 * 1024
_PLACE = re.compile(r" \([^()\s]+:[0-9]+\)\Z")
"""The line number in a risk's text, which may differ between architectures' compilers."""

Arch = Annotated[str, Meta(pattern=r"^sm_[0-9]{2,4}[a-z]?(?![\s\S])")]


@dataclass(frozen=True, slots=True)
class StaticRisk:
    kind: RiskKind
    text: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRow:
    """A kernel whose build for one architecture changed."""

    kernel: Words
    arch: Arch
    status: DifferenceStatus
    message: Text = ""
    changes: Annotated[tuple[Text, ...], Meta(max_length=32)] = ()
    risks: Annotated[tuple[StaticRisk, ...], Meta(max_length=32)] = ()
    loop: LoopDifference | None = None
    """Difference of the hottest loops, of the first rows with a risk alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticSuite:
    suite: Identifier
    counts: Annotated[Mapping[DifferenceStatus, Size], Meta(max_length=6)]
    """Builds by status. Identical builds have no row."""
    rows: Annotated[tuple[StaticRow, ...], Meta(max_length=_MOST_ROWS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReport:
    schema_version: Size = STATIC_SCHEMA_VERSION
    harness_version: Words
    compilers: Annotated[tuple[Words, ...], Meta(max_length=8)]
    base: Commit | None
    head: Commit | None
    suites: Annotated[tuple[StaticSuite, ...], Meta(max_length=64)]
    """Suites with a changed file that a build can read."""


def decode_static(content: bytes) -> StaticReport:
    """Return the report in a document. Raises StoreError with the reason if it is invalid."""
    return decode(content, StaticReport, STATIC_SCHEMA_VERSION)


def static_comment(
    report: StaticReport, links: Links, *, marker: str = "", about: str = "", limit_bytes: int = COMMENT_BYTES
) -> str:
    """Return the comment's body: risks by architecture, then all differences, folded.

    `about` names the commits, because the report's own commits are not trusted.
    """
    about = about or " → ".join(commit[:10] for commit in (report.base, report.head) if commit)
    risks, rows = _risks(report), _rows(report)
    render = partial(
        renderer("static.md.j2"),
        marker=Markup(marker),
        headline=headline(report),
        about=about,
        risks=risks,
        rows=rows,
        loops=_loops(report),
        compilers=report.compilers,
        run=links.run,
    )
    return fitted(lambda detail: render(detail=detail), max(len(risks), len(rows)), limit_bytes)


def headline(report: StaticReport) -> str:
    """Return the headline: ``3 of 203 builds have a risk: 200 identical, 3 changed.``"""
    counts: Counter[str] = Counter()
    for suite in report.suites:
        counts.update(suite.counts)
    if not counts:
        return "No file that a kernel's build can read differs."
    risks = sum(bool(row.risks) for suite in report.suites for row in suite.rows)
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    builds = counted(sum(counts.values()), "build")
    told = (
        f"{risks} of {builds} {'has' if risks == 1 else 'have'} a risk" if risks else f"No risk in {builds}"
    )
    return f"{told}: {listed}."


def _risks(report: StaticReport) -> list[tuple[str, str, list[str]]]:
    """Return each risk: kernel, text with the first architecture's line, and its architectures."""
    found: dict[tuple[str, str], tuple[str, str, list[str]]] = {}
    for suite in report.suites:
        for row in suite.rows:
            kernel = f"{suite.suite}.{row.kernel}"
            for risk in row.risks:
                key = kernel, _PLACE.sub("", risk.text)
                found.setdefault(key, (kernel, risk.text, []))[2].append(row.arch)
    return list(found.values())


def _loops(report: StaticReport) -> list[tuple[str, str, LoopDifference]]:
    """Return how each kernel's hottest loop differs on the first architecture: kernel, architecture, loop."""
    found: dict[str, tuple[str, str, LoopDifference]] = {}
    for suite in report.suites:
        for row in suite.rows:
            if row.loop is not None:
                kernel = f"{suite.suite}.{row.kernel}"
                found.setdefault(kernel, (kernel, row.arch, row.loop))
    return list(found.values())


def _rows(report: StaticReport) -> list[tuple[str, list[str], str, str]]:
    """Return each difference: kernel, architectures that share it, result, text."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for suite in report.suites:
        for row in suite.rows:
            what = row.message or "; ".join(row.changes)
            key = f"{suite.suite}.{row.kernel}", "risk" if row.risks else row.status, what
            found.setdefault(key, []).append(row.arch)
    return [(kernel, archs, result, what) for (kernel, result, what), archs in found.items()]
