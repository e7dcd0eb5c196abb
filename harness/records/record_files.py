"""Records on disk: one JSON Lines file per run or comparison, from which asv's files are made.

The first line is the run, each further line a row, and the last line says whether the run was complete. Lines
of a comparison are its raw blocks, then its verdicts. Lines are appended to a ``.part`` file at once, so that
measurements survive a crash. The file gets its final name at the end, or from the next run that writes a
record beside it. A record may be compressed by gzip afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import inspect
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import msgspec

from harness.errors import StoreError
from harness.records.types import (
    SCHEMA_VERSION,
    TWINS,
    CaseBlock,
    Comparison,
    DeviceInfo,
    Row,
    Run,
    Source,
    Verdict,
)
from harness.system.decoding import decode
from harness.system.files import MOST_BYTES, UNREADABLE, open_regular, read_regular, try_lock

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

PART = ".part"
"""Extension of a record while it is written, and after its run was killed."""
PACKED = ".gz"
"""Extension of a record compressed by gzip."""
_ENDINGS = (".jsonl", f".jsonl{PACKED}")


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a record. Exactly one field is given."""

    run: Run | None = None
    row: Row | None = None
    comparison: Comparison | None = None
    block: CaseBlock | None = None
    verdict: Verdict | None = None
    complete: bool | None = None
    left_out: tuple[str, ...] = ()
    """In the last line of a comparison, like the changes of its problem."""
    problem_changes: tuple[str, ...] = ()


_FIELDS = {Run: "run", Row: "row", Comparison: "comparison", CaseBlock: "block", Verdict: "verdict"}
"""The field of a line for each kind of record."""


class SchemaVersion(msgspec.Struct):
    """A record of which only the version is read."""

    schema_version: int


class _RecordHead(msgspec.Struct):
    run: SchemaVersion | None = None
    comparison: SchemaVersion | None = None


_RUN_NAME = re.compile(r"[0-9TZ]+-(?!.*\.\.)(?P<commit>[^-]+)-(?P<suite>\w+)-[0-9a-f]+\.jsonl")


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run, fresh or from its record."""

    run: Run
    rows: tuple[Row, ...]
    path: Path | None
    """Path of the record's file, or None."""
    interrupted: bool = False
    """True if rows are missing. Those present are valid."""
    problem: str = ""
    """Reason why the file is incomplete, such as a full disk. The rows here are complete."""
    wall_s: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Wall time in seconds by stage; empty for a record read from disk."""

    @property
    def device(self) -> DeviceInfo:
        return self.run.device


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row, its run, and the name of the device's folder."""

    machine: str
    run: Run
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSummary:
    """A device's calibration, without the values of its cases."""

    measured_at: str
    """Time of the newest part: UTC, ISO 8601."""
    driver: str
    verdicts: int = 0
    """Verdicts of code against itself."""
    false_alarms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """A comparison, fresh or from its record."""

    comparison: Comparison
    verdicts: tuple[Verdict, ...]
    """The verdict of each case, in ladder order.

    Empty for a killed comparison: its blocks can still be judged.
    """
    twins: tuple[Verdict, ...] = ()
    """Verdicts of the comparison's test of itself."""
    blocks: tuple[CaseBlock, ...] = ()
    """The measurements of each case in each process, in order."""
    left_out: tuple[str, ...] = ()
    """Sentences on why cases were not compared."""
    problem_changes: tuple[str, ...] = ()
    """Sentences on the changes from base's problem to head's."""
    interrupted: bool = False
    problem: str = ""
    """Reason why the record is incomplete, such as a full disk."""
    path: Path | None = None
    """Path of the record's file, or None."""
    calibration: CalibrationSummary | None = None
    """Noise that the verdicts are based on; None for an assumption, and from `read_comparison`."""
    wall_s: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Wall time in seconds by stage; empty for a record read from disk."""

    @property
    def device(self) -> DeviceInfo:
        return self.comparison.device

    @property
    def every_verdict(self) -> tuple[Verdict, ...]:
        """The verdicts with those of the twins."""
        return (*self.verdicts, *self.twins)


def record_name(described: Run | Comparison) -> str:
    """Return a unique name that sorts by time: ``20260102T030405Z-1a2b3c4d-matmul-5e6f7a8b.jsonl``.

    A comparison has two commits: ``20260102T030405Z-1a2b3c4d..9c0d1e2f-matmul-5e6f7a8b.jsonl``.
    """
    stamp = described.started_at.replace("-", "").replace(":", "").partition(".")[0].partition("+")[0] + "Z"
    if isinstance(described, Run):
        suite, commits = described.source.suite, _short(described.source)
    else:
        suite, commits = described.head.suite, f"{_short(described.base)}..{_short(described.head)}"
    return f"{stamp}-{commits}-{suite}-{described.run_id[:8]}.jsonl"


def _short(source: Source) -> str:
    return (source.commit or "nocommit")[:8] + ("+" if source.dirty else "")


def commit_and_suite(name: str) -> tuple[str, str]:
    """Return the first digits of the commit, and the suite, from a record's name.

    Both are empty for another name.
    """
    match = _RUN_NAME.fullmatch(name.removesuffix(PACKED).removesuffix(PART))
    return (match["commit"], match["suite"]) if match else ("", "")


class JsonLines:
    """A file of JSON lines that is written line by line, so that each line survives a crash."""

    def __init__(self, path: Path, file: IO[bytes], advice: str) -> None:
        self.path, self.file, self._advice = path, file, advice
        self.problem = ""
        """Reason why `keep` no longer writes; empty while it does."""

    def append(self, line: msgspec.Struct) -> None:
        """Append a line. Raises StoreError, with advice, if the disk is full."""
        try:
            self.file.write(msgspec.json.encode(line) + b"\n")
            self.file.flush()
        except OSError as error:
            raise StoreError(
                f"Cannot write to {self.path}: {error.strerror or error}. {self._advice}"
            ) from None

    def keep(self, line: msgspec.Struct) -> None:
        """Append a line if possible: a full disk must not lose the running measurement."""
        if not self.problem:
            try:
                self.append(line)
            except StoreError as error:
                self.problem = error.message

    def sync(self) -> None:
        """Flush to the disk, so that a crash of the machine loses nothing. Raises OSError."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closing flushes again, which a full disk refuses again
            self.file.close()


