"""Verdicts of comparisons, files and rejudged records: tables, JSON and exit status."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from textwrap import indent
from typing import Any, TypeAlias

from rich.text import Text

from harness.errors import FAILING, ExitCode
from harness.judgement.judge import Policy
from harness.judgement.saved_runs import FilesResult
from harness.judgement.statistics.rates import false_alarm_bound
from harness.numbers import exact, half_of, rough, seconds
from harness.records.record_files import CalibrationSummary, ComparisonResult
from harness.records.types import Comparison, DeviceInfo, Verdict, fields_of, nothing_compared
from harness.report.table import Cell, Column, Sheet
from harness.report.terminal.run_tables import console, print_end, print_error, print_out, styled
from harness.report.words.of_diagnosis import counter_sheet
from harness.report.words.of_launches import launches
from harness.report.words.of_verdict import (
    IN_TURNS,
    PROCESSES,
    basis,
    commit_label,
    explained,
    intervals_of,
    notes_of,
    outputs_counted,
    source_label,
    suite_label,
    toolchain_labels,
    verdict_columns,
)
from harness.run.rejudge import Label, Rejudged, RejudgedRecord, Truth, score
from harness.system.texts import harmless, plain_log

_BY_DEFAULT = frozenset(FAILING[:5])
_ALWAYS = frozenset({"missing", "failed"})
"""Statuses that always fail a comparison."""
_ORDER = (
    "regression",
    "improvement",
    "unchanged",
    "identical",
    "inconclusive",
    "invalid",
    "new",
    "missing",
    "failed",
)
_QUIET = ("identical", "unchanged")
"""Verdicts that need no line below the table."""
_MOST_REASONS = 100
"""Most lines on verdicts that need action. The rest are counted."""
_PAIRS = ("pair of processes", "pairs of processes")
_NOTHING = "nothing"

JudgedResult: TypeAlias = ComparisonResult | FilesResult | RejudgedRecord


def exit_code(results: Sequence[JudgedResult], fail_on: Collection[str] = ()) -> ExitCode:
    """Return the exit status. `fail_on` names the verdicts that count; empty for the default ones.

    If nothing was compared, it is inconclusive at best.
    """
    if any(result.interrupted for result in results):
        return ExitCode.INTERRUPTED
    verdicts = [verdict for result in results for verdict in result.verdicts]
    codes = {_code(verdict) for verdict in verdicts if fails(verdict, fail_on)}
    if any(result.problem for result in results):
        codes.add(ExitCode.NOT_MEASURED)
    if nothing_compared(verdict.status for verdict in verdicts):
        codes.add(ExitCode.INCONCLUSIVE)
    order = (ExitCode.REGRESSION, ExitCode.NOT_MEASURED, ExitCode.INCONCLUSIVE, ExitCode.FINE)
    return next(code for code in order if code in {*codes, ExitCode.FINE})


def fails(verdict: Verdict, fail_on: Collection[str] = ()) -> bool:
    """Return whether a verdict fails a comparison."""
    return verdict.status in (frozenset(fail_on) or _BY_DEFAULT) | _ALWAYS


def _code(verdict: Verdict) -> ExitCode:
    if verdict.status == "inconclusive":
        return ExitCode.INCONCLUSIVE
    if verdict.status == "invalid" or (verdict.status == "failed" and verdict.side != "head"):
        return ExitCode.NOT_MEASURED
    return ExitCode.REGRESSION


def rejudged_exit_code(
    records: Sequence[RejudgedRecord], problems: Collection[str], fail_on: Collection[str]
) -> ExitCode:
    """Return the exit status by the new verdicts. Unreadable records count as not measured."""
    status = exit_code(records, fail_on) if records else ExitCode.NOT_MEASURED
    return ExitCode.NOT_MEASURED if problems and status is not ExitCode.REGRESSION else status


def as_json(result: ComparisonResult) -> dict[str, Any]:
    return {
        "comparison": result.comparison,
        "complete": not result.interrupted,
        "record": str(result.path) if result.path else None,
        "problem": result.problem,
        "verdicts": [with_sentence(verdict, units_of(result.comparison)) for verdict in result.verdicts],
        "twins": list(map(with_sentence, result.twins)),
        "left_out": result.left_out,
        "problem_changes": result.problem_changes,
        "wall_s": result.wall_s,
    }


def judgement_as_json(result: FilesResult) -> dict[str, Any]:
    """Return the JSON of a judgement. Margin, tolerance and confidence are shares."""
    return {
        **fields_of(result, "base", "head", "pairs", "device"),
        **fields_of(result.policy, "margin", "tolerance", "confidence"),
        "verdicts": [with_sentence(verdict, _PAIRS) for verdict in result.verdicts],
        "notes": result.notes,
    }


def rejudged_as_json(record: RejudgedRecord) -> dict[str, Any]:
    """Return the JSON of a rejudged record. Margin, tolerance and confidence are shares."""
    return {
        "comparison": record.comparison,
        "complete": record.complete,
        "record": str(record.path),
        **fields_of(record.policy, "margin", "tolerance", "confidence"),
        "calibrated_at": record.calibration.measured_at if record.calibration else None,
        "verdicts": [_rejudged_case_json(record, case) for case in record.cases],
        "twins": [_rejudged_case_json(record, case) for case in record.twins],
    }


def _rejudged_case_json(record: RejudgedRecord, case: Rejudged) -> dict[str, Any]:
    label = record.labels.get(case.now.case)
    return {
        **dataclasses.asdict(with_sentence(case.now)),
        "said": record.said(case),
        "gpu_s_then": case.then_gpu_s,
        "processes": case.blocks,
        "truth": label.truth if label else None,
    }


def with_sentence(verdict: Verdict, units: tuple[str, str] = PROCESSES) -> Verdict:
    """Return the verdict for JSON, with its full explanation as the message."""
    return dataclasses.replace(verdict, message=explained(verdict, units))


def print_comparison(results: Sequence[ComparisonResult], status: ExitCode) -> None:
    """Print tables and the closing line on standard output, and everything else on standard error."""
    for result in results:
        rows = result.every_verdict
        names = [*(each.kernel for each in result.verdicts), *(each.case for each in result.twins)]
        comparison = result.comparison
        columns, caption = verdict_columns("kernel", names, rows), intervals_of(comparison, rows)
        print_out(Sheet(title=title(comparison), columns=columns, caption=caption))
        rests_on = of_executables(comparison) or calibrated(
            result.calibration, comparison.device, rows, of_script="script" in comparison.settings
        )
        if any(each.block.in_turns for each in result.blocks):
            rests_on = f"{rests_on} {IN_TURNS}".lstrip()
        units = units_of(result.comparison)
        _print_reasons(result.verdicts, rests_on, units=units, changes=result.problem_changes)
        for message in result.left_out:
            print_error(f"Left out: {message}")
        left = "verdicts use finished measurements only" if result.interrupted else ""
        print_end(result.problem, result.path, left)
        console().print()
    rows = tuple(verdict for result in results for verdict in result.every_verdict)
    verdicts = [verdict for result in results for verdict in result.verdicts]
    device_s = sum(verdict.gpu_s for verdict in rows) if results else None
    console().print(f"{closing(verdicts, device_s)} Exit status {int(status)}.")


def units_of(comparison: Comparison) -> tuple[str, str]:
    """Return the unit of measurement of an effect, singular and plural."""
    processes = comparison.settings.get("processes_a_block")
    return (f"round of {processes} runs", f"rounds of {processes} runs") if processes else PROCESSES


def of_executables(comparison: Comparison) -> str:
    """Return the basis of verdicts of executables; empty for kernels."""
    if "processes_a_block" not in comparison.settings:
        return ""
    method = comparison.settings.get("method") or comparison.settings.get("format")
    if not method:
        return ""  # no process wrote a result
    told = (
        f"Times are the executables' own ({method}), from alternating processes of base and head. Nothing "
        f"was verified.{_of_modules(comparison)}"
    )
    return " ".join((told, *notes_of(comparison)))


def _of_modules(comparison: Comparison) -> str:
    """Return sentences on whose Python code the executables ran; empty if none ran."""
    own, silent = (comparison.settings.get(name) for name in ("own_modules", "not_proved"))
    words = f" The repository's Python modules came from their own side's files: {own}." if own else ""
    return f"{words} Not proved for all of its Python: {silent}." if silent else words


def print_judgement(result: FilesResult, status: ExitCode) -> None:
    often = Counter(verdict.kernel for verdict in result.verdicts)
    names = [each.kernel if often[each.kernel] == 1 else each.case for each in result.verdicts]
    base, head = result.base, result.head
    ends = " against ".join(commit_label(side.commit, dirty=side.dirty) for side in (base, head))
    columns = verdict_columns("benchmark", names, result.verdicts)
    caption = half_of(result.policy.confidence)
    print_out(Sheet(title=f"{ends} on {result.device}", columns=columns, caption=caption))
    files = f"Files of {result.harness}, {len(base.files)} of base and {len(head.files)} of head."
    limits = f"{_limits_in_words(result.policy)} of each verdict."
    _print_reasons(result.verdicts, f"{files} {limits}", units=_PAIRS)
    for note in result.notes:
        console().print(Text(f"Note: {harmless(note)}"))
    console().print(f"\n{closing(result.verdicts, None)} Exit status {int(status)}.")


def _print_reasons(
    verdicts: Sequence[Verdict], rests_on: str, *, units: tuple[str, str], changes: Sequence[str] = ()
) -> None:
    """Print the basis of verdicts, changes of head's problem, and the reasons of verdicts that
    need action.
    """
    out = console()
    for told in filter(None, (rests_on, outputs_counted(verdicts))):
        out.print(told, style="dim")
    for change in changes:
        out.print(Text(f"Problem changed: {harmless(change)}", style="bold yellow"))
    if len(verdicts) > _MOST_REASONS:  # so that the omitted ones matter least
        verdicts = sorted(verdicts, key=lambda verdict: (*FAILING, *_QUIET).index(verdict.status))
    lines = lines_of(verdicts, units)
    for line in islice(lines, _MOST_REASONS):
        out.print(line)
    if left := sum(1 for _ in lines):
        out.print(f"{left:,} more lines of reasons: --json has them all.", style="dim")


def print_counters(verdicts: Sequence[Verdict]) -> None:
    """Print the hardware counters of both sides of each verdict that has them."""
    for verdict in verdicts:
        if verdict.diagnosis and (sheet := counter_sheet(verdict.diagnosis)):
            console().print()
            print_out(dataclasses.replace(sheet, title=f"{sheet.title} of {verdict.case}"))


def _limits_in_words(policy: Policy) -> str:
    return (
        f"Margin {exact(policy.margin)}, tolerance {exact(policy.tolerance)}, confidence "
        f"{exact(policy.confidence)}"
    )


def calibrated(
    known: CalibrationSummary | None, device: DeviceInfo, cases: Iterable[Verdict], *, of_script: bool = False
) -> str:
    """Return the basis of verdicts: this device's noise, or an assumption; empty without a measurement."""
    if known is None or not known.verdicts:
        return basis(0, 0, "", of_script=of_script) if any(case.time for case in cases) else ""
    told = basis(known.verdicts, known.false_alarms, known.measured_at)
    if known.driver != device.driver:
        told += f" Since then the driver went from {known.driver} to {device.driver}: calibrate again."
    return told


