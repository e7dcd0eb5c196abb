"""One case on one card over the commits: figures, what the card said beside them, and epochs."""

from __future__ import annotations

__all__ = ["Case", "Epoch", "Series", "cases_of", "series_of"]

import ast
import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness.case_id import short_id
from harness.history.commits import Commits
from harness.history.direction import Direction, direction_of
from harness.history.facts import CONTEXT, RunFacts
from harness.history.tables import Benchmark, CardTable

Floats = npt.NDArray[np.float64]

HEADLINES = ("gflops", "gbytes_per_s")
COMPANIONS = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "power_w",
    "registers",
    "local_bytes",
    "time_ms",
    "error_ratio",
    "verified",
)
"""Tracks that stand beside a headline figure rather than for a case of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a series measures; the same on every card."""

    name: str
    """matmul.naive@1024; of a benchmark that is not of a suite, what asv calls it."""
    suite: str
    kernel: str
    size: str
    metric: str
    unit: str
    direction: Direction
    order: int
    """Its place among all cases, in the suites' order of kernels and sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A span with one driver, one compiler, one card and one method of measuring."""

    start: int
    """Index of its first point."""
    context: Mapping[str, str]
    changed: tuple[str, ...] = ()
    """What differs from the epoch before, such as "driver 570.1 → 580.2"; empty for the first."""

    @property
    def label(self) -> str:
        return ", ".join(self.changed) or ", ".join(
            f"{CONTEXT[key]} {self.context[key]}" for key in ("driver", "compiler") if key in self.context
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A point per measured commit, in the order of commits. Arrays have n entries, NaN for no figure."""

    card: str
    case: Case
    positions: npt.NDArray[np.int64]
    """Of each point's commit."""
    values: Floats
    failed: npt.NDArray[np.bool_]
    epoch: npt.NDArray[np.int64]
    """Of each point, an index into `epochs`."""
    epochs: tuple[Epoch, ...]
    beside: Mapping[str, Floats] = field(default_factory=dict)
    """Figures of the companion tracks that there are, by name."""


def series_of(
    table: CardTable,
    benchmarks: Mapping[str, Benchmark],
    commits: Commits,
    facts: Sequence[RunFacts],
    metric: str | None = None,
) -> Iterator[Series]:
    """Every series of a card that has a figure or a failure; of suites the headline figure, or `metric`."""
    rows, positions = _rows(table, commits)
    contexts = _contexts(facts)
    order = 0
    for benchmark, beside in _chosen(benchmarks, metric):
        if benchmark.name in table.values:
            told = _told(table, benchmark, rows, contexts)
            yield from _of_benchmark(table, benchmark, beside, rows, positions, told, order)
        order += len(_combinations(benchmark))


def cases_of(benchmarks: Mapping[str, Benchmark], metric: str | None = None) -> tuple[Case, ...]:
    """Every case that a card may have a series of. A case's `order` is its place among them."""
    chosen = [
        (benchmark, parameters)
        for benchmark, _ in _chosen(benchmarks, metric)
        for parameters in _combinations(benchmark)
    ]
    return tuple(_case(benchmark, parameters, order) for order, (benchmark, parameters) in enumerate(chosen))


def _rows(table: CardTable, commits: Commits) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Rows of commits that are in the history, one a commit, and the commits' positions, in order."""
    places = commits.positions
    by_position = {places[name]: row for row, name in enumerate(table.hashes) if name in places}
    positions = np.array(sorted(by_position), np.int64)
    return np.array([by_position[at] for at in positions.tolist()], np.intp), positions


def _chosen(
    benchmarks: Mapping[str, Benchmark], metric: str | None
) -> list[tuple[Benchmark, dict[str, Benchmark]]]:
    """Benchmarks that stand for cases, with those that stand beside them."""
    groups: dict[str, dict[str, Benchmark]] = defaultdict(dict)
    alone: list[tuple[Benchmark, dict[str, Benchmark]]] = []
    for benchmark in benchmarks.values():
        group, _, method = benchmark.name.rpartition(".")
        if benchmark.param_names == ("kernel", "size") and method.startswith("track_"):
            groups[group][method.removeprefix("track_")] = benchmark
        elif metric is None:
            alone.append((benchmark, {}))
    wanted = HEADLINES if metric is None else (metric,)
    of_suites = [
        (tracks[name], {beside: tracks[beside] for beside in COMPANIONS if beside in tracks})
        for tracks in groups.values()
        for name in wanted
        if name in tracks
    ]
    return of_suites + alone


def _contexts(facts: Iterable[RunFacts]) -> dict[tuple[str, str], Mapping[str, str]]:
    """By commit and suite: what the newest record says. Records come by time."""
    return {(each.commit, each.suite): each.context for each in facts if each.commit}


def _told(
    table: CardTable,
    benchmark: Benchmark,
    rows: npt.NDArray[np.intp],
    contexts: Mapping[tuple[str, str], Mapping[str, str]],
) -> list[Mapping[str, str]]:
    """Of each row, what is known of the context in which the benchmark ran."""
    suite, versions = _suite(benchmark), table.versions[benchmark.name]
    environments = table.environments[benchmark.name]
    told: list[Mapping[str, str]] = []
    for row in rows.tolist():
        known = {key: value for key, value in table.annotations[row].items() if key in CONTEXT}
        known.update(contexts.get((table.hashes[row], suite), {}))
        if versions[row]:
            known["method"] = versions[row]
        if environments[row]:
            known["environment"] = environments[row]
        told.append(known)
    return told


def _of_benchmark(
    table: CardTable,
    benchmark: Benchmark,
    beside: Mapping[str, Benchmark],
    rows: npt.NDArray[np.intp],
    positions: npt.NDArray[np.int64],
    told: Sequence[Mapping[str, str]],
    order: int,
) -> Iterator[Series]:
    values, failed = table.values[benchmark.name][rows], table.failed[benchmark.name][rows]
    places = _places(table, benchmark)
    others = {
        name: (table.values[other.name][rows], _places(table, other))
        for name, other in beside.items()
        if other.name in table.values
    }
    epochs, epoch = _epochs(told)
    for number, parameters in enumerate(_combinations(benchmark)):
        if (column := places.get(parameters)) is None:
            continue
        there = np.flatnonzero(np.isfinite(values[:, column]) | failed[:, column])
        if there.size == 0:
            continue
        own_epochs, own_epoch = _those_of(epochs, epoch[there])
        yield Series(
            card=table.folder,
            case=_case(benchmark, parameters, order + number),
            positions=positions[there],
            values=values[there, column].astype(np.float64),
            failed=failed[there, column],
            epochs=own_epochs,
            epoch=own_epoch,
            beside={
                name: figures[there, known[parameters]].astype(np.float64)
                for name, (figures, known) in others.items()
                if parameters in known and np.isfinite(figures[there, known[parameters]]).any()
            },
        )


def _places(table: CardTable, benchmark: Benchmark) -> dict[tuple[str, ...], int]:
    return {parameters: column for column, parameters in enumerate(table.columns[benchmark.name])}


def _those_of(
    epochs: Sequence[Epoch], epoch: npt.NDArray[np.int64]
) -> tuple[tuple[Epoch, ...], npt.NDArray[np.int64]]:
    """The epochs that a series has points in, as they begin there, and of each point its own of them."""
    _, starts, own = np.unique(epoch, return_index=True, return_inverse=True)
    found: list[Epoch] = []
    for start in np.sort(starts).tolist():
        known = epochs[epoch[start]]
        changed = _differences(found[-1].context, known.context) if found else ()
        found.append(dataclasses.replace(known, start=start, changed=changed))
    return tuple(found), np.argsort(np.argsort(starts))[own].astype(np.int64)


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{CONTEXT[key]} {before[key]} → {value}"
        for key, value in after.items()
        if before.get(key, value) != value
    )


