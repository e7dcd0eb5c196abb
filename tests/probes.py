"""A probe that plays a script."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from harness.device.telemetry.fixed import STEADY, SteadyProbe
from harness.records.types import Snapshot


class ScriptedProbe(SteadyProbe):
    """Plays a sequence, each entry once and the last for ever, or a function of the clock.

    A snapshot is stamped with the clock as it is played; an exception in a sequence is raised. Light and full
    snapshots take the same next entry, and a light one leaves out what light snapshots leave out.
    """

    def __init__(
        self,
        script: Sequence[Snapshot | Exception] | Callable[[int], Snapshot] = (STEADY,),
        *,
        unavailable: Mapping[str, str] | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        if unavailable is not None:
            self.unavailable = unavailable
        self._script, self._clock_ns, self._played = script, clock_ns, 0

    def snapshot(self, *, full: bool = True) -> Snapshot:
        """Play the next entry; raise it where it is an exception."""
        at_ns = self._clock_ns()
        if callable(self._script):
            entry: Snapshot | Exception = self._script(at_ns)
        else:
            entry = self._script[min(self._played, len(self._script) - 1)]
            self._played += 1
        if isinstance(entry, Exception):
            raise entry
        told = replace(entry, at_ns=at_ns)
        return told if full else replace(told, throttle_ns=None, memory_used_bytes=None, processes=None)
