"""The settings and results of a sweep: frozen records, stored as JSON Lines and read by reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.numbers import Value
from harness.records.types import Described, Effect, Outcome, Source

SCHEMA_VERSION = 1

SweepStatus = Literal["measured", "rejected", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    number: int
    """Number from 1 in the suite's order: size by size, and within a size as the suite lists them."""
    case: str
    sizes: Mapping[str, int]
    parameters: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """Settings that define a sweep. A sweep with other settings is another sweep."""

    seed: int = 1
    """Seed of the data, and of the order in which configurations are screened."""
    keep: float = 0.25
    """Share of a size's configurations that a round of halving keeps, the fastest ones."""
    near: float = 0.05
    """Configurations within this share of the best are kept too: screening cannot distinguish them."""
    most_finalists: int = 8
    final_processes: int = 3
    """Fresh processes in which the winner is measured again, because it was partly chosen for its luck."""
    timeout_s: float = 60.0
    rules: tuple[str, ...] = ()
    """Rules in addition to the tuning's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Described):
    """All facts of one sweep apart from its rows: the first line of its file."""

    schema_version: int = SCHEMA_VERSION
    sweep_id: str
    """Hash of the request: source, compiler, device model, driver, configurations, settings.

    Two sweeps with one id would have the same result, so the second continues or repeats the first.
    """
    source: Source
    kernel: str
    parameters: tuple[str, ...]
    total: int
    """Number of configurations, rejected ones included."""
    devices: tuple[str, ...]
    """UUID of every device, or its spec without a UUID. All are of the model of `device`, which
    is the first."""
    settings: SweepSettings
    peaks: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups of parameters with their names in tables, from the suite's Tuning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow(Outcome):
    """The result of one configuration."""

    configuration: Configuration
    status: SweepStatus
    same_as: int | None = None
    """The configuration with the same compiled code and launch, whose values these are."""
    place: int = 0
    """Position in the random order of screening, from 1; 0 if it was not screened."""
    round: int = 0
    """Last round of the configuration.

    0 is screening. From 1 on it is halving, in pairs against the best configuration of its size.
    """
    time_ns: float | None = None
    """Median device time of one launch, from screening."""
    time_low_ns: float | None = None
    time_high_ns: float | None = None
    behind: Effect | None = None
    """Its time over its size's best in pairs, in its last round; positive is slower."""
    flop: int | None = None
    moved_bytes: int | None = None
    dtype: str = "float32"
    device: str = ""
    """UUID or spec of the measuring device."""
    gpu_s: float = 0.0
    """Device time of warm-up and measuring in seconds, pairs included, without verification."""
    host_s: float = 0.0
    """Wall-clock time of building, verifying and measuring it, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedConfiguration(Outcome):
    """The outcome of compiling and loading one configuration."""

    number: int
    code: str = ""
    """Identity of the compiled code, launch and arguments.

    Configurations of one size with equal `code` are duplicates.
    """
    device: str = ""
    host_s: float = 0.0
    """Its share in the time of the job that prepared it, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Two configurations of one size compared in pairs in one process."""

    round: int
    number: int
    """The configuration that is head; `against` is base."""
    against: int
    effect: Effect
    device: str = ""
    gpu_s: float = 0.0
    host_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The best configuration of one size, measured again in a fresh process."""

    number: int
    process: int
    time_ns: float
    """Median time of one launch."""
    device: str = ""
    gpu_s: float = 0.0
    host_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The best configuration of one size, measured again in fresh processes."""

    sizes: Mapping[str, int]
    number: int
    """Number of the winning configuration."""
    time_ns: float
    """Time of one launch: the median of the processes' medians."""
    process_times_ns: tuple[float, ...]
    tied: tuple[int, ...] = ()
    """Configurations that tie with the winner: their paired interval contains zero."""
    gpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    sweep: Sweep
    rows: tuple[SweepRow, ...]
    finals: tuple[Final, ...]
    """The best of each size, once decided."""
    path: str = ""
    complete: bool = False
    reused: int = 0
    """Rows stored by an earlier run of the same sweep."""
    compile_s: float = 0.0
    """Wall-clock time of generating and compiling in this run, in seconds."""
    measure_s: float = 0.0
    """Wall-clock time of screening, halving and finals in this run, in seconds."""
    problem: str = ""
    """Reason why the file is incomplete, such as a full disk, or why the sweep could not continue.

    The rows here are complete.
    """
    interrupted: bool = False
