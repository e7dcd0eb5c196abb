"""A sweep on disk: one JSON Lines file, written line by line, from which an interrupted sweep continues.

The first line is the sweep. Each further line is the preparation of a configuration, a row, a duel, a repeat
or a final. A later row of a number replaces an earlier one. The last line says that the sweep is complete.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.records.record_files import (
    JsonLines,
    SchemaVersion,
    decoded_line,
    reading,
    refuse_newer,
    writing_results,
)
from harness.records.sweep_types import (
    SCHEMA_VERSION,
    Duel,
    Final,
    PreparedConfiguration,
    Repeat,
    Sweep,
    SweepRow,
)
from harness.system.decoding import decode
from harness.system.files import UNREADABLE, open_regular, read_regular, try_lock

Item = PreparedConfiguration | SweepRow | Duel | Repeat | Final


class _SweepLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    sweep: Sweep | None = None
    prepared: PreparedConfiguration | None = None
    row: SweepRow | None = None
    duel: Duel | None = None
    repeat: Repeat | None = None
    final: Final | None = None
    complete: bool = False


_FIELDS = {PreparedConfiguration: "prepared", SweepRow: "row", Duel: "duel", Repeat: "repeat", Final: "final"}
"""The field of a line for each type of item."""


@dataclass(slots=True)
class SweepState:
    """The results of a sweep so far, by number of configuration."""

    prepared: dict[int, PreparedConfiguration] = field(default_factory=dict)
    rows: dict[int, SweepRow] = field(default_factory=dict)
    """Rows by number: rejected, failed, or screened. A duplicate of another configuration has no row of its
    own."""
    duels: list[Duel] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)
    complete: bool = False

    def add(self, item: Item) -> None:
        match item:
            case PreparedConfiguration():
                self.prepared[item.number] = item
            case SweepRow():
                self.rows[item.configuration.number] = item
            case Duel():
                self.duels.append(item)
            case Repeat():
                self.repeats.append(item)
            case Final():
                self.finals.append(item)


class SweepJournal(contextlib.AbstractContextManager["SweepJournal"]):
    """The file of one sweep, new or continued, written if possible; without a folder, only the state.

    Raises StoreError if it cannot be created, is damaged, or is in use by another process.
    """

    def __init__(self, folder: Path | None, sweep: Sweep, *, fresh: bool = False) -> None:
        self.path: Path | None = None
        self.state = SweepState()
        self.sweep = sweep
        self._lines: JsonLines | None = None
        if folder is None:
            return
        path = self.path = folder / f"{sweep.source.suite}.{sweep.kernel}-{sweep.sweep_id}.jsonl"
        with writing_results(folder):
            self._lines = _locked(path)
            if fresh and path.stat().st_size:
                # Another process that waits for the name gets the new file. The old file stays locked until
                # it is removed.
                path.replace(path.with_name(f"{path.stem}.{time.time_ns()}.old"))
                self._lines.close()
                self._lines = _locked(path)
        try:
            self._begin(path, self._lines)
        except BaseException:
            self._lines.close()
            raise

    def _begin(self, path: Path, lines: JsonLines) -> None:
        lines.file.seek(0)
        content = lines.file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):  # the partial last line of a killed harness or a full disk
            lines.file.truncate(len(whole))
        if whole:
            self.sweep, self.state = _decoded(path, whole.splitlines())
        else:
            lines.append(_SweepLine(sweep=self.sweep))

    @property
    def problem(self) -> str:
        """Return a sentence if the file is incomplete; else ""."""
        return self._lines.problem if self._lines else ""

    def add(self, item: Item) -> None:
        self.state.add(item)
        if self._lines:
            self._lines.keep(_SweepLine(**{_FIELDS[type(item)]: item}))  # type: ignore[arg-type]

    def finish(self) -> None:
        self.state.complete = True
        if self._lines:
            self._lines.keep(_SweepLine(complete=True))
            if not self.problem:
                with contextlib.suppress(OSError):
                    self._lines.sync()

    def __exit__(self, *raised: object) -> None:
        if self._lines:
            self._lines.close()


def _locked(path: Path) -> JsonLines:
    if path.exists():
        open_regular(path).close()  # raises for a pipe or device in its place
    file = path.open("a+b")
    try:
        is_ours = try_lock(file.fileno())
    except OSError:  # a file system without locks
        is_ours = True
    if not is_ours:
        file.close()
        raise StoreError(
            f"This sweep is running in another process, which writes {path}. Wait for it, or end it."
        )
    advice = "What was written before is kept there, and the same command goes on from it."
    return JsonLines(path, file, advice)


def read_sweep(path: Path) -> tuple[Sweep, SweepState]:
    """Return a stored sweep as far as it got. Raises StoreError for another file, or a newer schema."""
    with reading(path):
        content = read_regular(path)
    return _decoded(path, content[: content.rfind(b"\n") + 1].splitlines())


class _VersionLine(msgspec.Struct):
    sweep: SchemaVersion


def _decoded(path: Path, lines: list[bytes]) -> tuple[Sweep, SweepState]:
    try:
        version = decode(lines[0] if lines else b"", _VersionLine).sweep.schema_version
    except UNREADABLE as error:
        raise StoreError(f"{path} is no sweep: its first line does not describe one ({error}).") from None
    refuse_newer(path, version, SCHEMA_VERSION)
    advice = "Delete the line to go on from the rest, or begin anew with --fresh."
    decoded = [decoded_line(path, number, line, _SweepLine, advice) for number, line in enumerate(lines, 1)]
    sweep = decoded[0].sweep
    assert sweep is not None
    found = SweepState()
    for line in decoded[1:]:
        for name in _FIELDS.values():
            if (item := getattr(line, name)) is not None:
                found.add(item)
        found.complete = found.complete or line.complete
    return sweep, found
