"""A worker process seen from its parent: an error with the reason where no answer comes."""

from __future__ import annotations

__all__ = ["Child"]

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from harness.bench.protocol import Open
from harness.errors import WorkerError
from harness.system.process import Failed, LostError, Process, Progress, Request

R = TypeVar("R")

_DOING = {
    "start": "starting",
    "build": "building the kernel",
    "parts": "looking for the largest dispatch",
    "reference": "computing the reference",
    "verify": "verifying",
    "measure": "measuring",
    "library": "measuring the vendor's library",
    "solo": "running each side alone",
}


class TimedOutError(WorkerError):
    reason = "timed-out"


class Child(Process):
    """One worker process."""

    def __init__(self, scratch: Path) -> None:
        # The worker is in a folder of its own, where it would look for relative paths.
        names = ("HARNESS_CACHE_DIR", "HARNESS_NULL_SCRIPT")
        paths = {name: str(Path(value).absolute()) for name in names if (value := os.environ.get(name))}
        super().__init__("harness.bench.worker", cwd=scratch, env=paths)

    def ask(
        self,
        request: Request[R],
        timeout_s: float,
        heard: Callable[[Progress], object] = lambda _progress: None,
    ) -> R | Failed:
        """Raises WorkerError where the process dies or does not answer in time; it is ended then."""
        last = Progress("start" if isinstance(request, Open) else "build")

        def hear(progress: Progress) -> None:
            nonlocal last
            last = progress
            heard(progress)

        try:
            return super().ask(request, timeout_s, hear)
        except LostError as lost:
            raise self._error(lost, last, timeout_s) from None

    def _error(self, lost: LostError, last: Progress, timeout_s: float) -> WorkerError:
        doing = f"{_DOING.get(last.stage, last.stage)} {last.side}".strip()
        messages = {
            "timed-out": f"No answer within {timeout_s:g} s while {doing}: the worker process was ended. "
            "If the kernel is only slow, raise --timeout.",
            "garbled": f"The worker process said what is no answer while {doing} ({lost.how}): something "
            "in it wrote where only the harness does.",
            "ended": f"The worker process {lost.how} while {doing}.",
        }
        kind = TimedOutError if lost.why == "timed-out" else WorkerError
        error = kind(messages[lost.why], log=self.log())
        error.side = last.side
        return error