def title(comparison: Comparison) -> str:
    base, head = map(source_label, (comparison.base, comparison.head))
    device, suite = comparison.device, suite_label(comparison.base)
    if labels := toolchain_labels(comparison):
        suite, (base, head) = f"{suite} at {head}", labels
    return f"{suite}: {base} against {head} on {device.name} ({device.spec})"


def lines_of(
    verdicts: Sequence[Verdict],
    units: tuple[str, str] = PROCESSES,
    names: Mapping[str, str] | None = None,
    *,
    logs: bool = True,
) -> Iterator[Text]:
    """Yield an explanation of every verdict that needs action, once for successive ones with the same text.

    `names` are the displayed names of cases, if these differ from their ids.
    """
    shown: set[str] = set()
    loud = (v for v in verdicts if v.status not in _QUIET or v.settings_changed or launches(v) or v.diagnosis)
    for _, (verdict, *alike) in groupby(loud, key=lambda v: (v.status, v.reason, explained(v), v.log)):
        cause = f", {verdict.attribution}" if verdict.attribution else ""
        more = f" and {len(alike)} more" if alike else ""
        words = f"{more} ({verdict.reason}{cause}): {explained(verdict, units)}"
        name = names[verdict.case] if names else verdict.case
        yield Text.assemble(
            styled(f"{verdict.status} ", verdict.status), (harmless(name), "bold"), harmless(words, keep="\n")
        )
        if logs and verdict.log and verdict.log not in shown:
            shown.add(verdict.log)  # a broken file affects many cases
            yield Text(indent(plain_log(verdict.log), "    ", lambda _: True), style="dim")


