"""What the commands that call GitHub share: where it is, as whom, and what would be sent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from harness.cli.options import flag, path_option, together
from harness.errors import ConfigError, HarnessError
from harness.github.api import Api, check_address, check_repository
from harness.github.events import error_line, in_workflow

calling_options = together(
    path_option("--event", "What started the workflow; default: GITHUB_EVENT_PATH.", metavar="FILE"),
    click.option("--repository", metavar="OWNER/NAME", help="Default: GITHUB_REPOSITORY."),
    click.option("--api", metavar="URL", help="GitHub's API; default: GITHUB_API_URL."),
    flag("--dry-run", "Only read, and print the requests that would write, whole."),
)


@dataclass(frozen=True, slots=True)
class Calling:
    """Where GitHub is, and what for."""

    api: Api
    repository: str
    event: Path
    server: str
    """Where people look at it."""

    @classmethod
    def of(cls, event: Path | None, repository: str | None, api: str | None, *, dry_run: bool) -> Calling:
        """From options and, for those not given, variables. Raises ConfigError."""
        token = os.environ.get("GITHUB_TOKEN")
        if token is None and not dry_run:
            raise ConfigError("GITHUB_TOKEN is not set: set it to the job's github.token.")
        server = os.environ.get("GITHUB_SERVER_URL") or "https://github.com"
        return cls(
            api=Api(
                api or os.environ.get("GITHUB_API_URL") or "https://api.github.com", token, dry_run=dry_run
            ),
            repository=check_repository(_given(repository, "GITHUB_REPOSITORY", "--repository")),
            event=Path(_given(str(event or ""), "GITHUB_EVENT_PATH", "--event")),
            server=check_address(server.rstrip("/"), "GITHUB_SERVER_URL"),
        )

    def show(self, told: dict[str, Any], *, as_json: bool) -> None:
        """What was done, with its `message`, and what a dry run has not sent."""
        if as_json:
            click.echo(line_safe({**told, "requests": [asdict(request) for request in self.api.held]}))
            return
        for request in self.api.held:
            headers = [f"{name}: {value}" for name, value in request.headers.items()]
            body = [] if request.body is None else ["", line_safe(request.body)]
            click.echo("\n".join([f"{request.method} {request.url}", *headers, *body, ""]))
        click.echo(told["message"])


def _given(value: str | None, variable: str, option: str) -> str:
    found = value or os.environ.get(variable)
    if not found:
        raise ConfigError(f"{variable} is not set: run this in a workflow, or give {option}.")
    return found


def line_safe(value: Any) -> str:
    """JSON in which no line is a command to the runner, although it holds what others wrote."""
    return json.dumps(value, indent=2).replace("##[", "\\u0023#[")


@contextmanager
def annotated(command: str) -> Iterator[None]:
    """In a workflow, show an error on the page of its run too."""
    try:
        yield
    except HarnessError as error:
        if in_workflow():
            click.echo(error_line(command, error.message), err=True)
        raise
