"""Differences between the builds of two commits, on the terminal, in Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import harness
from harness.device.static.differences import Difference
from harness.numbers import counted
from harness.records.types import DifferenceStatus, fields_of
from harness.report.document.field_limits import clipped
from harness.report.document.from_results import MOST_EVIDENCE
from harness.report.pull_request.static_comment import StaticReport, StaticRisk, StaticRow, StaticSuite
from harness.report.table import Cell, Column, Sheet
from harness.report.terminal.static_tables import static_fields
from harness.report.words.of_diagnosis import LOOP_RULE, loop_places, loop_sheet, risk_text
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


_MOST_LOOPS = 3


def loop_sheets(found: Sequence[Difference]) -> Iterator[Sheet]:
    """Yield the difference of the hottest loop of the first kernels, those with a risk before others.

    Of several architectures, a kernel has the first. The last caption counts what is left out.
    """
    differing = sorted((each for each in found if each.loop), key=lambda each: not each.risks)
    of_kernel: dict[str, Difference] = {}
    for each in differing:
        of_kernel.setdefault(label_of(each, found), each)
    left = len(differing) - len(of_kernel) + max(0, len(of_kernel) - _MOST_LOOPS)
    shown = list(of_kernel.items())[:_MOST_LOOPS]
    for at, (label, each) in enumerate(shown, 1):
        assert each.loop is not None, "only those with a loop are here"
        sheet, places = loop_sheet(each.loop), loop_places(each.loop)
        kernel = f"{label} on {each.shown.build.arch}, {places}" if places else label
        title = sheet.title.replace("Hottest loop", f"Hottest loop of {kernel}")
        more = f"\n{counted(left, 'more loop')} differ{'s' if left == 1 else ''}: see --json."
        yield replace(
            sheet,
            title=title,
            caption=f"{sheet.caption}\n{LOOP_RULE}" + (more if left and at == len(shown) else ""),
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
    """Return the document of what differs in each suite, by its name; commits are None for a working tree.

    The first rows with a risk have their loops, which take kilobytes.
    """
    suites = list(by_suite)
    loops = (each for _, found in suites for each in found if each.risks and each.loop)
    kept = {id(each) for each in islice(loops, MOST_EVIDENCE)}
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
                    rows=tuple(_row(each, found, id(each) in kept) for each in found if _is_told(each)),
                )
                for name, found in suites
            ),
        )
    )


def _row(each: Difference, found: Sequence[Difference], with_loop: bool) -> StaticRow:
    build = each.shown.build
    return StaticRow(
        kernel=label_of(each, found),
        arch=build.arch,
        status=each.status,
        message=build.message if each.status == "failed" else "",
        changes=each.changes,
        risks=tuple(StaticRisk(risk.kind, risk_text(risk)) for risk in each.risks),
        loop=each.loop if with_loop else None,
    )


def as_json(suite: str, found: Sequence[Difference]) -> list[dict[str, Any]]:
    return [
        {
            "suite": suite,
            "kernel": each.shown.build.kernel,
            "arch": each.shown.build.arch,
            "cases": each.shown.cases,
            **fields_of(each, "status", "risks", "changes", "loop"),
            "base": each.base and static_fields(each.base),
            "head": each.head and static_fields(each.head),
        }
        for each in found
    ]
