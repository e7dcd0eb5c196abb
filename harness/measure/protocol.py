"""Requests of a session to its worker process, each with the type of its answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from harness.device.static.architecture_builds import Build
from harness.measure.quads import Alone, PairSettings, Turn
from harness.measure.timing import MeasureSettings
from harness.numbers import Value
from harness.records.types import (
    DeviceInfo,
    KernelLaunch,
    L2Policy,
    Launch,
    LibraryShare,
    Outputs,
    PairedBlock,
    Resources,
    Row,
    Toolchain,
)
from harness.suite.problem import Case
from harness.suite.suite_data import SuiteData
from harness.system.cache import Manifest
from harness.system.process import Request

SideName = Literal["base", "head"]


class CaseOf(msgspec.Struct, frozen=True, kw_only=True):
    """A case of head's suite."""

    kernel: str
    sizes: Mapping[str, int]
    macros: Mapping[str, Value] = {}
    """Macros that override the kernel's own."""


class PairSide(msgspec.Struct, frozen=True, kw_only=True):
    """A side of a pair: a kernel of one of the two suites."""

    suite: SideName
    kernel: str
    planted: bool = False
    """True if the kernel is built with a planted slowdown of `steps` steps."""
    steps: int = 0
    macros: Mapping[str, Value] = {}


class PairOf(msgspec.Struct, frozen=True, kw_only=True):
    """Two kernels at the same sizes."""

    id: str
    sizes: Mapping[str, int]
    base: PairSide
    head: PairSide

    @property
    def sides(self) -> dict[SideName, PairSide]:
        return {"base": self.base, "head": self.head}


def against_itself(case: Case, name: str, steps: int | None = None) -> PairOf:
    """Return a case of head against itself, with a planted slowdown of `steps` if given."""
    base = PairSide(suite="head", kernel=case.kernel, planted=steps is not None)
    head = msgspec.structs.replace(base, steps=steps or 0)
    return PairOf(id=name, sizes=case.sizes, base=base, head=head)


class SideFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a side that was built and, after Compare, verified; or its error."""

    source_sha256: str | None = None
    code_sha256: str | None = None
    """Hash of the source without comments; None if the binary depends on more than this source."""
    reaches_beside: bool = False
    """True for a function that reads files of its repository outside of its suite's folder."""
    code: str = ""
    """Hash of the code that does not depend on the compiler, for sides with compilers of their own; or of a
    function's source."""
    function: str = ""
    """Name of the launched function in the code."""
    passed: tuple[str, ...] = ()
    """Type, shape and place of each argument, or an axis' value. The last entry is a hash of what decides the
    setup."""
    launch: Launch | None = None
    resources: Resources | None = None
    dtype: str = ""
    flop: int | None = None
    """Operations of one launch. `dtype` and `flop` are set for a verified side."""
    digest: str = ""
    outputs: Outputs | None = None
    """Reference of the outputs; None if an earlier process has reported it."""
    state: Mapping[str, str] = {}
    """Settings of the process, if it holds only this side."""
    reason: str = ""
    message: str = ""
    log: str = ""

    def identities(self, *, one_compiler: bool = True) -> frozenset[str]:
        """Return hashes of the side's code. Two sides that share a hash run the same code.

        One hash is of the source without comments, unless the sides have different compilers. One is of the
        code that does not depend on the compiler, and one is of the binary. A side that was not built or
        reads other files has none.
        """
        if self.reason or self.reaches_beside:
            return frozenset()
        # Hash only the code that runs, if it can be separated from other data such as debug lines.
        built = self.resources and (self.resources.code_sha256 or self.resources.binary_sha256)
        called = repr((self.launch, self.passed, self.function))
        hashes = {"source": self.code_sha256 if one_compiler else None, "code": self.code, "binary": built}
        return frozenset(
            hashlib.sha256(f"{kind}\0{code}\0{called}".encode()).hexdigest()
            for kind, code in hashes.items()
            if code
        )


class OpenReply(msgspec.Struct, frozen=True, kw_only=True):
    device: DeviceInfo
    toolchain: Toolchain


class DescribeDevices(Request[tuple[DeviceInfo, ...]], frozen=True, kw_only=True):
    """Describe devices without opening them: every CUDA card if `specs` is empty."""

    specs: tuple[str, ...]


