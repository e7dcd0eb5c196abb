"""harness history: what changed over the commits, and what did it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import echo_json, options, tell
from harness.config import load_config
from harness.errors import ExitCode, UsageError
from harness.system import git

if TYPE_CHECKING:
    from harness.history.reading import History
    from harness.history.triage import Decision

Percent = click.FloatRange(min=0, min_open=True)
Name = click.Path(path_type=Path, dir_okay=False)


@click.command("history")
@options.cases
@click.option("--card", "cards", multiple=True, metavar="GLOB", help="Cards by name; repeatable.")
@click.option("--metric", metavar="NAME", help="Another track than the headline, such as time_ms or power_w.")
@click.option(
    "--smallest",
    type=Percent,
    metavar="PERCENT",
    help="Smallest change to look for; default: what is visible by the card's calibration, else 1.",
)
@options.commit("--branch", default="HEAD", show_default=True, help="Whose first parents to follow.")
@click.option("--all", "every", is_flag=True, help="A line for every change, not just for what is open.")
@options.path("--results", "Where records and asv's results lie; default: asv.conf.json's results_dir.")
@click.option(
    "--export", "exported", type=Name, metavar="FILE", help="Write every point to a .csv or .parquet file."
)
@click.option(
    "--acknowledge", metavar="ID", help="Accept a regression, for a reason: adds it to harness-triage.toml."
)
@click.option("--reason", metavar="TEXT", help="Why it is accepted.")
@click.option("--author", metavar="NAME", help="Who accepts it; default: git's user.name.")
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Until when it is accepted; default: for good.",
)
@click.option("--largest", type=Percent, metavar="PERCENT", help="How large it may become.")
@options.flag("--every-card", "Accept it on other cards too.")
@options.json
def command(
    cases: tuple[str, ...],
    cards: tuple[str, ...],
    metric: str | None,
    smallest: float | None,
    branch: str,
    every: bool,
    results: Path | None,
    exported: Path | None,
    as_json: bool,
    acknowledge: str | None,
    **accepting: Any,
) -> int:
    """Search the records of every card, and asv's results, for changes: which commit made which case slower
    or faster, by how much, and whether the code or the card's clocks did it.

    CASES are globs of names such as matmul.naive@1024, or of suites and kernels. Exit status 1 while a
    regression is open, which is one that is neither acknowledged nor fixed, or while a case fails that had
    figures; 3 where there is nothing to read.
    """
    from harness.history.export import export
    from harness.history.reading import read_history
    from harness.history.triage import acknowledge as write_decision
    from harness.integrations.asv.conf import results_of
    from harness.output.histories import as_json as history_json
    from harness.output.histories import exit_code, print_history
    from harness.output.progress import Waiting

    config = load_config()
    folder = results or results_of(config)
    if folder != config.results_folder and results is None and config.results_folder.exists():
        tell(f"Read: {folder}, asv.conf.json's results_dir. For {config.results_folder} say --results.")
    with Waiting("reading results") as waiting:
        history = read_history(
            folder,
            config.root,
            revision=branch,
            patterns=cases,
            cards=cards,
            metric=metric,
            smallest=smallest / 100 if smallest else None,
            directions=config.directions,
            tell=waiting.tell,
        )
    if acknowledge:
        path = write_decision(config.root, _decision(history, acknowledge, config.root, **accepting))
        click.echo(f"Added to {path}. Commit it, so that others can review it.")
        return ExitCode.FINE
    if exported:
        click.echo(f"{export(history, exported)} points written to {exported}.", err=True)
    if as_json:
        echo_json(history_json(history))
    else:
        print_history(history, every=every)
    return exit_code(history)


def _decision(
    history: History,
    change: str,
    root: Path,
    *,
    reason: str | None,
    author: str | None,
    expires: dt.datetime | None,
    largest: float | None,
    every_card: bool,
) -> Decision:
    """What to write down. Raises UsageError where there is no such regression, or no reason is given."""
    from harness.history.triage import Decision

    there = {each.change.id: each.change for card in history.cards for each in card.changes}
    accepted = there.get(change)
    if accepted is None or accepted.kind != "regression":
        known = ", ".join(each.change.id for each in history.open) or "none"
        raise UsageError(f"No regression has the id {change}. Open ones: {known}.")
    if not reason:
        raise UsageError("--acknowledge needs --reason: whoever reviews it wants to know why.")
    if not (author := author or git.user_name(root)):
        raise UsageError("Who accepts it? Give --author, or set git's user.name.")
    return Decision(
        id=accepted.id,
        case=accepted.case,
        card=None if every_card else accepted.card,
        commit=history.commits[accepted.bad].hash[:12],
        reason=reason,
        author=author,
        expires=expires.date() if expires else None,
        largest_percent=largest,
    )