def closing(verdicts: Sequence[Verdict], device_s: float | None) -> str:
    """Return the last line: ``1 regression, 3 unchanged. 12.3 s of device time.``"""
    counts = Counter(verdict.status for verdict in verdicts)
    told = counted_statuses(counts) or "no case was compared"
    if counts and nothing_compared(counts):
        why = f"{'base' if 'new' in counts else 'head'} has none of these cases"
        why = why if len(counts) == 1 else "base and head have no case in common"
        told += f". Nothing was compared: {why}"
    return f"{told}." + (f" {seconds(device_s)} of device time." if device_s is not None else "")


def counted_statuses(counts: Mapping[Any, int]) -> str:
    """Return counts, the most important first: ``1 regression, 3 unchanged``."""
    return ", ".join(f"{counts[name]} {name}" for name in _ORDER if counts.get(name))


def print_rejudged(records: Sequence[RejudgedRecord], asides: Sequence[str], status: ExitCode) -> None:
    """Print a table and a conclusion for each record on standard output, and `asides` on standard error."""
    out = console()
    for record in records:
        _print_record(record)
    labelled = [
        (record, label, case)
        for record in records
        for case in record.cases
        if (label := record.labels.get(case.now.case))
    ]
    if labelled:
        print_out(_scores(labelled))
        out.print()
    told: dict[str, None] = {}
    for record in records:
        cases = [case.now for case in (*record.cases, *record.twins)]
        rests_on = calibrated(record.calibration, record.comparison.device, cases)
        told[f"{_limits_in_words(record.policy)}. {rests_on}".strip()] = None
    for line in told:
        out.print(harmless(line), style="dim")
    for aside in asides:
        print_error(aside)
    if records:
        out.print(_closing_of_records(records, status))


