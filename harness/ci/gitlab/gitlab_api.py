"""GitLab's own part of the REST API, on gitlab.com and on servers of others."""

from __future__ import annotations

import os
import re
from urllib.parse import quote

from harness.ci.forge import Forge, quoted
from harness.errors import ConfigError

GITLAB = Forge(
    name="GitLab",
    credential="GITLAB_TOKEN",
    credential_is="a project access token of the scope api, in a masked and protected variable",
    root="CI_API_V4_URL",
    default_root="https://gitlab.com/api/v4",
    headers={"Accept": "application/json"},
    updates_by="PUT",
    permission="a project access token has it by its role and scope. CI_JOB_TOKEN has not, and a protected "
    "variable is empty in pipelines of branches that are not protected.",
    renamed="The project has moved: give its number as --repository.",
    status_page="the status page of your GitLab (status.gitlab.com)",
)
_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}"
_PROJECT = re.compile(rf"[1-9][0-9]{{0,18}}|{_SEGMENT}(/{_SEGMENT}){{1,20}}")


def in_pipeline() -> bool:
    """Return whether this is a GitLab job, by its variables."""
    return os.environ.get("GITLAB_CI") == "true"


def path_of(project: str, *parts: str | int) -> str:
    """Return the path of something in a project, by number or path. Each part stays single. Raises
    ConfigError.
    """
    if not _PROJECT.fullmatch(project):
        advice = "expected its number, or GROUP/NAME. Set CI_PROJECT_ID, or give --repository."
        raise ConfigError(f"{quoted(project)!r} is no project: {advice}")
    return "".join(f"/{quote(str(part), safe='')}" for part in ("projects", project, *parts))
