"""Verdicts of comparisons: the table of every face, the terminal, JSON, and the exit status."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from harness.errors import ExitCode
from harness.judgement.noise import Calibration
from harness.judgement.saved_runs import FilesResult
from harness.numbers import exact, seconds
from harness.output.sentences import Case, basis, commit_label, explained, verdict_columns
from harness.output.sheet import Sheet
from harness.output.tables import console, print_out, styled
from harness.records import FAILING, Comparison, DeviceInfo, Verdict, nothing_compared
from harness.run.compare import ComparisonResult
from harness.system.texts import harmless

_BY_DEFAULT = frozenset(FAILING[:5])
_ALWAYS = frozenset({"missing", "failed"})
"""A case that vanished or failed never passes silently."""
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

    sheet: Sheet
    verdicts: Sequence[Verdict]
    basis: str
    """What the verdicts rest on."""
    units: tuple[str, str] = ("process", "processes")
    changes: Sequence[str] = ()
    """What head's problem asks for otherwise than base's."""
    asides: Sequence[str] = ()
    """For standard error."""
    device_s: float | None = None


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
        "verdicts": list(map(with_sentence, result.verdicts)),
        "twins": list(map(with_sentence, result.twins)),
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
        "verdicts": [with_sentence(verdict, _PAIRS) for verdict in result.verdicts],
    }


def print_comparison(results: Sequence[ComparisonResult], status: ExitCode) -> None:
    """Tables and closing line on standard output; what else there is to know on standard error."""
    _print([_of_comparison(result) for result in results], status)


def print_judgement(result: FilesResult, status: ExitCode) -> None:
    """The same for files of pytest-benchmark."""
    _print([_of_files(result)], status)


def with_sentence(verdict: Verdict, units: tuple[str, str] = ("process", "processes")) -> Verdict:
    """For those who read JSON: with all that is said of it as its message."""
    return dataclasses.replace(verdict, message=explained(verdict, units))


_PAIRS = ("pair of processes", "pairs of processes")


def _of_comparison(result: ComparisonResult) -> _Shown:
    asides = [f"Left out: {message}" for message in result.left_out]
    if result.problem:
        asides.append(f"harness: {result.problem}")
    if result.path:
        asides.append(f"Record: {result.path}")
    if result.interrupted:
        asides.append("Interrupted: verdicts rest on what was finished.")
    rows = (*result.verdicts, *result.twins)
    names = [*(each.kernel for each in result.verdicts), *(each.case for each in result.twins)]
    return _Shown(
        sheet=Sheet(title=title(result.comparison), columns=verdict_columns("kernel", names, rows)),
        verdicts=result.verdicts,
        basis=calibrated(result.calibration, result.comparison.device, rows),
        changes=result.problem_changes,
        asides=asides,
        device_s=sum(verdict.gpu_s for verdict in rows),
    )


def _of_files(result: FilesResult) -> _Shown:
    often = Counter(verdict.kernel for verdict in result.verdicts)
    names = [each.kernel if often[each.kernel] == 1 else each.case for each in result.verdicts]
    policy, base, head = result.policy, result.base, result.head
    ends = " against ".join(commit_label(side.commit, dirty=side.dirty) for side in (base, head))
    return _Shown(
        sheet=Sheet(
            title=f"{ends} on {result.device}", columns=verdict_columns("benchmark", names, result.verdicts)
        ),
        verdicts=result.verdicts,
        units=_PAIRS,
        basis=f"Files of pytest-benchmark, {len(base.files)} of base and {len(head.files)} of head. "
        f"Margin {exact(policy.margin)}, tolerance {exact(policy.tolerance)}, confidence "
        f"{exact(policy.confidence)} of each verdict.",
    )


def _print(results: Sequence[_Shown], status: ExitCode) -> None:
    errors = Console(stderr=True)
    for result in results:
        print_out(result.sheet)
        if result.basis:
            console().print(result.basis, highlight=False, style="dim")
        for change in result.changes:
            console().print(Text(f"Problem changed: {harmless(change)}", style="bold yellow"))
        for line in lines_of(result.verdicts, result.units):
            console().print(line, highlight=False)
        for aside in result.asides:
            errors.print(aside, highlight=False, markup=False, soft_wrap=True)
        console().print()
    verdicts = [verdict for result in results for verdict in result.verdicts]
    known = [result.device_s for result in results if result.device_s is not None]
    told = closing(verdicts, sum(known) if known else None)
    console().print(f"{told} Exit status {int(status)}.", highlight=False)


def calibrated(known: Calibration | None, device: DeviceInfo, cases: Iterable[Case]) -> str:
    """What verdicts rest on: this device's own noise, or an assumption; empty where nothing was measured."""
    if known is None or not known.verdicts:
        return basis(0, 0, "") if any(case.time for case in cases) else ""
    told = basis(known.verdicts, known.false_alarms, known.measured_at)
    if known.driver != device.driver:
        told += f" Since then the driver went from {known.driver} to {device.driver}: calibrate again."
    return told


