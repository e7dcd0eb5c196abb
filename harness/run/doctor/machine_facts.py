"""Facts that the doctor knows about a machine. An unknown fact is None or empty, with a problem beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.records.types import DeviceInfo, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A folder that the harness writes to, whether or not it exists yet."""

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
    """Reason why the default device is no CUDA card; empty if it is one, or if the device was named."""
    nvidia_driver: bool = False
    """True if the host has NVIDIA's driver loaded."""
    cuda_version: str = ""
    """The newest CUDA version that the driver supports."""
    compiler: str = ""

    probe: str = "none"
    identity: Mapping[str, str] = field(default_factory=dict)
    rest: Snapshot | None = None
    """The device before it gets any work."""
    rest_problem: str = ""
    unavailable: Mapping[str, str] = field(default_factory=dict)

    counters_for: CountersFor | None = None
    """Users who may read the card's hardware counters; None if NVIDIA's driver does not say."""
    is_administrator: bool = False

    tick_ns: float | None = None
    globaltimer_tick_ns: float | None = None
    timers_problem: str = ""
    kernel_problem: str = ""
    """Reason why even the harness's own small kernel does not run."""

    load_average: float | None = None
    cpu_count: int = 1
    governor: str | None = None
    disks: Mapping[str, Disk] = field(default_factory=dict)
    """Disks by purpose: results, cache, temporary."""
    python: str = ""
    bytecode_missing_in: str = ""
    """The harness's folder, if Python keeps no bytecode for its modules."""
    packages: Mapping[str, str] = field(default_factory=dict)

    git: str | None = None
    """Version of git; None if the command is not on PATH."""
    repository: str | None = None
    """The repository's top folder; None outside of a repository."""
    shallow: bool = False
    repository_problem: str = ""
    machine: str = ""
    calibrated_at: str | None = None
    calibrated_driver: str | None = None
    calibration_problem: str = ""

    @property
    def backend(self) -> str:
        """Return the device's backend, or ""."""
        return self.device.backend if self.device else ""

    @property
    def is_cpu(self) -> bool:
        return self.device is not None and self.device.kind == "cpu"
