"""The input of a history: commits, oldest first, and the facts in each record of a card's folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
import numpy.typing as npt

from harness.errors import StoreError
from harness.history.figures import (
    HEADLINE_OF_IMPORTED,
    HEADLINES,
    HOW,
    METRICS,
    Figures,
    Group,
    Key,
    figure_of,
)
from harness.history.sources.kept_tables import CachedTable, Figures32, KeptFile, KeptTable, TableReader
from harness.records.record_files import PACKED, PART, opened, read_run, unpacked_rest, whole_lines
from harness.records.types import SCHEMA_VERSION, Diagnosis, Row, Run
from harness.suite.case_id import in_short, size_label
from harness.system import git
from harness.system.decoding import decode
from harness.system.files import MOST_BYTES, UNREADABLE


@dataclass(frozen=True)
class Commits:
    """Commits along first parents. A position in other modules is an index into them."""

    line: tuple[git.Commit, ...]

    @cached_property
    def positions(self) -> Mapping[str, int]:
        return {commit.hash: position for position, commit in enumerate(self.line)}

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, position: int) -> git.Commit:
        return self.line[position]


def read_commits(repository: Path, revision: str = "HEAD") -> Commits:
    """Return the first parents of a revision. Raises GitError."""
    return Commits(tuple(git.first_parents(repository, revision)))


CONTEXT = {
    "driver": "driver",
    "compiler": "compiler",
    "gpu_uuid": "card",
    "vbios": "VBIOS",
    "power_limit_w": "power limit, W",
    "application_sm_clock_mhz": "application SM clock, MHz",
    "ecc": "ECC",
    "mig": "MIG",
    "cuda": "CUDA",
    "method": "method of measuring",
    "l2": "L2",
    "environment": "asv's environment",
}
"""Facts that begin an epoch when they change, with the words for them."""


class _Source(msgspec.Struct):
    suite: str = ""
    path: str = ""
    commit: str | None = None
    dirty: bool = False


class _RunHead(msgspec.Struct):
    schema_version: int
    command: str
    source: _Source


class _Comparison(msgspec.Struct):
    base: _Source
    head: _Source
    command: str


class TimeEffect(msgspec.Struct, frozen=True):
    """Effect on time, head over base minus 1, with the ends of its interval."""

    effect: float
    low: float
    high: float


class Judged(msgspec.Struct, frozen=True):
    """The verdict of a comparison on a case."""

    case: str
    """Short name of the case."""
    status: str
    time: TimeEffect | None = None
    """The effect on time; None for a case that was not measured, as of identical code."""
    diagnosis: Diagnosis | None = None
    """The reason of a regression; None where nobody asked for it."""


class _RecordLine(msgspec.Struct):
    """The parts of a record's line that are read here."""

    run: _RunHead | None = None
    comparison: _Comparison | None = None
    verdict: Judged | None = None
    problem_changes: tuple[str, ...] = ()


_TAIL_BYTES = 2**18
"""More bytes than the last line of a comparison has, and usually more than all lines after its
measurements."""
_VERDICT = b'{"verdict":'


class RecordLayout(msgspec.Struct, frozen=True):
    headline: str
    kernels: tuple[str, ...]
    cells: tuple[tuple[str, str, float], ...]
    """Kernel, size and number of elements of each row that was timed or planned."""


class RunFacts(KeptFile, frozen=True):
    """The facts of a record for a history, without its values."""

    suite: str = ""
    """Name of the suite; empty for a comparison, and for a run of the working tree."""
    path: str = ""
    """Path of the suite's folder in its repository."""
    commit: str = ""
    command: str = ""
    of_asv: bool = False
    """True if asv has its results too: `asv run` wrote it, or it was made from asv's files."""
    started_at: str = ""
    context: dict[str, str] = msgspec.field(default_factory=dict)
    """Known facts on how it was measured, by key of CONTEXT."""
    conditions: dict[str, str] = msgspec.field(default_factory=dict)
    """Other facts of the machine and of installed packages, which begin no epoch."""
    base: str = ""
    """Commits of a comparison, `base` and `head`; empty otherwise."""
    head: str = ""
    problem_changes: tuple[str, ...] = ()
    judged: tuple[Judged, ...] = ()

    @property
    def has_figures(self) -> bool:
        return bool(self.layouts)

    @property
    def environment(self) -> str:
        """Return asv's environment of the measurement; empty without one."""
        return self.context.get("environment", "")


