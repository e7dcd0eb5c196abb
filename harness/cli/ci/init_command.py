"""harness ci init: the workflows, written into a repository."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from harness.cli.options import echo_json, flag, json_option
from harness.errors import ExitCode, UsageError
from harness.github.scaffold import own_requirement, scaffold
from harness.system.texts import harmless

_NEXT = """
What no file can do, in this order (docs/runners.md of gpu-harness has the reasons):
  1. .github/fleet.json: your cards, with the labels of their runners. Then 'harness ci fleet'.
  2. Settings, Actions, General: require approval for all external contributors; read-only token by default.
  3. Settings, Environments: gpu, with required reviewers; gpu-history, allowed to the default branch alone.
  4. Settings, Actions, Runners: a group for this repository only; ephemeral ones, with a card's labels.
  5. Settings, Pages: the source is GitHub Actions. Where it will be: the variable PERF_HISTORY_URL.
     The variable PERF_STRICT, set to anything, makes a check run fail that could not be judged.
  6. Commit to the default branch: perf-request.yml and perf-report.yml work from there.
Then comment '/perf SHA' on a pull request, with the commit that you have read."""


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option(
    "--harness",
    "requirement",
    metavar="REQUIREMENT",
    help="What the workflows install, one commit or file of it; default: what this harness came from.",
)
@flag("--force", "Overwrite workflows that are there; never the file of cards.")
@json_option
def command(folder: Path, requirement: str | None, force: bool, as_json: bool) -> ExitCode:
    """Write the workflows into a repository: pull requests measured and reported, the history published.

    FOLDER is the repository's top, by default the current one. All files are written, or none.
    """
    chosen = requirement or own_requirement()
    if not chosen:
        raise UsageError(
            "What this harness was installed from is not one commit or one file. Say with --harness what the "
            "workflows are to install, such as 'gpu-harness @ git+https://HOST/OWNER/REPOSITORY@COMMIT'."
        )
    done = scaffold(folder, chosen, force=force)
    if as_json:
        echo_json({**asdict(done), "harness": chosen})
        return ExitCode.FINE
    for what, names in (("written", done.written), ("unchanged", done.unchanged), ("kept", done.kept)):
        for name in names:
            click.echo(f"{what:9}  {harmless(name)}")
    click.echo(_NEXT)
    return ExitCode.FINE
