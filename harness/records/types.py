"""The frozen records that flow from left to right through the harness, and their JSON form.

Every quantity has its unit in its name. A value that a device could not tell is None, with the reason in the
`unavailable` map beside it: never zero.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

SCHEMA_VERSION = 4
"""Version of the stored record.

1  first version
2  comparisons: blocks and verdicts
3  gates drop no quads: `touched` in the place of `dropped`; `strays`
4  imported runs: what a file does not tell of its measurements, device and host is null
"""

METHOD_VERSION = "1"
"""The version of how things are measured; figures of two versions do not share a graph."""

Extent3 = tuple[int, int, int]
L2Policy = Literal["cold", "hot"]


def fields_of(record: object, *names: str) -> dict[str, Any]:
    """Return these attributes of a record by name, for JSON or for another record with the same fields."""
    return {name: getattr(record, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device as its backend describes it."""

    spec: str
    """The device's name on the command line, such as cuda:0."""
    backend: str
    name: str
    vendor: str
    driver: str
    kind: Literal["gpu", "cpu", "other"]
    arch: str
    """Architecture that binaries are built for: sm_90, or the OpenCL device and driver version."""
    uuid: str | None = None
    pci_bus_id: str | None = None
    compute_capability: tuple[int, int] | None = None
    compute_units: int | None
    """Multiprocessors; None where the device does not tell, as OpenGL's of any vendor but NVIDIA."""
    memory_bytes: int | None
    """Bytes of the device's memory; None where an imported file does not tell them."""
    l2_bytes: int | None = None
    """Bytes of the last cache that a cold measurement must flush; None where it cannot be flushed."""
    max_threads_per_block: int
    max_block: Extent3
    max_grid: Extent3
    max_shared_bytes: int
    """Most shared (local) memory that one block may use, opt-in included."""
    max_clock_mhz: int | None = None
    warp_size: int | None = None
    max_threads_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_bytes_per_sm: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The compiler of the kernels, and its options."""

    compiler: str
    """Name and version, one line."""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the device. Of an imported run what its file tells: empty or None is unknown."""

    os: str
    kernel: str
    cpu: str
    cpu_count: int | None
    memory_bytes: int | None
    python: str
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The folder and commit that the kernels came from."""

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
    suite_from: str | None = None
    """Full hash of the commit whose suite.py described kernels of `commit`, or "." for the working tree's;
    None where it is that commit's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Launch geometry. `grid` counts blocks, `block` counts threads, x first."""

    grid: Extent3
    block: Extent3
    dynamic_shared_bytes: int = 0
    dispatch: Extent3 | None = None
    """Most blocks of one dispatch: a larger grid is launched in parts. None where it is launched whole."""
    steps: tuple[Launch, ...] = ()
    """The launches of the kernels that run after it in one launch of the case."""
    cooperative: bool = False
    """True where its blocks may wait for one another, so that all of them are resident at once."""
    cluster: Extent3 | None = None
    """Blocks of a cluster, x first; None where the launch names none."""
    programmatic: bool = False
    """True where it may begin before the kernel before it has ended: programmatic dependent launch."""

    @property
    def attributes(self) -> str:
        """The attributes in words, such as ``cooperative, cluster 2x1x1``; empty for a plain launch."""
        cluster = f"cluster {'x'.join(map(str, self.cluster))}" if self.cluster else ""
        flags = "cooperative" if self.cooperative else "", "programmatic" if self.programmatic else ""
        return ", ".join(filter(None, (*flags, cluster)))

    @property
    def in_parts(self) -> bool:
        """True where the grid is larger than one dispatch."""
        return self.dispatch is not None and any(map(operator.gt, self.grid, self.dispatch))

    def parts(self) -> Iterator[tuple[Extent3, Extent3]]:
        """Yield the dispatches, as origin and extent in blocks; x changes fastest."""
        most = self.dispatch or self.grid
        starts = (range(0, whole, part) for whole, part in zip(self.grid, most, strict=True))
        for z, y, x in itertools.product(*reversed(tuple(starts))):
            origin = x, y, z
            width, height, depth = map(min, most, map(operator.sub, self.grid, origin))
            yield origin, (width, height, depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """A kernel that a Python function launched, as the framework that compiled it tells; None where it does
    not.
    """

    name: str
    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int | None = None
    code_sha256: str | None = None
    """A hash of the card's instructions; of a library, of its file."""
    settings: Mapping[str, int | str | bool] = field(default_factory=dict)
    """Choices of a compiler or an autotuner for it: warps, stages and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources that a built kernel needs, as its compiler or driver reports them."""

    registers: int | None = None
    static_shared_bytes: int | None = None
    local_bytes: int | None = None
    """Bytes of local memory per thread: spills and local arrays."""
    max_threads_per_block: int | None = None
    arch: str | None = None
    """Architecture that it was built for, such as sm_90a; None where the binary does not say."""
    binary_sha256: str | None = None
    code_sha256: str | None = None
    """A hash of the instructions and constants in the binary alone: other text, or another name of a file,
    leaves it as it is. That of a kernel that is compiled and not run is of its own part alone. None where the
    binary cannot be read."""
    spill_store_bytes: int | None = None
    """Bytes that a thread spills. This and all up to `kernels` is told of what is compiled and not run."""
    spill_load_bytes: int | None = None
    constant_bytes: int | None = None
    """Bytes of the bank that holds the kernel's parameters, without those of the launch itself."""
    code_bytes: int | None = None
    """Bytes of the kernel's instructions, without the padding at the end."""
    occupancy: float | None = None
    """Resident warps over those that a multiprocessor can hold, by arithmetic."""
    instructions: Mapping[str, int] = field(default_factory=dict)
    """Number of instructions by kind: FFMA, LDG.128, HMMA.16816. Empty where unknown."""
    loop_instructions: Mapping[str, int] = field(default_factory=dict)
    """The same for the loop that has most of the arithmetic."""
    kernels: tuple[CompiledKernel, ...] = ()
    """Kernels that a Python function launches, where its framework tells. `registers` is their maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A comparison of a kernel's output with the reference."""

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
    """Raw times of one case on one device, in the order measured.

    None is what the file of an imported run does not tell; a run of the harness's own has no None.
    """

    times_ns: tuple[float, ...]
    """Per slot: device time of one launch, the mean over the slot's launches."""
    launches_per_slot: int | None
    l2: L2Policy
    clock: str
    """Source of the times: cuda-event, opencl-profiling, gl-timer, host, scripted; or another harness's."""
    tick_ns: float | None
    warmup_launches: int | None
    warmup_s: float | None
    settled: bool | None
    """False where times still moved when the warm-up budget ran out."""
    stopped_by: Literal["precision", "time", "slots"] | None
    started_ns: int | None
    """Host monotonic clock, to align with telemetry."""
    ended_ns: int | None
    restored: bool = False
    """True where arrays that kernels read and write were put back before each launch, outside of its time. A
    hot L2 then holds what that copy left."""

    @property
    def span_ns(self) -> tuple[int, int]:
        """When it began and ended. Raises ValueError for an imported one, of which nobody knows."""
        if self.started_ns is None or self.ended_ns is None:
            raise ValueError("An imported measurement does not say when it was.")
        return self.started_ns, self.ended_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of the card (or host) at one moment, as it reports it. None means that it could not tell."""

    at_ns: int
    """Host monotonic clock."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Joules since the driver was loaded."""
    p_state: int | None = None
    utilization_percent: float | None = None
    clock_event_reasons: tuple[str, ...] | None = None
    throttle_ns: Mapping[str, int] | None = None
    """Cumulative by cause: sw_power_cap, sw_thermal, hw_thermal, hw_power_brake, sync_boost."""
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
    """Processes but the harness's own that held a context during the measurement; None where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryShare:
    """A vendor's own kernel measured in turns with the row's, in one process, on the same arrays."""

    kernel: str
    """The vendor's."""
    share: float
    """Its time over the row's kernel's, from quads: 1 is as fast, 2 is twice as fast as the vendor's."""
    low: float | None = None
    high: float | None = None
    """The interval that holds the share with 99.9 % confidence, as far as the quads of one process tell, and
    with processes that differ as they usually do; None where there were too few."""
    quads: int
    library_time_ns: float
    """Median over the vendor's slots, of one launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The results that a case's outputs were compared with, and how closely they agreed."""

    held_to: Literal["reference", "function", "base", "nothing"]
    """reference: the float64 reference of the suite. function: a function of the repository. base: base's
    outputs on the same inputs."""
    error: float | None = None
    """Largest difference in units of the tolerance: 0 is equal to the bit, 1 is at the tolerance. None where
    nothing was compared, or an element is NaN or infinite on one side."""
    function: str = ""
    """Name of the function that the outputs were compared with."""
    reason: str = ""
    """Stable code that says why outputs were compared with nothing: inputs-differ, not-seen, not-compared or
    random."""
    array: str = ""
    """Name of an input that base and head do not have alike; empty for none."""


RowStatus = Literal["measured", "verified", "ran", "built", "not-built", "skipped", "failed"]
"""measured: checked first, as `outputs` says; an imported row has a `verification` only where asv's file says
so. ran: launched, and not held to a float64 reference. built: compiled for an architecture, not run.
not-built: as verified, on the null device, which compiles nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The fields of a case's row and of a sweep's configuration alike; no `reason` where all went well."""

    reason: str = ""
    message: str = ""
    log: str = ""
    launch: Launch | None = None
    resources: Resources | None = None
    source_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Outcome):
    """The outcome of one case. `reason` is a stable code, `message` a sentence, and `log` the evidence."""

    case: str
    kernel: str
    sizes: Mapping[str, int]
    dtype: str
    status: RowStatus
    flop: int | None = None
    moved_bytes: int | None = None
    verification: Verification | None = None
    """The checks against a reference; None where outputs were compared with nothing."""
    outputs: Outputs | None = None
    """Results that the outputs were compared with; None in older and imported records, or if nothing ran."""
    measurement: Measurement | None = None
    telemetry: Telemetry | None = None
    library: LibraryShare | None = None
    """Comparison with the vendor's own kernel."""
    library_missing: str = ""
    """Sentence that says why `library` is None where the suite has such a kernel for this backend."""

    @property
    def is_verified(self) -> bool:
        """True where a float64 reference found the outputs right."""
        by_reference = self.outputs is None or self.outputs.held_to == "reference"
        return by_reference and self.verification is not None and self.verification.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The fields that describe a run, a comparison and a sweep alike, apart from what was found."""

    schema_version: int = SCHEMA_VERSION
    harness_version: str
    started_at: str
    """UTC, ISO 8601."""
    device: DeviceInfo
    toolchain: Toolchain | None
    host: Host


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedJob(Described):
    """The fields that describe a run and a comparison alike."""

    run_id: str
    command: str
    """check, run, asv; static, of kernels that were compiled and not run; import, of another harness's files;
    of comparisons compare, calibrate or bisect."""
    kernels: tuple[str, ...]
    """Every kernel of the suite, of head's in a comparison, in ladder order."""
    settings: Mapping[str, str | int | float | bool | None]
    identity: Mapping[str, str] = field(default_factory=dict)
    """Lasting properties of the card by its driver: VBIOS, power limit, ECC, persistence and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(DescribedJob):
    """Everything known of one run of one suite at one commit on one device, apart from its rows."""

    source: Source
    headline: str
    peaks: Mapping[str, float] = field(default_factory=dict)
    """The card's peak by what limits it: float32, float16 in GFLOP/s; memory in GB/s. Empty where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quad:
    """Four slots in a row, two of base (A) and two of head (B), as they were measured."""

    order: Literal["ABBA", "BAAB"]
    times_ns: tuple[float, float, float, float]
    """Per slot, in the order measured: device time of one launch, the mean over the slot's launches."""
    cycles: tuple[float, float, float, float] | None = None
    """Per slot: SM cycles of one launch, by the device's own counter."""
    sm_clock_mhz: tuple[float, float, float, float] | None = None
    """Per slot: cycles over the device's own time, flushes between the launches included."""
    canary_ns: float | None = None
    """Time of a small fixed kernel measured before this quad; None where there was none before this one."""
    canary_cycles: float | None = None
    started_ns: int
    """Host monotonic clock, to align with telemetry."""
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedBlock:
    """Every quad of one pair of kernels in one process, with what the card said meanwhile.

    Of executables that are compared, of several processes: each slot is one of its own, which warms up as it
    likes.
    """

    quads: tuple[Quad, ...]
    launches_per_slot: int
    l2: L2Policy
    clock: str
    tick_ns: float
    warmup_s: float | None
    settled: bool | None
    gpu_s: float
    """Device time that the quads took, with lead-in, flushes and canaries, without the warm-up."""
    clock_noise: float | None = None
    """Relative standard deviation of a slot's clock from nothing but the ticks of the device's timer."""
    telemetry: Telemetry | None = None
    restored: bool = False
    """True where arrays that kernels read and write were put back before each launch, as in Measurement."""
    in_turns: bool = False
    """True where each side had a process of its own, and the two took turns slot by slot."""

    def median_ns(self, arm: str) -> float:
        """Return the median time of the slots of one arm, A or B."""
        slots = (zip(quad.order, quad.times_ns, strict=True) for quad in self.quads)
        return median(time_ns for quad in slots for each, time_ns in quad if each == arm)


