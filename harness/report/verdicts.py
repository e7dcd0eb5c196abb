"""Verdicts of comparisons: tables and sentences for the terminal, JSON, and the exit status."""

from __future__ import annotations

__all__ = ["FAILING", "as_json", "exit_code", "print_comparison"]

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.comparison import ComparisonResult
from harness.errors import ExitCode
from harness.records import Comparison, Effect, Source, Verdict
from harness.report.tables import console, natural_width, plain_table, print_out
from harness.statistics.rates import false_alarm_bound
from harness.suite import size_label

FAILING = ("regression", "missing", "failed", "invalid", "inconclusive", "improvement", "new")
"""Verdicts that can fail a comparison."""
_BY_DEFAULT = frozenset(FAILING[:5])
_ALWAYS = frozenset({"missing", "failed"})
"""A case that vanished or failed never passes silently."""
_STYLES = {
    "regression": "bold red",
    "improvement": "bold green",
    "unchanged": "green",
    "identical": "dim green",
    "inconclusive": "yellow",
    "invalid": "bold yellow",
    "new": "cyan",
    "missing": "bold red",
    "failed": "bold red",
}
_QUIET = ("identical", "unchanged")
"""Verdicts that the table says enough of."""


def exit_code(results: Sequence[ComparisonResult], fail_on: Collection[str] = ()) -> ExitCode:
    """What the verdicts mean for a command; `fail_on` names those that count, none for the default."""
    if any(result.interrupted for result in results):
        return ExitCode.INTERRUPTED
    counted = (frozenset(fail_on) or _BY_DEFAULT) | _ALWAYS
    verdicts = [verdict for result in results for verdict in result.verdicts]
    codes = {_code(verdict) for verdict in verdicts if verdict.status in counted}
    unstored = any(result.problem for result in results)
    for code in (ExitCode.REGRESSION, ExitCode.NOT_MEASURED, ExitCode.INCONCLUSIVE):
        if code in codes or (code == ExitCode.NOT_MEASURED and (unstored or not verdicts)):
            return code
    return ExitCode.FINE


def _code(verdict: Verdict) -> ExitCode:
    if verdict.status == "inconclusive":
        return ExitCode.INCONCLUSIVE
    if verdict.status == "invalid" or (verdict.status == "failed" and verdict.side != "head"):
        return ExitCode.NOT_MEASURED
    return ExitCode.REGRESSION


def as_json(result: ComparisonResult) -> dict[str, Any]:
    return {
        "comparison": result.comparison,
        "complete": not result.interrupted,
        "record": str(result.path) if result.path else None,
        "problem": result.problem,
        "verdicts": result.verdicts,
        "twins": result.twins,
        "left_out": result.left_out,
    }


def print_comparison(results: Sequence[ComparisonResult], status: ExitCode) -> None:
    """Tables and closing line on standard output; what else there is to know on standard error."""
    errors = Console(stderr=True)
    for result in results:
        print_out(_table(result, console().width))
        console().print(_basis(result), highlight=False, style="dim")
        for line in _sentences(result):
            console().print(line, soft_wrap=False, highlight=False)
        for message in result.left_out:
            errors.print(f"Left out: {message}", highlight=False, markup=False, soft_wrap=True)
        if result.problem:
            errors.print(f"harness: {result.problem}", highlight=False, markup=False)
        if result.path:
            errors.print(f"Record: {result.path}", highlight=False, markup=False, soft_wrap=True)
        if result.interrupted:
            errors.print("Interrupted: verdicts rest on what was finished.", highlight=False)
        console().print()
    console().print(_closing(results, status), highlight=False)


def _table(result: ComparisonResult, width: int) -> Table:
    """A line a case; what fits least is left out where the terminal is narrow."""
    columns = _columns(result)
    for left_out in ("cycles %", "floor", "base ms", "visible", None):
        table = _table_of(result, columns)
        if left_out is None or natural_width(table) <= width:
            break
        columns.pop(left_out, None)
    return table


