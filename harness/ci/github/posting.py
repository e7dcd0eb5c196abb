"""The current state of a pull request, and posts to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.ci.forge import Api, ApiError, quoted
from harness.ci.github.github_api import path_of
from harness.ci.github.workflow_events import Named, Queued
from harness.ci.sticky_comment import Comment, Posted, ReportKey, StaleError, StickyComment
from harness.errors import RemoteError
from harness.report.pull_request.faces import check_name


class CommitSha(msgspec.Struct):
    sha: str


class _Base(msgspec.Struct):
    ref: str
    repo: Named


class Pull(msgspec.Struct):
    number: int
    state: str
    head: CommitSha
    base: _Base


class _CommitComparison(msgspec.Struct):
    merge_base_commit: CommitSha


def current_pull(api: Api, repository: str, number: int, commit: str) -> Pull:
    """Return the pull request, if it is open with this commit as head. Raises StaleError, RemoteError."""
    pull = open_pull(api, repository, number)
    if pull.head.sha != commit:
        raise StaleError(
            f"The head of pull request {number} is {quoted(pull.head.sha)} by now, not {commit}."
        )
    return pull


def pull_of_branch(api: Api, repository: str, label: str, commit: str) -> Pull:
    """Return the only open pull request of ``OWNER:BRANCH`` with this head. Raises StaleError,
    RemoteError.
    """
    query = {"state": "open", "head": label}
    listed = api.pages(path_of(repository, "pulls"), list[Pull], needs="pull-requests: read", query=query)
    found = [pull.number for page in listed for pull in page if pull.head.sha == commit]
    if len(found) != 1:
        raise StaleError(
            f"{commit} is the head of {len(found) or 'no'} open pull requests from {quoted(label)}, "
            "where one was expected."
        )
    return current_pull(api, repository, found[0], commit)


def open_pull(api: Api, repository: str, number: int) -> Pull:
    """Return the pull request, if it is open. Raises StaleError, RemoteError."""
    pull = api.get(path_of(repository, "pulls", number), Pull, needs="pull-requests: read")
    if pull.number != number or pull.base.repo.full_name.lower() != repository.lower():
        raise RemoteError(
            f"GitHub was asked for pull request {number} of {repository}, and told of "
            f"{quoted(pull.base.repo.full_name)} {pull.number}. Check GITHUB_API_URL and GITHUB_REPOSITORY."
        )
    if pull.state != "open":
        raise StaleError(f"Pull request {number} is {quoted(pull.state)}.")
    return pull


def merge_bases(api: Api, repository: str, branches: Iterable[str], commit: str) -> frozenset[str]:
    """Return the merge bases of the commit and these branches, without unrelated branches.

    Raises ApiError if all are unrelated.
    """
    found: set[str] = set()
    refused: ApiError | None = None
    for branch in dict.fromkeys(branches):
        path = path_of(repository, "compare", f"{branch}...{commit}")
        try:
            compared = api.get(path, _CommitComparison, needs="contents: read", query={"per_page": 1})
        except ApiError as error:
            if error.status != 404:
                raise
            refused = error
        else:
            found.add(compared.merge_base_commit.sha)
    if refused and not found:
        raise refused
    return frozenset(found)


ACTIONS_APP = 15368
"""App id of workflow tokens at github.com. Its name is the same everywhere."""
_ACTIONS = "github-actions"
_EXTERNAL_ID = re.compile(r"([0-9]{1,19})\.([0-9]{1,9})")
_CHECKS = "checks: write"


class _User(msgspec.Struct):
    login: str
    type: str


class _Comment(Comment, kw_only=True):
    user: _User | None = None

    def is_by(self, author: str) -> bool:
        # The login of an App's bot ends in [bot], which nobody can choose. Only it has the type Bot.
        bot = author.endswith("[bot]")
        return self.user is not None and self.user.login == author and (self.user.type == "Bot") == bot


class _Output(msgspec.Struct):
    annotations_count: int = 0
    title: str | None = None


class _App(msgspec.Struct):
    id: int
    slug: str | None = None


class _CheckRun(msgspec.Struct):
    id: int
    head_sha: str = ""
    app: _App | None = None
    html_url: str | None = None
    status: str = ""
    conclusion: str | None = None
    external_id: str | None = None
    output: _Output = msgspec.field(default_factory=_Output)


class _CheckRuns(msgspec.Struct):
    check_runs: list[_CheckRun]


@dataclass(frozen=True, slots=True)
class Checks:
    """The check runs of one App, through its token.

    Other Apps and workflows may use the same name and copy our key, so only GitHub's App id counts.
    """

    api: Api
    repository: str
    app: int | None = None
    """The App's id; None for GitHub Actions, whose tokens workflows have."""

    def path(self, *parts: str | int) -> str:
        return path_of(self.repository, "check-runs", *parts)

    def named(self, commit: str, name: str) -> list[_CheckRun]:
        """Return the check runs of a commit with this name. Raises ApiError, RemoteError."""
        pages = self.api.pages(
            path_of(self.repository, "commits", commit, "check-runs"),
            _CheckRuns,
            needs="checks: read",
            query={"check_name": name, "filter": "all"},
        )
        return [each for page in pages for each in page.check_runs if self._is_ours(each, commit)]

    def with_key(self, key: ReportKey) -> _CheckRun | None:
        """Return the check run of a report, if there is one. Raises ApiError, RemoteError."""
        return _with_key(self.named(key.head, key.check_name), key)

    def _is_ours(self, check: _CheckRun, commit: str) -> bool:
        if check.app is None or check.head_sha != commit:
            return False
        return check.app.slug == _ACTIONS if self.app is None else check.app.id == self.app