VerdictStatus = Literal[
    "regression",
    "improvement",
    "unchanged",
    "inconclusive",
    "invalid",
    "identical",
    "new",
    "missing",
    "failed",
]
FAILING = ("regression", "missing", "failed", "invalid", "inconclusive", "improvement", "new")
"""Verdicts that can fail a comparison."""


def nothing_compared(statuses: Iterable[str]) -> bool:
    """Return whether no case of a comparison is at both commits: then nothing could be fine."""
    return all(status in ("new", "missing") for status in statuses)


RiskKind = Literal["spill", "occupancy", "stack", "narrower", "unroll", "loop", "registers"]
"""Kinds of differences between builds that have been seen to cost time."""
DifferenceStatus = Literal["identical", "changed", "new", "missing", "failed", "not-built"]
"""Outcomes of a build, head against base."""
TWIN_SAME, TWIN_PLANTED = "twin.same", "twin.planted"
"""A comparison's test of itself: a kernel against itself, and against itself with a slowdown planted."""
TWINS = (TWIN_SAME, TWIN_PLANTED)
Attribution = Literal["code", "clocks", "thermal", "power", "contention", "environment"]


CauseKind = Literal[
    "atomics",
    "bank-conflicts",
    "barriers",
    "cache-misses",
    "dependencies",
    "double-precision",
    "exposed-latency",
    "instruction-fetch",
    "local-memory",
    "more-accesses",
    "more-instructions",
    "more-shared-accesses",
    "narrower-accesses",
    "occupancy",
    "tensor-cores-unused",
    "uncoalesced",
]


