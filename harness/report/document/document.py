"""The result document of a pull request: its comparisons on any number of cards.

The comment, check and page are made from it. The job with the card passes it to the job that may write.
Whoever controls the kernels controls the job that wrote the document. So field_limits checks it: every text
has a pattern or a length, every number a range, and unknown fields are refused.
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
2  outliers of a case; measurements of each side running alone
3  whether a card's cases are builds of an executable
4  cases are verdicts, in the form of records
"""
LIMITS = {"cards": 64, "cases": 4096, "bytes": 16 * 2**20}
"""Largest numbers in one document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    path: RelativePath
    """Path from the repository's top."""
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
    """True for builds of an executable, with a process per slot; False for kernels of a suite."""
    scripts: bool = False
    """True for timing calls of a benchmark script. Reports omit its command: a reader might run it."""
    head_dirty: bool = False
    """True if head was a working tree with changes. A pull request's head never is."""
    margin: Fraction
    tolerance: Fraction
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    calibrated: CalibrationSummary | None = None
    complete: bool = True
    problem: Text = ""
    left_out: Texts = ()
    notes: Texts = ()
    """Sentences to show beside the verdicts of files, such as differences and renames."""
    problem_changes: Texts = ()
    """Changes from base's problem to head's: sizes, data, reference, tolerance."""
    cases: Annotated[tuple[Verdict, ...], Meta(max_length=LIMITS["cases"])]
    """The cases in the order of the ladder."""
    twins: Annotated[tuple[Verdict, ...], Meta(max_length=2)] = ()
    places: Annotated[Mapping[Identifier, SourceLine], Meta(max_length=LIMITS["cases"])] = field(
        default_factory=dict
    )
    """The first line of each kernel at head, by its name."""

    @property
    def gpu_s(self) -> float:
        """Return the device time of the comparison, in seconds."""
        return sum(verdict.gpu_s for verdict in (*self.cases, *self.twins))


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """All results for one pair of commits."""

    schema_version: Size = REVIEW_SCHEMA_VERSION
    harness_version: Words
    created_at: Words
    """Start of the newest comparison: UTC, ISO 8601."""
    base: Commit | None
    """The commit's hash; None outside a repository, where nothing can be posted."""
    head: Commit | None
    cards: Annotated[tuple[CardReview, ...], Meta(max_length=LIMITS["cards"])]


class _VersionedDocument(Struct):
    schema_version: int


Document = TypeVar("Document")


def encode(document: object) -> bytes:
    """Return the document without default values.

    Raises StoreError for a document that could not be read back.
    """
    kind: type = type(document)
    try:
        return msgspec.json.encode(decoding.convert(document, strict(kind), from_attributes=True))
    except msgspec.ValidationError as error:
        raise StoreError(
            f"The report cannot be written, as nobody would read it: {error}. Give that another name."
        ) from None


def decode_review(content: bytes) -> Review:
    """Return the review in a document. Raises StoreError with the reason if it is invalid."""
    return decode(content, Review, REVIEW_SCHEMA_VERSION)


def decode(content: bytes, kind: type[Document], schema_version: int) -> Document:
    """Read a document of that version within the field limits.

    Raises StoreError with the reason if it is invalid.
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
