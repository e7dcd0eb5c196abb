"""What a session and its worker process say to each other: one JSON line per message."""

from __future__ import annotations

__all__ = [
    "BuildAll",
    "CaseOf",
    "Compare",
    "Differences",
    "Done",
    "Failed",
    "FindSteps",
    "HoldAgainst",
    "Inspect",
    "Inspected",
    "Measure",
    "Open",
    "Opened",
    "PairOf",
    "Prepare",
    "Progress",
    "Reply",
    "Request",
    "Side",
    "SideFacts",
    "Solo",
    "Ticks",
    "Timers",
    "decode_reply",
    "decode_request",
    "encode",
]

from collections.abc import Mapping
from typing import Literal

import msgspec

from harness.bench.abba import Alone, PairSettings
from harness.bench.measure import MeasureSettings
from harness.records import DeviceInfo, Launch, LibraryShare, PairedBlock, Resources, Row, Toolchain
from harness.spec.suite import Value


class Open(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Open a device; the first message, once. Answered by Opened or Failed."""

    device: str | None
    suite: str | None
    """The suite's folder, already at the right commit; None to learn only what the device is."""
    scratch: str
    """A folder that every worker of a run shares, for references that several kernels need."""
    base: str | None = None
    """The folder of the suite to compare `suite` with."""
    work_tree: str | None = None
    """Of the suites' repository: what a suite of a commit opens there is not the commit's."""
    peaks: Mapping[str, float] = {}
    """What the device can do at most, as in Run: a rate above it fails its case."""


class Measure(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Verify one case and, where `settings` is given, time it. Answered by Progress, then Done or Failed."""

    kernel: str
    sizes: Mapping[str, int]
    seed: int
    settings: MeasureSettings | None
    macros: Mapping[str, Value] = {}
    """Under other values than the kernel's own."""
    max_launch_ms: float | None = None
    """Most device time of one dispatch: the grid is launched in as few parts as keep to it."""
    by_base: bool = False
    """Whether it is held to the reference and tolerance of the suite's base as well."""
    hold: bool = False
    """Keep what was measured, arrays and all, for HoldAgainst; until the next Measure."""


class HoldAgainst(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Verify a vendor's own kernel on the arrays of what is held, then time both in turns. Answered like
    Measure, with `library`.

    A request of its own, so that what becomes of the vendor's costs nothing that was measured before.
    """

    library: str


class BuildAll(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Compile kernels side by side into the cache. Errors are left for the case that needs the kernel to
    report.
    """

    cases: tuple[tuple[str, Mapping[str, int]], ...]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a pair: a kernel of one of the two suites."""

    suite: Literal["base", "head"]
    kernel: str
    planted: bool = False
    """Whether the kernel is built with a slowdown planted, of `steps` steps."""
    steps: int = 0
    macros: Mapping[str, Value] = {}
    """Under other values than the kernel's own."""


class CaseOf(msgspec.Struct, frozen=True, kw_only=True):
    kernel: str
    sizes: Mapping[str, int]
    macros: Mapping[str, Value] = {}


class PairOf(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    sizes: Mapping[str, int]
    base: Side
    head: Side


class Inspect(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Build both sides of every pair, without running anything. Answered by Done with `inspected`."""

    pairs: tuple[PairOf, ...]


class Differences(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Tell what head's problem asks for otherwise than base's: at a case or, without one, as the suites are
    written. Answered by Progress, then Done with `differences`, or Failed.
    """

    case: CaseOf | None
    seed: int
    reference: bool = True
    """Whether to compare references too, which take longest."""


class Prepare(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Compile kernels side by side and load each, without running anything. Answered by Done with
    `prepared`, in the order asked.
    """

    cases: tuple[CaseOf, ...]


class Compare(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Verify both sides of a pair, then time them against each other. Answered like Measure."""

    pair: PairOf
    seed: int
    order_seed: int
    """Of what is random on purpose: which side is loaded first, where the arrays lie, the order of quads."""
    settings: PairSettings
    verified: Mapping[str, str] = {}
    """By side: digest of outputs that an earlier process verified in full."""
    by_base: bool = False
    """Whether head is held to base's reference and tolerance as well as its own."""


class FindSteps(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """How many steps slow a planted pair by `target`. Answered by Done with `steps`."""

    pair: PairOf
    seed: int
    target: float


class Timers(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Measure the steps of the device's clocks. Answered by Done with `ticks`."""


class Ticks(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of the device's clocks. A kernel reads the second; `problem` says why where it cannot."""

    tick_ns: float
    globaltimer_tick_ns: float | None = None
    problem: str = ""
    log: str = ""


class Solo(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Run each side of a pair by itself, back to back, for so long. Answered by Done with `solo`."""

    pair: PairOf
    seed: int
    order_seed: int
    duration_s: float


class SideFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one side: built and, after Compare, verified; or why not."""

    source_sha256: str | None = None
    code_sha256: str | None = None
    """Of the source without comments; None where the source is not all that it is made of."""
    reaches_beside: bool = False
    """Whether it is a function that reads what lies in its repository beside its suite's folder."""
    function: str = ""
    """What of the code is launched."""
    passed: tuple[str, ...] = ()
    """What each argument is: which input or output, its type and shape; or the value of an axis."""
    launch: Launch | None = None
    resources: Resources | None = None
    digest: str = ""
    reason: str = ""
    message: str = ""
    log: str = ""


class Inspected(msgspec.Struct, frozen=True, kw_only=True):
    base: SideFacts
    head: SideFacts
    identical: bool
    """In compiled code and launch."""


class Opened(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    device: DeviceInfo
    toolchain: Toolchain
    pid: int


class Progress(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What the worker is about to do: build, reference, verify or measure."""

    stage: str


class Done(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    row: Row | None = None
    inspected: Mapping[str, Inspected] = {}
    same_problem: bool = False
    """Beside `inspected`: whether both sides define their problem in the same files."""
    differences: Mapping[str, tuple[str, str]] = {}
    """By what differs: what it is at base, and at head."""
    prepared: tuple[SideFacts, ...] = ()
    block: PairedBlock | None = None
    sides: Mapping[str, SideFacts] = {}
    steps: int = 0
    ticks: Ticks | None = None
    solo: Mapping[str, Alone] = {}
    library: LibraryShare | None = None


class Failed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An error of the harness's own; the worker is not to be trusted with another case."""

    reason: str
    message: str
    log: str = ""
    exit_code: int = 3
    side: Literal["base", "head", ""] = ""
    """Of a pair: whose fault it is, base or head; empty where nobody can tell."""


Request = (
    Open
    | Measure
    | HoldAgainst
    | BuildAll
    | Prepare
    | Inspect
    | Differences
    | Compare
    | FindSteps
    | Timers
    | Solo
)
Reply = Opened | Progress | Done | Failed

_request_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_reply_decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    return _request_decoder.decode(line)


def decode_reply(line: bytes) -> Reply:
    return _reply_decoder.decode(line)
