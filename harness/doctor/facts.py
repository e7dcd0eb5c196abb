"""What the doctor knows of a machine, and the form in which it is judged. What could not be told is None or
empty, with a problem beside it.
"""

from __future__ import annotations

__all__ = ["Disk", "Facts", "Judge", "Status", "Told", "gib", "unknown"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.records import DeviceInfo, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A folder that the harness writes to, there already or not."""

    path: str
    free_bytes: int | None
    writable: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A device and the machine around it."""

    device: DeviceInfo | None = None
    device_problem: str = ""
    cuda_problem: str = ""
    """Why the default is no CUDA card; empty where it is one, or the device was named."""
    nvidia_driver: bool = False
    """Whether the host has NVIDIA's driver loaded."""
    cuda_version: str = ""
    """The newest CUDA that the driver knows."""
    compiler: str = ""

    probe: str = "none"
    identity: Mapping[str, str] = field(default_factory=dict)
    rest: Snapshot | None = None
    """The device before it is given any work."""
    rest_problem: str = ""
    unavailable: Mapping[str, str] = field(default_factory=dict)

    tick_ns: float | None = None
    globaltimer_tick_ns: float | None = None
    timers_problem: str = ""
    kernel_problem: str = ""
    """Why not even the harness's own small kernel runs."""

    load_average: float | None = None
    cpu_count: int = 1
    governor: str | None = None
    disks: Mapping[str, Disk] = field(default_factory=dict)
    """Disks by what they are for: results, cache, temporary."""
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)

    git: str | None = None
    """Its version; None where the command is not on PATH."""
    repository: str | None = None
    """The repository's top folder; None outside any."""
    shallow: bool = False
    repository_problem: str = ""
    machine: str = ""
    calibrated_at: str | None = None
    calibrated_driver: str | None = None
    calibration_problem: str = ""


Status = Literal["good", "note", "warn", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Told:
    """A status, what was found with its unit, and what to do about it."""

    status: Status
    found: str
    advice: str = ""


Judge = Callable[[Facts], "Told | None"]
"""None where the line does not apply."""


def unknown(why: str) -> Told:
    return Told("unknown", f"not told: {why}" if why else "not told")


def gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