class CardRecords(KeptTable[RunFacts, RecordLayout]):
    """Every record of a card's folder by name, which sorts by time."""

    @property
    def blocks(self) -> Iterator[tuple[RunFacts, npt.NDArray[np.float32]]]:
        """Yield the values of each record: a row for each cell of its layout and a column for each metric.

        They are infinite if the kernel failed.
        """
        for facts, (start, stop) in zip(self.facts, pairwise(_RECORDS.starts(self)), strict=True):
            yield facts, self.values[start:stop].reshape(-1, len(METRICS))

    def cells(self, facts: RunFacts) -> tuple[tuple[str, str, float], ...]:
        """Return kernel, size and number of elements of each row of a record's values."""
        return self.layouts[facts.layouts[0]].cells if facts.layouts else ()

    def of(self, environment: str | None) -> CardRecords:
        """Return the records of one of asv's environments ("" for none), with every comparison;
        None for all.
        """
        if environment is None:
            return self
        own = [each for each in self.blocks if not each[0].has_figures or each[0].environment == environment]
        values = np.concatenate([np.empty(0, np.float32), *(values.ravel() for _, values in own)])
        return CardRecords(tuple(facts for facts, _ in own), self.layouts, values)

    def holds(self, suite: str, commits: Sequence[str], keys: Sequence[Key]) -> npt.NDArray[np.bool_]:
        """Return True where a record of the suite has a result; a row per commit and a column per case."""
        rows = {commit: row for row, commit in enumerate(commits)}
        columns = {key: column for column, key in enumerate(keys)}
        columns_of: dict[tuple[int, ...], list[int]] = {}
        held = np.zeros((len(commits), len(keys)), np.bool_)
        for each in self.facts:
            if each.suite != suite or each.commit not in rows:
                continue
            if each.layouts not in columns_of:
                cells = (cell[:2] for cell in self.cells(each))
                columns_of[each.layouts] = [columns[cell] for cell in cells if cell in columns]
            held[rows[each.commit], columns_of[each.layouts]] = True
        return held

    @property
    def figures(self) -> dict[str, Figures]:
        """Return the values of each suite. Of several records of a commit, the newest one counts for each
        case.
        """
        by_suite: dict[str, list[tuple[RunFacts, npt.NDArray[np.float32]]]] = defaultdict(list)
        for facts, block in self.blocks:
            if facts.commit:
                by_suite[facts.suite].append((facts, block))
        return {suite: self._figures(suite, records) for suite, records in by_suite.items()}

    def _figures(self, suite: str, records: Sequence[tuple[RunFacts, npt.NDArray[np.float32]]]) -> Figures:
        rows = {commit: row for row, commit in enumerate(dict.fromkeys(each.commit for each, _ in records))}
        columns: dict[tuple[str, str], int] = {}
        columns_of: dict[tuple[int, ...], npt.NDArray[np.intp]] = {}
        for each, _ in records:
            if each.layouts not in columns_of:
                taken = [columns.setdefault(cell[:2], len(columns)) for cell in self.cells(each)]
                columns_of[each.layouts] = np.array(taken, np.intp)
        values = np.full((len(METRICS), len(rows), len(columns)), np.nan, np.float32)
        contexts: list[dict[str, str]] = [{} for _ in rows]
        conditions: list[dict[str, str]] = [{} for _ in rows]
        for each, figures in records:
            row, own = rows[each.commit], columns_of[each.layouts]
            context, read = contexts[row], figures.T
            if any(key in context and context[key] != each.context.get(key, context[key]) for key in HOW):
                values[:, row] = np.nan
            if context.get("environment") != each.context.get("environment"):
                # A failure in one of asv's environments does not hide a value of another.
                before = values[:, row, own]
                read = np.where(np.isinf(read) & np.isfinite(before), before, read)
            values[:, row, own] = read
            context.update(each.context)
            conditions[row].update(each.conditions)
        return Figures(
            group=suite,
            commits=tuple(rows),
            keys=tuple(columns),
            values=dict(zip(METRICS, values, strict=True)),
            contexts=tuple(contexts),
            conditions=tuple(conditions),
        )