@dataclass(frozen=True, slots=True)
class Risk:
    """A difference between two builds of a kernel that has been seen to cost time."""

    kind: RiskKind
    message: str
    """``0 → 48 bytes spilled``."""
    place: str = ""
    """Line of the source, as ``file.cu:12``; empty where it is not known."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of a slowdown that hardware counters show."""

    kind: CauseKind
    share: float
    """Share of head's extra cycles that it can explain, from 0 to 1."""
    message: str
    """``bank conflicts of a shared-memory access rose from 0 to 31``."""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """Instructions close to one another: of one operation that one side has, or alike on both sides."""

    change: Literal["added", "removed", "readdressed", "alike"]
    text: str = ""
    """The first of them: ``@P0 LDG.E.128 R4, desc[UR4][R2.64]``; empty for what is alike."""
    place: str = ""
    """Its source line, as ``file.cu:12``; empty if unknown."""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDifference:
    """The machine code of the hottest loop of base and head, aligned."""

    base_place: str
    head_place: str
    """The source lines of each loop, as ``file.cu:9-11, 14``; empty where they are unknown."""
    base_count: int
    head_count: int
    """Instructions of a turn."""
    added: int
    removed: int
    moved: int
    """Instructions that both sides have, in another order."""
    readdressed: int
    """Instructions that both sides have, with other addresses or constants."""
    lines: tuple[CodeLine, ...]
    """In the order of the code; at most 48."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What hardware counters and compiled code tell of a slowdown, read after the verdict."""

    base_counters: Mapping[str, float] = field(default_factory=dict)
    head_counters: Mapping[str, float] = field(default_factory=dict)
    """Counters of one launch, as harness.device.counters names them; medians of several launches."""
    causes: tuple[Cause, ...] = ()
    """The largest share first; empty where no cause stands out."""
    problem: str = ""
    """Reason why there are no counters."""
    risks: tuple[Risk, ...] = ()
    """Differences of the compiled code that have been seen to cost time."""
    loop: LoopDifference | None = None
    """Difference of the hottest loops; None where they are alike or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Head over base, minus 1: positive is slower (or more cycles, or more energy)."""

    effect: float
    low: float
    high: float
    """The interval that holds the effect with the comparison's confidence."""
    processes: int
    quads: int
    process_effects: tuple[float, ...] = ()
    """The effect in each process, in the order measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strays:
    """Slots that took far longer than their arm's usual time."""

    base: int
    head: int
    slots: int
    """Number of slots of each arm, strays included."""
    cost: float
    """Average extra cost of head's over base's, as a share of the usual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The measurements of one side of a comparison."""

    time_ns: float | None = None
    """Median over every kept slot, of one launch."""
    sm_clock_mhz: float | None = None
    alone_mhz: float | None = None
    """Its SM clock when it ran by itself, back to back; None where it did not."""
    alone_w: float | None = None
    """The power that it drew then."""
    source_sha256: str | None = None
    launch: Launch | None = None
    resources: Resources | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one case of a comparison, in codes and numbers.

    `reason` is a stable code. `message` holds what neither they nor the figures tell, such as a compiler's
    error; in older records the figures as well, in words. `output.sentences` makes words of it.
    """

    case: str
    kernel: str
    sizes: Mapping[str, int]
    dtype: str
    status: VerdictStatus
    reason: str
    message: str
    log: str = ""
    side: Literal["base", "head", ""] = ""
    """Side at which a failed case failed; empty where it is unknown."""
    outputs: Outputs | None = None
    """Results that head's outputs were held to; None in older records, where nothing ran, and of programs and
    files, whose outputs nobody sees."""
    time: Effect | None = None
    cycles: Effect | None = None
    energy: Effect | None = None
    strays: Strays | None = None
    smallest_visible: float | None = None
    """The smallest slowdown that would be called a regression nine times in ten with this much noise, were
    all looks had."""
    noise_floor: float | None = None
    """The same as the card's calibration found it for this case; None without one."""
    clock_exponent: float | None = None
    """Exponent by which time follows the SM clock: 1 where time is cycles over clock, 0 where the clock does
    not matter; None where the clock did not move enough to tell."""
    power_capped: bool | None = None
    """True where the driver lowered clocks for the power limit meanwhile; None where unknown."""
    attribution: Attribution | None = None
    base: Arm | None = None
    head: Arm | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    order_p: float | None = None
    """p-value that a slot's place within its quad, or the kernel before it, matters."""
    touched: Mapping[str, int] = field(default_factory=dict)
    """Quads that something else than the kernels touched, by gate. They count."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Gates that this device gives no data for, with the reason."""
    settings_changed: tuple[str, ...] = ()
    """Settings of base's process that head's had otherwise, such as ``torch.get_num_threads: 8 → 1``, known
    of sides that have a process each; and the arithmetic, where a rate tells that only one side uses TF32."""
    diagnosis: Diagnosis | None = None
    """The reason of a regression; None where nobody asked, and of other verdicts."""
    gpu_s: float = 0.0
    complete: bool = True
    """False where the comparison was interrupted, or its budget spent, before the last planned look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBlock:
    """The measurements of one case by one process."""

    case: str
    process: int
    """The number of the comparison's process, from 1."""
    confirming: bool = False
    """True where it was measured to confirm or refute the verdict of earlier processes."""
    retried: bool = False
    """In records up to schema 2: the gates threw the block out, and the same process measured another."""
    block: PairedBlock
    touched: Mapping[str, int] = field(default_factory=dict)
    """Quads that a gate caught, by gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(DescribedJob):
    """Everything known of one comparison of two commits of a suite on one device, apart from its verdicts."""

    base: Source
    head: Source
    toolchains: Mapping[str, Toolchain] = field(default_factory=dict)
    """Compilers by side, where one source was compiled by two; else empty."""
    calibrated_at: str | None = None
    """When the card's own noise was last measured; None for one that is judged by an assumption."""
