"""Pull requests as GitHub knows them now."""

from __future__ import annotations

__all__ = ["Pull", "StaleError", "current_pull", "merge_bases"]

from collections.abc import Iterable

import msgspec

from harness.errors import RemoteError
from harness.github.api import Api, ApiError, path_of
from harness.github.quoting import quoted


class StaleError(Exception):
    """A commit is not what would be merged. Nothing is wrong: somebody pushed, merged or closed meanwhile."""


class _Repository(msgspec.Struct):
    full_name: str


class _Head(msgspec.Struct):
    sha: str


class _Base(msgspec.Struct):
    ref: str
    repo: _Repository


class Pull(msgspec.Struct):
    number: int
    state: str
    head: _Head
    base: _Base


class _Commit(msgspec.Struct):
    sha: str


class _Compared(msgspec.Struct):
    merge_base_commit: _Commit


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