class Open(Request[OpenReply], frozen=True, kw_only=True):
    """Open a device and load suites. This is the first message; the second may load the suites instead."""

    device: str | None
    suite: str | None
    """The suite's folder, already at the right commit; None to describe the device only."""
    scratch: str
    """A folder that all workers of a run share, for references that several kernels need."""
    base: str | None = None
    """Folder of base's suite, to compare `suite` with it."""
    told: Mapping[SideName, SuiteData] = {}
    """The suites of a pair that other processes have loaded. The sender answers calls to their functions."""
    work_tree: str | None = None
    """The work tree of the suites' repository. A file that a suite opens there does not belong to
    its commit."""
    peaks: Mapping[str, float] = {}
    """Peaks of the device, as in Run. A rate above its peak fails the case."""
    compilers: Mapping[str, str] = {}
    """The nvcc for each side's sources; empty if both use the one that is found."""
    cards: int = 1
    """Cards to open: the device, and those after it that functions of the suite span."""
    arrays: str | None = None
    """Folder of inputs and references from earlier commands; None to compute them anew."""


class Measure(Request[Row], frozen=True, kw_only=True):
    """Verify one case and, if `settings` is given, time it."""

    kernel: str
    sizes: Mapping[str, int]
    seed: int
    settings: MeasureSettings | None
    macros: Mapping[str, Value] = {}
    max_launch_ms: float | None = None
    """Longest device time of one dispatch, in ms. The grid is launched in as few parts as this allows."""
    by_base: bool = False
    """True to check against base's reference and tolerance as well."""
    hold: bool = False
    """True to keep the kernel and its arrays for HoldAgainst, until the next Measure."""


class HoldAgainst(Request[LibraryShare], frozen=True, kw_only=True):
    """Verify a vendor's kernel on the held arrays, then time both alternately. A failure costs no other
    result.
    """

    library: str


class BuildAll(Request[None], frozen=True, kw_only=True):
    """Compile kernels into the cache in parallel. The case that needs a broken kernel reports its error."""

    cases: tuple[CaseOf, ...]


class BuildOnlyReply(msgspec.Struct, frozen=True, kw_only=True):
    builds: tuple[Build, ...]
    compiler: str
    relied_on: tuple[Manifest, ...] | None = None
    """Files outside of the suite's tree that the suite uses; None if unknown."""


class BuildOnly(Request[BuildOnlyReply], frozen=True, kw_only=True):
    """Compile CUDA kernels for architectures that need not be present, without loading them."""

    cases: tuple[CaseOf, ...]
    archs: tuple[str, ...]
    instructions: bool = False
    """True to count the kinds of instructions, which needs nvdisasm."""
    libraries: bool = True
    """True to compile host libraries too."""
    timeout_s: float | None = None
    """Longest time of one compilation, in seconds."""


class Sanitize(Request[None], frozen=True, kw_only=True):
    """Run a kernel once, on arrays without guard zones, for a sanitizer. Its outputs are not checked."""

    kernel: str
    sizes: Mapping[str, int]
    seed: int
    options: tuple[str, ...]
    """Options of the compiler in addition to the kernel's own."""


class Prepare(Request[tuple[SideFacts, ...]], frozen=True, kw_only=True):
    """Compile kernels in parallel and load each, without a run. The answer has the cases' order."""

    cases: tuple[CaseOf, ...]


SidesByPair = Mapping[str, Mapping[SideName, SideFacts]]
"""Facts of the built sides, by pair id."""


class Inspect(Request[SidesByPair], frozen=True, kw_only=True):
    """Build both sides of every pair, or one side of each, without a run."""

    pairs: tuple[PairOf, ...]
    side: SideName | None = None


class Differences(Request[Mapping[str, tuple[str, str]]], frozen=True, kw_only=True):
    """List the differences between base's and head's problem, by name, with both values."""

    case: CaseOf | None
    """The case; None to compare the suites as written."""
    seed: int
    reference: bool = True
    """True to compare references too, which takes longest."""


class CompareReply(msgspec.Struct, frozen=True, kw_only=True):
    block: PairedBlock
    sides: Mapping[SideName, SideFacts]


