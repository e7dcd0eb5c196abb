"""The frozen records that flow from left to right through the harness, and their JSON form.

Every quantity has its unit in its name. A value that a device could not tell is None, with the reason in the
`unavailable` map beside it: never zero.
"""

from __future__ import annotations

__all__ = [
    "SCHEMA_VERSION",
    "Check",
    "DeviceInfo",
    "Host",
    "Launch",
    "Measurement",
    "Resources",
    "Row",
    "RowStatus",
    "Run",
    "Snapshot",
    "Source",
    "Telemetry",
    "Toolchain",
    "Verification",
]

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SCHEMA_VERSION = 1
"""Version of the stored record.

1  first version
"""

Extent3 = tuple[int, int, int]
L2Policy = Literal["cold", "hot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """One device as its backend describes it."""

    spec: str
    """How the command line names it, such as cuda:0."""
    backend: str
    name: str
    vendor: str
    driver: str
    kind: Literal["gpu", "cpu", "other"]
    arch: str
    """What binaries are built for: sm_90, or the OpenCL device and driver version."""
    uuid: str | None = None
    pci_bus_id: str | None = None
    compute_capability: tuple[int, int] | None = None
    compute_units: int
    memory_bytes: int
    l2_bytes: int | None = None
    """Bytes of the last cache that a cold measurement must flush; None where it cannot be flushed."""
    max_threads_per_block: int
    max_block: Extent3
    max_grid: Extent3
    max_shared_bytes: int
    """Most shared (local) memory that one block may use, opt-in included."""
    max_clock_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """What compiled the kernels."""

    compiler: str
    """Name and version, one line."""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the device."""

    os: str
    kernel: str
    cpu: str
    cpu_count: int
    memory_bytes: int
    python: str
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the kernels came from."""

    suite: str
    path: str
    """The suite's folder relative to its repository, or as given."""
    commit: str | None = None
    """Full hash; of HEAD where the working tree was measured; None outside a repository."""
    committed_at: str | None = None
    dirty: bool = False
    """True where the working tree was measured and the suite's tree differed from the commit."""
    tree_sha256: str = ""
    """Hash of every file that a build can read: suite folder and preludes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Launch geometry. `grid` counts blocks, `block` counts threads, x first."""

    grid: Extent3
    block: Extent3
    dynamic_shared_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a built kernel needs, as its compiler or driver reports it."""

    registers: int | None = None
    static_shared_bytes: int | None = None
    local_bytes: int | None = None
    """Bytes of local memory per thread: spills and local arrays."""
    max_threads_per_block: int | None = None
    binary_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One comparison of a kernel's output with the reference."""

    data: Literal["integers", "random"]
    seed: int
    passed: bool
    largest_error: float | None
    """Largest absolute error; None where an element was NaN or infinite."""
    largest_ratio: float | None
    """Largest ratio of an element's error to its bound: above 1 fails."""
    wrong: int
    """Elements beyond their bound, NaN and infinite ones included."""
    elements: int
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    passed: bool
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Raw times of one case on one device, in the order measured."""

    times_ns: tuple[float, ...]
    """Per slot: device time of one launch, the mean over the slot's launches."""
    launches_per_slot: int
    l2: L2Policy
    clock: str
    """What told the time: cuda-event, opencl-profiling, scripted."""
    tick_ns: float
    warmup_launches: int
    warmup_s: float
    settled: bool
    """False where times still moved when the warm-up budget ran out."""
    stopped_by: Literal["precision", "time", "slots"]
    started_ns: int
    """Host monotonic clock, to align with telemetry."""
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the card (or host) reports of itself at one moment. None means it could not tell."""

    at_ns: int
    """Host monotonic clock."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Since the driver was loaded."""
    p_state: int | None = None
    utilization_percent: float | None = None
    clock_event_reasons: tuple[str, ...] | None = None
    throttle_ns: Mapping[str, int] | None = None
    """Cumulative time throttled, by cause: sw_power_cap, sw_thermal, hw_thermal, hw_power_brake,
    sync_boost."""
    memory_used_bytes: int | None = None
    processes: tuple[int, ...] | None = None
    """Process ids with a compute context on the device, as the driver numbers them."""
    load_average: float | None = None
    """Host only: runnable processes over one minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Snapshots around and during one measurement."""

    probe: str
    """nvml, host, scripted or none."""
    before: Snapshot
    during: tuple[Snapshot, ...]
    after: Snapshot
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Field name to the reason why this device cannot tell it."""
    foreign_processes: tuple[int, ...] | None = None
    """Processes other than the harness's own that held a context during the measurement; None where
    unknown."""


RowStatus = Literal["measured", "verified", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one case. `reason` is a stable code; `message` is a sentence; `log` is evidence."""

    case: str
    kernel: str
    sizes: Mapping[str, int]
    dtype: str
    status: RowStatus
    reason: str = ""
    message: str = ""
    log: str = ""
    flop: int | None = None
    moved_bytes: int | None = None
    source_sha256: str | None = None
    launch: Launch | None = None
    resources: Resources | None = None
    verification: Verification | None = None
    measurement: Measurement | None = None
    telemetry: Telemetry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything known of one run of one suite at one commit on one device, apart from its rows."""

    schema_version: int = SCHEMA_VERSION
    harness_version: str
    run_id: str
    started_at: str
    """UTC, ISO 8601."""
    command: str
    """check, run or asv."""
    source: Source
    headline: str
    kernels: tuple[str, ...]
    """Every kernel of the suite, in ladder order."""
    device: DeviceInfo
    toolchain: Toolchain | None
    host: Host
    settings: Mapping[str, str | int | float | bool | None]
    peaks: Mapping[str, float] = field(default_factory=dict)
    """The card's peak by what limits it: float32, float16 in GFLOP/s; memory in GB/s. Empty where unknown."""
    identity: Mapping[str, str] = field(default_factory=dict)
    """What the card's driver says of it that stays: VBIOS, power limit, ECC, persistence and the like."""
