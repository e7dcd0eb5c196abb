"""Probes that need no hardware: one tells what it was told to, the other nothing and why."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from harness.device.telemetry.base import Limits
from harness.records import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STEADY = Snapshot(
    at_ns=0,
    sm_clock_mhz=1000.0,
    memory_clock_mhz=2000.0,
    temperature_c=50.0,
    power_w=100.0,
    energy_j=0.0,
    p_state=0,
    utilization_percent=100.0,
    clock_event_reasons=(),
    throttle_ns={"sw_power_cap": 0, "sync_boost": 0, "sw_thermal": 0, "hw_thermal": 0, "hw_power_brake": 0},
    memory_used_bytes=0,
)
"""A card that works undisturbed, to script from with dataclasses.replace."""

_UNTOLD = {"processes": "a scripted device has no processes", "load_average": "a scripted device is no host"}


class ScriptedProbe:
    """Plays a script: a sequence, each entry once and the last for ever, or a function of the clock.

    A snapshot is stamped with the clock as it is played; an exception in a sequence is raised. Light and full
    snapshots take the same next entry, and a light one leaves out what light snapshots leave out.
    """

    name = "scripted"

    def __init__(
        self,
        script: Sequence[Snapshot | Exception] | Callable[[int], Snapshot] = (STEADY,),
        *,
        unavailable: Mapping[str, str] | None = None,
        identity: Mapping[str, str] | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        if not callable(script) and not script:
            raise ValueError("a script needs at least one entry; got none")
        self.unavailable = dict(_UNTOLD if unavailable is None else unavailable)
        self._script = script
        self._identity = dict(identity or {})
        self._clock_ns = clock_ns
        self._played = 0

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

    def identity(self) -> Mapping[str, str]:
        return self._identity

    def limits(self) -> Limits:
        return Limits()

    def close(self) -> None:
        pass


class NoProbe(ScriptedProbe):
    """Tells nothing but the time, and gives one reason for every value."""

    name = "none"

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.unavailable = {field.name: reason for field in fields(Snapshot) if field.name != "at_ns"}

    def snapshot(self, *, full: bool = True) -> Snapshot:  # noqa: ARG002  # a probe's signature
        return Snapshot(at_ns=time.monotonic_ns())
