"""Stored comparisons judged by today's rules: then and now side by side, JSON, and the exit status."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Console

from harness.errors import ExitCode
from harness.numbers import exact, rough, seconds
from harness.output.sentences import verdict_columns
from harness.output.sheet import Cell, Column, Sheet
from harness.output.tables import console, print_out
from harness.output.verdicts import (
    calibrated,
    counted_statuses,
    exit_code,
    lines_of,
    title,
    with_sentence,
)
from harness.records import VerdictStatus
from harness.run.rejudge import Label, Rejudged, RejudgedRecord, Truth, score
from harness.statistics.paired import false_alarm_bound
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
        **dataclasses.asdict(with_sentence(case.now)),
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
    print_out(_table(record))
    untouched = sum(_is_quiet(case) for case in record.cases)
    if untouched:
        console().print(f"And {untouched} identical.", highlight=False, style="dim")
    if not record.complete:
        console().print("Interrupted then: what was measured is judged.", highlight=False, style="dim")
    for line in lines_of([case.now for case in record.cases if not case.same]):
        console().print(line, highlight=False)
    console().print()


def _is_quiet(case: Rejudged) -> bool:
    """Whether a case is left out of the table: nothing was measured of it, and nothing is the matter."""
    return case.same and case.now.status == "identical"


def _table(record: RejudgedRecord) -> Sheet:
    cases = [case for case in record.cases if not _is_quiet(case)]
    rows = [*cases, *record.twins]
    now = [case.now for case in rows]
    names = [*(case.now.kernel for case in cases), *(case.now.case for case in record.twins)]
    given = {column.name: column for column in verdict_columns("kernel", names, now)}
    labels = [record.labels.get(verdict.case) for verdict in now]
    same = "" if all(case.same for case in rows) else "  "
    said = [Cell(f"{same if case.same else '→ '}{case.now.status}", case.now.status) for case in rows]
    return Sheet(
        title=title(record.comparison),
        columns=[
            given["kernel"],
            given["size"],
            given["change %"],
            dataclasses.replace(given["±"], spare=2),
            Column("s then", [_device_s(case.then_gpu_s) for case in rows], spare=1),
            Column("s now", [_device_s(case.now.gpu_s) for case in rows]),
            Column("truth", [label.truth if label else "" for label in labels], spare=3),
            Column(
                "then",
                [Cell(case.then.status, case.then.status) if case.then else _NOTHING for case in rows],
                text=True,
            ),
            Column("now", said, text=True),
        ],
    )


def _scores(labelled: Sequence[tuple[RejudgedRecord, Label, Rejudged]]) -> Sheet:
    """What is known of the cases, against what was said and is said of them."""
    said: Mapping[str, list[tuple[Truth, str, float]]] = {
        "then": [(label.truth, record.said(case) or "", case.then_gpu_s) for record, label, case in labelled],
        "now": [(label.truth, case.now.status, case.now.gpu_s) for _, label, case in labelled],
    }
    counts = [score([(truth, status) for truth, status, _ in told]) for told in said.values()]
    now, caption = counts[-1], ""
    if now.same:
        bound = rough(false_alarm_bound(now.false_alarms, now.same))
        caption = f"False alarms now: {now.false_alarms} of {now.same}, so below {bound} (95 % confidence)."
    return Sheet(
        caption=caption,
        columns=[
            Column("labelled", list(said), text=True),
            Column("found", [f"{each.found} of {each.changed}" for each in counts]),
            Column("missed", [str(each.missed) for each in counts]),
            Column("unchanged", [f"{each.unchanged} of {each.same}" for each in counts]),
            Column("false alarms", [str(each.false_alarms) for each in counts]),
            Column("undecided", [str(each.undecided) for each in counts]),
            Column("device s", [_device_s(sum(gpu_s for *_, gpu_s in told)) for told in said.values()]),
        ],
    )


def _basis(record: RejudgedRecord) -> str:
    policy = record.policy
    cases = [case.now for case in (*record.cases, *record.twins)]
    return (
        f"Margin {exact(policy.margin)}, tolerance {exact(policy.tolerance)}, confidence "
        f"{exact(policy.confidence)}. {calibrated(record.calibration, record.comparison.device, cases)}"
    ).strip()


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
    told = counted_statuses(Counter(case.now.status for case in cases)) or "no case"
    return (
        f"{same} as then{f', {len(cases) - same} otherwise: {changes}' if otherwise else ''}.\n"
        f"Now {told}. {seconds(then_s)} of device time then, {seconds(now_s)} now. Exit status {int(status)}."
    )


def _device_s(value: float) -> str:
    return f"{value:.2f}" if value else ""