@contextlib.contextmanager
def writing_results(folder: Path) -> Iterator[None]:
    """Create a folder of results. Raises StoreError if it, or a file opened in it, cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise StoreError(
            f"Cannot write results to {folder}: {error.strerror or error}. "
            "Choose another folder with --results, or none with --no-save."
        ) from None


class RecordWriter(contextlib.AbstractContextManager["RecordWriter"]):
    """Writes the record of a run or comparison. It opens the file before a measurement starts.

    Raises StoreError if the folder is not writable, or the disk is full.
    """

    def __init__(self, folder: Path, described: Run | Comparison) -> None:
        self.path = folder / record_name(described)
        self._part = self.path.with_name(self.path.name + PART)
        with writing_results(folder):
            _adopt_parts(folder)
            file = self._part.open("xb")
            with contextlib.suppress(OSError):  # a file system without locks
                try_lock(file.fileno())
        self._lines = JsonLines(self._part, file, "Rows written before are kept there.")
        try:
            self.add(described)
        except StoreError:
            self._lines.close()
            with contextlib.suppress(OSError):
                self._part.unlink()
            raise

    def add(self, item: Run | Row | Comparison | CaseBlock | Verdict) -> None:
        line: dict[str, Any] = {_FIELDS[type(item)]: item}
        self._lines.append(_Line(**line))

    def finish(
        self, *, complete: bool, left_out: Sequence[str] = (), problem_changes: Sequence[str] = ()
    ) -> Path:
        """Give the record its name. A part file left by a crash can be read like a finished record."""
        changes = tuple(problem_changes)
        self._lines.append(_Line(complete=complete, left_out=tuple(left_out), problem_changes=changes))
        try:
            self._lines.sync()
            self._part.replace(self.path)
        except OSError as error:
            raise StoreError(
                f"Cannot finish {self.path}: {error.strerror or error}. The rows are in {self._part}."
            ) from None
        finally:
            self._lines.close()  # last: until then it is locked as being written
        return self.path

    def __exit__(self, *_: object) -> None:
        if not self._lines.file.closed:
            with contextlib.suppress(StoreError):
                self.finish(complete=False)
            self._lines.close()


def _adopt_parts(folder: Path) -> None:
    """Rename unlocked part files of killed runs that are valid records. Leave other files."""
    for part in folder.glob(f"*.jsonl{PART}"):
        with contextlib.suppress(OSError, *UNREADABLE), open_regular(part) as file:
            first = decode(file.readline(MOST_BYTES), _RecordHead)
            described = first.run or first.comparison
            if described and not part.is_symlink() and try_lock(file.fileno()):
                part.rename(part.with_name(part.name.removesuffix(PART)))


class Journal:
    """A record that is written if possible: a full disk must not lose the running measurement."""

    def __init__(self, writer: RecordWriter | None) -> None:
        self._writer = writer
        self.path = writer.path if writer else None
        self.problem = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer:
            self._writer.__exit__()

    def add(self, item: Row | CaseBlock | Verdict) -> None:
        self._attempt(RecordWriter.add, item)

    def finish(
        self, *, complete: bool, left_out: Sequence[str] = (), problem_changes: Sequence[str] = ()
    ) -> None:
        ending = {"complete": complete, "left_out": left_out, "problem_changes": problem_changes}
        self._attempt(RecordWriter.finish, **ending)

    def _attempt(self, write: Callable[..., object], *given: object, **named: object) -> None:
        if self._writer and not self.problem:
            try:
                write(self._writer, *given, **named)
            except StoreError as error:
                self.problem, self.path = error.message, None


class ComparisonJournal(Journal):
    """The record of a running comparison; without a folder, only the blocks in memory."""

    def __init__(self, folder: Path | None, comparison: Comparison) -> None:
        super().__init__(RecordWriter(folder, comparison) if folder else None)
        self._comparison = comparison
        self._blocks: list[CaseBlock] = []

    def add(self, item: Row | CaseBlock | Verdict) -> None:
        super().add(item)
        if isinstance(item, CaseBlock):
            self._blocks.append(item)

    def result(
        self,
        verdicts: Iterable[Verdict],
        *,
        twins: tuple[Verdict, ...] = (),
        left_out: tuple[str, ...] = (),
        problem_changes: tuple[str, ...] = (),
        interrupted: bool,
        calibration: CalibrationSummary | None = None,
        wall_s: Mapping[str, float] = {},
    ) -> ComparisonResult:
        """Finish the record with these verdicts, and return the comparison."""
        made = ComparisonResult(
            comparison=self._comparison,
            verdicts=tuple(verdicts),
            twins=twins,
            blocks=tuple(self._blocks),
            left_out=left_out,
            problem_changes=problem_changes,
            interrupted=interrupted,
            calibration=calibration,
            wall_s=wall_s,
        )
        for verdict in made.every_verdict:
            self.add(verdict)
        self.finish(complete=not interrupted, left_out=left_out, problem_changes=problem_changes)
        return replace(made, path=self.path, problem=self.problem)


def read_run(path: Path) -> RunResult:
    """Return a run's record from disk. Raises StoreError with the line for a damaged one or a
    newer schema.
    """
    lines = _decoded(path)
    if (run := lines[0].run) is None:
        raise StoreError(f"{path} is the record of a comparison; expected that of a run.")
    rows = tuple(line.row for line in lines if line.row is not None)
    return RunResult(run, rows, path, interrupted=not any(line.complete for line in lines))


def newest_rows(results: Path, suite: str, cases: Collection[str]) -> tuple[list[StoredRow], list[str]]:
    """Return the newest row of each of a suite's cases on each device, and why records could not be read.

    Rows that were only checked do not count. Skipped rows count only if a case has no other.
    """
    found: list[StoredRow] = []
    problems: list[str] = []
    for folder in sorted({path.parent for path in results.glob("*/*.jsonl*")}):
        newest: dict[str, StoredRow] = {}
        for path in sorted(folder.glob("*.jsonl*"), reverse=True):
            wanted = {case for case in cases if case not in newest or newest[case].row.status == "skipped"}
            if commit_and_suite(path.name)[1] != suite or not wanted:
                continue
            try:
                stored = read_run(path)
            except StoreError as error:
                problems.append(error.message)
                continue
            for row in stored.rows if stored.run.command != "check" else ():
                is_new = row.status != "skipped" or row.case not in newest
                if row.case in wanted and row.status not in ("verified", "ran", "not-built") and is_new:
                    newest[row.case] = StoredRow(folder.name, stored.run, row)
        found += newest.values()
    return found, problems


def read_comparison(path: Path) -> ComparisonResult:
    """Return a comparison's record from disk. Raises StoreError like read_run."""
    lines = _decoded(path)
    if (comparison := lines[0].comparison) is None:
        raise StoreError(f"{path} is the record of a run; expected that of a comparison.")
    verdicts = [line.verdict for line in lines if line.verdict is not None]
    return ComparisonResult(
        comparison=comparison,
        verdicts=tuple(verdict for verdict in verdicts if verdict.case not in TWINS),
        twins=tuple(verdict for verdict in verdicts if verdict.case in TWINS),
        blocks=tuple(line.block for line in lines if line.block is not None),
        left_out=tuple(reason for line in lines for reason in line.left_out),
        problem_changes=tuple(change for line in lines for change in line.problem_changes),
        interrupted=not any(line.complete for line in lines),
        path=path,
    )


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """The records found at some places."""

    comparisons: tuple[Path, ...]
    others: int
    """Number of other records in the folders."""
    problems: tuple[str, ...]
    """Sentences that name the unreadable files."""


