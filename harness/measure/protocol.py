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
    L2Policy,
    Launch,
    LibraryShare,
    Outputs,
    PairedBlock,
    Resources,
    Row,
    Toolchain,
)
from harness.suite.suite_data import SuiteData
from harness.system.cache import Manifest
from harness.system.process import Request

SideName = Literal["base", "head"]


class CaseOf(msgspec.Struct, frozen=True, kw_only=True):
    """A case of head's suite."""

    kernel: str
    sizes: Mapping[str, int]
    macros: Mapping[str, Value] = {}
    """Values other than the kernel's own."""


class PairSide(msgspec.Struct, frozen=True, kw_only=True):
    """A side of a pair: a kernel of one of the two suites."""

    suite: SideName
    kernel: str
    planted: bool = False
    """True where the kernel is built with a planted slowdown, of `steps` steps."""
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


class SideFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A side that was built and, after Compare, verified; or why not."""

    source_sha256: str | None = None
    code_sha256: str | None = None
    """Hash of the source without comments; None where the source is not all that it is made of."""
    reaches_beside: bool = False
    """True for a function that reads files of its repository beside its suite's folder."""
    code: str = ""
    """Hash of the code that any compiler makes alike, for sides with their own; of a function's source."""
    function: str = ""
    """The function of the code that is launched."""
    passed: tuple[str, ...] = ()
    """Type, shape and place of each argument, or an axis' value; last, a hash of what decides the setup."""
    launch: Launch | None = None
    resources: Resources | None = None
    dtype: str = ""
    flop: int | None = None
    """Operations of one launch. `dtype` and `flop` are given for a side that was verified."""
    digest: str = ""
    outputs: Outputs | None = None
    """Results that the outputs were compared with; None where an earlier process has reported them."""
    state: Mapping[str, str] = {}
    """Settings of the process, where it was the side's alone."""
    reason: str = ""
    message: str = ""
    log: str = ""

    def identities(self, *, one_compiler: bool = True) -> frozenset[str]:
        """Return hashes of the side's code: sides that share any of them run the same code.

        One is of the source without comments, unless the two have compilers of their own; one of the code
        that any compiler makes alike; one of the binary. A side that was not built, or reads other files, has
        none.
        """
        if self.reason or self.reaches_beside:
            return frozenset()
        # Of the code that runs where it can be told from the rest of a binary, such as lines for a debugger.
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
    """Describe devices without opening one; every card of CUDA where `specs` is empty."""

    specs: tuple[str, ...]


class Open(Request[OpenReply], frozen=True, kw_only=True):
    """Open a device; the first message, once."""

    device: str | None
    suite: str | None
    """The suite's folder, already at the right commit; None to learn only what the device is."""
    scratch: str
    """A folder that every worker of a run shares, for references that several kernels need."""
    base: str | None = None
    """The folder of the suite to compare `suite` with."""
    told: Mapping[SideName, SuiteData] = {}
    """The suites of a pair that run in processes of their own: whoever sent this answers for them."""
    work_tree: str | None = None
    """The work tree of the suites' repository: what a commit's suite opens there is not the commit's."""
    peaks: Mapping[str, float] = {}
    """Peaks of the device, as in Run: a rate above one fails its case."""
    compilers: Mapping[str, str] = {}
    """The nvcc that compiles each side's sources; empty where both have the one that is found."""
    arrays: str | None = None
    """The folder of inputs and references of earlier commands; None where they are computed anew."""


class Measure(Request[Row], frozen=True, kw_only=True):
    """Verify one case and, where `settings` is given, time it."""

    kernel: str
    sizes: Mapping[str, int]
    seed: int
    settings: MeasureSettings | None
    macros: Mapping[str, Value] = {}
    max_launch_ms: float | None = None
    """Most device time of one dispatch: the grid is launched in as few parts as keep to it."""
    by_base: bool = False
    """True to hold it to the reference and tolerance of the suite's base as well."""
    hold: bool = False
    """Keep what was measured, arrays and all, for HoldAgainst; until the next Measure."""


class HoldAgainst(Request[LibraryShare], frozen=True, kw_only=True):
    """Verify a vendor's kernel on the held arrays, then time both in turns. Its failure costs no figure."""

    library: str


class BuildAll(Request[None], frozen=True, kw_only=True):
    """Compile kernels side by side into the cache. The case that needs a broken one reports its error."""

    cases: tuple[CaseOf, ...]


class BuildOnlyReply(msgspec.Struct, frozen=True, kw_only=True):
    builds: tuple[Build, ...]
    compiler: str
    relied_on: tuple[Manifest, ...] | None = None
    """Files outside of the suite's tree that it uses; None where they are unknown."""


class BuildOnly(Request[BuildOnlyReply], frozen=True, kw_only=True):
    """Compile CUDA kernels for architectures that need not be here, and load none."""

    cases: tuple[CaseOf, ...]
    archs: tuple[str, ...]
    instructions: bool = False
    """True to tell the kinds of instructions, which needs nvdisasm."""
    libraries: bool = True
    """True to compile host libraries too."""
    timeout_s: float | None = None
    """Time that one compilation may take."""


