"""Stored comparisons judged by today's rules: then and now side by side, JSON, and the exit status."""

from __future__ import annotations

__all__ = ["as_json", "exit_status", "print_rejudged"]

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.errors import ExitCode
from harness.output.tables import console, plain_table, print_out
from harness.output.verdicts import (
    basis,
    counted,
    exit_code,
    fitting_table,
    half_width,
    percent,
    sentences,
    styled,
    title,
)
from harness.records import VerdictStatus
from harness.run.rejudge import Label, Rejudged, Truth, score
from harness.run.rejudged_records import RejudgedRecord
from harness.spec.suite import size_label
from harness.statistics.rates import false_alarm_bound
from harness.system.texts import harmless

_NOTHING = "nothing"


def exit_status(
    records: Sequence[RejudgedRecord], problems: Collection[str], fail_on: Collection[str] = ()
) -> ExitCode:
    """As a comparison's, by what is said now; what could not be read counts as not measured."""
    status = exit_code(records, fail_on) if records else ExitCode.NOT_MEASURED
    return ExitCode.NOT_MEASURED if problems and status is not ExitCode.REGRESSION else status


def as_json(record: RejudgedRecord) -> dict[str, Any]:
    """Margin, tolerance and confidence are shares."""
    policy = record.policy
    return {
        "comparison": record.comparison,
        "complete": record.complete,
        "record": str(record.path),
        "margin": policy.margin,
        "tolerance": policy.tolerance,
        "confidence": policy.confidence,
        "calibrated_at": record.calibration.measured_at if record.calibration else None,
        "verdicts": [_told(record, case) for case in record.cases],
        "twins": [_told(record, case) for case in record.twins],
    }


def _told(record: RejudgedRecord, case: Rejudged) -> dict[str, Any]:
    label = record.labels.get(case.now.case)
    return {
        **{field.name: getattr(case.now, field.name) for field in dataclasses.fields(case.now)},
        "said": record.said(case),
        "gpu_s_then": case.then_gpu_s,
        "processes": case.blocks,
        "truth": label.truth if label else None,
    }


def print_rejudged(records: Sequence[RejudgedRecord], asides: Sequence[str], status: ExitCode) -> None:
    """A table a record, and what it comes to, on standard output; `asides` on standard error."""
    for record in records:
        _print(record)
    labelled = [
        (record, label, case)
        for record in records
        for case in record.cases
        if (label := record.labels.get(case.now.case))
    ]
    if labelled:
        print_out(_scores(labelled))
        console().print()
    for line in dict.fromkeys(_basis(record) for record in records):
        console().print(harmless(line), highlight=False, markup=False, style="dim")
    errors = Console(stderr=True)
    for aside in asides:
        errors.print(harmless(aside), highlight=False, markup=False, soft_wrap=True)
    if records:
        console().print(_closing(records, status), highlight=False)


def _print(record: RejudgedRecord) -> None:
    console().print(harmless(record.path.name), style="bold", highlight=False, markup=False, soft_wrap=True)
    print_out(_table(record, console().width))
    untouched = sum(_is_quiet(case) for case in record.cases)
    if untouched:
        console().print(f"And {untouched} identical.", highlight=False, style="dim")
    if not record.complete:
        console().print("Interrupted then: what was measured is judged.", highlight=False, style="dim")
    for line in sentences([case.now for case in record.cases if not case.same]):
        console().print(line, soft_wrap=False, highlight=False)
    console().print()


def _is_quiet(case: Rejudged) -> bool:
    """Whether a case is left out of the table: nothing was measured of it, and nothing is the matter."""
    return case.same and case.now.status == "identical"


def _table(record: RejudgedRecord, width: int) -> Table:
    cases = [case for case in record.cases if not _is_quiet(case)]
    rows = [*cases, *record.twins]
    now = [case.now for case in rows]
    columns = {
        "kernel": [*(case.now.kernel for case in cases), *(case.now.case for case in record.twins)],
        "size": [size_label(verdict.sizes) for verdict in now],
        "change %": [percent(verdict.time.effect if verdict.time else None, sign=True) for verdict in now],
        "±": [percent(half_width(verdict.time)) for verdict in now],
        "s then": [_seconds(case.then_gpu_s) for case in rows],
        "s now": [_seconds(case.now.gpu_s) for case in rows],
        "truth": [label.truth if (label := record.labels.get(verdict.case)) else "" for verdict in now],
    }
    same = "" if all(case.same for case in rows) else "  "
    marked = {
        "then": [styled(case.then.status) if case.then else _NOTHING for case in rows],
        "now": [styled(case.now.status, f"{same if case.same else '→ '}{case.now.status}") for case in rows],
    }
    table = fitting_table("kernel", columns, marked, spare=("truth", "±", "s then"), width=width)
    table.title = escape(harmless(title(record.comparison)))
    return table


def _scores(labelled: Sequence[tuple[RejudgedRecord, Label, Rejudged]]) -> Table:
    """What is known of the cases, against what was said and is said of them."""
    said: Mapping[str, list[tuple[Truth, str, float]]] = {
        "then": [(label.truth, record.said(case) or "", case.then_gpu_s) for record, label, case in labelled],
        "now": [(label.truth, case.now.status, case.now.gpu_s) for _, label, case in labelled],
    }
    table = plain_table(
        "labelled", ">found", ">missed", ">unchanged", ">false alarms", ">undecided", ">device s"
    )
    for name, told in said.items():
        counts = score([(truth, status) for truth, status, _ in told])
        table.add_row(
            name,
            f"{counts.found} of {counts.changed}",
            str(counts.missed),
            f"{counts.unchanged} of {counts.same}",
            str(counts.false_alarms),
            str(counts.undecided),
            _seconds(sum(gpu_s for _, _, gpu_s in told)),
        )
        if counts.same:
            bound = false_alarm_bound(counts.false_alarms, counts.same)
            told_of = f"{counts.false_alarms} of {counts.same}"
            table.caption = f"False alarms now: {told_of}, so below {100 * bound:.2g} % (95 % confidence)."
    return table


def _basis(record: RejudgedRecord) -> str:
    policy = record.policy
    return (
        f"Margin {100 * policy.margin:g} %, tolerance {100 * policy.tolerance:g} %, confidence "
        f"{100 * policy.confidence:g} %. {basis(record.calibration, record.comparison.device)}"
    )


def _closing(records: Sequence[RejudgedRecord], status: ExitCode) -> str:
    cases = [case for record in records for case in record.cases]
    twins = [case for record in records for case in record.twins]
    otherwise: Counter[tuple[str, VerdictStatus]] = Counter(
        (case.then.status if case.then else _NOTHING, case.now.status) for case in cases if not case.same
    )
    same = sum(case.same for case in cases)
    changes = ", ".join(f"{count} {then} → {now}" for (then, now), count in otherwise.most_common())
    then_s = sum(case.then_gpu_s for case in (*cases, *twins))
    now_s = sum(case.now.gpu_s for case in (*cases, *twins))
    told = counted(Counter(case.now.status for case in cases)) or "no case"
    return (
        f"{same} as then{f', {len(cases) - same} otherwise: {changes}' if otherwise else ''}.\n"
        f"Now {told}. {then_s:.1f} s of device time then, {now_s:.1f} s now. Exit status {int(status)}."
    )


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value else ""
