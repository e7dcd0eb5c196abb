"""The workflow run of a step: its event, the runner's variables and files, and its log.

A line in the log can be a command to the runner, so untrusted texts are quoted.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from harness.ci.forge import quoted
from harness.ci.sticky_comment import ReportKey
from harness.errors import ConfigError, RefusedError, StoreError
from harness.report.document.outcome import Links
from harness.report.pull_request.faces import workflow_command
from harness.system.decoding import decode
from harness.system.files import UNREADABLE


def annotation(level: Literal["error", "warning"], title: str, message: str) -> str:
    """Return the runner's command that shows a message on the page of its run."""
    return workflow_command(level, message, {"title": title})


def in_workflow() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def links_of_run(history: str = "") -> Links:
    """Return links to the run of this step; empty outside of a workflow."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, name, number = (os.environ.get(variable, "") for variable in names)
    repository = f"{server}/{name}" if server and name else ""
    run = f"{repository}/actions/runs/{number}" if repository and number else ""
    return Links(run=run, history=history, repository=repository)


def append_summary(text: str) -> None:
    """Append to the step's summary in a workflow. Call it once, because a step may write 1 MiB. Raises
    StoreError.
    """
    append_file("GITHUB_STEP_SUMMARY", "summary", text)


def append_file(variable: str, what: str, text: str) -> str:
    """Append to the file that a runner's variable names. Return its path, empty for none. Raises
    StoreError.
    """
    path = os.environ.get(variable, "")
    if not path:
        return ""
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StoreError(f"Cannot write the {what} to {path}: {error.strerror or error}.") from None
    return path


WORKFLOW = "perf-pr.yml"
"""The workflow with the card's job."""
STATIC_WORKFLOW = "perf-static.yml"
"""The workflow that compiles any pull request on GitHub's own machines."""
_MAX_BYTES = 25 * 2**20
DISPATCH_BRANCH = "perf-dispatch"
"""Branch on which measurements are started.

It is kept at the default branch's commit, so that the workflow file is that branch's. A run's cache entries
are in a scope of their own, which no other branch reads.
"""
_BRANCH = re.compile(r"pull-request/([1-9][0-9]{0,8})")
"""Branch to which a reviewed pull request is mirrored."""
_TITLE = re.compile(r"Performance of #([1-9][0-9]{0,8}) at ([0-9a-f]{40})(, some cases)?")
"""The run-name of the workflow, which contains inputs of the person who started it."""
COMMAND = "/perf"
"""Prefix of a comment that requests a measurement."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_REF = re.compile(r"[^\s\x00-\x1f\x7f]{1,255}")
_WORD = re.compile(r"[a-z_]{1,30}")
_PUSHES = ("opened", "synchronize", "reopened", "ready_for_review")
_QUEUE_BRANCH = re.compile(r"gh-readonly-queue/\S{1,255}/pr-([1-9][0-9]{0,8})-[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run of the measuring workflow, with the measured commit as `head`."""

    id: int
    attempt: int
    conclusion: str
    """A word such as success or failure; empty if GitHub reported no single word."""
    pull_request: int
    head: str
    default_branch: str
    pushed: bool
    """True if the run belongs to the measured commit and fails with it; a dispatched run does not."""
    workflow_commit: str = ""
    """Commit of a dispatched run's workflow file."""
    partial: bool = False
    """True if somebody named the measured cases."""

    @property
    def key(self) -> ReportKey:
        return ReportKey(run=self.id, attempt=self.attempt, head=self.head, partial=self.partial)

    @property
    def ending(self) -> str:
        return self.conclusion.replace("_", " ") or "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRun:
    """A run of the workflow that compiles a pull request, which may come from any repository."""

    id: int
    attempt: int
    head: str
    label: str
    """Origin of the pull request: ``OWNER:BRANCH``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRequest:
    """A request for a measurement, by a comment or by pushing to a pull request of the same repository."""

    pull_request: int
    words: tuple[str, ...]
    """Unchecked words after the command: a commit, then cases."""
    login: str
    comment: int | None
    """Id of the comment; None for a push, which gets no answer."""
    default_branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A pull request in the merge queue, as a commit on top of the earlier ones."""

    pull_request: int
    commit: str


class Named(msgspec.Struct):
    """A repository as referenced by other objects."""

    full_name: str


class _Repository(Named):
    default_branch: str


class _WorkflowRun(msgspec.Struct):
    id: int
    run_attempt: int
    path: str
    event: str
    status: str
    head_sha: str
    display_title: str
    head_branch: str | None = None
    conclusion: str | None = None
    head_repository: Named | None = None


class _Event(msgspec.Struct):
    action: str
    repository: _Repository


EventT = TypeVar("EventT", bound=_Event)


class _RunEvent(_Event):
    workflow_run: _WorkflowRun


class _User(msgspec.Struct):
    login: str


