"""What a history is made of: commits, oldest first, and what every record of a card's folder tells."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import IO, Any, TypeVar

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
    figure_of,
    laid_over,
)
from harness.records.record_files import PACKED, PART, opened, read_run, reading, unpacked_rest, whole_lines
from harness.records.types import SCHEMA_VERSION, Row, Run
from harness.suite.case_id import in_short, size_label
from harness.system import git
from harness.system.cache import cache_dir, write_atomically
from harness.system.files import MOST_BYTES, UNREADABLE, read_regular, stat_of


@dataclass(frozen=True)
class Commits:
    """A line of first parents. What is called a position elsewhere is an index into it."""

    line: tuple[git.Commit, ...]

    @cached_property
    def positions(self) -> Mapping[str, int]:
        return {commit.hash: position for position, commit in enumerate(self.line)}

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, position: int) -> git.Commit:
        return self.line[position]


def read_commits(repository: Path, revision: str = "HEAD") -> Commits:
    """The first parents of a revision. Raises GitError where it cannot be read."""
    return Commits(tuple(git.first_parents(repository, revision)))


T = TypeVar("T")


def cache_file(folder: Path, kind: str) -> Path:
    """Where to keep what was made of a results folder."""
    name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:24]
    return cache_dir() / "history" / f"{name}.{kind}"


def was_read(folder: Path) -> bool:
    """Whether something of a results folder is kept."""
    return any(cache_file(folder, kind).exists() for kind in ("records", "table"))


def read_cached(file: Path, kind: type[T]) -> T | None:
    """None where there is nothing, or it cannot be used."""
    try:
        return msgspec.msgpack.decode(read_regular(file), type=kind)
    except (OSError, *UNREADABLE):
        return None


def write_cached(file: Path, content: Any) -> None:
    """What cannot be written is no error, only slower."""
    with contextlib.suppress(OSError, OverflowError, UnicodeEncodeError):
        write_atomically(file, msgspec.msgpack.encode(content), durable=False)


def listing(folder: Path, wanted: Callable[[str], bool]) -> list[tuple[str, int, int]]:
    """Name, size and time of every file that is wanted by its name, in order. Raises StoreError."""
    with reading(folder), os.scandir(folder) as entries:
        stats = [(entry.name, stat_of(entry)) for entry in entries if wanted(entry.name)]
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


_RECORDS = (".jsonl", f".jsonl{PART}", f".jsonl{PACKED}")
_FORMAT = 3
"""The version of what is cached: raise it when figures are read in another way."""

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
"""What begins an epoch when it changes, and how it is called."""


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
    """The effect on time, head over base minus 1, with the ends of its interval."""

    effect: float
    low: float
    high: float


class Judged(msgspec.Struct, frozen=True):
    """What a comparison said of a case."""

    case: str
    """Its short name."""
    status: str
    time: TimeEffect | None = None
    """None where it was not measured, as of identical code."""


class _RecordLine(msgspec.Struct):
    """What is read here of any line of a record."""

    run: _RunHead | None = None
    comparison: _Comparison | None = None
    verdict: Judged | None = None
    problem_changes: tuple[str, ...] = ()


_TAIL_BYTES = 2**18
"""More than the last line of a comparison takes, and as a rule than all that come after its measurements."""
_VERDICT = b'{"verdict":'


class RecordLayout(msgspec.Struct, frozen=True):
    headline: str
    kernels: tuple[str, ...]
    cells: tuple[tuple[str, str, float], ...]
    """Kernel, size and number of elements of each row that was timed, or was to be."""


class RunFacts(msgspec.Struct, frozen=True):
    """A record, as far as a history needs it, but for its figures."""

    file: str
    size: int
    mtime_ns: int = 0
    suite: str = ""
    """Empty for what is no run of a commit: a comparison, or a run of the working tree."""
    path: str = ""
    """The path of the suite's folder in its repository."""
    commit: str = ""
    command: str = ""
    started_at: str = ""
    context: dict[str, str] = msgspec.field(default_factory=dict)
    """How it was measured, by key of CONTEXT; what was not told is not there."""
    layout: int = -1
    """Which of the card's layouts; -1 where the record has no figures."""
    problem: str = ""
    base: str = ""
    """The commits of a comparison, `base` and `head`; empty for what is none."""
    head: str = ""
    problem_changes: tuple[str, ...] = ()
    judged: tuple[Judged, ...] = ()

    @property
    def has_figures(self) -> bool:
        return self.layout >= 0

    @property
    def environment(self) -> str:
        """The one of asv's that it was measured in; empty for none."""
        return self.context.get("environment", "")


class _CachedRecords(msgspec.Struct):
    format: int
    keys: list[str]
    """Those of CONTEXT and METRICS when they were read: with others they have to be read anew."""
    facts: list[RunFacts]
    layouts: list[RecordLayout]
    values: bytes


