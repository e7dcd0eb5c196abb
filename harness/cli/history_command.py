"""harness history: what changed over the commits, and what did it."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness.cli.options import echo_json, json_option
from harness.config import load_config
from harness.errors import ExitCode, UsageError
from harness.history.export import export
from harness.history.reading import History, read_history
from harness.history.triage import FILE, Decision, acknowledge
from harness.output.histories import as_json as history_json
from harness.output.histories import exit_code, print_history
from harness.output.waiting import Waiting
from harness.system import git

Percent = click.FloatRange(min=0, min_open=True)
Name = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Acknowledging:
    """The options that accept a regression."""

    acknowledge: str | None
    reason: str | None
    author: str | None
    expires: dt.datetime | None
    largest: float | None
    every_card: bool


def _acknowledging(function: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(function)
    def call(**options: Any) -> int:
        given = {name: options.pop(name) for name in _Acknowledging.__dataclass_fields__}
        return function(_Acknowledging(**given), **options)

    for option in (
        click.option("--every-card", is_flag=True, help="Accept it on other cards too."),
        click.option("--largest", type=Percent, metavar="PERCENT", help="How large it may become."),
        click.option(
            "--expires",
            type=click.DateTime(["%Y-%m-%d"]),
            metavar="DATE",
            help="Until when it is accepted; default: for good.",
        ),
        click.option("--author", metavar="NAME", help="Who accepts it; default: git's user.name."),
        click.option("--reason", metavar="TEXT", help="Why it is accepted."),
        click.option(
            "--acknowledge", metavar="ID", help=f"Accept a regression, for a reason: adds it to {FILE}."
        ),
    ):
        call = option(call)
    return call


@click.command("history")
@click.argument("cases", nargs=-1, metavar="[CASES]...")
@click.option("--card", "cards", multiple=True, metavar="GLOB", help="Cards by name; repeatable.")
@click.option("--metric", metavar="NAME", help="Another track than the headline, such as time_ms or power_w.")
@click.option(
    "--smallest",
    type=Percent,
    metavar="PERCENT",
    help="Smallest change to look for; default: what is visible by the card's calibration, else 1.",
)
@click.option(
    "--branch", default="HEAD", show_default=True, metavar="REV", help="Whose first parents to follow."
)
@click.option("--all", "every", is_flag=True, help="A line for every change, not just for what is open.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where records and asv's results lie.",
)
@click.option(
    "--export", "exported", type=Name, metavar="FILE", help="Write every point to a .csv or .parquet file."
)
@_acknowledging
@json_option
def command(
    acknowledging: _Acknowledging,
    cases: tuple[str, ...],
    cards: tuple[str, ...],
    metric: str | None,
    smallest: float | None,
    branch: str,
    every: bool,
    results: Path | None,
    exported: Path | None,
    as_json: bool,
) -> int:
    """Search the records of every card, and asv's results, for changes: which commit made which case slower
    or faster, by how much, and whether the code or the card's clocks did it.

    CASES are globs of names such as matmul.naive@1024, or of suites and kernels. Exit status 1 while a
    regression is open, which is one that is neither acknowledged nor fixed, or while a case fails that had
    figures; 3 where there is nothing to read.
    """
    config = load_config()
    with Waiting("reading results") as waiting:
        history = read_history(
            results or config.results_folder,
            config.root,
            revision=branch,
            patterns=cases,
            cards=cards,
            metric=metric,
            smallest=smallest / 100 if smallest else None,
            tell=waiting.tell,
        )
    if acknowledging.acknowledge:
        path = acknowledge(config.root, _decision(history, acknowledging, config.root))
        click.echo(f"Added to {path}. Commit it, so that others can review it.")
        return ExitCode.FINE
    if exported:
        click.echo(f"{export(history, exported)} points written to {exported}.", err=True)
    if as_json:
        echo_json(history_json(history))
    else:
        print_history(history, every=every)
    return exit_code(history)


def _decision(history: History, asked: _Acknowledging, root: Path) -> Decision:
    """What to write down. Raises UsageError where there is no such regression, or no reason is given."""
    there = {each.change.id: each for card in history.cards for each in card.changes}
    found = there.get(asked.acknowledge or "")
    if found is None or found.change.kind != "regression":
        known = ", ".join(each.change.id for each in history.open) or "none"
        raise UsageError(f"No regression has the id {asked.acknowledge}. Open ones: {known}.")
    if not asked.reason:
        raise UsageError("--acknowledge needs --reason: whoever reviews it wants to know why.")
    author = asked.author or git.user_name(root)
    if not author:
        raise UsageError("Who accepts it? Give --author, or set git's user.name.")
    change = found.change
    return Decision(
        id=change.id,
        case=change.case,
        card=None if asked.every_card else change.card,
        commit=history.commits[change.bad].hash[:12],
        reason=asked.reason,
        author=author,
        expires=asked.expires.date() if asked.expires else None,
        largest_percent=asked.largest,
    )