def suites_of(cards: Iterable[CardRecords], commits: Commits) -> Iterator[Group]:
    """Yield the suites in records, by name.

    The record of the newest commit defines a suite's kernels and their order. Sizes are ordered by the amount
    of work. A suite without any result is left out.
    """
    headlines = {**HEADLINES, **HEADLINE_OF_IMPORTED}
    newest: dict[str, tuple[int, str, RecordLayout]] = {}
    elements: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for card in cards:
        measured = [each for each in card.facts if each.has_figures and each.commit in commits.positions]
        for facts in measured:
            candidate = commits.positions[facts.commit], facts.started_at, card.layouts[facts.layouts[0]]
            if facts.suite not in newest or newest[facts.suite][:2] <= candidate[:2]:
                newest[facts.suite] = candidate
        for suite, number in {(each.suite, each.layouts[0]) for each in measured}:
            for kernel, size, count in card.layouts[number].cells:
                # An imported record may have only a label of a size, and not all axes.
                elements[suite][kernel, size] = max(count, elements[suite].get((kernel, size), 0.0))
    for suite, (_, _, layout) in sorted(newest.items()):
        kernels = {kernel: place for place, kernel in enumerate(layout.kernels)}
        there = sorted(
            (kernels[key[0]], count, key) for key, count in elements[suite].items() if key[0] in kernels
        )
        if not there:
            continue
        metrics = {
            name: (metric.unit, metric.direction)
            for name, metric in METRICS.items()
            if metric.headline in (None, layout.headline)
        }
        yield Group(
            name=suite,
            is_suite=True,
            metrics=metrics,
            headlines=(headlines[layout.headline],) if layout.headline in headlines else (),
            kernels=layout.kernels,
            keys=tuple(key for _, _, key in there),
        )


def card_records(folder: Path) -> CardRecords:
    """Return the records of a card's folder. An unreadable record has a problem. Raises StoreError for the
    folder.
    """
    table = _RECORDS.table(folder)
    return CardRecords(table.facts, table.layouts, table.values)


_NONE = np.empty(0, np.float32)


def _read(folder: Path, file: KeptFile, layouts: dict[RecordLayout, int]) -> tuple[RunFacts, Figures32]:
    nothing = RunFacts(file.file, file.size, file.mtime_ns)
    try:
        return _read_record(nothing, folder / file.file, layouts)
    except StoreError as error:
        why = error.message.rstrip(".")
    except (*UNREADABLE, ArithmeticError) as error:  # such as a time of 0, or a size too large for a number
        why = f"it is damaged ({error})"
    return msgspec.structs.replace(nothing, problem=f"{file.file} is left out: {why}."), _NONE