@dataclass(frozen=True, slots=True)
class CardRecords:
    """Every record of a card's folder, by name, which is by time."""

    facts: tuple[RunFacts, ...]
    layouts: tuple[RecordLayout, ...]
    values: npt.NDArray[np.float32]
    """A row a cell of the records in turn, a column a metric; infinite where the kernel failed."""

    @property
    def rows(self) -> list[slice]:
        """The rows of `values` that each record has."""
        counts = (len(self.layouts[each.layout].cells) if each.has_figures else 0 for each in self.facts)
        return [slice(start, stop) for start, stop in pairwise(accumulate(counts, initial=0))]

    def of(self, environment: str | None) -> CardRecords:
        """Those of one of asv's environments, empty for none, with every comparison; None for all of them."""
        if environment is None:
            return self
        facts, rows = [], []
        for each, own in zip(self.facts, self.rows, strict=True):
            if not each.has_figures or each.environment == environment:
                facts.append(each)
                rows.append(self.values[own])
        return CardRecords(tuple(facts), self.layouts, np.concatenate(rows) if rows else _NONE)

    def over(self, imported: Sequence[Figures]) -> tuple[Figures, ...]:
        """The figures of every suite, and of what was imported: where both know a case at a commit, the
        records have the say. Of several records of a commit the newest one of each case counts.
        """
        by_suite: dict[str, list[tuple[RunFacts, npt.NDArray[np.float32]]]] = defaultdict(list)
        for facts, rows in zip(self.facts, self.rows, strict=True):
            if facts.commit:
                by_suite[facts.suite].append((facts, self.values[rows]))
        found = {each.group: each for each in imported}
        for suite, records in by_suite.items():
            figures, there = self._figures(suite, records)
            below = found.get(suite)
            found[suite] = laid_over(below, figures, there) if below else figures
        return tuple(found.values())

    def _figures(
        self, suite: str, records: Sequence[tuple[RunFacts, npt.NDArray[np.float32]]]
    ) -> tuple[Figures, npt.NDArray[np.bool_]]:
        """The figures of a suite's records, and at which commits they have which cases."""
        rows = {commit: row for row, commit in enumerate(dict.fromkeys(each.commit for each, _ in records))}
        columns: dict[tuple[str, str], int] = {}
        columns_of: dict[int, npt.NDArray[np.intp]] = {-1: np.empty(0, np.intp)}
        for number in dict.fromkeys(each.layout for each, _ in records if each.has_figures):
            taken = [columns.setdefault(cell[:2], len(columns)) for cell in self.layouts[number].cells]
            columns_of[number] = np.array(taken, np.intp)
        values = np.full((len(METRICS), len(rows), len(columns)), np.nan, np.float32)
        there = np.zeros((len(rows), len(columns)), np.bool_)
        contexts: list[dict[str, str]] = [{} for _ in rows]
        for each, figures in records:
            row, own = rows[each.commit], columns_of[each.layout]
            context, read = contexts[row], figures.T
            if any(context.get(key, each.context.get(key)) != each.context.get(key) for key in HOW):
                values[:, row], there[row] = np.nan, False
            if context.get("environment") != each.context.get("environment"):
                # A failure in one of asv's environments hides no figure of another.
                before = values[:, row, own]
                read = np.where(np.isinf(read) & np.isfinite(before), before, read)
            values[:, row, own] = read
            context.update(each.context)
            there[row, own] = True
        found = Figures(
            group=suite,
            commits=tuple(rows),
            keys=tuple(columns),
            values=dict(zip(METRICS, values, strict=True)),
            contexts=tuple(contexts),
        )
        return found, there


def suites_of(cards: Iterable[CardRecords], commits: Commits) -> Iterator[Group]:
    """The suites that records tell of, by name. Which kernels a suite has, and in which order, is told by the
    record of the newest commit; sizes follow each other by how much there is to do.
    """
    headlines = {**HEADLINES, **HEADLINE_OF_IMPORTED}
    newest: dict[str, tuple[int, str, RecordLayout]] = {}
    cells: dict[str, set[tuple[str, str, float]]] = defaultdict(set)
    for card in cards:
        measured = [each for each in card.facts if each.has_figures and each.commit in commits.positions]
        for facts in measured:
            candidate = commits.positions[facts.commit], facts.started_at, card.layouts[facts.layout]
            if facts.suite not in newest or newest[facts.suite][:2] <= candidate[:2]:
                newest[facts.suite] = candidate
        for suite, number in {(each.suite, each.layout) for each in measured}:
            cells[suite].update(card.layouts[number].cells)
    for suite, (_, _, layout) in sorted(newest.items()):
        kernels = {kernel: place for place, kernel in enumerate(layout.kernels)}
        there = sorted((kernels[cell[0]], cell[2], cell) for cell in cells[suite] if cell[0] in kernels)
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
            keys=tuple(dict.fromkeys(cell[:2] for _, _, cell in there)),
        )