def _combinations(benchmark: Benchmark) -> list[tuple[str, ...]]:
    combinations: list[tuple[str, ...]] = [()]
    for values in benchmark.params:
        combinations = [(*each, value) for each in combinations for value in values]
    return combinations


def _epochs(told: Sequence[Mapping[str, str]]) -> tuple[tuple[Epoch, ...], npt.NDArray[np.int64]]:
    """Epochs in the order in which they begin, and of each row its own.

    What a row does not tell is taken to be as it was before: only a difference begins an epoch. A context
    that comes back, as when commits are measured again, goes on with its epoch.
    """
    known: dict[str, str] = {}
    found: list[Epoch] = []
    epoch = np.zeros(len(told), np.int64)
    current = 0
    for at, context in enumerate(told):
        if at and all(known.get(key) == value for key, value in context.items()):
            epoch[at] = current
            continue
        before, known = known, {**known, **context}
        current = _epoch_like(found, known)
        if current == len(found):
            found.append(Epoch(start=at, context=known, changed=_differences(before, known)))
        elif len(known) > len(found[current].context):
            found[current] = dataclasses.replace(found[current], context=known)
        epoch[at] = current
    return tuple(found), epoch


def _epoch_like(epochs: Sequence[Epoch], context: Mapping[str, str]) -> int:
    """Number of the epoch that nothing known of a context speaks against; a new one's where there is none."""
    for number, epoch in reversed(list(enumerate(epochs))):
        if all(epoch.context.get(key, value) == value for key, value in context.items()):
            return number
    return len(epochs)


def _suite(benchmark: Benchmark) -> str:
    return benchmark.suite or (benchmark.name.split(".")[-2].lower() if "." in benchmark.name else "")


def _case(benchmark: Benchmark, parameters: Sequence[str], order: int) -> Case:
    method = benchmark.name.rpartition(".")[2]
    told = [_plain(value) for value in parameters]
    if benchmark.param_names == ("kernel", "size") and method.startswith("track_"):
        suite, (kernel, size) = _suite(benchmark), told
        name = short_id(suite, kernel, size)
        metric = method.removeprefix("track_")
    else:
        suite, kernel, size = benchmark.name.rpartition(".")[0], method, ", ".join(told)
        name = benchmark.name + (f"({size})" if told else "")
        metric = benchmark.type
    return Case(
        name=name,
        suite=suite,
        kernel=kernel,
        size=size,
        metric=metric,
        unit=benchmark.unit,
        direction=direction_of(
            {"direction": benchmark.direction, "type": benchmark.type, "unit": benchmark.unit}
        ),
        order=order,
    )


def _plain(parameter: str) -> str:
    """A parameter as its author wrote it: asv keeps Python's repr, quotes included."""
    try:
        value = ast.literal_eval(parameter)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return parameter
    return value if isinstance(value, str) else parameter
