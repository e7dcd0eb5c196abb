"""The wall time of a session on a device, by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

STAGES = ("queue", "open", "build", "inputs", "reference", "verify", "measure", "judge")
"""Stages of a session.

In order: waiting for the device; starting and ending processes, which open it; building kernels; making
inputs; computing references; verifying; measuring; and the session's own work.
"""
_STAGES_OF_PROGRESS = {
    **{stage: stage for stage in STAGES},
    **dict.fromkeys(("library", "plant", "solo", "count", "launches"), "measure"),
}


class WallTime:
    """A clock that charges each moment to the stage that was entered last."""

    def __init__(self) -> None:
        self._spent_s = dict.fromkeys(STAGES, 0.0)
        self._stage, self._since = "judge", time.monotonic()

    def enter(self, stage: str) -> str:
        """Charge time to a stage from now on, and return the previous stage. A worker's progress may name the
        stage.
        """
        before, now = self._stage, time.monotonic()
        self._spent_s[before] += now - self._since
        # All other progress, such as a compiler's name, belongs to a build.
        self._stage, self._since = _STAGES_OF_PROGRESS.get(stage.partition(" ")[0], "build"), now
        return before

    @contextmanager
    def during(self, stage: str) -> Iterator[None]:
        """Charge the time of this block to a stage."""
        before = self.enter(stage)
        try:
            yield
        finally:
            self.enter(before)

    def spent_s(self) -> dict[str, float]:
        """Return the seconds of each stage so far."""
        self.enter(self._stage)
        return dict(self._spent_s)
