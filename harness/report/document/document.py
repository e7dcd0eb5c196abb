"""What a pull request's comparisons say, on any number of cards: the one model of which every face is made,
and the document that the job with the card hands to the job that may write.

Whoever controls the kernels controls the job that wrote the document. So its types are its schema: every text
has a pattern or a length, every number a range, and a field that is not known is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from harness.errors import StoreError
from harness.records.types import Attribution, VerdictStatus
from harness.system.files import UNREADABLE

REVIEW_SCHEMA_VERSION = 3
"""Version of the document.

1  first version
2  strays of a case; what each side did alone
3  whether a card's cases are builds of an executable
"""
LIMITS = {"cards": 64, "cases": 4096, "bytes": 16 * 2**20}
"""The most that one document may hold."""

_END = r"(?![\s\S])"
"""The end of a text, for patterns of Python and JavaScript: $ may leave a line's end behind."""

Identifier = Annotated[str, Meta(pattern=rf"^[A-Za-z_][A-Za-z0-9_]{{0,99}}{_END}")]
CaseId = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9_.=,\[\]-]{{1,400}}{_END}")]
Code = Annotated[str, Meta(pattern=rf"^[a-z0-9-]{{0,60}}{_END}")]
"""A stable code, such as too-noisy."""
Commit = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{40}}|[0-9a-f]{{64}}){_END}")]
Words = Annotated[str, Meta(pattern=rf"^[ -~]{{0,200}}{_END}")]
"""One line of printable ASCII: a card's name, a driver's version."""
RelativePath = Annotated[str, Meta(pattern=rf"^(?!/)(?!.*(^|/)\.\.(/|$))[A-Za-z0-9_.+@/-]{{1,300}}{_END}")]
Text = Annotated[str, Meta(max_length=2000)]
"""Written by whoever wrote the kernels: shown as code, where no markup counts."""
Log = Annotated[str, Meta(max_length=8000)]
Fraction = Annotated[float, Meta(ge=-1, le=1e6)]
Size = Annotated[int, Meta(ge=0, le=2**53)]
Megahertz = Annotated[float, Meta(ge=0, le=1e5)]


