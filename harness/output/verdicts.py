"""Verdicts of comparisons: tables and sentences for the terminal, JSON, and the exit status."""

from __future__ import annotations

__all__ = [
    "Judged",
    "as_json",
    "basis",
    "counted",
    "exit_code",
    "fails",
    "fitting_table",
    "half_width",
    "judgement_as_json",
    "percent",
    "print_comparison",
    "print_judgement",
    "sentences",
    "styled",
    "title",
]

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from harness.errors import ExitCode
from harness.judgement.noise import Calibration
from harness.judgement.saved_runs import FilesResult, FilesSide
from harness.output.tables import console, natural_width, plain_table, print_out
from harness.records import FAILING, Comparison, DeviceInfo, Effect, Source, Verdict, nothing_compared
from harness.run.compare import ComparisonResult
from harness.spec.suite import size_label
from harness.statistics.rates import false_alarm_bound
from harness.system.texts import harmless

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
_SMALL_NS = 1e4
"""Shorter times than this are awkward in milliseconds."""
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_QUIET = ("identical", "unchanged")
"""Verdicts that the table says enough of."""


class Judged(Protocol):
    """What an exit status is made from."""

    @property
    def verdicts(self) -> Sequence[Verdict]: ...
    @property
    def interrupted(self) -> bool: ...
    @property
    def problem(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What a terminal is told, whatever was compared."""

    title: str
    what: str
    """Heading of the first column: what a case is called."""
    names: Sequence[str]
    """In the first column."""
    verdicts: Sequence[Verdict]
    twins: Sequence[Verdict] = ()
    basis: str
    """What the verdicts rest on."""
    changes: Sequence[str] = ()
    """What head's problem asks for otherwise than base's."""
    asides: Sequence[str] = ()
    """For standard error."""
    device_s: float | None = None

    @property
    def rows(self) -> list[Verdict]:
        return [*self.verdicts, *self.twins]


def exit_code(results: Sequence[Judged], fail_on: Collection[str] = ()) -> ExitCode:
    """What the verdicts mean for a command; `fail_on` names those that count, none for the default.

    Where nothing was compared it is inconclusive at best, whatever counts.
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
    """Whether a verdict by itself fails a comparison."""
    return verdict.status in (frozenset(fail_on) or _BY_DEFAULT) | _ALWAYS


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
        "problem_changes": result.problem_changes,
    }


def judgement_as_json(result: FilesResult) -> dict[str, Any]:
    """Margin, tolerance and confidence are shares."""
    policy = result.policy
    return {
        "base": result.base,
        "head": result.head,
        "pairs": result.pairs,
        "device": result.device,
        "margin": policy.margin,
        "tolerance": policy.tolerance,
        "confidence": policy.confidence,
        "verdicts": result.verdicts,
    }


def print_comparison(results: Sequence[ComparisonResult], status: ExitCode) -> None:
    """Tables and closing line on standard output; what else there is to know on standard error."""
    _print([_of_comparison(result) for result in results], status)


def print_judgement(result: FilesResult, status: ExitCode) -> None:
    """The same for files of pytest-benchmark."""
    _print([_of_files(result)], status)


def _of_comparison(result: ComparisonResult) -> _Shown:
    asides = [f"Left out: {message}" for message in result.left_out]
    if result.problem:
        asides.append(f"harness: {result.problem}")
    if result.path:
        asides.append(f"Record: {result.path}")
    if result.interrupted:
        asides.append("Interrupted: verdicts rest on what was finished.")
    return _Shown(
        title=title(result.comparison),
        what="kernel",
        names=[*(each.kernel for each in result.verdicts), *(each.case for each in result.twins)],
        verdicts=result.verdicts,
        twins=result.twins,
        basis=basis(result.calibration, result.comparison.device),
        changes=result.problem_changes,
        asides=asides,
        device_s=sum(verdict.gpu_s for verdict in (*result.verdicts, *result.twins)),
    )


