"""A sweep on disk: one JSON Lines file, written line by line, from which a sweep that was ended goes on. Also
as T4 documents, which other autotuners read and write.

The first line is the sweep. Each further line is what came of preparing a configuration, a row, a duel, a
repeat or a final, as it was found; a later row of a number replaces an earlier one. The last line says that
the sweep came to its end.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import StoreError
from harness.records.record_files import JsonLines, decoded_line, reading, writing_results
from harness.run.sweep.sweep_types import (
    SCHEMA_VERSION,
    Duel,
    Final,
    PreparedConfiguration,
    Repeat,
    Sweep,
    SweepResult,
    SweepRow,
)
from harness.suite.case_id import size_label
from harness.system.cache import write_file
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
"""The field of a line that holds an item, by the item's type."""


@dataclass(slots=True)
class SweepState:
    """What is known of a sweep's configurations so far, by number."""

    prepared: dict[int, PreparedConfiguration] = field(default_factory=dict)
    rows: dict[int, SweepRow] = field(default_factory=dict)
    """Rejected, failed, or screened. A configuration that is another's duplicate has none of its own."""
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
    """The file of one sweep, begun or gone on with, and written as long as it can be; without a folder, the
    state alone.

    Raises StoreError where it cannot be begun, is damaged, or another process is at it.
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
                # Whoever waits for the name gets the new file; the old one stays locked until it is away.
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
        if len(whole) < len(content):  # a harness that was killed, or a full disk, leaves half a line
            lines.file.truncate(len(whole))
        if whole:
            self.sweep, self.state = _decoded(path, whole.splitlines())
        else:
            lines.append(_SweepLine(sweep=self.sweep))

    @property
    def problem(self) -> str:
        """Return why the file is not whole; empty where it is."""
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
    """A stored sweep as far as it came. Raises StoreError where it is none, or of a newer schema."""
    with reading(path):
        content = read_regular(path)
    return _decoded(path, content[: content.rfind(b"\n") + 1].splitlines())


class _SchemaVersion(msgspec.Struct):
    schema_version: int


class _VersionLine(msgspec.Struct):
    sweep: _SchemaVersion


def _decoded(path: Path, lines: list[bytes]) -> tuple[Sweep, SweepState]:
    try:
        version = msgspec.json.decode(lines[0] if lines else b"", type=_VersionLine).sweep.schema_version
    except UNREADABLE as error:
        raise StoreError(f"{path} is no sweep: its first line does not describe one ({error}).") from None
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}, which is newer than this harness. "
            "Upgrade gpu-harness to read it."
        )
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


T4_VERSION = "1.0.0"
_INVALIDITY = {
    **dict.fromkeys(("build-failed", "needs-package", "suite"), "compile"),
    "wrong-result": "correctness",
    "timed-out": "timeout",
}
"""T4's word for a reason of ours. The rest failed where it ran."""


def t4_results(result: SweepResult) -> dict[str, dict[str, Any]]:
    """A document for each size, by the size's label: T4 knows one problem size a document.

    What was rejected or failed is in it too, with its reason among the measurements. `runtimes` are the times
    that are kept: of a winner each fresh process's median, of others the median of screening.
    """
    sweep = result.sweep
    finals = {size_label(final.sizes): final for final in result.finals}
    documents: dict[str, dict[str, Any]] = {}
    for row in result.rows:
        size = size_label(row.configuration.sizes)
        if size not in documents:
            metadata = {
                "timeunit": "milliseconds",
                "kernel_name": sweep.kernel,
                "problem_size": dict(row.configuration.sizes),
                "device_name": sweep.device.name,
                "device_driver": sweep.device.driver,
                "compiler": sweep.toolchain.compiler if sweep.toolchain else "",
                "tool": f"gpu-harness {sweep.harness_version}",
                "sweep_id": sweep.sweep_id,
                "commit": sweep.source.commit or "",
                "complete": result.complete,
            }
            documents[size] = {"schema_version": T4_VERSION, "metadata": metadata, "results": []}
        documents[size]["results"].append(_t4_result(row, finals.get(size)))
    return documents


def write_t4(result: SweepResult, path: Path) -> tuple[Path, ...]:
    """Write the documents: to `path` where there is one size, else to ``name-512.json`` and so on beside it.

    Raises StoreError where they cannot be written.
    """
    documents = t4_results(result)
    written = []
    for size, document in documents.items():
        place = path if len(documents) == 1 else path.with_name(f"{path.stem}-{size}{path.suffix}")
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        write_file(place, text.encode(), "Name a file in a folder with room.")
        written.append(place)
    return tuple(written)


def _t4_result(row: SweepRow, final: Final | None) -> dict[str, Any]:
    if row.status == "measured":
        invalidity = "correct"
    else:
        invalidity = "constraints" if row.status == "rejected" else _INVALIDITY.get(row.reason, "runtime")
    times_ns: tuple[float, ...] = ()
    measurements: list[tuple[str, float | str | None, str]]
    measurements = [("reason", row.reason, ""), ("message", row.message, "")]
    if row.status == "measured" and row.time_ns is not None:
        won = final is not None and final.number in (row.configuration.number, row.same_as)
        times_ns = final.process_times_ns if final and won else (row.time_ns,)
        measurements = _t4_measurements(row, final.time_ns if final and won else row.time_ns)
    return {
        "configuration": dict(row.configuration.parameters),
        "objectives": ["time"],
        "times": {"benchmark": row.gpu_s * 1e3, "runtimes": [time / 1e6 for time in times_ns]},
        "invalidity": invalidity,
        # Nothing is timed that was not verified.
        "correctness": int(invalidity == "correct"),
        "measurements": [
            {"name": name, "value": value, "unit": unit}
            for name, value, unit in measurements
            if value is not None
        ],
    }


def _t4_measurements(row: SweepRow, time_ns: float) -> list[tuple[str, float | str | None, str]]:
    # Of a winner's time there is no interval: the row's is of its time in screening.
    low_ns, high_ns = (row.time_low_ns, row.time_high_ns) if time_ns == row.time_ns else (None, None)
    return [
        ("time", time_ns / 1e6, "ms"),
        ("time_low", low_ns and low_ns / 1e6, "ms"),
        ("time_high", high_ns and high_ns / 1e6, "ms"),
        ("gflops", row.flop / time_ns if row.flop else None, "GFLOP/s"),
        ("gbytes_per_s", row.moved_bytes / time_ns if row.moved_bytes else None, "GB/s"),
        ("behind", row.behind.effect if row.behind else None, ""),
        ("registers", row.resources.registers if row.resources else None, ""),
        ("same_as", row.same_as, ""),
        ("number", row.configuration.number, ""),
    ]