class Compare(Request[CompareReply], frozen=True, kw_only=True):
    """Verify both sides of a pair, then time them against each other."""

    pair: PairOf
    seed: int
    order_seed: int
    """Seed of the deliberate randomness: which side is loaded first, the addresses of arrays, the order of
    quads."""
    settings: PairSettings
    verified: Mapping[str, str] = {}
    """Digest of each side's outputs that an earlier process verified in full."""
    by_base: bool = False
    """True to check head against base's reference and tolerance as well as its own.

    If False, both suites define the same problem, so either suite can judge both sides.
    """
    base_first: bool = False
    """True if head's outputs are compared with base's, so that base is verified first."""


class FindSteps(Request[int], frozen=True, kw_only=True):
    """Find the number of steps that slows a planted pair by `target`."""

    pair: PairOf
    seed: int
    target: float


class TimersReply(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks of the device's two clocks. A kernel reads the second; `problem` says why, if it cannot."""

    tick_ns: float
    globaltimer_tick_ns: float | None = None
    problem: str = ""
    log: str = ""


class Timers(Request[TimersReply], frozen=True, kw_only=True):
    """Measure the ticks of the device's clocks."""


class RunAlone(Request[Mapping[SideName, Alone]], frozen=True, kw_only=True):
    """Run each side of a pair by itself, back to back, for `duration_s`."""

    pair: PairOf
    seed: int
    order_seed: int
    duration_s: float


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    counters: Mapping[str, float]
    """Hardware counters of one launch."""
    kernels: Mapping[str, float] = {}
    """Time in ns of each kernel that a host function launched, by its name; summed over its launches."""


class CountEvents(Request[Mapping[SideName, Counted]], frozen=True, kw_only=True):
    """Read hardware counters of one launch of each side of a pair."""

    pair: PairOf
    side: SideName | None = None
    """The side to read; None for both, if one process holds both."""
    seed: int
    order_seed: int
    l2: L2Policy
    """State of the L2 cache for the counted launch: cold after a flush, hot after another launch."""


class ListLaunches(Request[Mapping[SideName, tuple[KernelLaunch, ...]]], frozen=True, kw_only=True):
    """List the kernels that one side of a pair launches. Nothing is timed in the process after that."""

    pair: PairOf
    side: SideName
    seed: int
    order_seed: int


class BuildSide(Request[None], frozen=True, kw_only=True):
    """Build one side of a pair before Join. It launches nothing, so both sides' processes may
    build at once.
    """

    pair: PairOf
    side: SideName


class Join(Request[None], frozen=True, kw_only=True):
    """Set up one side to alternate with another process, and launch it once, alone on the device."""

    compare: Compare
    side: SideName


class Verify(Request[SideFacts], frozen=True, kw_only=True):
    """Verify the joined side. It times nothing, so both sides' processes may verify at once."""


class WarmUpReply(msgspec.Struct, frozen=True, kw_only=True):
    time_ns: float
    """Time of one launch after warm-up."""
    l2: L2Policy
    clock: str
    tick_ns: float
    globaltimer_tick_ns: float | None
    warmup_s: float
    settled: bool
    restored: bool
    by_graph: bool
    """True if either side is launched by a CUDA graph."""


class WarmUp(Request[WarmUpReply], frozen=True, kw_only=True):
    """Launch the verified side until its time stops falling."""


class Take(Request[Turn], frozen=True, kw_only=True):
    """Time one slot. When the answer is sent, no work of the process is on the device."""

    launches: int
    """Launches of the slot, equal for both sides."""
    data_seed: int
    """Seed of the data, the same for all slots of a quad, since a kernel's speed may depend on its data."""
    lead_in_s: float
    canary: bool = False


class Finish(Request[Mapping[str, str]], frozen=True, kw_only=True):
    """Check what the slots computed, free the arrays, and return the settings of the process by name."""

    time_ns: float
    """Time of one launch, the median of the slots."""


RunRequest = Open | Measure | HoldAgainst | BuildAll | BuildOnly | Sanitize | Prepare | Timers
PairRequest = Inspect | Differences | Compare | FindSteps | RunAlone | CountEvents | ListLaunches
TurnRequest = BuildSide | Join | Verify | WarmUp | Take | Finish
WorkerRequest = DescribeDevices | RunRequest | PairRequest | TurnRequest
