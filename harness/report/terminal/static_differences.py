"""Differences between the builds of two commits, on the terminal, in Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import harness
from harness.device.static.differences import Difference, Risk
from harness.numbers import counted
from harness.records.types import DifferenceStatus, fields_of
from harness.report.document.field_limits import clipped
from harness.report.pull_request.static_comment import StaticReport, StaticRisk, StaticRow, StaticSuite
from harness.report.table import Cell, Column, Sheet
from harness.report.terminal.static_tables import static_fields
from harness.suite.case_id import CaseId

_MARKS = {"changed": "inconclusive", "missing": "missing", "failed": "failed", "new": "new"}


def differences_table(title: str, found: Sequence[Difference]) -> Sheet:
    """Return a line for each distinct difference, with its architectures: risks, or other changes."""
    archs: dict[tuple[str, Cell, str], list[str]] = {}
    for each in filter(_is_told, found):
        key = label_of(each, found), _result(each), _what(each)
        archs.setdefault(key, []).append(each.shown.build.arch)
    labels = [label for label, _, _ in archs]
    named = [label if label != before else "" for before, label in zip(["", *labels], labels, strict=False)]
    return Sheet(
        title=title,
        caption=summary(found),
        columns=[
            Column("kernel", named, text=True, heads=True, spans=True),
            Column("arch", [", ".join(each) for each in archs.values()], text=True),
            Column("result", [result for _, result, _ in archs], text=True, whole=True),
            Column("what", [what for _, _, what in archs], text=True),
        ],
    )


def _is_told(each: Difference) -> bool:
    """Return whether a difference has a line: identical builds have none, unless they have a risk."""
    return each.status not in ("identical", "not-built") or bool(each.risks)


def label_of(each: Difference, found: Sequence[Difference]) -> str:
    """Return the kernel, with one of the sizes if it is built in several ways."""
    build = each.shown.build
    alike = [
        other
        for other in found
        if (other.shown.build.kernel, other.shown.build.arch) == (build.kernel, build.arch)
    ]
    return build.kernel if len(alike) == 1 else CaseId.parse(each.shown.cases[0]).short.partition(".")[2]


def _result(each: Difference) -> Cell:
    if each.risks:
        return Cell("risk", "regression")
    return Cell(each.status, _MARKS.get(each.status, each.status))


def _what(each: Difference) -> str:
    if each.status == "failed":
        return each.shown.build.message
    return "; ".join(map(risk_text, each.risks) if each.risks else each.changes)


def risk_text(risk: Risk) -> str:
    return f"{risk.message} ({risk.place})" if risk.place else risk.message


def status_counts(found: Sequence[Difference]) -> dict[DifferenceStatus, int]:
    return dict(Counter(each.status for each in found))


def summary(found: Sequence[Difference]) -> str:
    """Return a summary: ``4 kernels and architectures: 3 identical, 1 changed. 1 with a risk.``"""
    statuses = status_counts(found)
    risky = sum(bool(each.risks) for each in found)
    parts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    return f"{counted(len(found), 'build')}: {parts or 'none'}. {counted(risky, 'risk')}."


def static_report(
    by_suite: Iterable[tuple[str, Sequence[Difference]]],
    compilers: Sequence[str],
    *,
    base: str | None,
    head: str | None,
) -> StaticReport:
    """Return the document of the differences in each suite, by its name. Commits are None for a
    working tree.
    """
    return clipped(
        StaticReport(
            harness_version=harness.__version__,
            compilers=tuple(dict.fromkeys(filter(None, compilers))),
            base=base,
            head=head,
            suites=tuple(
                StaticSuite(
                    suite=name,
                    counts=status_counts(found),
                    rows=tuple(_row(each, found) for each in found if _is_told(each)),
                )
                for name, found in by_suite
            ),
        )
    )


def _row(each: Difference, found: Sequence[Difference]) -> StaticRow:
    build = each.shown.build
    return StaticRow(
        kernel=label_of(each, found),
        arch=build.arch,
        status=each.status,
        message=build.message if each.status == "failed" else "",
        changes=each.changes,
        risks=tuple(StaticRisk(risk.kind, risk_text(risk)) for risk in each.risks),
    )


def as_json(suite: str, found: Sequence[Difference]) -> list[dict[str, Any]]:
    return [
        {
            "suite": suite,
            "kernel": each.shown.build.kernel,
            "arch": each.shown.build.arch,
            "cases": each.shown.cases,
            **fields_of(each, "status", "risks", "changes"),
            "base": each.base and static_fields(each.base),
            "head": each.head and static_fields(each.head),
        }
        for each in found
    ]
