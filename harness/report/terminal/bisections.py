"""Results of a bisection, for the terminal and as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from harness.errors import ExitCode
from harness.numbers import counted, half_of, half_width, interval, moved, percent, percent_figure, seconds
from harness.records.types import Effect
from harness.report.table import Cell, Column, Sheet
from harness.report.terminal.run_tables import console, print_end, print_out
from harness.report.words.of_verdict import effect_figure
from harness.run.bisect.search import BisectResult, FoundStep, Looked
from harness.suite.case_id import in_short
from harness.system.texts import harmless

SCHEMA_VERSION = 2
_MARKS = {
    "good": "unchanged",
    "part": "regression",
    "bad": "regression",
    "unsure": "inconclusive",
    "skipped": "failed",
}
_SUSPECTS = 20
"""Most suspects listed."""


def exit_code(result: BisectResult) -> ExitCode:
    if result.interrupted:
        return ExitCode.INTERRUPTED
    if result.outcome == "found":
        return ExitCode.FINE
    return ExitCode.NOT_MEASURED if result.problem else ExitCode.INCONCLUSIVE


def as_json(result: BisectResult) -> dict[str, Any]:
    """Return the document of a bisection. Effects are shares.

    Schema 2: `steps` with their suspects, probability and comparison replace `suspects` and `step`; there is
    the outcome `creep` with `largest_share`, and the side `part`.
    """
    return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(result)}


def print_bisection(result: BisectResult, status: ExitCode) -> None:
    """Print the compared commits and the outcome on standard output."""
    out = console()
    if result.looked:
        print_out(_table(result))
        out.print()
    for line in _lines(result):
        out.print(line)
    print_end(result.problem, None, "the same command goes on from here" if result.interrupted else "")
    out.print(f"{_spent(result)} Exit status {int(status)}.")


def _table(result: BisectResult) -> Sheet:
    looked = result.looked
    effects = [each.effect for each in looked]
    span = f"{result.good.hash[:10]}..{result.bad.hash[:10]}"
    against = ["GOOD" if each.against == result.good else each.against.hash[:10] for each in looked]
    return Sheet(
        title=f"{in_short(result.case)}: {span} on {result.devices[0].name}",
        columns=[
            Column("commit", [each.commit.hash[:10] for each in looked], text=True, whole=True),
            Column("side", [Cell(each.side, _MARKS[each.side]) for each in looked], text=True, whole=True),
            Column("change %", list(map(effect_figure, effects))),
            Column("±", [percent_figure(half_width(each)) for each in effects]),
            Column("against", against, text=True, whole=True),
            Column("", [told(each) for each in looked], text=True),
        ],
        caption=half_of(result.confidence),
        cut=True,
    )


def told(looked: Looked) -> str:
    """Return what a commit's numbers do not show."""
    if looked.side == "skipped":
        return f"{looked.reason}: {looked.message}"
    how = f"same code as {looked.same_as[:10]}; " if looked.same_as else ""
    how = how or ("measured before; " if looked.remembered else "")
    how = how or ("follows from both over GOOD; " if looked.derived else "")
    return f"{how}{looked.commit.subject}"


def _lines(result: BisectResult) -> Iterator[Text]:
    if result.outcome == "nothing":
        yield Text(f"Nothing to bisect: BAD is no other than GOOD{_by(result)}.", style="bold")
        return
    if result.outcome == "creep":
        yield from _creep(result)
        return
    if not result.steps:
        why = f" ({result.ends.reason})" if result.ends else ""
        yield Text(f"Whether BAD differs from GOOD is unknown{why}{_by(result)}.", style="bold")
        return
    case = in_short(result.case)
    if len(result.steps) == 1:
        yield from _step(result, result.steps[0], f"{case} {_slower(result)}")
    else:
        count = len(result.steps)
        yield Text(f"At least {count} commits changed {case}, in all {_of_all(result)}.", style="bold")
        for step in result.steps:
            change = f"{percent(abs(step.change))} {'slower' if step.change > 0 else 'faster'}"
            yield from _step(result, step, f"it {change}")
    for note in result.notes:
        yield Text(note, style="yellow")


def _creep(result: BisectResult) -> Iterator[Text]:
    whole = result.ends.effect.effect if result.ends and result.ends.effect else 0.0
    each = percent(math.expm1(math.log1p(whole) / result.commits), sign=True)
    yield Text(
        f"A creep, no single commit: {in_short(result.case)} became {_of_all(result)} over "
        f"{counted(result.commits, 'commit')}, {_sure(result.sure)}.",
        style="bold",
    )
    yield Text(
        f"That is {each} a commit. No commit made more than {percent(result.largest_share)} of the change."
    )


def _of_all(result: BisectResult) -> str:
    effect = result.ends.effect if result.ends else None
    return moved(effect, "slower", "faster") if effect else _slower(result)


def _slower(result: BisectResult) -> str:
    whole = result.ends.effect.effect if result.ends and result.ends.effect else 0.0
    return "slower" if whole > 0 else "faster"


def _sure(chance: float) -> str:
    return f"{math.floor(1000 * chance) / 10:g} % sure"


def _step(result: BisectResult, step: FoundStep, made: str) -> Iterator[Text]:
    sure = _sure(step.sure)
    if len(step.suspects) == 1:
        yield Text(f"{step.suspects[0].hash[:10]} made {made}, {sure}.", style="bold")
    else:
        yield Text(f"At least one of {len(step.suspects)} commits made {made}, {sure}:", style="bold")
    for commit in step.suspects[:_SUSPECTS]:
        yield Text(harmless(f"  {commit.hash[:10]} {commit.subject} ({commit.author})"))
    if len(step.suspects) > _SUSPECTS:
        yield Text(f"  and {len(step.suspects) - _SUSPECTS} more.")
    if step.comparison and step.comparison.effect:
        unit = ", in cycles" if result.ruler == "cycles" else ""
        against = step.comparison.against.hash[:10]
        yield Text(
            f"Against {against}, right before: {moved(step.comparison.effect, 'slower', 'faster')}{unit}."
        )


def _by(result: BisectResult) -> str:
    effect: Effect | None = result.ends.effect if result.ends else None
    if effect is None:
        return ", their code is the same" if result.ends and result.ends.same_as else ""
    return f", {percent(effect.effect, sign=True)} ({interval(effect.low, effect.high)})"


def _spent(result: BisectResult) -> str:
    compared = counted(result.comparisons, "comparison")
    among = f"{counted(result.commits, 'commit')}, {result.touching} of which touch what is built"
    return f"{compared} among {among}; {seconds(result.gpu_s)} of device time."