def _print_record(record: RejudgedRecord) -> None:
    out = console()
    out.print(harmless(record.path.name), style="bold", soft_wrap=True)
    print_out(_then_and_now(record))
    if untouched := sum(map(_is_quiet, record.cases)):
        out.print(f"And {untouched} identical.", style="dim")
    if not record.complete:
        out.print("Interrupted then: what was measured is judged.", style="dim")
    for line in lines_of([case.now for case in record.cases if not case.same]):
        out.print(line)
    out.print()


def _is_quiet(case: Rejudged) -> bool:
    """Return whether the table omits a case: it was not measured, and nothing is wrong."""
    return case.same and case.now.status == "identical"


def _then_and_now(record: RejudgedRecord) -> Sheet:
    cases = [case for case in record.cases if not _is_quiet(case)]
    rows = [*cases, *record.twins]
    now = [case.now for case in rows]
    names = [*(case.now.kernel for case in cases), *(case.now.case for case in record.twins)]
    given = {column.name: column for column in verdict_columns("kernel", names, now)}
    labels = [record.labels.get(verdict.case) for verdict in now]
    then = [Cell(case.then.status, case.then.status) if case.then else _NOTHING for case in rows]
    same = "" if all(case.same for case in rows) else "  "
    said = [Cell(f"{same if case.same else '→ '}{case.now.status}", case.now.status) for case in rows]
    return Sheet(
        title=title(record.comparison),
        columns=[
            given["kernel"],
            given["size"],
            given["change %"],
            dataclasses.replace(given["±"], spare=2),
            Column("s then", [_seconds(case.then_gpu_s) for case in rows], spare=1),
            Column("s now", [_seconds(case.now.gpu_s) for case in rows]),
            Column("truth", [label.truth if label else "" for label in labels], spare=3),
            Column("then", then, text=True),
            Column("now", said, text=True),
        ],
        caption=half_of(record.policy.confidence),
    )


def _scores(labelled: Sequence[tuple[RejudgedRecord, Label, Rejudged]]) -> Sheet:
    """Return a table of labelled cases by the recorded and the new verdicts."""
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
            Column("device s", [_seconds(sum(gpu_s for *_, gpu_s in told)) for told in said.values()]),
        ],
    )


def _closing_of_records(records: Sequence[RejudgedRecord], status: ExitCode) -> str:
    cases = [case for record in records for case in record.cases]
    twins = [case for record in records for case in record.twins]
    otherwise = Counter(
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


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value else ""
