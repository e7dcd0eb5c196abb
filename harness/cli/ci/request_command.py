"""harness ci request: what a comment on a pull request asks for."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.ci.calling import Calling, annotated, calling_options
from harness.errors import ExitCode
from harness.github.events import measurement_asked, read_event
from harness.github.requesting import start


@click.command("request")
@calling_options
def command(event: Path | None, repository: str | None, api: str | None, *, dry_run: bool) -> ExitCode:
    """Start a measurement where the comment's first line is '/perf SHA', with all 40 digits of the commit.

    For a workflow started by issue_comment. Whoever asks must be allowed to write to the repository, and the
    commit must be the pull request's head at that moment: what is measured is what somebody looked at.

    Exit status 0 where a measurement was started or none was asked for, 2 where it was refused.
    """
    with annotated("harness ci request"):
        calling = Calling.of(event, repository, api, dry_run=dry_run)
        asked = measurement_asked(read_event(calling.event), calling.repository)
        if asked is None:
            click.echo("No request: the comment is not new, not on a pull request, or no /perf line.")
            return ExitCode.FINE
        start(calling.api, calling.repository, asked)
    for text in calling.held():
        click.echo(text)
    if not dry_run:
        click.echo(f"Measuring {asked.commit} of pull request {asked.pull_request}, as {asked.login} asked.")
    return ExitCode.FINE
