"""Pull requests as GitHub knows them now, and starting a measurement of one."""

from __future__ import annotations

__all__ = ["Pull", "StaleError", "current_pull", "merge_bases", "start_measurement"]

from collections.abc import Iterable

import msgspec

from harness.errors import RefusedError, RemoteError
from harness.github.api import Api, ApiError, path_of
from harness.github.events import WORKFLOW, Asked
from harness.github.surroundings import quoted

_MAY_ASK = {"admin", "maintain", "write"}


class StaleError(Exception):
    """A commit is not what would be merged. Nothing is wrong: somebody pushed, merged or closed meanwhile."""


class _Repository(msgspec.Struct):
    full_name: str


class _Commit(msgspec.Struct):
    sha: str


class _Base(msgspec.Struct):
    ref: str
    repo: _Repository


class Pull(msgspec.Struct):
    number: int
    state: str
    head: _Commit
    base: _Base


class _Compared(msgspec.Struct):
    merge_base_commit: _Commit


class _Permission(msgspec.Struct):
    permission: str
    role_name: str = ""


def current_pull(api: Api, repository: str, number: int, commit: str) -> Pull:
    """The pull request, which is open and has this commit as its head. Raises StaleError, RemoteError."""
    pull = api.get(path_of(repository, "pulls", number), Pull, needs="pull-requests: read")
    if pull.number != number or pull.base.repo.full_name.lower() != repository.lower():
        raise RemoteError(
            f"GitHub was asked for pull request {number} of {repository}, and told of "
            f"{quoted(pull.base.repo.full_name)} {pull.number}. Check GITHUB_API_URL and GITHUB_REPOSITORY."
        )
    if pull.state != "open":
        raise StaleError(f"Pull request {number} is {quoted(pull.state)}.")
    if pull.head.sha != commit:
        raise StaleError(
            f"The head of pull request {number} is {quoted(pull.head.sha)} by now, not {commit}."
        )
    return pull


def merge_bases(api: Api, repository: str, branches: Iterable[str], commit: str) -> frozenset[str]:
    """Where the commit left these branches.

    A branch that has nothing in common with it is left out. Raises ApiError where every one is.
    """
    found: set[str] = set()
    refused: ApiError | None = None
    for branch in dict.fromkeys(branches):
        path = path_of(repository, "compare", f"{branch}...{commit}")
        try:
            compared = api.get(path, _Compared, needs="contents: read", query={"per_page": 1})
        except ApiError as error:
            if error.status != 404:
                raise
            refused = error
        else:
            found.add(compared.merge_base_commit.sha)
    if refused and not found:
        raise refused
    return frozenset(found)


def start_measurement(api: Api, repository: str, asked: Asked) -> None:
    """Have the workflow with the card measure what was asked for: that of the default branch, by the one
    commit that was named.

    Raises RefusedError where whoever asks may not, or the commit is the pull request's head no more;
    ApiError, RemoteError.
    """
    if not _may_ask(api, repository, asked.login):
        raise RefusedError(
            f"{asked.login} may not write to {repository}, so cannot ask for a measurement. Let a maintainer "
            "look at the commit, and ask."
        )
    try:
        current_pull(api, repository, asked.pull_request, asked.commit)
    except StaleError as stale:
        raise RefusedError(f"{stale} Look at what would be merged, and ask for that commit.") from None
    inputs = {"pull_request": str(asked.pull_request), "sha": asked.commit}
    path = path_of(repository, "actions", "workflows", WORKFLOW, "dispatches")
    # Nothing looks whether a lost answer was a yes: GitHub does not say which run a dispatch has started.
    api.create(path, {"ref": asked.default_branch, "inputs": inputs}, bytes, needs="actions: write")


def _may_ask(api: Api, repository: str, login: str) -> bool:
    path = path_of(repository, "collaborators", login, "permission")
    try:
        found = api.get(path, _Permission, needs="metadata: read")
    except ApiError as error:
        if error.status == 404:  # nobody of that name is known here
            return False
        raise
    # `permission` has the four of old, write for maintain; `role_name` may be one that an organisation made.
    return found.permission in _MAY_ASK or found.role_name in _MAY_ASK
