"""What a pull request changes in static facts: the document that the job which compiles hands to the job that
may write, and the comment that is made of it.

Anybody's pull request writes the document, so its types are its schema, as of `model`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from harness.numbers import counted
from harness.records.types import DifferenceStatus, RiskKind
from harness.report.document.document import decode
from harness.report.document.field_limits import Commit, Identifier, Size, Text, Words
from harness.report.document.outcome import Links
from harness.report.pull_request.comment_markdown import COMMENT_BYTES, Item, Part, fit, fixed, link
from harness.report.templates import code

STATIC_SCHEMA_VERSION = 1
_MOST_ROWS = 16 * 1024
_PLACE = re.compile(r" \([^()\s]+:[0-9]+\)\Z")
"""The place in a risk's text: another architecture's compiler may have it a line further."""

Arch = Annotated[str, Meta(pattern=r"^sm_[0-9]{2,4}[a-z]?(?![\s\S])")]


@dataclass(frozen=True, slots=True)
class StaticRisk:
    kind: RiskKind
    text: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRow:
    """A kernel for one architecture that is not what it was."""

    kernel: Words
    arch: Arch
    status: DifferenceStatus
    message: Text = ""
    changes: Annotated[tuple[Text, ...], Meta(max_length=32)] = ()
    risks: Annotated[tuple[StaticRisk, ...], Meta(max_length=32)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticSuite:
    suite: Identifier
    counts: Annotated[Mapping[DifferenceStatus, Size], Meta(max_length=6)]
    """Builds by status: those that are alike have no row."""
    rows: Annotated[tuple[StaticRow, ...], Meta(max_length=_MOST_ROWS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReport:
    schema_version: Size = STATIC_SCHEMA_VERSION
    harness_version: Words
    compilers: Annotated[tuple[Words, ...], Meta(max_length=8)]
    base: Commit | None
    head: Commit | None
    suites: Annotated[tuple[StaticSuite, ...], Meta(max_length=64)]
    """Those of which a file differs that a build can read."""


def decode_static(content: bytes) -> StaticReport:
    """Raises StoreError with the reason where it is none."""
    return decode(content, StaticReport, STATIC_SCHEMA_VERSION)


def static_comment(
    report: StaticReport, links: Links, *, marker: str = "", about: str = "", limit_bytes: int = COMMENT_BYTES
) -> str:
    """The comment's body: what is at risk on which architecture, then all that differs, folded.

    `about` says of which commits, where the report's own word does not count.
    """
    about = about or " → ".join(commit[:10] for commit in (report.base, report.head) if commit)
    opening = f"### Static facts\n\n<p><b>{headline(report)}</b>{f' {code(about)}' if about else ''}</p>"
    risks = list(_risk_lines(report))
    rows = list(_row_lines(report))
    parts = [fixed(f"{marker}\n\n{opening}" if marker else opening)]
    if risks:
        # HTML, where no text can be more than one line of one list.
        parts.append(
            Part(
                opening="<ul>", items=map(Item, risks), closing="</ul>", cases=len(risks), more=_more("risk")
            )
        )
    if rows:
        head = "<tr><th>kernel</th><th>architectures</th><th>result</th><th>what</th></tr>"
        parts.append(
            Part(
                tier=1,
                opening=f"<details><summary>All that differs</summary>\n<table>\n{head}",
                items=map(Item, rows),
                closing="</table>\n</details>",
                cases=len(rows),
                more=_more("line"),
            )
        )
    return fit([*parts, fixed(_closing(report, links))], limit_bytes)


def headline(report: StaticReport) -> str:
    """``3 of 203 builds have a risk: 200 identical, 3 changed.``"""
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


def _more(what: str) -> Callable[[int], str]:
    return lambda left: f"<p>{counted(left, what)} more did not fit: the run's summary has all.</p>"


def _risk_lines(report: StaticReport) -> Iterator[str]:
    """A line for each risk, with all architectures that have it in the same words, the first one's place."""
    found: dict[tuple[str, str], list[StaticRow]] = {}
    texts: dict[tuple[str, str], str] = {}
    for suite in report.suites:
        for row in suite.rows:
            for risk in row.risks:
                key = f"{suite.suite}.{row.kernel}", _PLACE.sub("", risk.text)
                texts.setdefault(key, risk.text)
                found.setdefault(key, []).append(row)
    for key, rows in found.items():
        archs = ", ".join(row.arch for row in rows)
        yield f"<li>{code(key[0])} on {archs}: {code(texts[key])}</li>"


def _row_lines(report: StaticReport) -> Iterator[str]:
    """A line for what moved in the same way; risks are told above."""
    archs: dict[tuple[str, str, str], list[str]] = {}
    for suite in report.suites:
        for row in suite.rows:
            what = row.message or "; ".join(row.changes)
            key = f"{suite.suite}.{row.kernel}", "risk" if row.risks else row.status, what
            archs.setdefault(key, []).append(row.arch)
    for (kernel, result, what), found in archs.items():
        cells = code(kernel), ", ".join(found), result, code(what) if what else ""
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _closing(report: StaticReport, links: Links) -> str:
    by = f"Compiled with {', '.join(map(code, report.compilers))}; no" if report.compilers else "No"
    where = f" {link(links.run, 'The run')}." if links.run else ""
    return (
        f"<p>{by} card was asked. A risk is no verdict: what is identical needs no measuring, and the "
        f"rest is for a card to judge.{where}</p>"
    )