class Strict(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class EffectReview(Strict, frozen=True, kw_only=True):
    """Head over base, minus 1: positive is slower, or more cycles."""

    effect: Fraction
    low: Fraction
    high: Fraction
    """The interval that holds the effect with the comparison's confidence."""
    processes: Annotated[int, Meta(ge=1, le=10_000)]
    quads: Annotated[int, Meta(ge=0, le=1_000_000)]
    each: Annotated[tuple[Fraction, ...], Meta(max_length=64)] = ()
    """Effect of each process, in the order measured."""


class Side(Strict, frozen=True, kw_only=True):
    time_ns: Annotated[float, Meta(ge=0, le=1e15)] | None = None
    sm_clock_mhz: Megahertz | None = None
    alone_mhz: Megahertz | None = None
    alone_w: Annotated[float, Meta(ge=0, le=1e5)] | None = None
    registers: Size | None = None
    shared_bytes: Size | None = None
    """Static and dynamic."""
    local_bytes: Size | None = None
    """Local memory of a thread: spills and arrays."""
    grid: tuple[Size, Size, Size] | None = None
    block: tuple[Size, Size, Size] | None = None


class StraysReview(Strict, frozen=True, kw_only=True):
    """Slots that took far longer than their side's usual time."""

    base: Size
    head: Size
    slots: Size
    """Slots of each side, strays included."""
    cost: Fraction
    """What head's cost on average more than base's, as a share of the usual time."""


class SourceLine(Strict, frozen=True, kw_only=True):
    path: RelativePath
    """The path from the repository's top."""
    line: Annotated[int, Meta(ge=1, le=10_000_000)]


class CaseReview(Strict, frozen=True, kw_only=True):
    case: CaseId
    kernel: Identifier
    sizes: Annotated[Mapping[Identifier, Size], Meta(max_length=16)]
    status: VerdictStatus
    reason: Code
    message: Text = ""
    log: Log = ""
    side: Literal["base", "head", ""] = ""
    """The side at which a case failed; empty where nobody can tell, and where it did not."""
    time: EffectReview | None = None
    cycles: EffectReview | None = None
    energy: EffectReview | None = None
    strays: StraysReview | None = None
    smallest_visible: Fraction | None = None
    """The smallest slowdown that would be called a regression nine times in ten with this much noise."""
    noise_floor: Fraction | None = None
    attribution: Attribution | None = None
    base: Side | None = None
    head: Side | None = None
    source_changed: bool | None = None
    temperature_c: Annotated[float, Meta(ge=-273, le=1000)] | None = None
    power_w: Annotated[float, Meta(ge=0, le=1e5)] | None = None
    touched: Annotated[Mapping[Code, Size], Meta(max_length=32)] = {}
    """Quads that something else had a part in, by gate."""
    settings_changed: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    """Settings that base's process and head's had otherwise."""


class Calibrated(Strict, frozen=True, kw_only=True):
    measured_at: Words
    verdicts: Size
    false_alarms: Size


class CardReview(Strict, frozen=True, kw_only=True):
    """One suite compared on one card."""

    suite: Identifier
    device: Words
    """Name of the model, such as NVIDIA H200."""
    spec: Words
    kind: Literal["gpu", "cpu", "other"]
    driver: Words
    compiler: Words = ""
    executables: bool = False
    """Whether these are builds of an executable, a process a slot, and no kernels of a suite."""
    head_dirty: bool = False
    """Whether head was a working tree with changes: never so in a pull request."""
    margin: Fraction
    tolerance: Fraction
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    calibrated: Calibrated | None = None
    complete: bool = True
    problem: Text = ""
    left_out: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    notes: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    """Facts to read beside the verdicts of files, a sentence each: what differs, what has another name."""
    problem_changes: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    """What head's problem asks for otherwise than base's: sizes, data, reference, tolerance."""
    gpu_s: Annotated[float, Meta(ge=0, le=1e7)] = 0.0
    cases: Annotated[tuple[CaseReview, ...], Meta(max_length=LIMITS["cases"])]
    """The cases in the order of the ladder."""
    twins: Annotated[tuple[CaseReview, ...], Meta(max_length=2)] = ()
    places: Annotated[Mapping[Identifier, SourceLine], Meta(max_length=LIMITS["cases"])] = {}
    """Where each kernel begins at head."""


class Review(Strict, frozen=True, kw_only=True, omit_defaults=False):
    """Everything that is said of one pair of commits."""

    schema_version: int = REVIEW_SCHEMA_VERSION
    harness_version: Words
    created_at: Words
    """UTC, ISO 8601: when the newest of the comparisons began."""
    base: Commit | None
    """None for comparisons outside a repository, which nothing can be posted of."""
    head: Commit | None
    cards: Annotated[tuple[CardReview, ...], Meta(max_length=LIMITS["cards"])]


class _VersionedDocument(Struct):
    schema_version: int


Document = TypeVar("Document", bound=Strict)


def encode_review(review: Review) -> bytes:
    return msgspec.json.encode(review)


def decode_review(content: bytes) -> Review:
    """Raises StoreError with the reason where it is none."""
    return decode(content, Review, REVIEW_SCHEMA_VERSION)


def decode(content: bytes, kind: type[Document], schema_version: int) -> Document:
    """A document of that version, as strictly as its types say. Raises StoreError with the reason where it is
    none.
    """
    if len(content) > LIMITS["bytes"]:
        raise StoreError(f"The report has {len(content)} bytes; at most {LIMITS['bytes']} are read.")
    try:
        version = msgspec.json.decode(content, type=_VersionedDocument).schema_version
        if version != schema_version:
            raise StoreError(
                f"The report has schema version {version}; this harness reads {schema_version}. Let the same "
                "version of gpu-harness make the report and read it."
            )
        return msgspec.json.decode(content, type=kind)
    except UNREADABLE as error:
        raise StoreError(f"The report is not one: {error}.") from None
