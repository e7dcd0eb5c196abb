"""A history for the terminal: what is open, what got better, what the card did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rich.text import Text

from harness.errors import ExitCode
from harness.history.changes import Change
from harness.history.facts import Commits
from harness.history.figures import Case
from harness.history.reading import CardHistory, History, sentence
from harness.history.triage import Stated
from harness.numbers import counted, half_width, percent, percent_figure
from harness.output.sheet import Cell, Column, Sheet
from harness.output.tables import console, print_error, print_out, styled
from harness.system.texts import harmless

SCHEMA_VERSION = 1
_CLIP = 60


def exit_code(history: History) -> ExitCode:
    """A regression is open, or what could be measured once fails now: neither passes in silence."""
    failing = any(card.failing for card in history.cards)
    return ExitCode.REGRESSION if failing or any(history.open) else ExitCode.FINE


def print_history(history: History, *, every: bool) -> None:
    """The open regressions of each card, and with `every` all other changes in lines of their own too."""
    for card in history.cards:
        _print_card(card, history.commits, every=every)
    console().print(_closing(history))


def _print_card(card: CardHistory, commits: Commits, *, every: bool) -> None:
    out = console()
    out.print(_title(card, commits), style="bold", soft_wrap=True)
    for one in card.failing:
        since = f" {clean(one.case)} since {_span(one.good, one.bad, commits)}"
        out.print(Text.assemble(styled("failing", "failed"), since))
    shown = [each for each in card.changes if every or each.is_open]
    if shown:
        print_out(_changes(shown, commits))
    cases = {one.series.case.name: one.series.case for one in card.analysed}
    for each in shown:
        _print_change(each, cases[each.change.case], commits)
    for line in _summary(card, commits) if not every else ():
        out.print(line)
    for line in _epochs(card, commits):
        out.print(line, style="dim")
    for problem in card.problems:
        print_error(f"{card.name}: {problem}")
    out.print()


def _title(card: CardHistory, commits: Commits) -> str:
    newest = max((int(one.series.positions[-1]) for one in card.analysed), default=None)
    measured = {int(at) for one in card.analysed for at in one.series.positions}
    told = f", newest {commits[newest].hash[:10]}" if newest is not None else ""
    name = harmless(f"{card.name} ({card.machine.get('gpu', 'unknown card')})")
    cases, commits_told = counted(len(card.analysed), "case"), counted(len(measured), "commit")
    return f"{name}: {cases}, {commits_told}{told}"


def _changes(shown: Sequence[Stated], commits: Commits) -> Sheet:
    changes = [each.change for each in shown]
    states = [each.state or each.change.kind for each in shown]
    marks = {"new": "open", "expired": "expired"}
    spans = [_span(change.good, change.bad, commits) for change in changes]
    return Sheet(
        columns=[
            Column("state", [Cell(state, marks.get(state, state)) for state in states], text=True),
            Column("case", [clean(change.case) for change in changes], text=True),
            Column("change %", [percent_figure(change.effect, sign=True) for change in changes]),
            Column("±", [percent_figure(half_width(change)) for change in changes], spare=1),
            Column("commits", spans, text=True, whole=True),
            Column("id", [change.id for change in changes], text=True, whole=True),
        ]
    )


def _span(good: int, bad: int, commits: Commits) -> str:
    last = commits[bad].hash[:10]
    return last if bad - good == 1 else f"{commits[good].hash[:10]}..{last} ({bad - good})"


def _print_change(each: Stated, case: Case, commits: Commits) -> None:
    out, commit = console(), commits[each.change.bad]
    out.print(Text.assemble((clean(each.change.case), "bold"), " ", sentence(each.change, case)))
    if each.change.commits == 1:
        who = f"  {commit.hash[:10]} {clean(commit.subject)} ({clean(commit.author)})"
        out.print(who, style="dim", overflow="ellipsis", no_wrap=True)
    if each.decision:
        why = f"  {each.state}: {clean(each.decision.reason)} ({clean(each.decision.author)})"
        out.print(why, style="dim")


def _summary(card: CardHistory, commits: Commits) -> Iterable[str]:
    """What is not open, a line for each thing that happened: one of them often moves many cases."""
    happened: dict[tuple[int, str], list[Change]] = defaultdict(list)
    for each in card.changes:
        if not each.is_open:
            by_the_card = each.change.kind == "environment"
            what: str = each.state or (each.change.attribution if by_the_card else "improvement")
            happened[each.change.bad, what].append(each.change)
    for (bad, what), changes in happened.items():
        effects = sorted(change.effect for change in changes)
        low, high = percent(effects[0], sign=True), percent(effects[-1], sign=True)
        cases = clean(changes[0].case) if len(changes) == 1 else f"{len(changes)} cases"
        size = low if low == high else f"{low.removesuffix(' %')} to {high}"
        yield f"{what:13} {commits[bad].hash[:10]} {cases}: {size}"


def _epochs(card: CardHistory, commits: Commits) -> Iterable[str]:
    """Each beginning of an epoch once, however many series it splits."""
    seen: dict[tuple[str, ...], int] = {}
    for one in card.analysed:
        for epoch in one.series.epochs[1:]:
            at = int(one.series.positions[epoch.start])
            seen[epoch.changed] = min(at, seen.get(epoch.changed, at))
    for changed, at in sorted(seen.items(), key=lambda item: item[1]):
        yield f"epoch from {commits[at].hash[:10]}: {clean(', '.join(changed))}"


def _closing(history: History) -> str:
    states = [each.state or each.change.kind for card in history.cards for each in card.changes]
    order = ("new", "expired", "acknowledged", "fixed", "improvement", "environment")
    rises = "improvement" if states.count("improvement") == 1 else "improvements"
    words = {"improvement": rises, "environment": "by the card"}
    told = ", ".join(f"{states.count(each)} {words.get(each, each)}" for each in order if each in states)
    opened = sum(1 for _ in history.open)
    left = f"{opened} regressions are open." if opened > 1 else f"{opened or 'No'} regression is open."
    if failing := sum(len(card.failing) for card in history.cards):
        left += f" {failing} case{'s fail' if failing > 1 else ' fails'} that had figures."
    return f"{left} Changes: {told or 'none'}. Exit status {int(exit_code(history))}."


def clean(text: str) -> str:
    """Text of others on one line of a terminal, cut to a width that leaves room for more."""
    plain = harmless(text)
    return plain if len(plain) <= _CLIP else plain[: _CLIP - 1] + "…"


def as_json(history: History) -> dict[str, Any]:
    """The whole history but its points."""
    return {
        "schema_version": SCHEMA_VERSION,
        "commits": {
            "count": len(history.commits),
            "newest": history.commits[-1] if len(history.commits) else None,
        },
        "open": sum(1 for _ in history.open),
        "cards": [_card_json(card, history.commits) for card in history.cards],
    }


def _card_json(card: CardHistory, commits: Commits) -> dict[str, Any]:
    analysed = card.analysed
    cases = {one.series.case.name: one.series.case for one in analysed}
    return {
        "name": card.name,
        "machine": card.machine,
        "cases": [
            {
                "case": one.series.case,
                "points": len(one.series.positions),
                "failed": int(one.series.failed.sum()),
                "noise": None if one.noise != one.noise else one.noise,
                "floor": one.floor,
                "newest": commits[int(one.series.positions[-1])].hash,
                "level": one.levels[-1].level if one.levels else None,
                "epochs": [
                    {"from": commits[int(one.series.positions[epoch.start])].hash, "changed": epoch.changed}
                    for epoch in one.series.epochs
                ],
            }
            for one in analysed
        ],
        "failing": [
            {"case": one.case, "good": commits[one.good].hash, "bad": commits[one.bad].hash}
            for one in card.failing
        ],
        "changes": [_change_json(each, cases[each.change.case], commits) for each in card.changes],
        "problems": card.problems,
    }


def _change_json(each: Stated, case: Case, commits: Commits) -> dict[str, Any]:
    change = each.change
    return {
        "id": change.id,
        "case": change.case,
        "kind": change.kind,
        "state": each.state,
        "attribution": change.attribution,
        "direction": case.direction,
        "unit": case.unit,
        "before": change.before,
        "after": change.after,
        "effect": change.effect,
        "low": change.low,
        "high": change.high,
        "p_value": change.p_value,
        "cycles_effect": change.cycles_effect,
        "clock_before_mhz": change.clock_before,
        "clock_after_mhz": change.clock_after,
        "static": change.static,
        "good": commits[change.good].hash,
        "bad": commits[change.bad].hash,
        "commits": [commits[at].hash for at in range(change.good + 1, change.bad + 1)],
        "subject": commits[change.bad].subject,
        "author": commits[change.bad].author,
        "decision": each.decision,
        "fixed_by": each.fixed_by,
        "sentence": sentence(change, case),
    }
