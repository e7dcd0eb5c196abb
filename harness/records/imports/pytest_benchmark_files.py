"""Files of pytest-benchmark, written by `--benchmark-save` and `--benchmark-json`, one per process.

They are validated strictly.
"""

from __future__ import annotations

import datetime as dt
import glob
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import StoreError, UsageError
from harness.records.imports import imported
from harness.records.imports.identity import Identity, identity_of, names_model, texts_of
from harness.records.imports.imported import Integer, converted, utc_moment
from harness.records.types import DeviceInfo
from harness.system.decoding import convert

_KNOWN = range(2, 6)
"""Major versions of pytest-benchmark with known files."""
_SHORTEST_S, _LONGEST_S = 1e-15, 1e9
"""Shortest and longest plausible time. Beyond them ratios exceed the range of a float."""
_EARLIEST = dt.datetime(2000, 1, 1, tzinfo=dt.timezone.utc)
_WALL = re.compile(r"^(time\.)?(perf_counter|monotonic|time|default_timer)(_ns)?$")
"""Timers that measure wall-clock time."""
_COMMIT = re.compile(r"^[0-9a-f]{40}([0-9a-f]{24})?$")
TESTS = "pytest"
"""Stands for the executable's name. Benchmarks without a suite get it as the suite's name."""
_NO_TEXT = "UNSERIALIZABLE["
"""Prefix of pytest-benchmark's text for a parameter that JSON cannot hold."""
_UNKNOWN = "unavailable: pytest-benchmark's JSON does not tell it"
_MACHINE = (
    "node",
    "system",
    "release",
    "machine",
    "processor",
    "python_implementation",
    "python_implementation_version",
    "python_version",
    "python_compiler",
    "python_build",
)
"""Machine facts from pytest-benchmark. Keys that a project adds are classified by their words."""
_MOMENTARY = ("hz_", "cpuinfo_version")
"""Prefixes of CPU keys that change every second, or that name the reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Facts that the harness's own fixture adds to a benchmark; None in other files."""

    device: str | None = None
    uuid: str | None = None
    driver: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A benchmark in one process."""

    name: str
    fullname: str
    timer: str
    median_ns: float
    times_ns: tuple[float, ...] = ()
    """Time of every round, in the order measured; empty without raw data."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The test's parameters by name, as the file has them."""
    launches: int = 1
    """Number of calls that each time is the mean of."""
    busy_s: float = 0.0
    """Wall-clock seconds of its rounds; 0 if its timer does not show them."""
    extra: Extra = field(default_factory=Extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Untimed:
    """A benchmark without a time in one process."""

    name: str
    why: str
    """The benchmark's own reason."""
    skipped: bool
    """True if it was skipped, False if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFile:
    """A file saved by one process."""

    path: str
    saved_at: dt.datetime
    identity: Identity
    device: str
    """Name to display: the GPU's from the fixture, else the CPU's."""
    on_gpu: bool
    """True if a GPU's own clock measured the times."""
    benchmarks: Mapping[str, Benchmark]
    """The benchmarks by full name, in the order run."""
    harness: str = "pytest-benchmark"
    """The harness that wrote it."""
    untimed: Mapping[str, Untimed] = field(default_factory=dict)
    """Skipped and failed benchmarks by full name, if the format has them."""
    rerun: tuple[str, ...] = ()
    """Full names of benchmarks that the process repeated. The last run counts."""
    notes: tuple[str, ...] = ()
    """Sentences from its reader, for example on a renamed benchmark."""

    @property
    def began_at(self) -> dt.datetime:
        """Return the latest possible start of its first round."""
        busy_s = math.fsum(benchmark.busy_s for benchmark in self.benchmarks.values())
        return self.saved_at - dt.timedelta(seconds=min(busy_s, _LONGEST_S))


class _Stats(msgspec.Struct):
    min: float
    max: float
    mean: float
    median: float
    rounds: Integer
    iterations: Integer = 1
    data: tuple[float, ...] = ()


class _Options(msgspec.Struct):
    timer: str


class _SavedBenchmark(msgspec.Struct):
    name: str
    fullname: str
    options: _Options
    stats: _Stats
    params: Any = None
    extra_info: dict[str, Any] = {}


class _CommitInfo(msgspec.Struct):
    id: str
    dirty: bool = False


class _SavedFile(msgspec.Struct):
    machine_info: dict[str, Any]
    commit_info: _CommitInfo
    benchmarks: list[dict[str, Any]]
    datetime: str
    version: str


def find_files(given: Sequence[str], option: str) -> list[Path]:
    """Return the files for an option. Each word is a file, a folder with everything below it, or a glob.

    Raises UsageError for a word without a file, and for a duplicate file.
    """
    found: list[Path] = []
    for word in given:
        path = Path(word)
        if word and path.is_dir():
            files = sorted(path.rglob("*.json"))
        elif path.is_file():
            files = [path]
        else:
            matches = map(Path, glob.glob(word, recursive=True))  # noqa: PTH207 - that takes no absolute one
            files = sorted(match for match in matches if match.is_file())
        if not files:
            raise UsageError(
                f"{option} {word}: no file of that name, no folder with .json files, and no glob that finds "
                "one. pytest --benchmark-save NAME writes them to .benchmarks."
            )
        found += files
    seen: set[Path] = set()
    for path in found:
        if path.resolve() in seen:
            raise UsageError(f"{option} names {path} twice: each process counts once.")
        seen.add(path.resolve())
    return found


def benchmark_file(path: Path, content: Any) -> BenchmarkFile:
    """Return the content of a JSON file as saved, with times in nanoseconds.

    Raises StoreError, with file and benchmark, for anything that pytest-benchmark does not write: other JSON,
    another version's format, a time that is not positive and finite. Of a repeated benchmark, as with
    pytest-rerunfailures, the last run counts.
    """
    try:
        given = convert(content, _SavedFile)
    except ValueError as error:
        raise StoreError(f"{path} is no file of pytest-benchmark: {error}.") from None
    major = re.match(r"(\d{1,4})\.", given.version)
    if major is None or int(major[1]) not in _KNOWN:
        raise StoreError(
            f"{path} was written by pytest-benchmark {given.version[:40]!r}; the formats of versions "
            f"{_KNOWN[0]} to {_KNOWN[-1]} are known here. Upgrade gpu-harness to read it."
        )
    read = [_benchmark(path, number, each) for number, each in enumerate(given.benchmarks, 1)]
    benchmarks = {each.fullname: each for each in read}
    often = Counter(each.fullname for each in read)
    info = given.machine_info
    cpu, gpu = (part if isinstance(part := info.get(key), dict) else {} for key in ("cpu", "gpu"))
    identity = _identity(path, given, cpu)
    return BenchmarkFile(
        path=str(path),
        saved_at=_moment(path, given.datetime),
        identity=replace(
            identity,
            commit=_own_commit(benchmarks.values(), given.commit_info.id),
            dirty=given.commit_info.dirty or any(each.extra.dirty for each in benchmarks.values()),
        ),
        device=_text(gpu.get("name"))
        or ", ".join(identity.cards)
        or _text(cpu.get("brand_raw") or cpu.get("brand"))
        or _text(info.get("machine"))
        or "a machine without a name",
        on_gpu=isinstance(info.get("gpu"), dict) and gpu.get("kind") != "cpu",
        benchmarks=benchmarks,
        rerun=tuple(name for name, count in often.items() if count > 1),
    )


def read_pytest_benchmark(path: Path, content: Any) -> imported.ImportedFile:
    """Return a file as cases. Raises StoreError as `benchmark_file` does, and without a benchmark."""
    file = benchmark_file(path, content)
    found = [_case(file, each) for each in file.benchmarks.values()]
    imported.check_not_empty(path, found)
    cases = imported.with_unique_names(found)
    return imported.ImportedFile(
        path=path,
        format="pytest-benchmark",
        version=file.identity.written_by,
        executable=TESTS,
        started_at=file.saved_at,
        host=file.identity.machine.get("node", ""),
        devices=(imported.DeviceCases(device=_device(file), cases=tuple(cases), identity=file.identity),),
        problems=imported.renamings(found, cases),
    )


def _device(file: BenchmarkFile) -> DeviceInfo:
    """Describe the card whose clock measured, or that the file names; else the host."""
    cards = (file.device,) if file.on_gpu else file.identity.cards
    on_host = file.identity.machine.get("gpu.kind") == "cpu"
    identity = replace(file.identity, cards=() if on_host else cards)
    return imported.device_of(_UNKNOWN, identity, file.device)


def _case(file: BenchmarkFile, benchmark: Benchmark) -> imported.ImportedCase:
    kernel, sizes = case_of_test(benchmark.fullname, benchmark.params)
    return imported.ImportedCase(
        kernel=kernel,
        sizes=sizes,
        name=benchmark.fullname,
        times_ns=benchmark.times_ns or (benchmark.median_ns,),
        launches=benchmark.launches,
        clock=f"{file.harness} {benchmark.timer}",
        device_clock=file.on_gpu,
        sm_clock_mhz=benchmark.extra.sm_clock_mhz,
    )


def case_of_test(node_id: str, params: Mapping[str, Any]) -> tuple[str, dict[str, int]]:
    """Return the kernel and sizes for a test.

    ``test_ops.py::test_softmax[512-f16]`` becomes ``test_ops_test_softmax_dtype_f16`` at n=512. For
    parameters that are neither numbers nor words, the test's id is used, because their texts may contain
    addresses.
    """
    file, colons, test = node_id.partition("::")
    name = file.removesuffix(".py") + colons
    if not params or not all(map(_is_plain, params.values())):
        return imported.identifier(name + test), {}
    axes = [(axis, value if type(value) is int else str(value)) for axis, value in params.items()]
    return imported.placed(name + test.partition("[")[0], axes)


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and not value.startswith(_NO_TEXT))