class _Comment(msgspec.Struct):
    id: int
    user: _User | None = None
    body: str | None = None


class _Issue(msgspec.Struct):
    number: int
    pull_request: dict[str, Any] | None = None


class _Head(msgspec.Struct):
    sha: str
    repo: Named | None = None


class _Pull(msgspec.Struct):
    number: int
    head: _Head
    draft: bool = False


class _PullEvent(_Event):
    pull_request: _Pull
    sender: _User


class _MergeGroup(msgspec.Struct):
    head_sha: str
    head_ref: str


class _QueueEvent(_Event):
    merge_group: _MergeGroup


class _CommentEvent(_Event):
    issue: _Issue
    comment: _Comment


def read_event(path: Path) -> bytes:
    """Return the event's file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    else:
        if len(content) <= _MAX_BYTES:
            return content
        problem = f"has more than {_MAX_BYTES} bytes: GitHub writes none that large"
    advice = "Set GITHUB_EVENT_PATH to the event's file, or give --event."
    raise ConfigError(f"The event {quoted(str(path))} {problem}. {advice}")


def measured_run(content: bytes, repository: str) -> MeasuredRun:
    """Return the run of a `workflow_run` event. Raises RefusedError if nothing about it may be posted.

    Only people with write access push to ``pull-request/N``, or start runs on the branch for that. Anybody
    can cause other runs. The workflow file of a dispatched run is checked later.
    """
    event = _decoded(content, _RunEvent, "workflow_run", repository)
    run = event.workflow_run
    if event.action != "completed" or run.status != "completed":
        raise RefusedError(f"The run is {quoted(run.status)}, not completed: wait for it to end.")
    number, head, partial = _measured(run, event.repository)
    # GitHub's path may end in @REF. A file name may contain an @ as well.
    path = f".github/workflows/{WORKFLOW}"
    if run.path not in (path, f"{path}@{run.head_branch}", f"{path}@refs/heads/{run.head_branch}"):
        raise RefusedError(f"The run is of workflow {quoted(run.path)!r}; expected {path}.")
    return MeasuredRun(
        id=_positive(run.id, "number"),
        attempt=_positive(run.run_attempt, "attempt"),
        conclusion=found[0] if (found := _WORD.fullmatch(run.conclusion or "")) else "",
        pull_request=number,
        head=head,
        default_branch=event.repository.default_branch,
        pushed=run.event == "push",
        workflow_commit="" if run.event == "push" else run.head_sha,
        partial=partial,
    )


def _measured(run: _WorkflowRun, repository: _Repository) -> tuple[int, str, bool]:
    """Return a run's pull request, its commit, and whether it was limited to some cases."""
    branch = run.head_branch or ""
    if not _is_called(run.head_repository, repository.full_name):
        raise RefusedError(
            f"The run is of branch {quoted(branch)!r} in another repository: only what was mirrored to a "
            "branch pull-request/N of this one is posted."
        )
    if not _COMMIT.fullmatch(run.head_sha):
        raise RefusedError(f"The run is of {quoted(run.head_sha)!r}, which is no commit.")
    if run.event == "push" and (pushed := _BRANCH.fullmatch(branch)):
        return int(pushed[1]), run.head_sha, False
    if run.event == "workflow_dispatch" and branch == DISPATCH_BRANCH:
        if started := _TITLE.fullmatch(run.display_title):
            return int(started[1]), started[2], bool(started[3])
        raise RefusedError(
            f"The run is called {quoted(run.display_title)!r}; expected 'Performance of #N at SHA', as the "
            f"run-name of {WORKFLOW} makes it."
        )
    raise RefusedError(
        f"The run was started by {quoted(run.event)} on branch {quoted(branch)!r}; expected a push to "
        f"pull-request/N, or workflow_dispatch on {DISPATCH_BRANCH}."
    )


Kind = Literal["issue_comment", "pull_request", "merge_group", "workflow_run"]


def kind_of(content: bytes) -> Kind:
    """Return the kind of an event that may request a measurement; `comment` for other events."""
    try:
        found = decode(content, dict[str, msgspec.Raw])
    except UNREADABLE:
        return "issue_comment"
    if "workflow_run" in found:
        return "workflow_run"
    if "merge_group" in found:
        return "merge_group"
    return "pull_request" if "pull_request" in found and "comment" not in found else "issue_comment"


def pushed(content: bytes, repository: str, *, drafts: bool) -> MeasurementRequest | str:
    """Return the measurement that a push requests, or why there is none. Raises RefusedError."""
    event = _decoded(content, _PullEvent, "pull_request", repository)
    pull = event.pull_request
    if event.action not in _PUSHES:
        return f"{quoted(event.action)} brings no new commit"
    if not _is_called(pull.head.repo, repository):
        return "the branch is in another repository, so somebody who may write has to ask"
    if pull.draft and not drafts:
        return "it is a draft"
    if not _LOGIN.fullmatch(event.sender.login):
        return "no person pushed it"
    return MeasurementRequest(
        pull_request=_positive(pull.number, "pull request"),
        words=(pull.head.sha,),
        login=event.sender.login,
        comment=None,
        default_branch=event.repository.default_branch,
    )


