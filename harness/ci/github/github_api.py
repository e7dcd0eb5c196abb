"""GitHub's own part of the REST API."""

from __future__ import annotations

import re
from urllib.parse import quote

from harness.ci.forge import Forge, quoted
from harness.errors import ConfigError

GITHUB = Forge(
    name="GitHub",
    credential="GITHUB_TOKEN",
    credential_is="the job's github.token",
    root="GITHUB_API_URL",
    default_root="https://api.github.com",
    headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
    updates_by="PATCH",
    permission="grant that under the job's permissions. Where a fork's pull request started the run, every "
    "token is read-only: post from a workflow that workflow_run starts.",
    renamed="The repository has moved: give its new name as --repository.",
    status_page="githubstatus.com",
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")


def check_repository(name: str) -> str:
    """Return the name, if it is a valid repository name. Raises ConfigError."""
    if _REPOSITORY.fullmatch(name):
        return name
    advice = "expected OWNER/NAME. Set GITHUB_REPOSITORY, or give --repository."
    raise ConfigError(f"{quoted(name)!r} is no repository: {advice}")


def path_of(repository: str, *parts: str | int) -> str:
    """Return the path of something in a repository. Each part stays a single part."""
    owner, _, name = check_repository(repository).partition("/")
    return "".join(f"/{quote(str(part), safe='')}" for part in ("repos", owner, name, *parts))
