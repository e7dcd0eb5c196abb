"""What a workflow's runner tells its steps, and what it reads from them."""

from __future__ import annotations

__all__ = ["append_summary", "in_workflow", "links_of_run"]

import os
from collections.abc import Mapping
from pathlib import Path

from harness.errors import StoreError
from harness.output.review.links import Links


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
    """Add to the step's summary, in a workflow: once, as a step may write 1 MiB. Raises StoreError where it
    cannot be written.
    """
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StoreError(f"Cannot write the summary to {path}: {error.strerror or error}.") from None
