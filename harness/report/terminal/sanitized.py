"""Findings of sanitizers, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from harness.device.findings import SanitizerFinding
from harness.records.types import Source
from harness.report.table import Cell, Column, Sheet
from harness.report.words.of_verdict import source_label, suite_label
from harness.run.sanitize import Sanitized
from harness.suite.case_id import CaseId

_MARKS = {"clean": "verified", "found": "failed", "skipped": "skipped", "failed": "failed"}


def sanitized_table(source: Source, told: Sequence[Sanitized]) -> Sheet:
    """Return a line for each finding. Tools with the same finding for a case share one line."""
    rows = list(_rows(told))
    named = [
        CaseId.parse(each.case).short.partition(".")[2] if not at or rows[at - 1][0].case != each.case else ""
        for at, (each, _) in enumerate(rows)
    ]
    return Sheet(
        title=f"{suite_label(source)} at {source_label(source)}, sanitized",
        columns=[
            Column("case", named, text=True, heads=True, spans=True),
            Column("tool", [each.tool for each, _ in rows], text=True),
            Column(
                "result",
                [
                    Cell(finding.kind if finding else each.reason or each.status, _MARKS[each.status])
                    for each, finding in rows
                ],
                text=True,
                whole=True,
            ),
            Column("place", [finding.place if finding else "" for _, finding in rows], text=True),
            Column("times", [f"{finding.count:,}" if finding else "" for _, finding in rows], spare=1),
            Column("what", [finding.message if finding else "" for _, finding in rows], text=True),
            Column(
                "first thread", [finding.thread if finding else "" for _, finding in rows], text=True, spare=2
            ),
        ],
    )


def _rows(told: Sequence[Sanitized]) -> Iterator[tuple[Sanitized, SanitizerFinding | None]]:
    for _, group in groupby(told, key=lambda each: each.case):
        alike: dict[tuple[str, str], Sanitized] = {}
        for each in group:
            for finding in each.findings:
                yield each, finding
            if not each.findings:
                key = each.status, each.reason
                known = alike.get(key)
                alike[key] = replace(each, tool=f"{known.tool}, {each.tool}") if known else each
        yield from ((each, None) for each in alike.values())
