"""The values of a history: its metrics, their better direction, and tables of values."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from harness.records.types import Row
from harness.suite.case_id import short_id

if TYPE_CHECKING:  # a command that measures would wait for them
    import numpy as np
    import numpy.typing as npt

Direction: TypeAlias = Literal["higher", "lower", "none", "unknown"]

DIRECTIONS: tuple[Direction, ...] = ("higher", "lower", "none")
"""The directions that a benchmark can be given."""

# Only unambiguous units: "GFLOPs" can also be an amount of work, and few faults/s are better.
_RATE = re.compile(
    r"[kKMGTPE]?FLOPS|IOPS|fps|FPS|Hz"
    r"|(?i:"
    r"(?:[kmgtpe]?flops?|(?:[kmgtpe]i?)?(?:b|bytes?|bits?)"
    r"|[kmgt]?(?:cell|edge|element|frame|image|item|iteration|message|op|operation|particle|pixel|point"
    r"|query|querie|record|request|row|sample|step|token|transaction|update)s?)"
    r"(?:/| per )s(?:ec(?:ond)?)?)"
)
_COST = re.compile(
    r"(?:[munpµμ]?s|(?i:sec|m?secs?|usecs?|nsecs?|(?:milli|micro|nano)?seconds?|min(?:ute)?s?|hours?|cycles?"
    r"|(?:[kmgt]i?)?(?:b|bytes?)))(?:(?:/| per )(?!m?s\b|sec|min|hour)[^/]+)?"
)
"""Units of time and memory, per item or in total."""

_MORE = re.compile(
    "accuracy|bandwidth|efficiency|[gmt]?flops|fps|framerate|goodput|hits|hz|iops|occupancy|realtime|speedup"
    "|throughput|utili[sz]ation"
)
_LESS = re.compile(
    "alloc(ation)?s|bytes|cost|duration|elapsed|jitter|latenc(y|ies)|loss|(peak)?mem(ory)?|[mnu]?s|overhead"
    "|overrun|residual|rss|runtime|sec(ond)?s?|spills|stalls|times?|walltime"
)
_BAD = re.compile("dropped|drops?|err(or)?s?|failures?|faults?|miss(es)?")
_SPAN = re.compile("m?s|sec(ond)?|minute|hour")
_RATED = re.compile("acceptance|frame|hits?|refresh|sample|step|success|update")
"""Words in a name that make a high rate good."""


def direction_of(benchmark: Mapping[str, Any], said: Mapping[str, str] | None = None) -> Direction:
    """Return the better direction for a benchmark, as in benchmarks.json.

    The project's globs in `said` decide, then the benchmark's attribute `direction`. Otherwise time and
    memory are better low, and a track's unit or the words of its name decide.
    """
    name = str(benchmark.get("name") or "")
    names = name, name.rpartition(".")[2]
    told = [each for glob, each in (said or {}).items() if any(fnmatchcase(one, glob) for one in names)]
    for declared in (*told, benchmark.get("direction")):
        for direction in DIRECTIONS:
            if declared == direction:
                return direction
    if benchmark.get("type") != "track":
        return "lower"
    unit = str(benchmark.get("unit") or "").strip()
    if _RATE.fullmatch(unit):
        return "higher"
    return "lower" if _COST.fullmatch(unit) else _direction_by_name(names[1])


@functools.cache
def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case: ``memory``, ``bandwidth`` of memory_bandwidth or
    memoryBandwidth.
    """
    return tuple(word.lower() for word in _WORD.findall(name))


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W0-9A-Za-z_]+")


def _direction_by_name(name: str) -> Direction:
    """Return the direction by the last significant word: bandwidth of memory_bandwidth, error of
    bandwidth_error.
    """
    words = list(words_of(name.replace("real_time", "realtime")))
    if "clock" in words or "frequency" in words:  # the state of the device, neither good nor bad
        return "unknown"
    bad = any(map(_BAD.fullmatch, words))
    if "per" in words:
        place = words.index("per")
        if any(map(_SPAN.fullmatch, words[place + 1 : place + 2])):
            return "lower" if bad else "higher"
        del words[place:]
    for place, word in reversed(list(enumerate(words))):
        if _BAD.fullmatch(word) or _LESS.fullmatch(word):
            return "lower"
        good_rate = word == "rate" and not bad and any(map(_RATED.fullmatch, words[:place]))
        if good_rate or _MORE.fullmatch(word):
            return "higher"
    return "unknown"


