"""A comment that requests a measurement, and the answer to its author."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from harness.ci.forge import Api, ApiError, quoted
from harness.ci.github.github_api import path_of
from harness.ci.github.posting import Checks, CommitSha, current_pull, open_pull, post_queued
from harness.ci.github.workflow_events import COMMAND, DISPATCH_BRANCH, WORKFLOW, MeasurementRequest
from harness.ci.scaffold import check_patterns
from harness.ci.sticky_comment import ReportKey, StaleError
from harness.errors import RefusedError, RemoteError
from harness.report.templates import code, pre

_MAY_ASK = {"admin", "maintain", "write"}
_COMMIT = re.compile(r"[0-9a-f]{40}")


class _Permission(msgspec.Struct):
    permission: str
    role_name: str = ""


class _Branch(msgspec.Struct):
    commit: CommitSha


class _DispatchedRun(msgspec.Struct):
    workflow_run_id: int
    html_url: str = ""


class _Ignored(msgspec.Struct):
    """An answer without needed content."""


class _NoCommitError(RefusedError):
    def __init__(self, line: str) -> None:
        super().__init__(
            "The line does not name the commit that you have looked at, with all 40 digits. If that is the "
            f"newest one, comment: {line}"
        )
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A measurement that was started."""

    commit: str
    cases: tuple[str, ...]
    """Cases; empty for all."""
    run: int | None
    """Id of the run; None if GitHub did not answer with it."""
    url: str
    untold: tuple[str, ...]
    """Errors of information that could not be posted to the pull request."""


def start_measurement(api: Api, repository: str, asked: MeasurementRequest, checks: Checks | None) -> Started:
    """Start the default branch's workflow on a card for the named commit, and show that on the pull request.

    Without `checks` there is no waiting check run. Raises RefusedError if the person may not request it, or
    if the commit is missing or no longer the head; ApiError, RemoteError.
    """
    telling = _Telling(api, repository, asked)
    if not may_ask(api, repository, asked.login):
        # Do not answer: anybody can comment, and must not make this repository write.
        telling.react("confused")
        raise RefusedError(
            f"{asked.login} may not write to {repository}, so cannot ask for a measurement. Let a maintainer "
            "look at the commit, and ask."
        )
    try:
        commit, cases = _measurable(api, repository, asked)
    except RefusedError as error:
        telling.react("confused")
        telling.reply(error)
        raise
    run = _dispatch(api, repository, asked, commit, cases)
    telling.react("eyes")
    if run and checks:
        key = ReportKey(run=run.workflow_run_id, attempt=1, head=commit, partial=bool(cases))
        telling.queue(checks, key, run.html_url)
    return Started(
        commit=commit,
        cases=cases,
        run=run.workflow_run_id if run else None,
        url=run.html_url if run else "",
        untold=tuple(telling.trouble),
    )


def may_ask(api: Api, repository: str, login: str) -> bool:
    """Return whether a person may write to the repository. Raises ApiError, RemoteError."""
    path = path_of(repository, "collaborators", login, "permission")
    try:
        found = api.get(path, _Permission, needs="metadata: read")
    except ApiError as error:
        if error.status == 404:  # no such user
            return False
        raise
    # `permission` has the four classic values, with write for maintain; `role_name` may be custom.
    return found.permission in _MAY_ASK or found.role_name in _MAY_ASK


def _measurable(api: Api, repository: str, asked: MeasurementRequest) -> tuple[str, tuple[str, ...]]:
    """Return the commit and the cases. Raises RefusedError with the correct form."""
    commit, cases = "", asked.words
    if cases and _COMMIT.fullmatch(cases[0]):
        commit, *rest = cases
        cases = tuple(rest)
    check_patterns(cases)
    try:
        if commit:
            current_pull(api, repository, asked.pull_request, commit)
            return commit, cases
        head = open_pull(api, repository, asked.pull_request).head.sha
    except StaleError as stale:
        raise RefusedError(f"{stale} Look at what would be merged, and ask for that commit.") from None
    raise _NoCommitError(" ".join((COMMAND, head, *cases)))


def _dispatch(
    api: Api, repository: str, asked: MeasurementRequest, commit: str, cases: tuple[str, ...]
) -> _DispatchedRun | None:
    _move_branch(api, repository, asked.default_branch)
    inputs = {"pull_request": str(asked.pull_request), "sha": commit, "cases": " ".join(cases)}
    path = path_of(repository, "actions", "workflows", WORKFLOW, "dispatches")
    body = {"ref": DISPATCH_BRANCH, "inputs": inputs}
    # A lost answer is not checked: measuring twice costs more than requesting again.
    try:
        return api.create(path, {**body, "return_run_details": True}, _DispatchedRun, needs="actions: write")
    except ApiError as error:
        if error.status not in (400, 422) or "return_run_details" not in error.message:
            raise
        api.create(path, body, bytes, needs="actions: write")  # GitHub Enterprise Server before 2026
        return None


def _move_branch(api: Api, repository: str, default_branch: str) -> None:
    """Move the branch for starting runs to the default branch's commit."""
    needs = "contents: write"
    tip = api.get(path_of(repository, "branches", default_branch), _Branch, needs="contents: read")
    sha = tip.commit.sha
    try:
        path = path_of(repository, "git", "refs", "heads", DISPATCH_BRANCH)
        api.update(path, {"sha": sha, "force": True}, _Ignored, needs=needs)
    except ApiError as error:
        if error.status not in (404, 422):
            raise
        body = {"ref": f"refs/heads/{DISPATCH_BRANCH}", "sha": sha}
        api.create(path_of(repository, "git", "refs"), body, _Ignored, needs=needs)


@dataclass(slots=True)
class _Telling:
    """Answers on the pull request. If an answer fails, the measurement still starts."""

    api: Api
    repository: str
    asked: MeasurementRequest
    trouble: list[str] = field(default_factory=list)

    def react(self, content: str) -> None:
        if self.asked.comment is None:
            return
        path = path_of(self.repository, "issues", "comments", self.asked.comment, "reactions")
        self._try(lambda: self._create(path, {"content": content}))

    def reply(self, error: RefusedError) -> None:
        if self.asked.comment is None:
            return
        path = path_of(self.repository, "issues", self.asked.pull_request, "comments")
        line = error.line if isinstance(error, _NoCommitError) else ""
        said = f"Not measured. {_plain(error.message.removesuffix(line))}"
        self._try(lambda: self._create(path, {"body": f"{said}\n{pre(line)}" if line else said}))

    def queue(self, checks: Checks, key: ReportKey, url: str) -> None:
        summary = (
            f"The [run]({url}) that {self.asked.login} asked for waits for a card, or for a reviewer of the "
            "environment gpu."
        )
        output = {"title": "Waiting for a card", "summary": summary}
        self._try(lambda: post_queued(checks, key, url, output))

    def _create(self, path: str, body: dict[str, str]) -> None:
        self.api.create(path, body, _Ignored, needs="pull-requests: write")

    def _try(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except RemoteError as error:
            self.trouble.append(error.message)


def _plain(text: str) -> str:
    """Return the text with others' words as code, so that nobody is mentioned and nothing is a link."""
    return re.sub(r"'([^']*)'", lambda found: code(found[1]), quoted(text, 2000))
