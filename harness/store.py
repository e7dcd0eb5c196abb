"""Run records on disk: one JSON Lines file per run, the source of truth that asv's files are derived from.

The first line is the run, each further line a row, the last says whether the run came to its end. Rows are
appended to a ``.part`` file as they come, so that what was measured survives the harness; the file gets its
name when the run is over.
"""

from __future__ import annotations

__all__ = ["RunWriter", "StoredRun", "read_run", "record_name", "schema"]

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import msgspec

from harness.errors import StoreError
from harness.records import SCHEMA_VERSION, Row, Run

if TYPE_CHECKING:
    from typing_extensions import Self


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no record."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a record: exactly one field is given."""

    run: Run | None = None
    row: Row | None = None
    complete: bool | None = None


class _Version(msgspec.Struct):
    schema_version: int


class _FirstLine(msgspec.Struct):
    run: _Version


@dataclass(frozen=True, slots=True)
class StoredRun:
    run: Run
    rows: tuple[Row, ...]
    complete: bool
    """False for a run that was interrupted: its rows are good, but not all that were asked for."""


def record_name(run: Run) -> str:
    """``20260102T030405Z-1a2b3c4d-matmul-5e6f7a8b.jsonl``: sorts by time, unique by its id."""
    stamp = run.started_at.replace("-", "").replace(":", "").partition(".")[0].partition("+")[0] + "Z"
    commit = (run.source.commit or "nocommit")[:8] + ("+" if run.source.dirty else "")
    return f"{stamp}-{commit}-{run.source.suite}-{run.run_id[:8]}.jsonl"


class RunWriter:
    """Writes one run's record; a context manager. Everything that can fail on opening fails before a
    measurement starts.

    Raises StoreError where the folder cannot be written, or the disk is full.
    """

    def __init__(self, folder: Path, run: Run) -> None:
        self.path = folder / record_name(run)
        self._part = self.path.with_name(self.path.name + ".part")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = self._part.open("xb")
        except OSError as error:
            raise StoreError(
                f"Cannot write results to {folder}: {error.strerror or error}. "
                "Choose another folder with --results, or none with --no-save."
            ) from None
        try:
            self._append(_Line(run=run))
        except StoreError:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):
                self._part.unlink()
            raise

    def add(self, row: Row) -> None:
        self._append(_Line(row=row))

    def _append(self, line: _Line) -> None:
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            raise StoreError(
                f"Cannot write to {self._part}: {error.strerror or error}. "
                "Rows written before are kept there."
            ) from None

    def finish(self, *, complete: bool) -> Path:
        """Give the record its name. A part file left by a crash can be read like a finished record."""
        self._append(_Line(complete=complete))
        try:
            os.fsync(self._file.fileno())
            self._file.close()
            self._part.replace(self.path)
        except OSError as error:
            raise StoreError(
                f"Cannot finish {self.path}: {error.strerror or error}. The rows are in {self._part}."
            ) from None
        return self.path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._file.closed:
            with contextlib.suppress(StoreError):
                self.finish(complete=False)
            with contextlib.suppress(OSError):  # closing flushes once more, which a full disk refuses again
                self._file.close()


def read_run(path: Path) -> StoredRun:
    """A record from disk. Raises StoreError, with the line, where it is not one, or of a newer schema."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    lines = content.splitlines()
    _check_version(path, lines)
    # A harness that was killed, or a disk that was full, leaves half a line; the rows before it are good.
    if len(lines) > 1 and not content.endswith(b"\n") and not _is_json(lines[-1]):
        lines.pop()
    decoded = [_decode(path, number, line) for number, line in enumerate(lines, 1)]
    run = decoded[0].run
    assert run is not None  # _check_version saw it
    return StoredRun(
        run,
        tuple(line.row for line in decoded if line.row is not None),
        complete=any(line.complete for line in decoded),
    )


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except _UNREADABLE:
        return False
    return True


def _check_version(path: Path, lines: list[bytes]) -> None:
    try:
        version = msgspec.json.decode(lines[0] if lines else b"", type=_FirstLine).run.schema_version
    except _UNREADABLE as error:
        raise StoreError(
            f"{path} is no run record: its first line does not describe a run ({error})."
        ) from None
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}; this harness reads up to {SCHEMA_VERSION}. "
            "Upgrade gpu-harness to read it."
        )


def _decode(path: Path, number: int, line: bytes) -> _Line:
    try:
        return msgspec.json.decode(line, type=_Line)
    except _UNREADABLE as error:
        raise StoreError(
            f"{path}, line {number} is damaged ({error}). Delete the line to read the rest."
        ) from None


def schema() -> dict[str, Any]:
    """The JSON Schema of one line of a record."""
    described = msgspec.json.schema(_Line)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpu-harness run record, one line, schema version {SCHEMA_VERSION}",
        **described,
    }
