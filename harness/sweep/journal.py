"""A sweep on disk: one JSON Lines file, written line by line, from which a sweep that was ended goes on.

The first line is the sweep. Each further line is what came of preparing a configuration, a row, a duel, a
repeat or a final, as it was found; a later row of a number replaces an earlier one. The last line says that
the sweep came to its end.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from harness.errors import StoreError
from harness.store.records_file import JsonLines, decoded_line
from harness.sweep.model import SCHEMA_VERSION, Duel, Final, Prepared, Repeat, Sweep, SweepRow
from harness.system.files import open_regular, read_regular, try_lock

if TYPE_CHECKING:
    from typing_extensions import Self

Item = Prepared | SweepRow | Duel | Repeat | Final
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: exactly one field is given."""

    sweep: Sweep | None = None
    prepared: Prepared | None = None
    row: SweepRow | None = None
    duel: Duel | None = None
    repeat: Repeat | None = None
    final: Final | None = None
    complete: bool = False


@dataclass(slots=True)
class SweepState:
    """What is known of a sweep's configurations so far, by number."""

    prepared: dict[int, Prepared] = field(default_factory=dict)
    rows: dict[int, SweepRow] = field(default_factory=dict)
    """Rejected, failed, or screened. A configuration that is another's double has none of its own."""
    duels: list[Duel] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)
    complete: bool = False

    def add(self, item: Item) -> None:
        match item:
            case Prepared():
                self.prepared[item.number] = item
            case SweepRow():
                self.rows[item.configuration.number] = item
            case Duel():
                self.duels.append(item)
            case Repeat():
                self.repeats.append(item)
            case Final():
                self.finals.append(item)


def sweep_name(sweep: Sweep) -> str:
    """``matmul.schedule-0123456789abcdef.jsonl``."""
    return f"{sweep.source.suite}.{sweep.kernel}-{sweep.sweep_id}.jsonl"


class SweepJournal:
    """The file of one sweep, begun or gone on with; a context manager.

    It is written as long as it can be: a disk that fills up must not cost what is being measured. Raises
    StoreError where it cannot be begun, is damaged, or another process is at it.
    """

    def __init__(self, folder: Path, sweep: Sweep, *, fresh: bool = False) -> None:
        self.path = folder / sweep_name(sweep)
        self.problem = ""
        self.state = SweepState()
        self.sweep = sweep
        """As it was begun."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lines = self._locked()
            if fresh and self.path.stat().st_size:
                # Whoever waits for the name gets the new file; the old one stays locked until it is away.
                aside = self.path.with_name(f"{self.path.stem}.{time.time_ns()}.old")
                self.path.replace(aside)
                self._lines.close()
                self._lines = self._locked()
        except OSError as error:
            raise StoreError(
                f"Cannot write results to {folder}: {error.strerror or error}. "
                "Choose another folder with --results, or none with --no-save."
            ) from None
        try:
            self._begin()
        except BaseException:
            self._lines.close()
            raise

    def _locked(self) -> JsonLines:
        if self.path.exists():
            open_regular(self.path).close()  # raises for a pipe or device in its place
        file = self.path.open("a+b")
        try:
            is_ours = try_lock(file.fileno())
        except OSError:  # a file system without locks
            is_ours = True
        if not is_ours:
            file.close()
            raise StoreError(
                f"This sweep is running in another process, which writes {self.path}. Wait for it, or end it."
            )
        advice = "What was written before is kept there, and the same command goes on from it."
        return JsonLines(self.path, file, advice)

    def _begin(self) -> None:
        file = self._lines.file
        file.seek(0)
        content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if len(whole) < len(content):  # a harness that was killed, or a full disk, leaves half a line
            file.truncate(len(whole))
        if lines:
            self.sweep, self.state = _decoded(self.path, lines)
            return
        self._lines.append(_Line(sweep=self.sweep))

    def add(self, item: Item) -> None:
        self.state.add(item)
        match item:
            case Prepared():
                self._append(_Line(prepared=item))
            case SweepRow():
                self._append(_Line(row=item))
            case Duel():
                self._append(_Line(duel=item))
            case Repeat():
                self._append(_Line(repeat=item))
            case Final():
                self._append(_Line(final=item))

    def finish(self) -> None:
        """Say that the sweep came to its end."""
        self.state.complete = True
        self._append(_Line(complete=True))
        if not self.problem:
            with contextlib.suppress(OSError):
                self._lines.sync()

    def _append(self, line: _Line) -> None:
        if self.problem:
            return
        try:
            self._lines.append(line)
        except StoreError as error:
            self.problem = error.message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()


class Unsaved:
    """What a sweep is kept in that is not to be stored."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.state, self.problem = sweep, SweepState(), ""
        self.path: Path | None = None

    def add(self, item: Item) -> None:
        self.state.add(item)

    def finish(self) -> None:
        self.state.complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def read_sweep(path: Path) -> tuple[Sweep, SweepState]:
    """A stored sweep as far as it came. Raises StoreError where it is none, or of a newer schema."""
    try:
        content = read_regular(path)
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    return _decoded(path, content[: content.rfind(b"\n") + 1].splitlines())


class _Version(msgspec.Struct):
    schema_version: int


class _FirstLine(msgspec.Struct):
    sweep: _Version


def _decoded(path: Path, lines: list[bytes]) -> tuple[Sweep, SweepState]:
    try:
        version = msgspec.json.decode(lines[0] if lines else b"", type=_FirstLine).sweep.schema_version
    except _UNREADABLE as error:
        raise StoreError(f"{path} is no sweep: its first line does not describe one ({error}).") from None
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}, which is newer than this harness. "
            "Upgrade gpu-harness to read it."
        )
    advice = "Delete the line to go on from the rest, or begin anew with --fresh."
    decoded = [decoded_line(path, number, line, _Line, advice) for number, line in enumerate(lines, 1)]
    sweep = decoded[0].sweep
    assert sweep is not None
    found = SweepState()
    for line in decoded[1:]:
        for item in (line.prepared, line.row, line.duel, line.repeat, line.final):
            if item is not None:
                found.add(item)
        found.complete = found.complete or line.complete
    return sweep, found