def post_comment(
    api: Api,
    repository: str,
    pull_request: int,
    key: ReportKey,
    text: str,
    *,
    author: str,
    still_current: Callable[[], object],
) -> Posted:
    """Set the one comment of `author` to this text, which begins with the key's marker.

    `still_current` runs before each write, and raises if the commit is no longer the head. Raises ApiError,
    RemoteError.
    """
    return StickyComment(
        api=api,
        key=key,
        text=text,
        still_current=still_current,
        about=f"pull request {pull_request}",
        comments=path_of(repository, "issues", pull_request, "comments"),
        one=path_of(repository, "issues", "comments"),
        kind=_Comment,
        ours=lambda comment: comment.is_by(author),
        needs="pull-requests: write",
    ).keep()


def post_check(
    checks: Checks, key: ReportKey, check: Mapping[str, Any], *, still_current: Callable[[], object]
) -> Posted:
    """Set the check run of this key to `check`: name, status, conclusion, output. Raises RemoteError."""
    check_runs = checks.named(key.head, key.check_name)
    same = _with_key(check_runs, key)
    if newer := next((each for each in check_runs if _order(each) > (key.run, key.attempt)), None):
        end_check(checks, same, "cancelled", "Not posted", "A newer run of this commit has been started.")
        return Posted(action="left", id=newer.id, url=newer.html_url or "")
    still_current()
    body = {**check, "external_id": key.external_id}
    if same is None:
        made = checks.api.create(
            checks.path(),
            {**body, "head_sha": key.head},
            _CheckRun,
            needs=_CHECKS,
            done=lambda: checks.with_key(key),
        )
        return Posted(action="created", id=made.id if made else None, url=(made and made.html_url) or "")
    if same.output.annotations_count:
        # GitHub adds an update's annotations to the existing ones.
        output = {name: value for name, value in check["output"].items() if name != "annotations"}
        body = {**body, "output": output}
    checks.api.update(checks.path(same.id), body, _CheckRun, needs=_CHECKS)
    return Posted(action="updated", id=same.id, url=same.html_url or "")


def post_queued(checks: Checks, key: ReportKey, details_url: str, output: Mapping[str, str]) -> None:
    """Show that a run was started. Its result replaces this check. Raises ApiError, RemoteError."""
    body = {
        "name": key.check_name,
        "status": "queued",
        "external_id": key.external_id,
        "details_url": details_url,
        "head_sha": key.head,
        "output": output,
    }
    checks.api.create(checks.path(), body, _CheckRun, needs=_CHECKS)


def end_check(checks: Checks, check: _CheckRun | None, conclusion: str, title: str, why: str) -> None:
    """End a waiting check run, if there is one. Raises ApiError, RemoteError."""
    if check is not None and check.status != "completed":
        output = {"title": title, "summary": why}
        body = {"status": "completed", "conclusion": conclusion, "output": output}
        checks.api.update(checks.path(check.id), body, _CheckRun, needs=_CHECKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOver:
    """The conclusion that a queue's commit took from the pull request's commit."""

    measured: str
    """Commit of the original check."""
    conclusion: str
    title: str
    url: str


def carry_over(api: Api, checks: Checks, queued: Queued, *, strict: bool) -> CarriedOver:
    """Give a commit of the merge queue the conclusion of the pull request's own commit.

    Without one it is neutral, with `strict` a failure. Raises StaleError, ApiError, RemoteError.
    """
    head = open_pull(api, checks.repository, queued.pull_request).head.sha
    done = {
        order: each
        for each in checks.named(head, check_name())
        if each.status == "completed" and (order := _order(each))
    }
    last = done[max(done)] if done else None
    carried = CarriedOver(
        measured=head,
        conclusion=(last and last.conclusion) or ("failure" if strict else "neutral"),
        title=quoted((last and last.output.title) or "Not measured", 200),
        url=(last and last.html_url) or "",
    )
    body = {
        "name": check_name(),
        "head_sha": queued.commit,
        "status": "completed",
        "conclusion": carried.conclusion,
        "output": {
            "title": carried.title,
            "summary": f"Of {head}, the newest commit of pull request {queued.pull_request}: in the queue "
            "nothing is measured again, and the history measures what is merged.",
        },
        **({"details_url": carried.url} if carried.url else {}),
    }
    checks.api.create(checks.path(), body, _CheckRun, needs=_CHECKS)
    return carried


def _with_key(check_runs: list[_CheckRun], key: ReportKey) -> _CheckRun | None:
    return next((each for each in check_runs if each.external_id == key.external_id), None)


def _order(check: _CheckRun) -> tuple[int, ...]:
    """Return GitHub's numbers of the run and attempt of a check; empty for a check without a report."""
    found = _EXTERNAL_ID.fullmatch(check.external_id or "")
    return tuple(map(int, found.groups())) if found else ()
