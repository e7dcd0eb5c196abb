"""Probes without hardware: one reports constant values, the other no values, with a reason."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from harness.device.telemetry.base import DeviceLimits
from harness.records.types import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

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
"""An undisturbed card."""


class SteadyProbe:
    """The null device's probe."""

    name = "scripted"
    unavailable: Mapping[str, str] = {
        "processes": "a scripted device has no processes",
        "load_average": "a scripted device is no host",
    }

    def snapshot(self, *, full: bool = True) -> Snapshot:
        snapshot = replace(STEADY, at_ns=time.monotonic_ns())
        return snapshot if full else replace(snapshot, throttle_ns=None, memory_used_bytes=None)

    def identity(self) -> Mapping[str, str]:
        return {}

    def limits(self) -> DeviceLimits:
        return DeviceLimits()

    def close(self) -> None:
        pass


class NoProbe(SteadyProbe):
    """A probe that only reports the time, and gives one reason for all other values."""

    name = "none"

    def __init__(self, reason: str) -> None:
        self.unavailable = {field.name: reason for field in fields(Snapshot) if field.name != "at_ns"}

    def snapshot(self, *, full: bool = True) -> Snapshot:  # noqa: ARG002  # a probe's signature
        return Snapshot(at_ns=time.monotonic_ns())
