"""harness history: shows what changed over the commits, and which commit or card caused it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
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


@click.command("history")
@options.cases
@options.several("--card", "GLOB", "Only cards of this name", to="cards")
@options.value("--metric", "NAME", "Search another track than the headline, such as time_ms or power_w.")
@options.value(
    "--smallest",
    "PERCENT",
    "Smallest change to look for; default: the smallest visible one by the card's calibration, else 1.",
    type=options.ABOVE_ZERO,
)
@options.commit(
    "--branch", default="HEAD", show_default=True, help="Follow the first parents of this commit."
)
@options.value(
    "--since",
    "REV|DATE",
    "Show only changes of commits after this one, or from this day on, such as 2026-11-01.",
)
@click.option(
    "--all", "every", is_flag=True, help="Show every change of every card, instead of one line per event."
)
@options.path("--results", "Folder of records and of asv's results; default: asv.conf.json's results_dir.")
@options.asv_conf
@options.value(
    "--export", "FILE", "Write every point to a .csv or .parquet file.", to="exported", type=options.FILE
)
@options.value(
    "--acknowledge", "ID", "Accept an event or a change: add it to harness-triage.toml, with --reason."
)
@options.value("--reason", "TEXT", "Why it is accepted.")
@options.value("--author", "NAME", "Who accepts it; default: git's user.name.")
@options.value(
    "--expires",
    "DATE",
    "Last day on which it is accepted; default: no limit.",
    type=click.DateTime(["%Y-%m-%d"]),
)
@options.value(
    "--largest", "PERCENT", "Accept it up to this size; default: no limit.", type=options.ABOVE_ZERO
)
@options.flag("--every-card", "Accept a change on other cards too.")
@options.json
def command(
    cases: tuple[str, ...],
    cards: tuple[str, ...],
    metric: str | None,
    smallest: float | None,
    branch: str,
    since: str | None,
    every: bool,
    results: Path | None,
    asv_conf: Path | None,
    exported: Path | None,
    as_json: bool,
    acknowledge: str | None,
    **given: Any,
) -> int:
    """Find the changes over the measured commits: which commit made which case slower or faster, and by how
    much.

    It reads the records of every card and asv's results. For each change it says whether the code or the
    card's clocks caused it. All changes of one commit, in any case on any card, are one event. CASES are
    globs of cases, suites or kernels, such as matmul.naive@1024.

    Exit status 1 while a regression is neither acknowledged nor fixed, or while a case fails that had
    figures; 4 if the newest figures are worse but too new to judge, or if only asv's files say that a kernel
    failed; 3 if there is nothing to read.
    """
    from harness.history.export import export
    from harness.history.reading import read_history, since_commit
    from harness.history.triage import acknowledge as write_decision
    from harness.integrations.asv.conf import history_of
    from harness.report.terminal.history_tables import as_json as history_json
    from harness.report.terminal.history_tables import exit_code, print_history
    from harness.report.terminal.progress import Waiting

    config = load_config()
    conf = history_of(config, asv_conf, results)
    folder, repository = conf.results, conf.repository
    if folder != config.results_folder and results is None and config.results_folder.exists():
        tell(f"Read: {folder}, the results_dir of {conf.file}. For {config.results_folder} say --results.")
    with Waiting("reading results") as waiting:
        history = read_history(
            folder,
            config.root,
            repository=repository,
            revision=branch,
            patterns=cases,
            cards=cards,
            metric=metric,
            smallest=smallest / 100 if smallest else None,
            directions=config.directions,
            limits=conf.limits,
            tell=waiting.tell,
        )
    if acknowledge:
        path = write_decision(config.root, _decision(history, acknowledge, config.root, given))
        click.echo(f"Added to {path}. Commit it, so that others can review it.")
        return ExitCode.FINE
    if since:
        history = since_commit(history, _position(history, repository, since))
    if exported:
        click.echo(f"{export(history, exported)} points written to {exported}.", err=True)
    if as_json:
        echo_json(history_json(history))
    else:
        print_history(history, every=every, since=since or "")
    return exit_code(history)


def _position(history: History, repository: Path, since: str) -> int:
    """Return the position of the newest commit that is not after a commit or date; -1 if all are. Raises
    UsageError.
    """
    commits = history.commits
    try:
        at = dt.datetime.fromisoformat(since)
    except ValueError as error:
        if re.fullmatch(r"\d+-\d+-\d+.*", since):
            raise UsageError(f"--since {since} is no date: {error}. Expected the form 2026-11-01.") from None
        found = commits.positions.get(git.resolve(repository, since))
        if found is None:
            raise UsageError(f"--since {since} is not on the line of commits of this history.") from None
        return found
    time_s = (at if at.tzinfo else at.replace(tzinfo=dt.timezone.utc)).timestamp()
    return max((place for place, commit in enumerate(commits.line) if commit.time_s < time_s), default=-1)


def _decision(history: History, accepted: str, root: Path, given: Mapping[str, Any]) -> Decision:
    """Return the decision to store. Raises UsageError for an unknown regression, or without a reason."""
    from harness.history.triage import WORSE, Decision

    events = {each.id: each for each in history.events if each.kind in WORSE}
    changes = {each.change.id: each.change for card in history.cards for each in card.changes}
    event, change = events.get(accepted), changes.get(accepted)
    if event is None and (change is None or change.kind not in WORSE):
        open_ids = ", ".join(each.id for each in history.events if each.is_open) or "none"
        raise UsageError(f"No regression has the id {accepted}. Open ones: {open_ids}.")
    if not given["reason"]:
        raise UsageError("--acknowledge needs --reason: a reviewer needs to know why.")
    if not (author := given["author"] or git.user_name(root)):
        raise UsageError("Who accepts it? Give --author, or set git's user.name.")
    case, card, last = None, None, -1
    if event is not None:
        # A drift has no commit: nothing else became worse where it began.
        is_drift = event.kind == "drift"
        case, last = (event.cases[0], event.good) if is_drift else (None, event.common[-1])
    elif change is not None:
        case, card, last = change.case, None if given["every_card"] else change.card, change.bad
    return Decision(
        id=accepted,
        case=case,
        card=card,
        commit=history.commits[last].hash[:12],
        reason=given["reason"],
        author=author,
        expires=given["expires"].date() if given["expires"] else None,
        largest_percent=given["largest"],
    )