class Sanitize(Request[None], frozen=True, kw_only=True):
    """Run a kernel once, on arrays without guard zones, for a sanitizer. Nobody looks at its outputs."""

    kernel: str
    sizes: Mapping[str, int]
    seed: int
    options: tuple[str, ...]
    """Options of the compiler, beside the kernel's own."""


class Prepare(Request[tuple[SideFacts, ...]], frozen=True, kw_only=True):
    """Compile kernels side by side and load each, without a run. The answer has the cases' order."""

    cases: tuple[CaseOf, ...]


SidesByPair = Mapping[str, Mapping[SideName, SideFacts]]
"""Facts of the sides that were built, by the pair's id."""


class Inspect(Request[SidesByPair], frozen=True, kw_only=True):
    """Build both sides of every pair, or one of each, without a run."""

    pairs: tuple[PairOf, ...]
    side: SideName | None = None


class Differences(Request[Mapping[str, tuple[str, str]]], frozen=True, kw_only=True):
    """Tell what head's problem asks for otherwise than base's: both, by name of what differs."""

    case: CaseOf | None
    """The case; None to compare the suites as they are written."""
    seed: int
    reference: bool = True
    """True to compare references too, which take longest."""


class CompareReply(msgspec.Struct, frozen=True, kw_only=True):
    block: PairedBlock
    sides: Mapping[SideName, SideFacts]


class Compare(Request[CompareReply], frozen=True, kw_only=True):
    """Verify both sides of a pair, then time them against each other."""

    pair: PairOf
    seed: int
    order_seed: int
    """Seed of what is random on purpose: which side is loaded first, where arrays lie, the order of quads."""
    settings: PairSettings
    verified: Mapping[str, str] = {}
    """Digest of each side's outputs that an earlier process verified in full."""
    by_base: bool = False
    """True to hold head to base's reference and tolerance as well as its own."""
    base_first: bool = False
    """True where head's outputs are compared with base's, which are verified first."""


class FindSteps(Request[int], frozen=True, kw_only=True):
    """Find how many steps slow a planted pair by `target`."""

    pair: PairOf
    seed: int
    target: float


class TimersReply(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of the device's clocks. A kernel reads the second; `problem` says why where it cannot."""

    tick_ns: float
    globaltimer_tick_ns: float | None = None
    problem: str = ""
    log: str = ""


class Timers(Request[TimersReply], frozen=True, kw_only=True):
    """Measure the steps of the device's clocks."""


class RunAlone(Request[Mapping[SideName, Alone]], frozen=True, kw_only=True):
    """Run each side of a pair by itself, back to back, for `duration_s`."""

    pair: PairOf
    seed: int
    order_seed: int
    duration_s: float


class CountEvents(Request[Mapping[SideName, Mapping[str, float]]], frozen=True, kw_only=True):
    """Read hardware counters of one launch of each side of a pair."""

    pair: PairOf
    seed: int
    order_seed: int
    l2: L2Policy
    """What is counted is judged so: after a flush of the L2 cache, or after a launch."""


class BuildSide(Request[None], frozen=True, kw_only=True):
    """Build one side of a pair ahead of Join. Nothing is launched, so both sides' processes may be at it."""

    pair: PairOf
    side: SideName


class Join(Request[None], frozen=True, kw_only=True):
    """Place one side to take turns with another process, and launch it once, alone on the device."""

    compare: Compare
    side: SideName


class Verify(Request[SideFacts], frozen=True, kw_only=True):
    """Verify what has joined. Nothing is timed, so both sides' processes may be at it."""


class WarmUpReply(msgspec.Struct, frozen=True, kw_only=True):
    time_ns: float
    """Time of one launch, warm."""
    l2: L2Policy
    clock: str
    tick_ns: float
    globaltimer_tick_ns: float | None
    warmup_s: float
    settled: bool
    restored: bool


class WarmUp(Request[WarmUpReply], frozen=True, kw_only=True):
    """Launch what is verified until its time no longer falls."""


class Take(Request[Turn], frozen=True, kw_only=True):
    """Time one slot. Nothing of the process is on the device when it answers."""

    launches: int
    """Launches of the slot, the same for both sides."""
    data_seed: int
    """Seed of the data, the same for all slots of a quad: a kernel's speed may depend on its data."""
    lead_in_s: float
    canary: bool = False


class Finish(Request[Mapping[str, str]], frozen=True, kw_only=True):
    """Look at what the slots computed, free the arrays, and return the settings of the process by name."""

    time_ns: float
    """Time of one launch, the median of the slots."""


RunRequest = Open | Measure | HoldAgainst | BuildAll | BuildOnly | Sanitize | Prepare | Timers
PairRequest = Inspect | Differences | Compare | FindSteps | RunAlone | CountEvents
TurnRequest = BuildSide | Join | Verify | WarmUp | Take | Finish
WorkerRequest = DescribeDevices | RunRequest | PairRequest | TurnRequest
