"""Reads asv's results of any project. This is the only module that knows how asv stores them.

asv has a file for each commit and environment, and some projects have one for each run. All files of a commit
and environment make one row, with the newest value of each case.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from harness.errors import StoreError
from harness.history.figures import HEADLINES, METRICS, Figures, Group, Key, direction_of
from harness.history.sources.kept_tables import CachedTable, Figures32, KeptFile, KeptTable, TableReader
from harness.history.sources.our_records import CONTEXT
from harness.records.imports.imported import loads
from harness.suite.case_id import short_id
from harness.system.decoding import convert, decode, decoder
from harness.system.files import UNREADABLE, read_regular

Parameters: TypeAlias = tuple[str, ...]
"""Parameters of one value, as asv writes them, which is Python's repr."""

API_VERSION = 2
"""Version of asv's result files and benchmarks.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsvBenchmark:
    name: str
    type: str
    unit: str
    direction: str | None
    suite: str | None
    version: str
    param_names: tuple[str, ...]
    params: tuple[tuple[str, ...], ...]
    """Values of each parameter as asv writes them, which is Python's repr."""
    listed: bool = True
    """True if benchmarks.json still lists the benchmark."""
    has_number: bool = True
    """True if the author fixed the number of calls per sample.

    Otherwise each run of asv chooses the number by the time of a call, and it says nothing about the method.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CardTable:
    """All of asv's results of one card. Mappings are by benchmark."""

    machine: Mapping[str, str]
    commits: tuple[str, ...]
    """The full hash of each row."""
    started_at_ms: tuple[float, ...] = ()
    """Start of each row's newest benchmark, in milliseconds since 1970; 0 if unknown."""
    columns: Mapping[str, tuple[tuple[str, ...], ...]]
    """Parameters of each column, as asv writes them."""
    values: Mapping[str, npt.NDArray[np.float32]]
    """A row per commit and a column per parameters: NaN for no value, infinite if it failed."""
    contexts: Mapping[str, tuple[Mapping[str, str], ...]]
    """Conditions of each row, by key of CONTEXT, including the environment if there are several."""
    conditions: Mapping[str, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    """Further conditions of each row that asv records. Equal ones share an object."""
    problems: tuple[str, ...]
    """A sentence for each file or value that could not be read."""
    machine_problem: str = ""
    """Reason why machine.json could not be used; empty if it could."""


class _Results(msgspec.Struct):
    commit_hash: str
    version: int
    result_columns: list[str]
    results: dict[str, msgspec.Raw]
    """Most of a file is columns that are never used, so columns are parsed on demand."""
    params: dict[str, Any] = {}
    env_name: str | None = None


class _ParsedResults(_Results):
    results: dict[str, Any]


class _ResultFile(KeptFile, frozen=True):
    """A result file without its values. Its layouts are those of its benchmarks in order."""

    commit: str = ""
    environment: str = ""
    """Name of the environment, from the file's content or else from its name."""
    params: dict[str, str] = msgspec.field(default_factory=dict)
    started_at: tuple[float, ...] = ()
    """Start of each benchmark, in milliseconds since 1970, as asv records it."""
    number: tuple[int, ...] = ()
    """Calls of each benchmark per sample; 0 if unknown."""
    wordy: tuple[str, ...] = ()
    """Benchmarks with results that are not numbers."""
    format: str = ""
    """The file's version, if it differs from API_VERSION and prevented reading."""

    @property
    def last_start_ms(self) -> float:
        return max(self.started_at, default=0.0)


class _Columns(msgspec.Struct, frozen=True, cache_hash=True):
    """A benchmark of a result file: a value for each set of parameters."""

    benchmark: str
    version: str
    parameters: tuple[Parameters, ...]


_Table: TypeAlias = KeptTable[_ResultFile, _Columns]

_DECODER: msgspec.json.Decoder[_Results] = decoder(_Results)
_ROW_DECODER = decoder(list[msgspec.Raw])


def no_history(results: Path) -> StoreError:
    return StoreError(
        f"There is no history in {results}: it has no record of a run at a commit and no benchmarks.json."
        " Run 'harness run --commit COMMIT' or 'asv run' first, or name another folder with --results."
    )


def read_benchmarks(results: Path) -> dict[str, AsvBenchmark]:
    """Return the benchmarks by name. Raises StoreError if their list is missing or unreadable."""
    path = results / "benchmarks.json"
    try:
        listed = decode(read_regular(path), dict[str, Any])
    except FileNotFoundError:
        raise no_history(results) from None
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    except UNREADABLE as error:
        raise StoreError(f"{path} is no list of benchmarks ({error}). 'asv run' writes it anew.") from None
    if listed.pop("version", None) != API_VERSION:
        raise StoreError(f"{path} is not of the format that this harness reads, which is {API_VERSION}.")
    return {
        name: _benchmark(name, described) for name, described in listed.items() if isinstance(described, dict)
    }


_METHOD = re.compile("(timeraw|time|peakmem|mem|track)(?:_|[A-Z])")
_TYPES = {
    "timeraw": ("time", "seconds"),
    "time": ("time", "seconds"),
    "peakmem": ("peakmemory", "bytes"),
    "mem": ("memory", "bytes"),
}
"""Type and unit of a benchmark by the prefix of its method, as in asv. The author decides for a track."""


def unlisted(
    columns: Mapping[str, Collection[Parameters]], listed: Mapping[str, AsvBenchmark]
) -> dict[str, AsvBenchmark]:
    """Return benchmarks that have results but are no longer in the suite.

    Tracks of our suites are excluded, because records list their kernels.
    """
    found = {}
    for name, known in columns.items():
        method = name.rpartition(".")[2]
        if name in listed or method.removeprefix("track_") in METRICS:
            continue
        word = _METHOD.match(method)
        kind, unit = _TYPES.get(word[1] if word else "", ("track", "unit"))
        axes = [tuple(dict.fromkeys(values)) for values in zip(*known, strict=False)]
        found[name] = replace(_benchmark(name, {"type": kind, "unit": unit, "params": axes}), listed=False)
    return found


def _benchmark(name: str, described: Mapping[str, Any]) -> AsvBenchmark:
    params, names = (described.get(key) for key in ("params", "param_names"))
    axes = params if isinstance(params, list) else []
    return AsvBenchmark(
        name=name,
        type=str(described.get("type", "")),
        unit=str(described.get("unit", "")),
        direction=described.get("direction"),
        suite=str(described["suite"]) if described.get("suite") else None,
        version=str(described.get("version", "")),
        param_names=tuple(map(str, names)) if isinstance(names, list) else (),
        params=tuple(tuple(map(str, values)) for values in axes if isinstance(values, (list, tuple))),
        has_number=described.get("number") != 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The commits and columns with results in a card's folder."""

    commits: Mapping[str, Collection[str]]
    """Full hashes of commits by environment."""
    columns: Mapping[str, Collection[Parameters]]
    """Parameters of values by benchmark."""


def read_contents(folder: Path) -> Contents:
    """Return the contents of a folder. Raises StoreError if it cannot be read."""
    found = _RESULTS.table(folder)
    commits: dict[str, set[str]] = defaultdict(set)
    for file, environment in zip(found.facts, _environments(found.facts), strict=True):
        if file.commit:
            commits[environment].add(file.commit)
    columns: dict[str, dict[Parameters, None]] = defaultdict(dict)
    for number in dict.fromkeys(chain.from_iterable(file.layouts for file in found.facts)):
        layout = found.layouts[number]
        columns[layout.benchmark].update(dict.fromkeys(layout.parameters))
    return Contents(commits=commits, columns=columns)


def _environments(files: Sequence[_ResultFile]) -> list[str]:
    """Return the environment of each file by asv's name, with the system if several share a name."""
    systems: dict[str, set[str]] = defaultdict(set)
    told = [(file.environment, file.params.get("os", "").partition(" ")[0]) for file in files]
    for name, system in told:
        systems[name].add(system)
    return [f"{name}-{system}" if system and len(systems[name] - {""}) > 1 else name for name, system in told]


def checked_document(name: str, content: bytes) -> dict[str, Any]:
    """Return the parsed content of benchmarks.json, machine.json or a result, by the file's name.

    Raises ValueError for an incomplete document; the message is a sentence without subject and full stop.
    """
    document = _json_of(content, 1 if name == "machine.json" else API_VERSION)
    if name == "machine.json":
        if not isinstance(document.get("machine"), str):
            raise _damaged("it names no machine")
    elif name == "benchmarks.json":
        for benchmark, described in document.items():
            if benchmark != "version" and not isinstance(described, dict):
                raise _damaged(f"benchmark {benchmark!r} is no object")
    else:
        _check_result(name, document)
    return document


def _damaged(why: str) -> ValueError:
    return ValueError(f"is damaged ({why})")


def _json_of(content: bytes, version: int) -> dict[str, Any]:
    try:
        document = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise _damaged(f"{error}") from None
    if not isinstance(document, dict):
        raise _damaged(f"it holds {type(document).__name__}, not an object")
    if document.get("version") != version:
        found = repr(document.get("version"))[:40]
        raise ValueError(f"has the format {found}, not {version}: 'asv update' may bring it up to date")
    return document


def _check_result(name: str, document: Mapping[str, Any]) -> None:
    commit, columns, rows = (document.get(key) for key in ("commit_hash", "result_columns", "results"))
    if not isinstance(commit, str) or commit[:8] != name[:8]:
        raise ValueError(f"is of commit {str(commit)[:40]!r}, which is not that of its name")
    if not isinstance(columns, list) or not all(isinstance(each, str) for each in columns):
        raise _damaged("its result_columns are no list of names")
    if not isinstance(rows, dict) or not isinstance(document.get("durations", {}), dict):
        raise _damaged("its results or durations are no object")
    for benchmark, row in rows.items():
        if not isinstance(row, list) or len(row) > len(columns):
            raise _damaged(f"the row of {benchmark!r} does not have its columns")


def suites_tracked(document: Mapping[str, Any], listed: Mapping[str, Any]) -> set[str] | None:
    """Return a result's suites, by benchmarks.json; None if it has other benchmarks than their tracks."""
    suites: set[str] = set()
    for name in document["results"]:
        group, _, method = name.rpartition(".")
        if method.removeprefix("track_") not in METRICS:
            return None
        described = listed.get(name)
        suite = described.get("suite") if isinstance(described, dict) else None
        suites.add(str(suite or _suite_of_class(group)))
    return suites


def has_results(folder: Path) -> bool:
    """Return whether a card's folder holds results of asv."""
    return any(path.name != "machine.json" for path in folder.glob("*.json"))


def _read(folder: Path, kept: KeptFile, layouts: dict[_Columns, int]) -> tuple[_ResultFile, Figures32]:
    environment = Path(kept.file).stem.partition("-")[2]
    nothing = _ResultFile(kept.file, kept.size, kept.mtime_ns, environment=environment)
    content, why = b"", ""
    try:
        content = read_regular(folder / kept.file)
        found = _decoded(content)
        if found.version == API_VERSION:
            return _of_results(nothing, found, layouts)
        other_format = repr(found.version)
    except OSError as error:
        why, other_format = f"cannot be read: {error.strerror or error}", ""
    except (*UNREADABLE, ValueError, TypeError, OverflowError) as error:
        other_format = _other_format(content)
        why = "" if other_format else f"is left out: {error}"
    problem = f"{kept.file} {why}." if why else ""
    return msgspec.structs.replace(nothing, problem=problem, format=other_format), np.empty(0, np.float32)


def _of_results(
    nothing: _ResultFile, found: _Results, layouts: dict[_Columns, int]
) -> tuple[_ResultFile, Figures32]:
    read, figures, wordy = [], [np.empty(0, np.float32)], []
    for benchmark, row in found.results.items():
        given = dict(zip(found.result_columns, _fields(row), strict=False))
        version, params = str(_parsed(given.get("version")) or ""), _raw(given.get("params"))
        columns = _columns(benchmark, version, params)
        numbers, has_words = _numbers(_parsed(given.get("result")), len(columns.parameters))
        started_at = _parsed(given.get("started_at"))
        start = float(started_at) if isinstance(started_at, (int, float)) else 0.0
        number = _most(_raw(given.get("stats_number")))
        read.append((layouts.setdefault(columns, len(layouts)), start, number))
        figures.append(numbers)
        wordy += [benchmark] if has_words else []
    numbers_of, starts, counts_of = zip(*read, strict=True) if read else ((), (), ())
    file = msgspec.structs.replace(
        nothing,
        layouts=numbers_of,
        commit=found.commit_hash,
        environment=found.env_name or nothing.environment,
        params={str(key): str(value) for key, value in found.params.items() if value is not None},
        started_at=starts,
        number=counts_of,
        wordy=tuple(wordy),
    )
    return file, np.concatenate(figures)


@functools.lru_cache(maxsize=65_536)
def _columns(benchmark: str, version: str, params: bytes) -> _Columns:
    """Return the columns of a benchmark with parameters in JSON. Cached, because most files have the same."""
    lists = [list(map(str, values)) for values in json.loads(params) or [] if isinstance(values, list)]
    return _Columns(benchmark, version, tuple(product(*lists)))


def _decoded(content: bytes) -> _Results:
    try:
        return _DECODER.decode(content)
    except msgspec.DecodeError:
        if b"NaN" not in content and b"Infinity" not in content:
            raise
        # asv writes with Python's json, which allows more than JSON.
        return convert(loads(content), _ParsedResults)


def _fields(row: Any) -> list[Any]:
    """Return a benchmark's columns, parsed or not."""
    if isinstance(row, msgspec.Raw):
        row = _ROW_DECODER.decode(row) if memoryview(row)[0] == ord("[") else _parsed(row)
    return row if isinstance(row, list) else [row]


def _raw(value: Any) -> bytes:
    """Return a column in JSON, parsed or not."""
    return bytes(value) if isinstance(value, msgspec.Raw) else json.dumps(value).encode()


def _parsed(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


def _other_format(content: bytes) -> str:
    """Return the version of a file, if that is why it could not be read; else ""."""
    try:
        version = json.loads(content).get("version")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return "" if version == API_VERSION else repr(version)


@functools.lru_cache(maxsize=1024)
def _most(counts: bytes) -> int:
    """Return the largest number of a list in JSON, 0 for none. Cached, because most files have the same."""
    numbers = json.loads(counts)
    numbers = numbers if isinstance(numbers, list) else []
    return min(max((each for each in numbers if isinstance(each, int)), default=0), _LARGEST)


_LARGEST = 2**63 - 1
"""Largest number that a table can hold."""


_FAILED = np.float32(np.inf)
"""Marks a missing value of a failed kernel. No measured value is infinite."""


def _numbers(result: Any, width: int) -> tuple[npt.NDArray[np.float32], bool]:
    """Return a result's values, and whether it also has entries that are not numbers."""
    numbers = np.full(width, _FAILED, np.float32)
    if not isinstance(result, list) or len(result) != width:
        return numbers, False
    kinds = set(map(type, result))
    wordy = not kinds <= {float, int, bool, type(None)}
    if wordy or type(None) in kinds:
        failed = [_FAILED if each is None else each for each in result]
        result = [each if isinstance(each, (int, float, np.float32)) else np.nan for each in failed]
    with np.errstate(over="ignore"):  # a value beyond single precision is not from a kernel
        numbers[:] = result
    return numbers, wordy


class _CachedResults(CachedTable[_ResultFile, _Columns]):
    pass


_RESULTS: TableReader[_ResultFile, _Columns] = TableReader(
    kind="table",
    version="",
    cached=_CachedResults,
    wanted=lambda name: name.endswith(".json") and name != "machine.json",
    width=lambda columns: len(columns.parameters),
    read=_read,
)


@dataclass(frozen=True, slots=True)
class _Benchmarked:
    """A benchmark over all files of a table, with a row per file."""

    columns: tuple[Parameters, ...]
    values: Figures32
    """A column for each set of parameters; NaN if a file has no value."""
    versions: Sequence[str]
    """Version of the benchmark in each file; empty if the file lacks it."""
    started_at: npt.NDArray[np.float64]
    number: npt.NDArray[np.int64]


class _Blocks:
    """The blocks of values in a table's files, by layout."""

    def __init__(self, table: _Table) -> None:
        self._table = table
        counts = [len(file.layouts) for file in table.facts]
        layout = np.fromiter(chain.from_iterable(file.layouts for file in table.facts), np.int32, sum(counts))
        widths = np.array([len(each.parameters) for each in table.layouts], np.int64)[layout]
        order = np.argsort(layout, kind="stable")
        self._bounds = np.searchsorted(layout[order], np.arange(len(table.layouts) + 1))
        self._rows = np.repeat(np.arange(len(counts)), counts)[order]
        self._starts = (np.cumsum(widths) - widths)[order]
        self._started_at = _joined((file.started_at for file in table.facts), np.float64)[order]
        self._number = _joined((file.number for file in table.facts), np.int64)[order]
        self._layouts: dict[str, list[int]] = defaultdict(list)
        for number in dict.fromkeys(layout.tolist()):
            self._layouts[table.layouts[number].benchmark].append(number)

    def __contains__(self, benchmark: str) -> bool:
        return benchmark in self._layouts

    def of(self, benchmark: str) -> _Benchmarked:
        files, layouts = len(self._table.facts), [self._table.layouts[n] for n in self._layouts[benchmark]]
        known = dict.fromkeys(chain.from_iterable(layout.parameters for layout in layouts))
        place = {parameters: column for column, parameters in enumerate(known)}
        values = np.full((files, len(place)), np.nan, np.float32)
        versions = np.full(files, "", object)
        started_at, number = np.zeros(files), np.zeros(files, np.int64)
        for at, layout in zip(self._layouts[benchmark], layouts, strict=True):
            blocks = slice(self._bounds[at], self._bounds[at + 1])
            rows, width = self._rows[blocks], len(layout.parameters)
            figures = self._table.values[self._starts[blocks, None] + np.arange(width)]
            values[rows[:, None], [place[parameters] for parameters in layout.parameters]] = figures
            started_at[rows], number[rows] = self._started_at[blocks], self._number[blocks]
            versions[rows] = layout.version
        return _Benchmarked(tuple(place), values, versions.tolist(), started_at, number)


def _joined(parts: Iterable[Iterable[Any]], kind: Any) -> npt.NDArray[Any]:
    return np.array(list(chain.from_iterable(parts)), kind)


def read_table(
    folder: Path, benchmarks: Mapping[str, AsvBenchmark], environment: str | None = None
) -> CardTable:
    """Return a card's table, of one environment or of all. Unchanged files come from its cache."""
    table = _RESULTS.table(folder)
    files, blocks = table.facts, _Blocks(table)
    chosen = [row for row, name in enumerate(_environments(files)) if environment in (None, name)]
    by_commit: dict[str, list[int]] = defaultdict(list)
    for row in chosen:
        if files[row].commit:
            by_commit[files[row].commit].append(row)
    groups = list(by_commit.values())
    several = len({files[row].environment for rows in groups for row in rows}) > 1
    newest_files = [max((files[row] for row in rows), key=attrgetter("last_start_ms")) for rows in groups]
    machines = [tuple(each for each in file.params.items() if each[0] in CONTEXT) for file in newest_files]
    columns: dict[str, tuple[Parameters, ...]] = {}
    values: dict[str, Figures32] = {}
    contexts: dict[str, tuple[Mapping[str, str], ...]] = {}
    conditions: dict[str, tuple[Mapping[str, str], ...]] = {}
    condition, context = _conditions(files), functools.cache(_context)
    for name, benchmark in benchmarks.items():
        if name not in blocks:
            continue
        found = blocks.of(name)
        columns[name] = found.columns
        values[name], newest = _merged(found, benchmark.version, groups)
        contexts[name] = tuple(
            context(params, found.versions[row], files[row].environment if several else "")
            for params, row in zip(machines, newest, strict=True)
        )
        if name.rpartition(".")[2].removeprefix("track_") not in METRICS:
            numbers = found.number.tolist() if benchmark.has_number else [0] * len(files)
            conditions[name] = tuple(condition(files[row].file, numbers[row]) for row in newest)
    machine, problem = _machine(folder)
    if environment is not None and newest_files:
        # A folder has one machine.json, even if the machine had several operating systems.
        newest_file = max(newest_files, key=attrgetter("last_start_ms"))
        machine = {**machine, **newest_file.params, "environment": environment}
    measured = {table.layouts[n].benchmark for row in chosen for n in files[row].layouts}
    return CardTable(
        machine=machine,
        commits=tuple(by_commit),
        started_at_ms=tuple(file.last_start_ms for file in newest_files),
        columns=columns,
        values=values,
        contexts=contexts,
        conditions=conditions,
        problems=tuple(_problems([files[row] for row in chosen], measured.difference(benchmarks))),
        machine_problem=problem,
    )


_HASH = re.compile("[0-9a-f]{64}")
"""A version that asv computed from a benchmark's source."""


MachineParams: TypeAlias = tuple[tuple[str, str], ...]
"""The machine in a result file as pairs, so that it is hashable."""


def _context(params: MachineParams, method: str, environment: str) -> Mapping[str, str]:
    method = method[:8] if _HASH.fullmatch(method) else method
    context = {**dict(params), "method": method, "environment": environment}
    return {key: value for key, value in context.items() if value}


def _conditions(files: Iterable[_ResultFile]) -> Callable[[str, int], Mapping[str, str]]:
    """Return a function for a benchmark's conditions, without those that begin an epoch.

    Its arguments are the file's name and the number of calls. Equal conditions share an object: a history has
    millions of values and few conditions.
    """
    kinds: dict[MachineParams, int] = {}
    kind_of: dict[str, int] = {}
    for file in files:
        params = sorted(each for each in file.params.items() if each[0] not in ("machine", *CONTEXT))
        kind_of[file.file] = kinds.setdefault(tuple(params), len(kinds))
    params_of = [*kinds]

    @functools.cache
    def condition(kind: int, number: int) -> Mapping[str, str]:
        return {**dict(params_of[kind]), **({"number": str(number)} if number else {})}

    return lambda file, number: condition(kind_of[file], number)


def _merged(found: _Benchmarked, version: str, groups: Sequence[list[int]]) -> tuple[Figures32, list[int]]:
    """Return a row per commit of a benchmark's values: for each case the newest value, else its failure.

    Also return for each commit the row of the newest file with values.
    """
    values = found.values
    if all(len(rows) == 1 for rows in groups):
        single = [row for [row] in groups]
        return values[single], single
    orders = [rows if len(rows) == 1 else _by_time(found, version, rows) for rows in groups]
    depth = max(map(len, orders), default=1)
    # An additional file does not matter: duplicates change nothing.
    layers = np.array([rows[:1] * (depth - len(rows)) + rows for rows in orders], np.intp).reshape(-1, depth)
    merged = values[layers[:, -1]]
    for layer in reversed(range(depth - 1)):
        older = values[layers[:, layer]]
        better = (np.isfinite(older) & ~np.isfinite(merged)) | (np.isinf(older) & np.isnan(merged))
        merged = np.where(better, older, merged)
    having: Any = np.isfinite(values).any(axis=1).tolist()
    return merged, [next((row for row in reversed(rows) if having[row]), rows[-1]) for rows in orders]


def _by_time(found: _Benchmarked, version: str, rows: list[int]) -> list[int]:
    """Return the files of one commit, newest last; only those of the benchmark's current version, if any."""
    own = [row for row in rows if found.versions[row] == version] or rows
    return sorted(own, key=lambda row: found.started_at[row])


def _machine(folder: Path) -> tuple[dict[str, str], str]:
    try:
        stored = decode(read_regular(folder / "machine.json"), dict[str, Any])
    except (OSError, *UNREADABLE) as error:
        why = getattr(error, "strerror", None) or error
        return {}, f"machine.json is missing or damaged ({why}); the card is called {folder.name}."
    return {key: str(value) for key, value in stored.items() if key != "version" and value is not None}, ""


def _problems(files: Sequence[_ResultFile], unlisted: Collection[str]) -> Iterator[str]:
    yield from (file.problem for file in files if file.problem)
    for version, count in Counter(file.format for file in files if file.format).items():
        first = next(file.file for file in files if file.format == version)
        some = f"{first} is" if count == 1 else f"{count} files, such as {first}, are"
        update = ": 'asv update' brings them up to date" if version == "1" else ""
        yield f"{some} left out: the format is {version}, and this harness reads {API_VERSION}{update}."
    if wordy := sorted({name for file in files for name in file.wordy}):
        yield f"Results that are no numbers are left out: {_some(wordy)}."
    if gone := sorted(unlisted):
        some = "1 benchmark has" if len(gone) == 1 else f"{len(gone)} benchmarks have"
        why = "no place in benchmarks.json any more, so nothing of it is shown"
        yield f"{some} results but {why}: {_some(gone)}."


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"


# Conversion to tables of values


def groups_of(
    benchmarks: Mapping[str, AsvBenchmark],
    columns: Mapping[str, Collection[Parameters]] | None = None,
    directions: Mapping[str, str] | None = None,
) -> Iterator[Group]:
    """Yield suites, whose benchmarks are tracks of kernels and sizes, and then every other benchmark.

    First come listed benchmarks, then those with only `columns` of results. `directions` is the project's
    better direction of benchmarks outside of suites, by globs of their names.
    """
    suites, others = _sorted(benchmarks)
    for suite, tracks in suites.items():
        headlines = tuple(name for name in HEADLINES.values() if name in tracks)
        first = tracks[headlines[0]] if headlines else next(iter(tracks.values()))
        yield Group(
            name=suite,
            is_suite=True,
            metrics={name: (track.unit, METRICS[name].direction) for name, track in tracks.items()},
            headlines=headlines,
            kernels=tuple(map(_plain, first.params[0])),
            keys=_keys(first.params),
        )
    for each in others:
        described = {key: getattr(each, key) for key in ("name", "type", "unit", "direction")}
        metrics = {each.type: (each.unit, direction_of(described, directions))}
        listed = _keys(each.params) if each.listed else ()
        measured = (tuple(map(_plain, parameters)) for parameters in (columns or {}).get(each.name, ()))
        keys = tuple(dict.fromkeys((*listed, *measured)))
        yield Group(
            name=each.name,
            is_suite=False,
            metrics=metrics,
            headlines=(each.type,),
            keys=keys,
            unlisted=frozenset(keys).difference(listed),
        )


def figures_of(
    table: CardTable, benchmarks: Mapping[str, AsvBenchmark]
) -> tuple[tuple[Figures, ...], tuple[Figures, ...]]:
    """Return the values of each suite, and those of each other benchmark."""
    suites, others = _sorted(benchmarks)
    of_suites = [_figures(suite, table, tracks) for suite, tracks in suites.items()]
    of_others = [_figures(each.name, table, {each.type: each}) for each in others]
    return tuple(filter(None, of_suites)), tuple(filter(None, of_others))


def _sorted(
    benchmarks: Mapping[str, AsvBenchmark],
) -> tuple[dict[str, dict[str, AsvBenchmark]], list[AsvBenchmark]]:
    """Return the tracks of each suite by metric, and benchmarks outside of suites."""
    suites: dict[str, dict[str, AsvBenchmark]] = defaultdict(dict)
    others: list[AsvBenchmark] = []
    for benchmark in benchmarks.values():
        group, _, method = benchmark.name.rpartition(".")
        if benchmark.param_names == ("kernel", "size") and method.removeprefix("track_") in METRICS:
            suites[benchmark.suite or _suite_of_class(group)][method.removeprefix("track_")] = benchmark
        else:
            others.append(benchmark)
    return suites, others


def _suite_of_class(name: str) -> str:
    return name.rpartition(".")[2].lower()


def asv_names(benchmarks: Mapping[str, AsvBenchmark]) -> dict[tuple[str, str], str]:
    """Return asv's name of each series, parameters included, by the name of its case and its metric."""
    suites, others = _sorted(benchmarks)
    found = {}
    for suite, tracks in suites.items():
        for metric, track in tracks.items():
            for raw in product(*track.params):
                found[short_id(suite, *map(_plain, raw)), metric] = f"{track.name}({', '.join(raw)})"
    for each in others:
        for raw in product(*each.params):
            end, plain = (f"({', '.join(part)})" if raw else "" for part in (raw, map(_plain, raw)))
            found[each.name + plain, each.type] = each.name + end
    return found


def _keys(params: Sequence[Sequence[str]]) -> tuple[Key, ...]:
    return tuple(product(*([_plain(value) for value in values] for values in params)))


def _plain(parameter: str) -> str:
    """Return a parameter as its author wrote it. asv stores Python's repr, including quotes."""
    try:
        value = ast.literal_eval(parameter)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return parameter
    return value if isinstance(value, str) else parameter


def _figures(name: str, table: CardTable, tracks: Mapping[str, AsvBenchmark]) -> Figures | None:
    """Return the tracks that a card has results of, side by side in the first track's column order."""
    there = {metric: each.name for metric, each in tracks.items() if each.name in table.values}
    if not there:
        return None
    plain = {track: [tuple(map(_plain, key)) for key in table.columns[track]] for track in there.values()}
    keys = {key: place for place, key in enumerate(dict.fromkeys(chain.from_iterable(plain.values())))}
    values = {}
    for metric, track in there.items():
        values[metric] = np.full((len(table.commits), len(keys)), np.nan, np.float32)
        values[metric][:, [keys[key] for key in plain[track]]] = table.values[track][:, : len(plain[track])]
    shown = next((there[name] for name in HEADLINES.values() if name in there), next(iter(there.values())))
    return Figures(
        group=name,
        commits=table.commits,
        keys=tuple(keys),
        values=values,
        contexts=table.contexts[shown],
        conditions=table.conditions.get(shown, ()),
    )
