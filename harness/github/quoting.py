"""Others' texts on their way into a workflow's log, where a line can be a command to the runner."""

from __future__ import annotations

__all__ = ["error_line", "quoted"]

from harness.output.review.commands import workflow_command
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