def _benchmark(path: Path, number: int, given: Mapping[str, Any]) -> Benchmark:
    name = given.get("fullname")
    where = f"{path}, {name}" if isinstance(name, str) and name else f"{path}, benchmark {number}"
    found = converted(f"{where}: it", given, _SavedBenchmark, "pytest-benchmark")
    if not found.fullname:
        raise StoreError(f"{where}: the benchmark has no fullname.")
    stats = found.stats
    times = [(what, getattr(stats, what)) for what in ("min", "median", "mean", "max")]
    for what, value in (*times, *(("data", value) for value in stats.data)):
        if not _SHORTEST_S <= value <= _LONGEST_S:
            raise StoreError(
                f"{where}: a time of {value} in {what}; expected a positive number of seconds, at most "
                f"{_LONGEST_S:g}. Is its timer too coarse? More iterations in a round help."
            )
    if not stats.min <= stats.median <= stats.max or min(stats.rounds, stats.iterations) < 1:
        raise StoreError(f"{where}: its statistics contradict each other.")
    timer = found.options.timer
    return Benchmark(
        name=found.name,
        fullname=found.fullname,
        timer=timer,
        median_ns=1e9 * stats.median,
        times_ns=tuple(1e9 * time_s for time_s in stats.data),
        params=found.params if isinstance(found.params, dict) else {},
        launches=stats.iterations,
        busy_s=stats.mean * stats.rounds * stats.iterations if _WALL.match(timer) else 0.0,
        extra=_extra(found.extra_info),
    )