def _columns(result: ComparisonResult) -> dict[str, list[str]]:
    rows = [*result.verdicts, *result.twins]
    columns = {
        "kernel": [v.case if v in result.twins else v.kernel for v in rows],
        "size": [size_label(v.sizes) for v in rows],
        "base ms": [_ms(v.base.time_ns if v.base else None) for v in rows],
        "change %": [_percent(v.time.effect if v.time else None, sign=True) for v in rows],
        "±": [_percent(_half(v.time)) for v in rows],
        "cycles %": [_percent(v.cycles.effect if v.cycles else None, sign=True) for v in rows],
        "visible": [_percent(v.smallest_visible) for v in rows],
        "floor": [_percent(v.noise_floor) for v in rows],
        "MHz": [_clocks(v) for v in rows],
    }
    return {name: cells for name, cells in columns.items() if any(cells)}


def _table_of(result: ComparisonResult, columns: Mapping[str, Sequence[str]]) -> Table:
    table = plain_table(*(name if name == "kernel" else f">{name}" for name in columns), "verdict")
    table.title = _title(result.comparison)
    for index, verdict in enumerate((*result.verdicts, *result.twins)):
        cells = [column[index] for column in columns.values()]
        table.add_row(*cells, f"[{_STYLES[verdict.status]}]{verdict.status}[/]")
    return table


def _basis(result: ComparisonResult) -> str:
    """What the verdicts rest on: this device's own noise, or an assumption."""
    known = result.calibration
    if known is None or not known.verdicts:
        return "Not calibrated: how processes differ here is assumed. Run 'harness calibrate' once."
    bound = false_alarm_bound(known.false_alarms, known.verdicts)
    driver = result.comparison.device.driver
    aged = f" Since then the driver went from {known.driver} to {driver}: calibrate again."
    aged = "" if known.driver == driver else aged
    return (
        f"Calibrated {known.measured_at[:10]}: {known.false_alarms} false alarms in {known.verdicts} "
        f"verdicts of code against itself, so below {100 * bound:.2g} % (95 % confidence).{aged}"
    )


def _title(comparison: Comparison) -> str:
    device = comparison.device
    return (
        f"{comparison.head.suite}: {_commit(comparison.base)} against {_commit(comparison.head)} "
        f"on {device.name} ({device.spec})"
    )


def _commit(source: Source) -> str:
    return (source.commit or "no commit")[:10] + (" + changes" if source.dirty else "")


def _sentences(result: ComparisonResult) -> Iterator[Text]:
    """What a table cannot say: why, of every verdict that somebody has to act on."""
    told: set[str] = set()
    for verdict in (*result.verdicts, *result.twins):
        if verdict.status in _QUIET or verdict in result.twins:
            continue
        text = Text()
        text.append(f"{verdict.status} ", style=_STYLES[verdict.status])
        text.append(verdict.case, style="bold")
        cause = f", {verdict.attribution}" if verdict.attribution else ""
        text.append(f" ({verdict.reason}{cause}): {verdict.message}")
        yield text
        if verdict.log and verdict.log not in told:
            told.add(verdict.log)  # one broken file costs many cases
            yield Text("\n".join(f"    {line}" for line in verdict.log.splitlines()), style="dim")


def _closing(results: Sequence[ComparisonResult], status: ExitCode) -> str:
    counts: Counter[str] = Counter(verdict.status for result in results for verdict in result.verdicts)
    told = ", ".join(f"{counts[name]} {name}" for name in _STYLES if counts[name]) or "no case was compared"
    spent = sum(verdict.gpu_s for result in results for verdict in (*result.verdicts, *result.twins))
    return f"{told}. {spent:.1f} s of device time. Exit status {int(status)}."


def _ms(time_ns: float | None) -> str:
    return "" if time_ns is None else f"{time_ns / 1e6:.4g}"


def _percent(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return ""
    digits = 2 if abs(value) < 0.1 else 1 if abs(value) < 1 else 0
    return f"{100 * value:+.{digits}f}" if sign else f"{100 * value:.{digits}f}"


def _half(effect: Effect | None) -> float | None:
    return None if effect is None else (effect.high - effect.low) / 2


def _clocks(verdict: Verdict) -> str:
    clocks = [arm.sm_clock_mhz for arm in (verdict.base, verdict.head) if arm and arm.sm_clock_mhz]
    return "/".join(dict.fromkeys(f"{clock:.0f}" for clock in clocks))