def _of_files(result: FilesResult) -> _Shown:
    often = Counter(verdict.kernel for verdict in result.verdicts)
    policy = result.policy
    return _Shown(
        title=f"{_commit(result.base)} against {_commit(result.head)} on {result.device}",
        what="benchmark",
        names=[each.kernel if often[each.kernel] == 1 else each.case for each in result.verdicts],
        verdicts=result.verdicts,
        basis=f"Files of pytest-benchmark, {_count(result.base)} of base and {_count(result.head)} of head. "
        f"Margin {100 * policy.margin:g} %, tolerance {100 * policy.tolerance:g} %, confidence "
        f"{100 * policy.confidence:g} % of each verdict.",
    )


def _count(side: FilesSide) -> int:
    return len(side.files)


def _print(results: Sequence[_Shown], status: ExitCode) -> None:
    errors = Console(stderr=True)
    for result in results:
        print_out(_table(result, console().width))
        console().print(result.basis, highlight=False, style="dim")
        for change in result.changes:
            console().print(
                Text(f"Problem changed: {harmless(change)}", style="bold yellow"), soft_wrap=False
            )
        for line in sentences(result.verdicts):
            console().print(line, soft_wrap=False, highlight=False)
        for aside in result.asides:
            errors.print(aside, highlight=False, markup=False, soft_wrap=True)
        console().print()
    console().print(_closing(results, status), highlight=False)


def _table(result: _Shown, width: int) -> Table:
    """A line a case."""
    table = fitting_table(
        result.what,
        _columns(result),
        {"verdict": [styled(verdict.status) for verdict in result.rows]},
        spare=("cycles %", "floor", "base ms", "base", "visible"),
        width=width,
    )
    table.title = result.title
    return table


def fitting_table(
    what: str,
    columns: Mapping[str, Sequence[str]],
    marked: Mapping[str, Sequence[str]],
    *,
    spare: Sequence[str],
    width: int,
) -> Table:
    """A table of these columns, the first on the left and headed so even where there is no row, and after
    them those with markup. Columns that are all empty are left out, and of the `spare` ones as many as do not
    fit, in order.
    """
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    for left_out in (*spare, None):
        first, *others = columns or [what]
        table = plain_table(first, *(f">{name}" for name in others), *marked)
        plain = [[escape(harmless(cell)) for cell in cells] for cells in columns.values()]
        for row in zip(*plain, *marked.values(), strict=True):
            table.add_row(*row)
        if left_out is None or natural_width(table) <= width:
            break
        columns.pop(left_out, None)
    return table


def styled(status: str, words: str = "") -> str:
    """A status in its colour, as markup; or other words in that colour."""
    return f"[{_STYLES[status]}]{words or status}[/]"


def _columns(result: _Shown) -> dict[str, list[str]]:
    rows = result.rows
    times_ns = [verdict.base.time_ns if verdict.base else None for verdict in rows]
    small = any(time_ns is not None and time_ns < _SMALL_NS for time_ns in times_ns)
    return {
        result.what: list(result.names),
        "size": [size_label(v.sizes) for v in rows],
        "base" if small else "base ms": [_time(time_ns) if small else _ms(time_ns) for time_ns in times_ns],
        "change %": [percent(v.time.effect if v.time else None, sign=True) for v in rows],
        "±": [percent(half_width(v.time)) for v in rows],
        "cycles %": [percent(v.cycles.effect if v.cycles else None, sign=True) for v in rows],
        "visible": [percent(v.smallest_visible) for v in rows],
        "floor": [percent(v.noise_floor) for v in rows],
        "MHz": [_clocks(v) for v in rows],
    }


def basis(known: Calibration | None, device: DeviceInfo) -> str:
    """What verdicts rest on: this device's own noise, or an assumption."""
    if known is None or not known.verdicts:
        return "Not calibrated: how processes differ here is assumed. Run 'harness calibrate' once."
    bound = false_alarm_bound(known.false_alarms, known.verdicts)
    aged = f" Since then the driver went from {known.driver} to {device.driver}: calibrate again."
    aged = "" if known.driver == device.driver else aged
    return (
        f"Calibrated {known.measured_at[:10]}: {known.false_alarms} false alarms in {known.verdicts} "
        f"verdicts of code against itself, so below {100 * bound:.2g} % (95 % confidence).{aged}"
    )