def find_comparisons(places: Sequence[Path]) -> FoundRecords:
    """Return the records of comparisons: named files, and those in folders or below; each once."""
    found: dict[Path, Path] = {}
    others, problems = 0, []
    for place in places:
        if not place.is_dir():
            found.setdefault(place.resolve(), place)
            continue
        names = sorted(path for path in place.rglob("*") if path.name.endswith(_ENDINGS))
        below = [path for path in names if not path.is_dir()]
        if not below:
            endings = " or ".join(_ENDINGS)
            problems.append(f"There is no record in {place} or below: expected files that end in {endings}.")
        for path in below:
            try:
                with opened(path) as content:
                    first = _first(path, content.readline(MOST_BYTES))
            except StoreError as error:
                problems.append(error.message)
                continue
            if first.comparison:
                found.setdefault(path.resolve(), path)
            else:
                others += 1  # other lines of JSON
    return FoundRecords(tuple(found.values()), others, tuple(problems))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a record for reading from the start, decompressed. Raises StoreError, also during reading."""
    with reading(path), open_regular(path) as file:
        packed = path.name.endswith(PACKED)
        yield gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[misc]


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of reading a file or folder into StoreError with a sentence."""
    try:
        yield
    except gzip.BadGzipFile as error:
        raise StoreError(
            f"{path} is not packed by gzip, as its name says ({error}): take {PACKED} from the name, "
            "or fetch the file again."
        ) from None
    except (EOFError, zlib.error) as error:
        raise StoreError(f"{path} is damaged ({error}): fetch it, or pack it, again.") from None
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None


