"""The result document of a pull request: its comparisons on any number of cards. Every face is made of it.
The job with the card hands it to the job that may write.

Whoever controls the kernels controls the job that wrote the document. So it passes the wall of field_limits:
every text has a pattern or a length, every number a range, and a field that is not known is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from harness.errors import StoreError
from harness.records.record_files import CalibrationSummary
from harness.records.types import Verdict
from harness.report.document.field_limits import (
    Commit,
    Fraction,
    Identifier,
    RelativePath,
    Size,
    Text,
    Texts,
    Words,
    strict,
)
from harness.system import decoding
from harness.system.files import UNREADABLE

REVIEW_SCHEMA_VERSION = 4
"""Version of the document.

1  first version
2  strays of a case; what each side did alone
3  whether a card's cases are builds of an executable
4  cases are verdicts, as records have them
"""
LIMITS = {"cards": 64, "cases": 4096, "bytes": 16 * 2**20}
"""The most that one document may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    path: RelativePath
    """The path from the repository's top."""
    line: Annotated[int, Meta(ge=1, le=10_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReview:
    """The comparison of a suite on a card."""

    suite: Identifier
    device: Words
    """Name of the model, such as NVIDIA H200."""
    spec: Words
    kind: Literal["gpu", "cpu", "other"]
    driver: Words
    compiler: Words = ""
    executables: bool = False
    """True for builds of an executable, each slot in a process of its own; False for kernels of a suite."""
    scripts: bool = False
    """True for timing calls of a benchmark script. Reports omit its command: a reader might run it."""
    head_dirty: bool = False
    """True where head was a working tree with changes, which a pull request never is."""
    margin: Fraction
    tolerance: Fraction
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    calibrated: CalibrationSummary | None = None
    complete: bool = True
    problem: Text = ""
    left_out: Texts = ()
    notes: Texts = ()
    """Facts to read beside the verdicts of files, a sentence each: what differs, what has another name."""
    problem_changes: Texts = ()
    """Differences of head's problem from base's: sizes, data, reference, tolerance."""
    cases: Annotated[tuple[Verdict, ...], Meta(max_length=LIMITS["cases"])]
    """The cases in the order of the ladder."""
    twins: Annotated[tuple[Verdict, ...], Meta(max_length=2)] = ()
    places: Annotated[Mapping[Identifier, SourceLine], Meta(max_length=LIMITS["cases"])] = field(
        default_factory=dict
    )
    """The line on which each kernel begins at head, by its name."""

    @property
    def gpu_s(self) -> float:
        """Device time of the comparison, in seconds."""
        return sum(verdict.gpu_s for verdict in (*self.cases, *self.twins))


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Everything that is said of one pair of commits."""

    schema_version: Size = REVIEW_SCHEMA_VERSION
    harness_version: Words
    created_at: Words
    """UTC, ISO 8601: when the newest of the comparisons began."""
    base: Commit | None
    """The commit's hash; None outside a repository, where nothing can be posted."""
    head: Commit | None
    cards: Annotated[tuple[CardReview, ...], Meta(max_length=LIMITS["cards"])]


class _VersionedDocument(Struct):
    schema_version: int


Document = TypeVar("Document")


def encode(document: object) -> bytes:
    """Return the document without the fields that have their default.

    Raises StoreError for a document that would not be read.
    """
    kind: type = type(document)
    try:
        return msgspec.json.encode(decoding.convert(document, strict(kind), from_attributes=True))
    except msgspec.ValidationError as error:
        raise StoreError(
            f"The report cannot be written, as nobody would read it: {error}. Give that another name."
        ) from None


def decode_review(content: bytes) -> Review:
    """Raises StoreError with the reason where it is none."""
    return decode(content, Review, REVIEW_SCHEMA_VERSION)


def decode(content: bytes, kind: type[Document], schema_version: int) -> Document:
    """Read a document of that version through the wall.

    Raises StoreError with the reason where it is none.
    """
    wall: type = kind
    if len(content) > LIMITS["bytes"]:
        raise StoreError(f"The report has {len(content)} bytes; at most {LIMITS['bytes']} are read.")
    try:
        version = decoding.decode(content, _VersionedDocument).schema_version
        if version != schema_version:
            raise StoreError(
                f"The report has schema version {version}; this harness reads {schema_version}. Let the same "
                "version of gpu-harness make the report and read it."
            )
        decoding.decode(content, strict(wall))
        return decoding.decode(content, kind)
    except UNREADABLE as error:
        raise StoreError(f"The report is not one: {error}.") from None
