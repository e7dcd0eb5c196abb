"""harness ci request: what a comment on a pull request asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.ci.calling import Calling, annotated, calling_options
from harness.cli.options import json_option
from harness.errors import ExitCode
from harness.github.events import Asked, measurement_asked, read_event
from harness.github.posting import start_measurement


@click.command("request")
@calling_options
@json_option
def command(
    event: Path | None, repository: str | None, api: str | None, *, dry_run: bool, as_json: bool
) -> ExitCode:
    """Start a measurement where the comment's first line is '/perf SHA', with all 40 digits of the commit.

    For a workflow started by issue_comment. Whoever asks must be allowed to write to the repository, and the
    commit must be the pull request's head at that moment: what is measured is what somebody looked at.

    Exit status 0 where a measurement was started or none was asked for, 2 where it was refused.
    """
    with annotated("harness ci request"):
        calling = Calling.of(event, repository, api, dry_run=dry_run)
        asked = measurement_asked(read_event(calling.event), calling.repository)
        if asked is not None:
            start_measurement(calling.api, calling.repository, asked)
    calling.show(_told(asked, dry_run=dry_run), as_json=as_json)
    return ExitCode.FINE


def _told(asked: Asked | None, *, dry_run: bool) -> dict[str, Any]:
    if asked is None:
        told = "No request: the comment is not new, not on a pull request, or no /perf line."
        return {"state": "no-request", "message": told}
    would = "Would measure" if dry_run else "Measuring"
    return {
        "state": "requested",
        "message": f"{would} {asked.commit} of pull request {asked.pull_request}, as {asked.login} asked.",
        "pull_request": asked.pull_request,
        "commit": asked.commit,
        "login": asked.login,
    }
