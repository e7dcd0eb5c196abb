"""The frozen records that the packages pass to each other, and their JSON form.

Every quantity has its unit in its name. A value that a device did not report is None, never zero, with the
reason in the `unavailable` map beside it.
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
3  gates drop no quads: `touched` replaces `dropped`; `strays`
4  imported runs: values that a file lacks on its measurements, device and host are null
"""

METHOD_VERSION = "1"
"""Version of the measuring method. Values of two versions do not share a graph."""

Extent3 = tuple[int, int, int]
L2Policy = Literal["cold", "hot"]


def fields_of(record: object, *names: str) -> dict[str, Any]:
    """Return a record's attributes by name, for JSON or for another record with the same fields."""
    return {name: getattr(record, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device in its backend's description."""

    spec: str
    """Name of the device on the command line, such as cuda:0."""
    backend: str
    name: str
    vendor: str
    driver: str
    kind: Literal["gpu", "cpu", "other"]
    arch: str
    """Architecture of binaries: sm_90, or the OpenCL device and driver version."""
    uuid: str | None = None
    pci_bus_id: str | None = None
    compute_capability: tuple[int, int] | None = None
    compute_units: int | None
    """Multiprocessors; None if the device does not report them, like OpenGL except on NVIDIA."""
    memory_bytes: int | None
    """Bytes of the device's memory; None if an imported file lacks them."""
    l2_bytes: int | None = None
    """Bytes of the last cache, which a cold measurement flushes; None if it cannot be flushed."""
    max_threads_per_block: int
    max_block: Extent3
    max_grid: Extent3
    max_shared_bytes: int
    """Largest shared (local) memory of one block, opt-in included."""
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
    """The machine around the device. For an imported run, empty or None means unknown."""

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
    """Full hash; HEAD's if the working tree was measured; None outside of a repository."""
    committed_at: str | None = None
    dirty: bool = False
    """True if the working tree was measured and the suite's files differed from the commit."""
    tree_sha256: str = ""
    """Hash of every file that a build can read: suite folder and preludes."""
    suite_from: str | None = None
    """Full hash of the commit whose suite.py described kernels of `commit`, or "." for the working tree's.

    None for the commit's own.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Launch geometry. `grid` counts blocks, `block` counts threads, x first."""

    grid: Extent3
    block: Extent3
    dynamic_shared_bytes: int = 0
    dispatch: Extent3 | None = None
    """Most blocks of one dispatch. A larger grid is launched in parts. None for a whole launch."""
    steps: tuple[Launch, ...] = ()
    """The launches of the kernels that run after it in one launch of the case."""
    cooperative: bool = False
    """True where its blocks may wait for one another, so that all of them are resident at once."""
    cluster: Extent3 | None = None
    """Blocks of a cluster, x first; None where the launch names none."""
    programmatic: bool = False
    """True where it may begin before the kernel before it has ended: programmatic dependent launch."""
    graph: bool = False
    """True where it is captured in a CUDA graph and run by a replay of the graph."""
    cards: int = 1
    """Cards of one host that it runs on: the session's, and those after it."""

    @property
    def has_attributes(self) -> bool:
        """True if the driver is given attributes with the launch."""
        return self.cooperative or self.programmatic or self.cluster is not None

    @property
    def attributes(self) -> str:
        """Its kind in words, such as ``cooperative, cluster 2x1x1``; empty for a plain launch."""
        flags = {"graph": self.graph, "cooperative": self.cooperative, "programmatic": self.programmatic}
        cluster = [f"cluster {'x'.join(map(str, self.cluster))}"] if self.cluster else []
        cards = [f"{self.cards} cards"] if self.cards > 1 else []
        return ", ".join([*(name for name, is_set in flags.items() if is_set), *cluster, *cards])

    @property
    def in_parts(self) -> bool:
        """Return True if the grid is larger than one dispatch."""
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
    """A kernel that a Python function launched. Values that the framework does not report are None."""

    name: str
    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int | None = None
    code_sha256: str | None = None
    """Hash of the card's instructions; for a library, of its file."""
    settings: Mapping[str, int | str | bool] = field(default_factory=dict)
    """A compiler's or autotuner's choices: warps, stages and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of a built kernel, from its compiler or driver."""

    registers: int | None = None
    static_shared_bytes: int | None = None
    local_bytes: int | None = None
    """Bytes of local memory per thread: spills and local arrays."""
    max_threads_per_block: int | None = None
    arch: str | None = None
    """Architecture of the build, such as sm_90a; None if the binary does not say."""
    binary_sha256: str | None = None
    code_sha256: str | None = None
    """Hash of only the instructions and constants in the binary: another text or file name does not change
    it.

    For a kernel that is compiled and not run, it covers only the kernel's own part. None if the binary cannot
    be read.
    """
    spill_store_bytes: int | None = None
    """Bytes that a thread spills. The fields from here to `kernels` are for kernels that are compiled and not
    run."""
    spill_load_bytes: int | None = None
    constant_bytes: int | None = None
    """Bytes of the bank with the kernel's parameters, without those of the launch itself."""
    code_bytes: int | None = None
    """Bytes of the kernel's instructions, without padding at the end."""
    occupancy: float | None = None
    """Computed share of resident warps in those that a multiprocessor can hold."""
    instructions: Mapping[str, int] = field(default_factory=dict)
    """Number of instructions by kind: FFMA, LDG.128, HMMA.16816. Empty if unknown."""
    loop_instructions: Mapping[str, int] = field(default_factory=dict)
    """The same for the loop with most of the arithmetic."""
    kernels: tuple[CompiledKernel, ...] = ()
    """Kernels that a Python function launches, if its framework reports them. `registers` is
    their maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A comparison of a kernel's output with the reference."""

    data: Literal["integers", "random"]
    seed: int
    passed: bool
    largest_error: float | None
    """Largest absolute error; None if an element was NaN or infinite."""
    largest_ratio: float | None
    """Largest ratio of an element's error to its bound. Above 1 the check fails."""
    wrong: int
    """Number of elements beyond their bound, including NaN and infinite ones."""
    elements: int
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    passed: bool
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Raw times of one case on one device, in the order measured.

    None means that an imported file lacks the value. A run of the harness has no None.
    """

    times_ns: tuple[float, ...]
    """Device time of one launch for each slot, the mean over the slot's launches."""
    launches_per_slot: int | None
    l2: L2Policy
    clock: str
    """Clock of the times: cuda-event, opencl-profiling, gl-timer, host, scripted; or another harness's."""
    tick_ns: float | None
    warmup_launches: int | None
    warmup_s: float | None
    settled: bool | None
    """False if times still changed when the warm-up budget ran out."""
    stopped_by: Literal["precision", "time", "slots"] | None
    started_ns: int | None
    """Moment on the host's monotonic clock, to align with telemetry."""
    ended_ns: int | None
    restored: bool = False
    """True if arrays that kernels read and write were reset before each launch, outside of its time.

    A hot L2 then holds the data of that copy.
    """

    @property
    def span_ns(self) -> tuple[int, int]:
        """Return its begin and end. Raises ValueError for an imported one, whose moments are unknown."""
        if self.started_ns is None or self.ended_ns is None:
            raise ValueError("An imported measurement does not say when it was.")
        return self.started_ns, self.ended_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of the card (or host) at one moment. None means that it did not report the value."""

    at_ns: int
    """Moment on the host's monotonic clock."""
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
    """Cumulative time by cause: sw_power_cap, sw_thermal, hw_thermal, hw_power_brake, sync_boost."""
    memory_used_bytes: int | None = None
    processes: tuple[int, ...] | None = None
    """Ids of processes with a compute context on the device, in the driver's numbering."""
    load_average: float | None = None
    """Host only: runnable processes, averaged over one minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Snapshots around and during one measurement."""

    probe: str
    """nvml, host, scripted or none."""
    before: Snapshot
    during: tuple[Snapshot, ...]
    after: Snapshot
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Reason why this device does not report a value, by field name."""
    foreign_processes: tuple[int, ...] | None = None
    """Other processes that held a context during the measurement; None if unknown."""
    beside: tuple[Telemetry, ...] = ()
    """The telemetry of the further cards that a case of the suite spans, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryShare:
    """A vendor's kernel measured alternately with the row's, in one process, on the same arrays."""

    kernel: str
    """Name of the vendor's kernel."""
    share: float
    """Its time over the row's kernel's, from quads: 1 is as fast, 2 is twice as fast as the vendor's."""
    low: float | None = None
    high: float | None = None
    """Ends of the 99.9 % interval, from the quads of one process and the usual spread between processes.

    None if there were too few quads.
    """
    quads: int
    library_time_ns: float
    """Median of the vendor's slots, for one launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The reference of a case's outputs, and how closely they agreed."""

    held_to: Literal["reference", "function", "base", "nothing"]
    """Kind of reference.

    reference: the float64 reference of the suite. function: a function of the repository. base: base's
    outputs on the same inputs.
    """
    error: float | None = None
    """Largest difference in units of the tolerance: 0 is equal to the bit, 1 is at the tolerance.

    None if nothing was compared, or an element is NaN or infinite on one side.
    """
    function: str = ""
    """Name of the reference function."""
    reason: str = ""
    """Stable code of the reason why outputs were not compared: inputs-differ, not-seen, not-compared or
    random."""
    array: str = ""
    """Name of an input that differs between base and head; empty for none."""


RowStatus = Literal["measured", "verified", "ran", "built", "not-built", "skipped", "failed"]
"""Status of a row.

measured: checked first, as in `outputs`; an imported row has a `verification` only if asv's file has one.
ran: launched, and not compared with a float64 reference. built: compiled for an architecture, not run.
not-built: like verified, on the null device, which compiles nothing.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The common fields of a case's row and a sweep's configuration. `reason` is empty on success."""

    reason: str = ""
    message: str = ""
    log: str = ""
    launch: Launch | None = None
    resources: Resources | None = None
    source_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Outcome):
    """The result of one case. `reason` is a stable code, `message` a sentence, and `log` the evidence."""

    case: str
    kernel: str
    sizes: Mapping[str, int]
    dtype: str
    status: RowStatus
    flop: int | None = None
    moved_bytes: int | None = None
    verification: Verification | None = None
    """The checks against a reference; None if outputs were not compared."""
    outputs: Outputs | None = None
    """The reference of the outputs; None in older and imported records, or if nothing ran."""
    measurement: Measurement | None = None
    telemetry: Telemetry | None = None
    library: LibraryShare | None = None
    """Comparison with the vendor's kernel."""
    library_missing: str = ""
    """Sentence on why `library` is None although the suite has such a kernel for this backend."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """Hardware counters of one launch, named as in harness.device.counters; empty if nobody asked."""
    counters_missing: str = ""
    """Sentence on why `counters` is empty although somebody asked."""

    @property
    def is_verified(self) -> bool:
        """Return True if a float64 reference confirmed the outputs."""
        by_reference = self.outputs is None or self.outputs.held_to == "reference"
        return by_reference and self.verification is not None and self.verification.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The common fields of a run, a comparison and a sweep, apart from results."""

    schema_version: int = SCHEMA_VERSION
    harness_version: str
    started_at: str
    """UTC, ISO 8601."""
    device: DeviceInfo
    toolchain: Toolchain | None
    host: Host


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedJob(Described):
    """The common fields of a run and a comparison."""

    run_id: str
    command: str
    """Command that wrote it.

    check, run, asv; static, for kernels that were compiled and not run; import, for another harness's files;
    for comparisons: compare, calibrate or bisect.
    """
    kernels: tuple[str, ...]
    """Every kernel of the suite (head's in a comparison), in ladder order."""
    settings: Mapping[str, str | int | float | bool | None]
    identity: Mapping[str, str] = field(default_factory=dict)
    """Lasting properties of the card from its driver: VBIOS, power limit, ECC, persistence and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(DescribedJob):
    """All facts of one run of one suite at one commit on one device, apart from its rows."""

    source: Source
    headline: str
    peaks: Mapping[str, float] = field(default_factory=dict)
    """The card's peaks by name: float32, float16 in GFLOP/s; memory in GB/s. Empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quad:
    """Four slots in a row, two of base (A) and two of head (B), in the order measured."""

    order: Literal["ABBA", "BAAB"]
    times_ns: tuple[float, float, float, float]
    """Device time of one launch for each slot in the order measured, the mean over the slot's launches."""
    cycles: tuple[float, float, float, float] | None = None
    """SM cycles of one launch for each slot, by the device's own counter."""
    sm_clock_mhz: tuple[float, float, float, float] | None = None
    """SM clock of each slot: cycles over the device's own time, including flushes between launches."""
    canary_ns: float | None = None
    """Time of a small constant kernel measured before this quad; None if there was none."""
    canary_cycles: float | None = None
    started_ns: int
    """Moment on the host's monotonic clock, to align with telemetry."""
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedBlock:
    """All quads of one pair of kernels in one process, with the card's telemetry.

    For executables it covers several processes: each slot is its own process, with its own warm-up.
    """

    quads: tuple[Quad, ...]
    launches_per_slot: int
    l2: L2Policy
    clock: str
    tick_ns: float
    warmup_s: float | None
    settled: bool | None
    gpu_s: float
    """Device time of the quads, with lead-in, flushes and canaries, without the warm-up."""
    clock_noise: float | None = None
    """Relative standard deviation of a slot's clock caused by the resolution of the device's timer."""
    telemetry: Telemetry | None = None
    restored: bool = False
    """True if arrays that kernels read and write were reset before each launch, as in Measurement."""
    in_turns: bool = False
    """True if each side had its own process, and the two alternated slot by slot."""

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


def nothing_compared(statuses: Iterable[str]) -> bool:
    """Return whether no case exists at both commits. Then nothing can be fine."""
    return all(status in ("new", "missing") for status in statuses)


RiskKind = Literal["spill", "occupancy", "stack", "narrower", "unroll", "loop", "registers"]
"""Kinds of differences between builds that are known to cost time."""
DifferenceStatus = Literal["identical", "changed", "new", "missing", "failed", "not-built"]
"""Results of a build, head against base."""
TWIN_SAME, TWIN_PLANTED = "twin.same", "twin.planted"
"""A comparison's test of itself: a kernel against itself, and against itself with a planted slowdown."""
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
    """Message, such as ``bank conflicts of a shared-memory access rose from 0 to 31``."""


MOST_SYMBOL = 1000
"""Characters of a launched kernel's name that are kept: PyTorch's names differ late."""


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """Launches of a kernel by a function, all with the same geometry and resources."""

    symbol: str
    """The kernel's name as the compiler wrote it, of at most 1,000 characters."""
    grid: Extent3
    block: Extent3
    dynamic_shared_bytes: int = 0
    static_shared_bytes: int | None = None
    registers: int | None = None
    """Registers of a thread. None, like `static_shared_bytes` and `cluster`, where CUPTI did not tell it."""
    cluster: Extent3 | None = None
    """Blocks of a cluster, x first; None for a launch without clusters."""
    count: int = 1
    """Such launches in one call of the function."""


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """A kernel that a host function launches, with its time in one call of the function."""

    symbol: str
    """The kernel's name as the compiler wrote it, of at most 200 characters."""
    base_ns: float
    head_ns: float
    """Time of each side, in ns; 0 if the side does not launch it."""


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
    """Findings about a slowdown from hardware counters and compiled code, read after the verdict."""

    base_counters: Mapping[str, float] = field(default_factory=dict)
    head_counters: Mapping[str, float] = field(default_factory=dict)
    """Counters of one launch, named as in harness.device.counters; medians of several launches."""
    causes: tuple[Cause, ...] = ()
    """Causes, the largest share first; empty if no cause stands out."""
    problem: str = ""
    """Reason why there are no counters."""
    launched: tuple[LaunchedKernel, ...] = ()
    """Kernels that a host function launches, the one with the largest growth of time first."""
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
    """Ends of the interval of the effect, at the comparison's confidence."""
    processes: int
    quads: int
    process_effects: tuple[float, ...] = ()
    """The effect in each process, in the order measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strays:
    """Outliers: slots that took far longer than their side's usual time."""

    base: int
    head: int
    slots: int
    """Number of slots of each side, outliers included."""
    cost: float
    """Mean extra time of head over base by outliers, as a share of the usual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The measurements of one side of a comparison."""

    time_ns: float | None = None
    """Median over all kept slots, for one launch."""
    sm_clock_mhz: float | None = None
    alone_mhz: float | None = None
    """Its SM clock when it ran alone, back to back; None if it did not."""
    alone_w: float | None = None
    """Power when it ran alone."""
    source_sha256: str | None = None
    launch: Launch | None = None
    resources: Resources | None = None
    launches: tuple[KernelLaunch, ...] = ()
    """The kernels that a function launches, in the order of their first launch; empty if unknown, and for
    kernels whose launch the harness makes itself. At most 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one case of a comparison, in codes and numbers.

    `reason` is a stable code. `message` adds what code and numbers lack, such as a compiler's error; in older
    records it repeats the numbers in words. `report.words` turns a verdict into sentences.
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
    """Side that failed in a failed case; empty if unknown."""
    outputs: Outputs | None = None
    """Reference of head's outputs.

    None in older records, if nothing ran, and for programs and files, whose outputs are unknown.
    """
    time: Effect | None = None
    cycles: Effect | None = None
    energy: Effect | None = None
    strays: Strays | None = None
    smallest_visible: float | None = None
    """Smallest slowdown that would be called a regression with probability 0.9 at this noise, after all
    looks."""
    noise_floor: float | None = None
    """The same from the card's calibration of this case; None without one."""
    clock_exponent: float | None = None
    """Exponent by which time follows the SM clock.

    1 if time is cycles over clock, 0 if the clock does not matter, None if the clock changed too little to
    show it.
    """
    power_capped: bool | None = None
    """True if the driver lowered clocks for the power limit meanwhile; None if unknown."""
    attribution: Attribution | None = None
    base: Arm | None = None
    head: Arm | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    order_p: float | None = None
    """p-value of an effect of a slot's position in its quad, or of the kernel before it."""
    touched: Mapping[str, int] = field(default_factory=dict)
    """Disturbed quads by gate. They still count."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Gates without data on this device, with the reason."""
    settings_changed: tuple[str, ...] = ()
    """Settings that differ between base's process and head's, such as ``torch.get_num_threads: 8 → 1``.

    They are known for sides with separate processes. A rate that shows that only one side uses TF32 is listed
    too.
    """
    diagnosis: Diagnosis | None = None
    """Explanation of a regression; None if not requested, and for other verdicts."""
    gpu_s: float = 0.0
    complete: bool = True
    """False if the comparison was interrupted, or its budget spent, before the last planned look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBlock:
    """The measurements of one case by one process."""

    case: str
    process: int
    """Number of the comparison's process, from 1."""
    confirming: bool = False
    """True if it was measured to confirm or refute the verdict of earlier processes."""
    retried: bool = False
    """Only in records up to schema 2: gates discarded the block, and the same process measured another."""
    block: PairedBlock
    touched: Mapping[str, int] = field(default_factory=dict)
    """Quads that a gate caught, by gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(DescribedJob):
    """All facts of one comparison of two commits of a suite on one device, apart from its verdicts."""

    base: Source
    head: Source
    toolchains: Mapping[str, Toolchain] = field(default_factory=dict)
    """Compilers by side, if one source was compiled by two; else empty."""
    calibrated_at: str | None = None
    """Time of the card's last calibration; None if the noise is an assumption."""
