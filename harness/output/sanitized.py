"""What a simulator has seen kernels do, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from harness.output.sentences import commit_label, suite_label
from harness.output.sheet import Cell, Column, Sheet
from harness.records import Source
from harness.run.sanitize import Sanitized
from harness.spec.case_id import CaseId

_MARKS = {"clean": "verified", "found": "failed", "skipped": "skipped", "failed": "failed"}


def sanitized_table(source: Source, told: Sequence[Sanitized]) -> Sheet:
    """A line a finding; a case without any has one of its own."""
    rows = [(each, finding) for each in told for finding in (each.findings or (None,))]
    named = [
        CaseId.parse(each.case).short.partition(".")[2] if not at or rows[at - 1][0] is not each else ""
        for at, (each, _) in enumerate(rows)
    ]
    return Sheet(
        title=f"{suite_label(source)} at {commit_label(source.commit, dirty=source.dirty)} in Oclgrind",
        columns=[
            Column("case", named, text=True, heads=True, spans=True),
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