def title(comparison: Comparison) -> str:
    """Suite, both commits and device."""
    device = comparison.device
    return (
        f"{comparison.head.suite}: {_commit(comparison.base)} against {_commit(comparison.head)} "
        f"on {device.name} ({device.spec})"
    )


def _commit(source: Source | FilesSide) -> str:
    return (source.commit or "no commit")[:10] + (" + changes" if source.dirty else "")


def sentences(verdicts: Sequence[Verdict]) -> Iterator[Text]:
    """What a table cannot say: why, of every verdict that somebody has to act on; once where several in a row
    say the same.
    """
    told: set[str] = set()
    for verdict, alike in _alike(verdicts):
        text = Text()
        text.append(f"{verdict.status} ", style=_STYLES[verdict.status])
        text.append(harmless(verdict.case), style="bold")
        cause = f", {verdict.attribution}" if verdict.attribution else ""
        more = f" and {alike} more" if alike else ""
        text.append(f"{more} ({verdict.reason}{cause}): " + harmless(verdict.message, keep="\n"))
        yield text
        if verdict.log and verdict.log not in told:
            told.add(verdict.log)  # one broken file costs many cases
            yield Text("\n".join(f"    {line}" for line in verdict.log.splitlines()), style="dim")


def _alike(verdicts: Sequence[Verdict]) -> Iterator[tuple[Verdict, int]]:
    """Verdicts that say something new, and how many after each say the same."""
    loud = (verdict for verdict in verdicts if verdict.status not in _QUIET)
    for _, same in groupby(loud, key=lambda v: (v.status, v.reason, v.attribution, v.message, v.log)):
        first, *others = same
        yield first, len(others)


def _closing(results: Sequence[_Shown], status: ExitCode) -> str:
    counts: Counter[str] = Counter(verdict.status for result in results for verdict in result.verdicts)
    told = counted(counts) or "no case was compared"
    told += "" if not counts or not nothing_compared(counts) else f". Nothing was compared: {_only(counts)}"
    known = [result.device_s for result in results if result.device_s is not None]
    spent = f" {sum(known):.1f} s of device time." if known else ""
    return f"{told}.{spent} Exit status {int(status)}."


def counted(counts: Mapping[str, int]) -> str:
    """``1 regression, 3 unchanged``; what matters most comes first."""
    return ", ".join(f"{counts[name]} {name}" for name in _STYLES if counts.get(name))


def _only(counts: Mapping[str, int]) -> str:
    """Why nothing was compared."""
    if len(counts) > 1:
        return "base and head have no case in common"
    return "base has none of these cases" if "new" in counts else "head has none of these cases"


def _ms(time_ns: float | None) -> str:
    return "" if time_ns is None else f"{time_ns / 1e6:.4g}"


def _time(time_ns: float | None) -> str:
    """With a unit of its own."""
    if time_ns is None:
        return ""
    scale, unit = next((each for each in _UNITS if time_ns >= each[0]), _UNITS[-1])
    return f"{time_ns / scale:.4g} {unit}"


def percent(value: float | None, *, sign: bool = False) -> str:
    """A share in percent, with as many digits as matter; empty for None."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{100 * value:.1e}"
    digits = 2 if abs(value) < 0.1 else 1 if abs(value) < 1 else 0
    return f"{100 * value:+.{digits}f}" if sign else f"{100 * value:.{digits}f}"


def half_width(effect: Effect | None) -> float | None:
    """Half of an effect's interval."""
    return None if effect is None else (effect.high - effect.low) / 2


def _clocks(verdict: Verdict) -> str:
    clocks = [arm.sm_clock_mhz for arm in (verdict.base, verdict.head) if arm and arm.sm_clock_mhz]
    return "/".join(dict.fromkeys(f"{clock:.0f}" for clock in clocks))
