"""Starting a measurement that somebody has asked for in a comment."""

from __future__ import annotations

__all__ = ["start"]

import msgspec

from harness.errors import RefusedError
from harness.github.api import Api, ApiError, path_of
from harness.github.events import WORKFLOW, Asked
from harness.github.pulls import StaleError, current_pull

_MAY_ASK = {"admin", "maintain", "write"}


class _Permission(msgspec.Struct):
    permission: str
    role_name: str = ""


def start(api: Api, repository: str, asked: Asked) -> None:
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