def unpacked_rest(file: IO[bytes]) -> bytes:
    """Return the rest of a compressed record, up to a limit: a few bytes may expand beyond memory. Raises
    OSError.
    """
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"unpacked it has more than {MOST_BYTES} bytes")
    return content


def _lines(path: Path) -> list[bytes]:
    if path.name.endswith(PACKED):
        with opened(path) as file:
            content = unpacked_rest(file)
    else:
        with reading(path):
            content = read_regular(path)
    lines = whole_lines(content)
    _check_version(path, lines)
    return lines


def whole_lines(content: bytes) -> list[bytes]:
    """Return the lines of a record, without a partial last line from a killed harness or a full disk."""
    lines = content.splitlines()
    if lines and not content.endswith(b"\n"):
        try:
            msgspec.json.decode(lines[-1])
        except UNREADABLE:
            lines.pop()
    return lines


def _first(path: Path, line: bytes) -> _RecordHead:
    if not line:
        raise StoreError(
            f"{path} is no run record: it has no whole line. A process that was ended, or a "
            "full disk, leaves such a file: delete it."
        )
    try:
        return decode(line, _RecordHead)
    except UNREADABLE as error:
        raise StoreError(
            f"{path} is no run record: its first line does not describe a run ({error}). Expected a file "
            "that 'harness run' or 'harness compare' wrote."
        ) from None


def _check_version(path: Path, lines: list[bytes]) -> None:
    first = _first(path, lines[0] if lines else b"")
    described = first.run or first.comparison
    if described is None:
        raise StoreError(f"{path} is no run record: its first line describes neither a run nor a comparison.")
    refuse_newer(path, described.schema_version, SCHEMA_VERSION)


def refuse_newer(path: Path, version: int, newest: int) -> None:
    """Raise StoreError if a file's version is newer than the newest supported one."""
    if version > newest:
        raise StoreError(
            f"{path} has schema version {version}; this harness reads up to {newest}. "
            "Upgrade gpu-harness to read it."
        )


def _decoded(path: Path) -> list[_Line]:
    advice = "Delete the line to read the rest."
    return [decoded_line(path, number, line, _Line, advice) for number, line in enumerate(_lines(path), 1)]


def decoded_line(path: Path, number: int, line: bytes, kind: type[T], advice: str) -> T:
    """Return a line of JSON. Raises StoreError, with its number and the advice, if it is damaged."""
    try:
        return decode(line, kind)
    except UNREADABLE as error:
        raise StoreError(f"{path}, line {number} is damaged ({error}). {advice}") from None


def schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of a record."""
    described = msgspec.json.schema(_Line)
    for definition in described["$defs"].values():
        if "description" in definition:  # a docstring; Python 3.13 removes its indentation by itself
            definition["description"] = inspect.cleandoc(definition["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpu-harness run record, one line, schema version {SCHEMA_VERSION}",
        **described,
    }
