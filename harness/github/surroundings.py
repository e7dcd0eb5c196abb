"""What a workflow's runner tells its steps, and what it reads from them."""

from __future__ import annotations

__all__ = ["append_summary", "in_workflow", "links_of_run"]

import os
from collections.abc import Mapping
from pathlib import Path

from harness.errors import StoreError
from harness.review.links import Links

SUMMARY_LIMIT_BYTES = 2**20
"""Of a step. The runner drops the whole summary of one that wrote more."""


def in_workflow(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get("GITHUB_ACTIONS") == "true"


def links_of_run(environ: Mapping[str, str] = os.environ, *, history: str = "") -> Links:
    """Where the run that these variables describe is to be seen; empty outside a workflow."""
    server, name = environ.get("GITHUB_SERVER_URL", ""), environ.get("GITHUB_REPOSITORY", "")
    repository = f"{server}/{name}" if server and name else ""
    run = environ.get("GITHUB_RUN_ID", "")
    return Links(
        run=f"{repository}/actions/runs/{run}" if repository and run else "",
        history=history,
        repository=repository,
    )


def append_summary(text: str, environ: Mapping[str, str] = os.environ) -> None:
    """Add to the job's summary, in a workflow. Raises StoreError where it cannot be written."""
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    content = text.encode()
    try:
        with Path(path).open("ab") as file:
            if file.tell() + len(content) <= SUMMARY_LIMIT_BYTES:
                file.write(content)
    except OSError as error:
        raise StoreError(f"Cannot write the summary to {path}: {error.strerror or error}.") from None
