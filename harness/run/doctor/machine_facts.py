"""The facts that the doctor knows of a machine. One that could not be told is None or empty, with a problem
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.records.types import DeviceInfo, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A folder that the harness writes to, there already or not."""

    path: str
    free_bytes: int | None
    writable: bool = True
    problem: str = ""


CountersFor = Literal["all", "administrators"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """A device and the machine around it."""

    device: DeviceInfo | None = None
    device_problem: str = ""
    cuda_problem: str = ""
    """Reason why the default is no CUDA card; empty where it is one, or the device was named."""
    nvidia_driver: bool = False
    """True where the host has NVIDIA's driver loaded."""
    cuda_version: str = ""
    """The newest CUDA that the driver knows."""
    compiler: str = ""

    probe: str = "none"
    identity: Mapping[str, str] = field(default_factory=dict)
    rest: Snapshot | None = None
    """The device before it is given any work."""
    rest_problem: str = ""
    unavailable: Mapping[str, str] = field(default_factory=dict)

    counters_for: CountersFor | None = None
    """Users who may read the card's hardware counters; None where NVIDIA's driver does not tell."""
    is_administrator: bool = False

    tick_ns: float | None = None
    globaltimer_tick_ns: float | None = None
    timers_problem: str = ""
    kernel_problem: str = ""
    """Reason why not even the harness's own small kernel runs."""

    load_average: float | None = None
    cpu_count: int = 1
    governor: str | None = None
    disks: Mapping[str, Disk] = field(default_factory=dict)
    """Disks by what they are for: results, cache, temporary."""
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)

    git: str | None = None
    """Version of git; None where the command is not on PATH."""
    repository: str | None = None
    """The repository's top folder; None outside any."""
    shallow: bool = False
    repository_problem: str = ""
    machine: str = ""
    calibrated_at: str | None = None
    calibrated_driver: str | None = None
    calibration_problem: str = ""

    @property
    def backend(self) -> str:
        """The device's, or empty."""
        return self.device.backend if self.device else ""

    @property
    def is_cpu(self) -> bool:
        return self.device is not None and self.device.kind == "cpu"