def title(comparison: Comparison) -> str:
    """Suite, both commits and device."""
    ends = (comparison.base, comparison.head)
    base, head = (commit_label(source.commit, dirty=source.dirty) for source in ends)
    device = comparison.device
    return f"{comparison.head.suite}: {base} against {head} on {device.name} ({device.spec})"


def lines_of(
    verdicts: Sequence[Verdict],
    units: tuple[str, str] = ("process", "processes"),
    names: Mapping[str, str] | None = None,
    *,
    logs: bool = True,
) -> Iterator[Text]:
    """What a table cannot say: why, of every verdict that somebody has to act on; once where several in a row
    say the same. `names` are what cases are called, where not by their ids.
    """
    shown: set[str] = set()
    for verdict, alike in _alike(verdicts):
        cause = f", {verdict.attribution}" if verdict.attribution else ""
        more = f" and {alike} more" if alike else ""
        words = f"{more} ({verdict.reason}{cause}): {explained(verdict, units)}"
        name = names[verdict.case] if names else verdict.case
        yield Text.assemble(
            styled(f"{verdict.status} ", verdict.status),
            (harmless(name), "bold"),
            harmless(words, keep="\n"),
        )
        if logs and verdict.log and verdict.log not in shown:
            shown.add(verdict.log)  # one broken file costs many cases
            yield Text("\n".join(f"    {line}" for line in verdict.log.splitlines()), style="dim")


def _alike(verdicts: Sequence[Verdict]) -> Iterator[tuple[Verdict, int]]:
    """Verdicts that say something new, and how many after each say the same."""
    loud = (verdict for verdict in verdicts if verdict.status not in _QUIET)
    for _, same in groupby(loud, key=lambda v: (v.status, v.reason, explained(v), v.log)):
        first, *others = same
        yield first, len(others)


def closing(verdicts: Sequence[Verdict], device_s: float | None) -> str:
    """``1 regression, 3 unchanged. 12.3 s of device time.``"""
    counts = Counter(verdict.status for verdict in verdicts)
    told = counted_statuses(counts) or "no case was compared"
    told += "" if not counts or not nothing_compared(counts) else f". Nothing was compared: {_only(counts)}"
    return f"{told}." + (f" {seconds(device_s)} of device time." if device_s is not None else "")


def counted_statuses(counts: Mapping[Any, int]) -> str:
    """``1 regression, 3 unchanged``; what matters most comes first."""
    return ", ".join(f"{counts[name]} {name}" for name in _ORDER if counts.get(name))


def _only(counts: Collection[str]) -> str:
    """Why nothing was compared."""
    if len(counts) > 1:
        return "base and head have no case in common"
    return "base has none of these cases" if "new" in counts else "head has none of these cases"
