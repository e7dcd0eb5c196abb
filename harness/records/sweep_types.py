"""The settings and results of a sweep: frozen records, stored as JSON Lines. Reports are made from them."""

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
    """Counts from 1, in the suite's own order: size by size, and within a size as the suite lists them."""
    case: str
    sizes: Mapping[str, int]
    parameters: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """Settings that define a sweep. A sweep with other settings is another sweep."""

    seed: int = 1
    """Seed of the data, and of the order in which configurations are screened."""
    keep: float = 0.25
    """Share of a size's configurations that a round of halving keeps, by time."""
    near: float = 0.05
    """Whatever is this near the best is kept too: screening cannot tell them apart."""
    most_finalists: int = 8
    final_processes: int = 3
    """Fresh processes in which the winner is measured again: it was chosen for being lucky too."""
    timeout_s: float = 60.0
    rules: tuple[str, ...] = ()
    """Rules beside the tuning's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Described):
    """Everything known of one sweep apart from its rows: the first line of its file."""

    schema_version: int = SCHEMA_VERSION
    sweep_id: str
    """A hash of what was asked: source, compiler, device model, driver, configurations, settings. Two sweeps
    with one id would find the same, so the second continues or repeats the first."""
    source: Source
    kernel: str
    parameters: tuple[str, ...]
    total: int
    """Number of configurations, rejected ones included."""
    devices: tuple[str, ...]
    """Every device by its UUID, or by its spec where it has none. All are of the model of `device`, which is
    the first."""
    settings: SweepSettings
    peaks: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parameters that are one thing together, by what tables call it, as the suite's Tuning has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow(Outcome):
    """The outcome of one configuration."""

    configuration: Configuration
    status: SweepStatus
    same_as: int | None = None
    """The configuration with the same compiled code and launch, whose figures these are."""
    place: int = 0
    """Its place in the random order of screening, from 1; 0 for what was not screened itself."""
    round: int = 0
    """Last round of the configuration: 0 is screening, 1 and above are halving, in pairs against the best
    configuration of its size."""
    time_ns: float | None = None
    """Median device time of one launch, when screened."""
    time_low_ns: float | None = None
    time_high_ns: float | None = None
    behind: Effect | None = None
    """Its time over its size's best in pairs, in the last round that it came to; positive is slower."""
    flop: int | None = None
    moved_bytes: int | None = None
    dtype: str = "float32"
    device: str = ""
    """UUID or spec of what measured it."""
    gpu_s: float = 0.0
    """Time on the device of warm-up and measuring, pairs included; what verifying took is not in it."""
    host_s: float = 0.0
    """Wall-clock time of building, verifying and measuring it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedConfiguration(Outcome):
    """The outcome of compiling and loading one configuration."""

    number: int
    code: str = ""
    """Identity of the compiled code, launch and arguments. Configurations of one size with equal `code` are
    duplicates."""
    device: str = ""
    host_s: float = 0.0
    """Its share of the time that the job took which prepared it with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Two configurations of one size against each other, in pairs, in one process."""

    round: int
    number: int
    """The configuration that is head, and the one that it was held `against`, which is base."""
    against: int
    effect: Effect
    device: str = ""
    gpu_s: float = 0.0
    host_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The best configuration of one size, measured once more in a fresh process."""

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
    """The number of the winner's configuration."""
    time_ns: float
    """Median over the processes of their medians, of one launch."""
    process_times_ns: tuple[float, ...]
    tied: tuple[int, ...] = ()
    """Configurations that tie with the winner: their interval in pairs holds zero."""
    gpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    sweep: Sweep
    rows: tuple[SweepRow, ...]
    finals: tuple[Final, ...]
    """The best of each size, once it is decided."""
    path: str = ""
    complete: bool = False
    reused: int = 0
    """Rows that an earlier run of the same sweep had stored."""
    compile_s: float = 0.0
    """Wall-clock time of generating and compiling, in this run."""
    measure_s: float = 0.0
    """Wall-clock time of screening, halving and finals, in this run."""
    problem: str = ""
    """Reason why the file is incomplete though the rows here are whole, such as a full disk; or why the sweep
    could not go on."""
    interrupted: bool = False
