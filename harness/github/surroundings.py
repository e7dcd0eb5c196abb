"""The workflow's runner: what it tells its steps, what it reads from them, and texts that stand in its log.

A line of the log can be a command to the runner, so what others wrote is quoted on its way there.
"""

from __future__ import annotations

__all__ = ["append_file", "append_summary", "error_line", "in_workflow", "links_of_run", "quoted"]

import os
from pathlib import Path

from harness.errors import StoreError
from harness.output.review.commands import workflow_command
from harness.output.review.links import Links
from harness.system.texts import harmless


def quoted(text: str, most: int = 300) -> str:
    """One line of it that moves no cursor and is no command: the runner takes ``##[name]`` for one wherever
    in a line it stands, and ``::name::`` where a line begins.
    """
    line = " ".join(harmless(" ".join(text.split())).split())
    line = line if len(line) <= most else f"{line[: most - 3]}..."
    return line.replace("##[", "##\ufffd[").replace("::", ":\ufffd:")


def error_line(title: str, message: str) -> str:
    """The runner's command that shows an error on the page of its run."""
    return workflow_command("error", message, {"title": title})


def in_workflow() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def links_of_run(history: str = "") -> Links:
    """Where the run that this step belongs to is to be seen; empty outside a workflow."""
    server, name = os.environ.get("GITHUB_SERVER_URL", ""), os.environ.get("GITHUB_REPOSITORY", "")
    repository = f"{server}/{name}" if server and name else ""
    run = os.environ.get("GITHUB_RUN_ID", "")
    return Links(
        run=f"{repository}/actions/runs/{run}" if repository and run else "",
        history=history,
        repository=repository,
    )


def append_summary(text: str) -> None:
    """Add to the step's summary, in a workflow: once, as a step may write 1 MiB. Raises StoreError."""
    append_file("GITHUB_STEP_SUMMARY", "summary", text)


def append_file(variable: str, what: str, text: str) -> str:
    """Add to the file that a variable of the runner names. Gives its path, empty where it names none. Raises
    StoreError where it cannot be written.
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