def _extra(given: Mapping[str, Any]) -> Extra:
    """Return the fixture's facts; from other keys, only names of cards."""
    if not (isinstance(given.get("case"), str) and isinstance(given.get("direction"), str)):
        return Extra(device=", ".join(filter(names_model, texts_of(given).values())) or None)
    commit, dirty = given.get("commit"), given.get("dirty")
    readings: dict[str, Any] = {key: _text(given.get(key)) for key in ("device", "uuid", "driver")}
    readings |= {key: _number(given.get(key)) for key in ("sm_clock_mhz", "temperature_c", "power_w")}
    return Extra(
        commit=commit if isinstance(commit, str) and _COMMIT.match(commit) else None,
        dirty=dirty if isinstance(dirty, bool) else None,
        **readings,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e9 else None


def _own_commit(benchmarks: Iterable[Benchmark], of_file: str) -> str | None:
    """Return the commit of the measured kernels, if the fixture gives one for all; else the checkout's."""
    commits = {benchmark.extra.commit for benchmark in benchmarks}
    if len(commits) == 1 and (commit := commits.pop()):
        return commit
    return of_file if _COMMIT.match(of_file) else None


def _moment(path: Path, text: str) -> dt.datetime:
    moment = utc_moment(text, dt.timezone.utc)  # versions before 5 write UTC without a zone
    if moment is None or moment < _EARLIEST:
        raise StoreError(
            f"{path}: {text[:60]!r} is not when it was saved; expected a date and time such as "
            "2026-01-31T12:00:00+00:00."
        )
    return moment


def _identity(path: Path, given: _SavedFile, cpu: Mapping[str, Any]) -> Identity:
    info = given.machine_info
    if not _text(info.get("node")):
        raise StoreError(f"{path}: machine_info has no node, so its machine is unknown.")
    return identity_of(
        str(path),
        f"pytest-benchmark {given.version}",
        machine={
            "harness": "pytest-benchmark",
            **{key: info[key] for key in _MACHINE if key in info},
            "cpu": {key: value for key, value in cpu.items() if not key.startswith(_MOMENTARY)},
        },
        others=_common_options(given.benchmarks),
        given={key: value for key, value in info.items() if key not in (*_MACHINE, "cpu")},
    )


def _common_options(benchmarks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options that all benchmarks share, such as `disable_gc`. The timer is compared
    separately.
    """
    given = [each["options"] for each in benchmarks if isinstance(each.get("options"), dict)]
    return {
        f"options.{name}": value
        for name, value in (given[0].items() if given else ())
        if name != "timer" and all(each.get(name) == value for each in given)
    }
