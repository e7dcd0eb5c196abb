"""The wall time of a session on a device, by stage."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from harness.records.types import DeviceInfo

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
        self._lock = threading.Lock()
        """Two processes that verify at once report their progress in threads."""

    def enter(self, stage: str) -> str:
        """Charge time to a stage from now on, and return the previous stage. A worker's progress may name the
        stage.
        """
        with self._lock:
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


class Spent(Protocol):
    """A result with the wall time of its session by stage, in seconds."""

    @property
    def device(self) -> DeviceInfo: ...
    @property
    def wall_s(self) -> Mapping[str, float]: ...


def wall_time_lines(results: Iterable[Spent]) -> Iterator[str]:
    """Yield the elapsed time of this process and its stages, a line for each device."""
    import psutil

    # Linux tells the boot's time in whole seconds: the clock of the day would be up to a second off.
    started_s = psutil.Process().create_time() - psutil.boot_time()
    total_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    spent_s: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for result in results:
        stages = spent_s[result.device.spec, result.device.uuid or ""]
        stages |= {stage: stages.get(stage, 0.0) + seconds for stage, seconds in result.wall_s.items()}
    of_spec = Counter(spec for spec, _ in spent_s)
    for (spec, uuid), stages in spent_s.items():
        stages["other"] = total_s - sum(stages.values())  # for example imports, and loading suites
        told = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in stages.items())
        name = f"{spec} {uuid}" if of_spec[spec] > 1 else spec  # a cluster has a cuda:0 on each host
        where = f", {name}" if len(spent_s) > 1 else ""
        yield f"Wall time {total_s:.2f} s{where}: {told}."