def queued(content: bytes, repository: str) -> Queued | None:
    """Return the pull request of a `merge_group` event, if it waits for checks. Raises RefusedError."""
    event = _decoded(content, _QueueEvent, "merge_group", repository)
    if event.action != "checks_requested":
        return None
    group = event.merge_group
    return _queued(group.head_ref.removeprefix("refs/heads/"), group.head_sha)


def queued_run(content: bytes, repository: str) -> Queued:
    """Return the pull request of a `workflow_run` event that a `merge_group` began. Raises RefusedError."""
    event = _decoded(content, _RunEvent, "workflow_run", repository)
    run = event.workflow_run
    if run.event != "merge_group" or not _is_called(run.head_repository, repository):
        raise RefusedError(
            f"The run was started by {quoted(run.event)}; expected this repository's merge_group."
        )
    return _queued(run.head_branch or "", run.head_sha)


def _queued(branch: str, commit: str) -> Queued:
    found = _QUEUE_BRANCH.fullmatch(branch)
    if not (found and _COMMIT.fullmatch(commit)):
        raise RefusedError(
            f"The queue's branch is {quoted(branch)!r} at {quoted(commit)!r}; expected "
            "gh-readonly-queue/BRANCH/pr-N-SHA, as GitHub makes them."
        )
    return Queued(pull_request=int(found[1]), commit=commit)


def compiled_run(content: bytes, repository: str) -> CompiledRun:
    """Return the run of a pull request's own workflow, using only GitHub's data. Raises RefusedError."""
    run = _decoded(content, _RunEvent, "workflow_run", repository).workflow_run
    path = f".github/workflows/{STATIC_WORKFLOW}"
    if run.event != "pull_request" or run.path.partition("@")[0] != path or run.status != "completed":
        raise RefusedError(
            f"The run is of workflow {quoted(run.path)!r}, started by {quoted(run.event)}, and "
            f"{quoted(run.status)}; expected {path}, pull_request and completed."
        )
    if not (
        run.head_repository and _REF.fullmatch(run.head_branch or "") and _COMMIT.fullmatch(run.head_sha)
    ):
        raise RefusedError("The run has no commit, branch or repository, so nobody knows where it belongs.")
    return CompiledRun(
        id=_positive(run.id, "number"),
        attempt=_positive(run.run_attempt, "attempt"),
        head=run.head_sha,
        label=f"{run.head_repository.full_name.partition('/')[0]}:{run.head_branch}",
    )


def measurement_asked(content: bytes, repository: str) -> MeasurementRequest | None:
    """Return the measurement that a new comment requests. Raises RefusedError."""
    event = _decoded(content, _CommentEvent, "issue_comment", repository)
    line = (event.comment.body or "").partition("\n")[0].removesuffix("\r")
    asks = line == COMMAND or line.startswith(f"{COMMAND} ")
    if event.action != "created" or event.issue.pull_request is None or not asks:
        return None
    login = event.comment.user.login if event.comment.user else ""
    if not _LOGIN.fullmatch(login):
        raise RefusedError(f"{quoted(login)!r} asks, which is no person's login.")
    return MeasurementRequest(
        pull_request=_positive(event.issue.number, "pull request"),
        words=tuple(word for word in line.removeprefix(COMMAND).split(" ") if word),
        login=login,
        comment=_positive(event.comment.id, "comment"),
        default_branch=event.repository.default_branch,
    )


def _decoded(content: bytes, kind: type[EventT], name: str, repository: str) -> EventT:
    """Return the event of this kind and this repository."""
    try:
        event = decode(content, kind)
    except UNREADABLE as error:
        raise RefusedError(
            f"The event is no {name} event: {quoted(str(error))}. This command is for a workflow that is "
            f"started by {name}."
        ) from None
    named = event.repository
    if not _is_called(named, repository):
        raise RefusedError(
            f"The event is of repository {quoted(named.full_name)!r}; expected {repository}. Set "
            "GITHUB_REPOSITORY, or give --repository."
        )
    if not _REF.fullmatch(named.default_branch):
        raise RefusedError(f"{quoted(named.default_branch)!r} is no branch name.")
    return event


def _is_called(repository: Named | None, name: str) -> bool:
    """Return whether a repository has this name. GitHub's names are case-insensitive."""
    return repository is not None and repository.full_name.lower() == name.lower()


def _positive(number: int, what: str) -> int:
    if not 0 < number < 2**63:
        raise RefusedError(f"The event's {what} is {quoted(str(number))}; expected a positive number.")
    return number
