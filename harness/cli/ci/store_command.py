"""harness ci store: results onto the branch that keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from harness.cli.options import echo_json, flag, json_option
from harness.config import load_config
from harness.errors import ExitCode
from harness.github.data_files import BRANCH, Stored, store_results
from harness.system.texts import harmless

_LISTED = 20


@click.command("store")
@click.option(
    "--from",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Laid out like asv's results; default: the project's.",
)
@click.option("--branch", default=BRANCH, show_default=True, help="Made where there is none.")
@click.option(
    "--remote",
    default="origin",
    show_default=True,
    metavar="URL|NAME",
    help="A remote of the project's repository, an address or a path.",
)
@click.option("--message", default="", metavar="TEXT", help="Of the commit.")
@flag("--dry-run", "Say what would be stored, and store nothing.")
@json_option
def command(
    folder: Path | None, branch: str, remote: str, message: str, dry_run: bool, as_json: bool
) -> ExitCode:
    """Append results and records to the branch that keeps them.

    Any number of machines may do so at once: who comes second appends to what is there and pushes again.
    Nothing is forced, and no record or result that is there is changed. asv's results are left out where the
    records hold all that they do. The working tree and its branches stay as they are.

    With GITHUB_TOKEN set, git shows it to the host of GITHUB_SERVER_URL.
    """
    config = load_config()
    stored = store_results(
        folder if folder is not None else config.results_folder,
        config.root,
        remote=remote,
        branch=branch,
        message=message,
        dry_run=dry_run,
        tell=lambda text: click.echo(f"harness: {harmless(text)}", err=True),
    )
    if as_json:
        echo_json(asdict(stored))
    else:
        for line in _lines(stored):
            click.echo(harmless(line))
    return ExitCode.FINE


def _lines(stored: Stored) -> Iterator[str]:
    for path in stored.left_out:
        yield f"left out, not finished: {path}"
    if stored.derived:
        some = "1 result" if len(stored.derived) == 1 else f"{len(stored.derived)} results"
        yield f"left out, as records hold the same: {some} of asv's; 'harness rebuild' makes them anew"
    where = f"{stored.branch} of {stored.remote}"
    if not (stored.added or stored.merged):
        already = f" ({stored.unchanged} unchanged)" if stored.unchanged else ""
        yield f"Nothing to store on {where}{already}."
        return
    if stored.dry_run:
        yield from _listed("would be added", stored.added)
        yield from _listed("would be merged", stored.merged)
    counts = f"{len(stored.added)} added, {len(stored.merged)} merged, {stored.unchanged} unchanged"
    if stored.dry_run:
        yield f"Nothing was stored on {where}; there would be {counts}."
    else:
        at = f"commit {stored.commit}, attempt {stored.attempts}"
        yield f"Stored on {where}: {counts} ({at})."


def _listed(what: str, paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths[:_LISTED]:
        yield f"{what}: {path}"
    if len(paths) > _LISTED:
        yield f"{what}: {len(paths) - _LISTED} more"
