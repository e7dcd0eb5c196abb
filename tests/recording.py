"""A null device that writes down what it is asked for, and the clock of its host."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.device.backends.null import NullDevice, devices

START_NS = 10**9


class Clock:
    """The host's clock, which moves only while a device is waited for."""

    def __init__(self) -> None:
        self.now_ns = float(START_NS)

    def monotonic_ns(self) -> int:
        return int(self.now_ns)

    def monotonic(self) -> float:
        return self.now_ns / 1e9


class RecordingDevice(NullDevice):
    """Has a log, with F for a flush and S for a wait. `info` changes what the device says of itself."""

    flush_ns = 0.0

    def __init__(self, clock: Clock, **info: Any) -> None:
        super().__init__(dataclasses.replace(devices()[0], **info), {})
        self.host = clock
        self.log: list[str] = []
        self.pending_ns = 0.0

    def enqueue(self, time_ns: float) -> None:
        """Something is enqueued that takes so long."""
        self.pending_ns += time_ns

    def flush_l2(self) -> None:
        self.log.append("F")
        self.enqueue(self.flush_ns)

    def synchronize(self) -> None:
        super().synchronize()
        self.log.append("S")
        self.host.now_ns += self.pending_ns
        self.pending_ns = 0.0
