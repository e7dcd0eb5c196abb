"""The forge, token and run that a command of harness ci works with."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from harness.ci.forge import Api, check_address
from harness.ci.github import workflow_events
from harness.ci.github.github_api import GITHUB, check_repository
from harness.ci.github.posting import Checks
from harness.ci.gitlab.gitlab_api import GITLAB, in_pipeline
from harness.ci.sticky_comment import StaleError
from harness.cli import options
from harness.errors import ConfigError, HarnessError


def warn(title: str, message: str) -> None:
    """Print a warning on standard error; in a workflow, also as an annotation of the run."""
    line = (
        workflow_events.annotation("warning", title, message)
        if workflow_events.in_workflow()
        else f"harness: {message}"
    )
    click.echo(line, err=True)


class Calling:
    """The forge's API, repository and event, from options or else from variables."""

    def __init__(
        self, event: Path | None, repository: str | None, api: str | None, *, dry_run: bool, as_json: bool
    ) -> None:
        self.api, self._as_json = api_of(api, dry_run=dry_run), as_json
        if self.api.forge is GITLAB:
            self.repository = given(repository, "CI_PROJECT_ID", "--repository")
            return
        server = os.environ.get("GITHUB_SERVER_URL") or "https://github.com"
        self.repository = check_repository(given(repository, "GITHUB_REPOSITORY", "--repository"))
        self.event = workflow_events.read_event(Path(given(str(event or ""), "GITHUB_EVENT_PATH", "--event")))
        self.server = check_address(server.rstrip("/"), "GITHUB_SERVER_URL")

    def checks(self, app: int | None) -> Checks:
        """Return the check runs of an App, or of GitHub Actions. Raises ConfigError without the
        App's token.
        """
        token = os.environ.get(_OF_APP)
        if app is None or (token is None and self.api.dry_run):
            return Checks(self.api, self.repository, app)
        wanted = f"a token of App {app}, which may write checks"
        if token is None:
            raise ConfigError(f"{_OF_APP} is not set: set it to {wanted}.")
        permission = f"grant App {app} that, and accept it where the App is installed."
        api = self.api.with_token(token, credential=_OF_APP, credential_is=wanted, permission=permission)
        return Checks(api, self.repository, app)

    @contextlib.contextmanager
    def showing(self, consequence: str, **about: Any) -> Iterator[dict[str, Any]]:
        """Show `about` and the block's additions; after a StaleError, its sentence and the consequence."""
        result = about
        try:
            yield result
        except StaleError as stale:
            result |= {"state": "stale", "message": f"{stale} {consequence}"}
        self.show(**result)

    def show(self, **result: Any) -> None:
        """Print the result with its `message`, and the requests that a dry run did not send."""
        if self._as_json:
            click.echo(line_safe({**result, "requests": [asdict(request) for request in self.api.held]}))
            return
        for request in self.api.held:
            headers = [f"{name}: {value}" for name, value in request.headers.items()]
            body = [] if request.body is None else ["", line_safe(request.body)]
            click.echo("\n".join([f"{request.method} {request.url}", *headers, *body, ""]))
        click.echo(result["message"])


def api_of(root: str | None, *, dry_run: bool = False) -> Api:
    """Return the API of GitLab in a GitLab job, of GitHub elsewhere."""
    forge = GITLAB if in_pipeline() else GITHUB
    token = os.environ.get(forge.credential)
    if token is None and not dry_run:
        raise ConfigError(f"{forge.credential} is not set: set it to {forge.credential_is}.")
    root = root or os.environ.get(forge.root) or forge.default_root
    return Api(forge, root, token, dry_run=dry_run)


def given(value: str | None, variable: str, option: str) -> str:
    found = value or os.environ.get(variable)
    if not found:
        raise ConfigError(f"{variable} is not set: run this in a workflow, or give {option}.")
    return found


def line_safe(value: Any) -> str:
    """Return JSON in which no line is a command to the runner, although it contains untrusted text."""
    return json.dumps(value, indent=2).replace("##[", "\\u0023#[")


repository_option = options.value(
    "--repository", "OWNER/NAME", "Default: GITHUB_REPOSITORY, or GitLab's CI_PROJECT_ID."
)
_OF_APP = "GITHUB_CHECKS_TOKEN"
app_option = options.value(
    "--app",
    "NUMBER",
    f"Post check runs as this App of yours, whose token is in {_OF_APP}; default: as GitHub Actions, with "
    "GITHUB_TOKEN.",
    type=click.IntRange(min=1),
)
api_root_option = options.value(
    "--api", "URL", "The forge's API; default: GITHUB_API_URL, or GitLab's CI_API_V4_URL."
)


def with_calling(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command a Calling. In a workflow, show its errors on the run's page too."""

    @functools.wraps(function)
    def call(**given: Any) -> None:
        names = ("event", "repository", "api", "dry_run", "as_json")
        try:
            calling = Calling(**{name: given.pop(name) for name in names})
            function(calling, **given)
        except HarnessError as error:
            if workflow_events.in_workflow():
                name = f"harness ci {function.__name__.replace('_', '-')}"
                click.echo(workflow_events.annotation("error", name, error.message), err=True)
            raise

    decorated: Callable[..., None] = options.together(
        options.path("--event", "What started the workflow; default: GITHUB_EVENT_PATH.", metavar="FILE"),
        repository_option,
        api_root_option,
        options.flag("--dry-run", "Only read, and print the requests that would write, whole."),
    )(call)
    return decorated