HEADLINES = {"GFLOP/s": "gflops", "GB/s": "gbytes_per_s"}
"""Metric of each headline that a suite may have."""
HEADLINES_OF_BUILT: Mapping[str, Direction | None] = {
    "spill_bytes": None,
    "occupancy_percent": None,
    "registers": "none",
}
"""Metrics shown for kernels that were compiled and not run.

A direction is given if it differs from elsewhere: one more register is no regression, unless it costs
occupancy or causes spills.
"""
HEADLINE_OF_IMPORTED = {"ms": "time_ms"}
"""The same for measurements of another harness."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A value of a measured row. If its name contains no unit, `unit` gives it."""

    unit: str
    direction: Direction
    read: Callable[[Row], float | tuple[float, ...] | None]
    """Returns the value, or one per slot, whose median is the value; None if the row has none."""
    headline: str | None = None
    """The only headline for which the metric makes sense; None for all."""
    wrong: int | None = None
    """Value for a kernel with a wrong result; None if there is none and the row counts as failed."""


def _rate(work: Callable[[Row], int | None]) -> Callable[[Row], tuple[float, ...] | None]:
    def read(row: Row) -> tuple[float, ...] | None:
        amount = work(row)
        if row.measurement is None or not amount:
            return None
        return tuple(amount / time_ns for time_ns in row.measurement.times_ns)

    return read


def _time_ms(row: Row) -> tuple[float, ...] | None:
    return tuple(time_ns / 1e6 for time_ns in row.measurement.times_ns) if row.measurement else None


def _error_ratio(row: Row) -> float | None:
    ratios = [check.largest_ratio for check in row.verification.checks] if row.verification else []
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def median_during(row: Row, name: str) -> float | None:
    """Return the median of a snapshot's field while a row was measured; None if the device did
    not report it.
    """
    snapshots = row.telemetry.during if row.telemetry and row.measurement else ()
    values = [value for each in snapshots if (value := getattr(each, name)) is not None]
    return median(values) if values else None


def _resource(name: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row.resources, name) if row.resources else None


def _occupancy_percent(row: Row) -> float | None:
    occupancy = row.resources.occupancy if row.resources else None
    return None if occupancy is None else 100 * occupancy


def _shared_bytes(row: Row) -> float | None:
    if row.resources is None or row.resources.static_shared_bytes is None:
        return None
    return row.resources.static_shared_bytes + (row.launch.dynamic_shared_bytes if row.launch else 0)


def _loop_instructions(row: Row) -> float | None:
    found = row.resources.loop_instructions if row.resources else {}
    return sum(found.values()) or None


def _counter(*names: str, per: str = "") -> Callable[[Row], float | None]:
    """Return a function that adds up hardware counters of a row, and divides them by another one."""

    def read(row: Row) -> float | None:
        found = [row.counters[name] for name in names if name in row.counters]
        of = row.counters.get(per) if per else 1.0
        return sum(found) / of if found and of else None

    return read


METRICS_OF_COUNTERS = {
    "l2_hit_percent": Metric("% hits of the L2 cache", "higher", _counter("l2_hit_rate")),
    "dram_bytes": Metric("bytes of DRAM", "lower", _counter("dram_read_bytes", "dram_written_bytes")),
    "sectors_per_load": Metric("sectors of a load", "lower", _counter("load_sectors", per="load_requests")),
    "bank_conflicts": Metric("bank conflicts", "lower", _counter("shared_conflicts")),
    "warp_instructions": Metric("instructions of warps", "lower", _counter("instructions")),
}
"""Metrics of runs with --counters."""
METRICS = {
    "gflops": Metric("GFLOP/s", "higher", _rate(lambda row: row.flop), "GFLOP/s"),
    "gbytes_per_s": Metric("GB/s", "higher", _rate(lambda row: row.moved_bytes), "GB/s"),
    "time_ms": Metric("ms", "lower", _time_ms),
    "sm_clock_mhz": Metric("MHz", "none", lambda row: median_during(row, "sm_clock_mhz")),
    "memory_clock_mhz": Metric("MHz", "none", lambda row: median_during(row, "memory_clock_mhz")),
    "temperature_c": Metric("°C", "none", lambda row: median_during(row, "temperature_c")),
    "power_w": Metric("W", "none", lambda row: median_during(row, "power_w")),
    "verified": Metric(
        "1 if right, 0 if wrong", "higher", lambda row: 1 if row.is_verified else None, wrong=0
    ),
    "error_ratio": Metric("largest error / bound", "lower", _error_ratio),
    "registers": Metric("registers per thread", "lower", _resource("registers")),
    "local_bytes": Metric("bytes per thread", "lower", _resource("local_bytes")),
    "spill_bytes": Metric("bytes spilled", "lower", _resource("spill_store_bytes")),
    "shared_bytes": Metric("bytes of shared memory a block", "lower", _shared_bytes),
    "occupancy_percent": Metric("% occupancy", "higher", _occupancy_percent),
    "loop_instructions": Metric("instructions in the hottest loop", "none", _loop_instructions),
    **METRICS_OF_COUNTERS,
}


