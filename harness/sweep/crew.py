"""Who does a sweep's work: jobs in, answers out, on one device or on many.

A job is one request to a worker process, so that whoever carries it out needs to know nothing of sweeps.
"""

from __future__ import annotations

__all__ = ["Answer", "Crew", "Job"]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.bench import protocol
from harness.records import DeviceInfo, Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request, on whichever device is free. Everything it compares is in it, so any device will do."""

    key: str
    """Unique within a sweep; what its answer is known by."""
    request: protocol.Prepare | protocol.Measure | protocol.Compare
    timeout_s: float
    fresh: bool = False
    """Whether it must have a process in which nothing ran before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    key: str
    reply: protocol.Prepared | protocol.Measured | protocol.Compared | protocol.Failed
    device: str
    """UUID or spec of the device that did it."""
    host_s: float
    """Wall-clock time, process start included."""


class Crew(Protocol):
    """One device or several of one model, ready to work; a context manager that ends what it started.

    A job whose process crashes or does not answer in time is answered with Failed, and costs nothing but
    itself. A device that is lost costs nothing either while another is left.
    """

    devices: tuple[DeviceInfo, ...]
    toolchain: Toolchain

    def do(self, jobs: Sequence[Job]) -> Iterator[Answer]:
        """Carry out jobs; answers come as they are ready, in any order."""