def _read_record(
    nothing: RunFacts, path: Path, layouts: dict[RecordLayout, int]
) -> tuple[RunFacts, Figures32]:
    with opened(path) as file:
        first = decode(file.readline(MOST_BYTES), _RecordLine)
        if first.comparison:
            packed = path.name.endswith(PACKED)
            return _of_comparison(nothing, first.comparison, file, packed=packed), _NONE
    run = first.run
    if (
        run is None
        or run.source.dirty
        or not run.source.commit
        or run.command not in ("asv", "run", "import", "static")
    ):
        return nothing, _NONE
    if run.schema_version > SCHEMA_VERSION:
        raise StoreError(f"its schema is {run.schema_version}, and this harness reads up to {SCHEMA_VERSION}")
    stored = read_run(path)
    rows = [row for row in stored.rows if row.status not in ("skipped", "verified", "ran", "not-built")]
    cells = tuple((row.kernel, size_label(row.sizes), float(prod(row.sizes.values()))) for row in rows)
    layout = RecordLayout(stored.run.headline, stored.run.kernels, cells)
    values = _figures(rows, stored.run.headline)
    facts = msgspec.structs.replace(
        nothing,
        suite=stored.run.source.suite,
        path=stored.run.source.path,
        commit=stored.run.source.commit or "",
        command=stored.run.command,
        of_asv="asv" in (stored.run.command, stored.run.settings.get("format")),
        started_at=stored.run.started_at,
        context=_context(stored.run),
        conditions=_conditions(stored.run),
        layouts=(layouts.setdefault(layout, len(layouts)),),
    )
    return facts, values.ravel()


def _figures(rows: Sequence[Row], headline: str) -> npt.NDArray[np.float32]:
    found = np.full((len(rows), len(METRICS)), np.nan, np.float32)
    for column, metric in enumerate(METRICS.values()):
        if metric.headline in (None, headline):
            with np.errstate(over="ignore"):  # a value beyond single precision is not from a kernel
                found[:, column] = [figure_of(metric, row) for row in rows]
    return found


def _of_comparison(nothing: RunFacts, found: _Comparison, file: IO[bytes], *, packed: bool) -> RunFacts:
    base, head = found.base, found.head
    if found.command != "compare" or head.dirty or not (base.commit and head.commit):
        return nothing
    lines = whole_lines(unpacked_rest(file) if packed else _end_of(file, nothing.size))
    changes = decode(lines[-1], _RecordLine).problem_changes if lines else ()
    told = [decode(line, _RecordLine).verdict for line in lines if line.startswith(_VERDICT)]
    return msgspec.structs.replace(
        nothing,
        suite=head.suite,
        base=base.commit,
        head=head.commit,
        problem_changes=changes,
        judged=tuple(msgspec.structs.replace(each, case=in_short(each.case)) for each in told if each),
    )


def _end_of(file: IO[bytes], size: int) -> bytes:
    """Return the part of a comparison with its verdicts: usually the end, else everything after the start."""
    start = file.tell()
    file.seek(max(start, size - _TAIL_BYTES))
    content = file.read()
    rest = content.partition(b"\n")[2]  # its first line is usually incomplete
    if rest and not rest.startswith(_VERDICT):
        return content
    file.seek(start)
    return file.read()


def _context(run: Run) -> dict[str, str]:
    values = {
        **run.identity,
        "driver": run.device.driver,
        "gpu_uuid": run.device.uuid or "",
        "compiler": run.toolchain.compiler if run.toolchain else "",
        "method": str(run.settings.get("method", "1")),
        "l2": str(run.settings.get("l2") or ""),
        "environment": str(run.settings.get("environment") or ""),
    }
    return _told({key: values.get(key, "") for key in CONTEXT})


def _conditions(run: Run) -> dict[str, str]:
    """Return a record's facts of its host, and an imported file's facts of itself."""
    host = {
        "cpu": run.host.cpu,
        "os": run.host.os,
        "kernel": run.host.kernel,
        "python": run.host.python,
        "runner": str(run.settings.get("host_name") or ""),
    }
    own = {key: value for key, value in run.identity.items() if key not in CONTEXT}
    return _told({**own, **host})


def _told(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value and not value.startswith("unavailable")}


class _CachedRecords(CachedTable[RunFacts, RecordLayout]):
    pass


_RECORDS: TableReader[RunFacts, RecordLayout] = TableReader(
    kind="records",
    version=" ".join((*CONTEXT, *METRICS)),
    cached=_CachedRecords,
    wanted=lambda name: name.endswith((".jsonl", f".jsonl{PART}", f".jsonl{PACKED}")),
    width=lambda layout: len(layout.cells) * len(METRICS),
    read=_read,
)