def card_records(folder: Path) -> CardRecords:
    """The records of a card's folder; one that cannot be read says so. Raises StoreError for the folder."""
    found = listing(folder, lambda name: name.endswith(_RECORDS))
    file = cache_file(folder, "records")
    known = _usable(read_cached(file, _CachedRecords)) or CardRecords((), (), _NONE)
    if [(each.file, each.size, each.mtime_ns) for each in known.facts] == found:
        return known
    records = _read_all(folder, found, known)
    facts, layouts = list(records.facts), list(records.layouts)
    write_cached(file, _CachedRecords(_FORMAT, _KEYS, facts, layouts, records.values.tobytes()))
    return records


_NONE = np.empty((0, len(METRICS)), np.float32)
_KEYS = [*CONTEXT, *METRICS]


def _usable(cached: _CachedRecords | None) -> CardRecords | None:
    if cached is None or cached.format != _FORMAT or cached.keys != _KEYS:
        return None
    try:
        values = np.frombuffer(cached.values, np.float32).reshape(-1, len(METRICS))
        records = CardRecords(tuple(cached.facts), tuple(cached.layouts), values)
        whole = sum(rows.stop - rows.start for rows in records.rows) == len(values)
    except (ValueError, IndexError):
        return None
    return records if whole else None


def _read_all(folder: Path, found: Sequence[tuple[str, int, int]], before: CardRecords) -> CardRecords:
    """Every record that is there: what was cached as it is, the others from their files."""
    known = {
        (facts.file, facts.size, facts.mtime_ns): (facts, before.values[rows])
        for facts, rows in zip(before.facts, before.rows, strict=True)
    }
    layouts = {layout: number for number, layout in enumerate(before.layouts)}
    read = [known.get(entry) or _read(folder, RunFacts(*entry), layouts) for entry in found]
    values = np.concatenate([values for _, values in read]) if read else _NONE
    return CardRecords(tuple(facts for facts, _ in read), tuple(layouts), values)


def _read(
    folder: Path, nothing: RunFacts, layouts: dict[RecordLayout, int]
) -> tuple[RunFacts, npt.NDArray[np.float32]]:
    try:
        return _read_record(nothing, folder / nothing.file, layouts)
    except StoreError as error:
        why = error.message.rstrip(".")
    except (*UNREADABLE, ArithmeticError) as error:  # such as a time of 0, or a size beyond all numbers
        why = str(error)
    return msgspec.structs.replace(nothing, problem=f"{nothing.file} is left out: {why}."), _NONE


def _read_record(
    nothing: RunFacts, path: Path, layouts: dict[RecordLayout, int]
) -> tuple[RunFacts, npt.NDArray[np.float32]]:
    with opened(path) as file:
        first = msgspec.json.decode(file.readline(MOST_BYTES), type=_RecordLine)
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
    rows = [row for row in stored.rows if row.status not in ("skipped", "verified", "not-built")]
    cells = tuple((row.kernel, size_label(row.sizes), float(prod(row.sizes.values()))) for row in rows)
    layout = RecordLayout(stored.run.headline, stored.run.kernels, cells)
    values = _figures(rows, stored.run.headline)
    facts = msgspec.structs.replace(
        nothing,
        suite=stored.run.source.suite,
        path=stored.run.source.path,
        commit=stored.run.source.commit or "",
        command=stored.run.command,
        started_at=stored.run.started_at,
        context=_context(stored.run),
        layout=layouts.setdefault(layout, len(layouts)),
    )
    return facts, values


def _figures(rows: Sequence[Row], headline: str) -> npt.NDArray[np.float32]:
    found = np.full((len(rows), len(METRICS)), np.nan, np.float32)
    for column, metric in enumerate(METRICS.values()):
        if metric.headline in (None, headline):
            with np.errstate(over="ignore"):  # what is beyond single precision is no figure of a kernel
                found[:, column] = [figure_of(metric, row) for row in rows]
    return found


def _of_comparison(nothing: RunFacts, found: _Comparison, file: IO[bytes], *, packed: bool) -> RunFacts:
    base, head = found.base, found.head
    if found.command != "compare" or head.dirty or not (base.commit and head.commit):
        return nothing
    lines = whole_lines(unpacked_rest(file) if packed else _end_of(file, nothing.size))
    changes = msgspec.json.decode(lines[-1], type=_RecordLine).problem_changes if lines else ()
    told = [
        msgspec.json.decode(line, type=_RecordLine).verdict for line in lines if line.startswith(_VERDICT)
    ]
    return msgspec.structs.replace(
        nothing,
        suite=head.suite,
        base=base.commit,
        head=head.commit,
        problem_changes=changes,
        judged=tuple(Judged(in_short(each.case), each.status, each.time) for each in told if each),
    )


def _end_of(file: IO[bytes], size: int) -> bytes:
    """What of a comparison has its verdicts: as a rule the end, else all that is left to read."""
    start = file.tell()
    file.seek(max(start, size - _TAIL_BYTES))
    content = file.read()
    rest = content.partition(b"\n")[2]  # its first line is cut, mostly
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
    known = {key: values.get(key, "") for key in CONTEXT}
    return {key: value for key, value in known.items() if value and not value.startswith("unavailable")}