def figure_of(metric: Metric, row: Row) -> float:
    """Return a metric of a row; NaN if unknown, infinite if the row failed."""
    if row.status == "skipped":
        return math.nan
    if row.status == "failed":
        is_wrong = row.reason == "wrong-result" and metric.wrong is not None
        return float(metric.wrong or 0) if is_wrong else math.inf
    found = metric.read(row)
    if found is None or found == ():
        return math.nan
    return float(median(found) if isinstance(found, tuple) else found)


Floats: TypeAlias = "npt.NDArray[np.float64]"
Key: TypeAlias = tuple[str, ...]
"""A case within its group: kernel and size of a suite, or parameters of another benchmark."""

HOW = ("method", "l2")
"""Keys of CONTEXT that say how a case was measured. Values that differ in these are never mixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesCase:
    """A case that a series measures. It is the same on every card."""

    name: str
    """Name, such as matmul.naive@1024; for a benchmark outside of suites, asv's name."""
    suite: str
    kernel: str
    size: str
    metric: str
    unit: str
    direction: Direction
    order: int
    """Position among all cases, in the suites' order of kernels and sizes."""


def is_rate(case: SeriesCase) -> bool:
    """Tell whether a case's value is a rate. Pages have the same rule."""
    return case.direction == "higher" and case.unit.endswith("/s")


def timed_effect(effect: float, case: SeriesCase) -> float:
    """Return a change of a figure as a change of time if the figure is a rate: a plus is slower."""
    if not is_rate(case):
        return effect
    return math.inf if effect <= -1 else 1 / (1 + effect) - 1


def is_speed(case: SeriesCase) -> bool:
    """Tell whether a case's value is a time or a rate."""
    return is_rate(case) or case.unit in _TIMES


_TIMES = frozenset(("ns", "us", "µs", "μs", "ms", "s", "seconds"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that are measured together on any card: a suite, or one benchmark of another project."""

    name: str
    is_suite: bool
    metrics: Mapping[str, tuple[str, Direction]]
    """Unit and better direction of each metric."""
    headlines: tuple[str, ...]
    """Metrics shown by default."""
    kernels: tuple[str, ...] = ()
    """Current kernels of a suite, in its order."""
    keys: tuple[Key, ...]
    unlisted: frozenset[Key] = frozenset()
    """Keys that the project no longer measures, by asv's list of benchmarks."""

    def name_of(self, key: Key) -> str:
        """Return the name of a case."""
        if self.is_suite:
            return short_id(self.name, *key)
        return self.name + (f"({', '.join(key)})" if key else "")

    def cases(self, metric: str, first: int) -> Iterator[SeriesCase]:
        """Yield every case, numbered from `first`."""
        unit, direction = self.metrics[metric]
        for order, key in enumerate(self.keys, first):
            if self.is_suite:
                suite, (kernel, size) = self.name, key
            else:
                (suite, _, kernel), size = self.name.rpartition("."), ", ".join(key)
            yield SeriesCase(
                name=self.name_of(key),
                suite=suite,
                kernel=kernel,
                size=size,
                metric=metric,
                unit=unit,
                direction=direction,
                order=order,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The values of one group on one card."""

    group: str
    commits: tuple[str, ...]
    """The full hash of each row's commit, in no particular order."""
    keys: tuple[Key, ...]
    """The case of each column."""
    values: Mapping[str, npt.NDArray[np.float32]]
    """Tables by metric: NaN if nothing was measured, infinite if the kernel failed."""
    contexts: tuple[Mapping[str, str], ...]
    """Known facts on how each row was measured, by key of CONTEXT."""
    conditions: tuple[Mapping[str, str], ...] = ()
    """Other facts from asv for each row. Equal facts share an object. Empty for records."""
