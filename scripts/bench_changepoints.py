"""Our change points beside those of asv and of Apache Otava, on series whose steps are known.

    python scripts/bench_changepoints.py --otava otava/bin/python --json changepoints.json

Figures are performance, one a commit, so a drop is a slowdown; asv gets seconds, their inverse, as it takes
less for better. Its page of regressions reports what got slower only, by 5 % at least. Ours runs twice: with
1 % as the smallest relevant change, its default, and with 0.5 %. A drop of just that size is estimated to be
smaller, and so not reported, half of the time.

Otava needs NumPy 2.2 and SciPy 1.16, so it runs in an interpreter of its own, with apache-otava 0.8.0.

Real series come as JSON: [{"name": ..., "values": [number or null], "steps": [first index of a new level]}].

    python scripts/bench_changepoints.py --otava otava/bin/python --newton FOLDER

judges by a history of benchmarks in which changes are known by name: `series.json.gz`, a list of
{"machine", "case", "position": [of commits], "value": [seconds]}, and `labels.json`, a list of
{"machine", "case", "after", "until"}: the change is in the commits after one position up to another.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.history.changes import MANY, SIGNIFICANCE, SIGNIFICANCE_OF_FEW
from harness.judgement.statistics.changepoints import ChangePoint, Segmentation, find_changes
from harness.judgement.statistics.drift import find_drift
from harness.judgement.statistics.group import Hint, confirmed

Floats = NDArray[np.float64]
Found = list[tuple[int, float]]
"""For each report, the index of the first figure of the new level, and after / before - 1."""
AsvStep = tuple[int, int, float, float, float]
"""Start, stop, level, minimum, mean deviation."""
Rows = dict[str, dict[str, float | None]]
"""Figures by method and column."""

COUNT, BEFORE = 200, 100
"""Figures of a series, and those before a drop that is looked for with every further figure."""
MOST_LATE = 40
TOLERANCE, TOLERANCE_REAL = 5, 3
DROPS = (0.01, 0.02, 0.05)
GROWN = ("1 %", "throttle", "AR(1)")
SIZES = (200, 1_000, 10_000)
WIDTH = 110
STRETCHES = 1000

OTAVA = """
import json, sys, time
from otava.analysis import compute_change_points
for line in sys.stdin:
    began = time.perf_counter()
    values = json.loads(line)
    points, _ = compute_change_points(values, max_pvalue=P) if len(values) > 1 else ([], None)
    took = time.perf_counter() - began
    found = [[int(point.index), float(point.stats.forward_rel_change())] for point in points]
    print(json.dumps([found, took]), flush=True)
"""


# Series --------------------------------------------------------------------------------------------------


def normal(sd: float) -> Callable[[np.random.Generator, int], Floats]:
    return lambda rng, count: sd * rng.standard_normal(count)


def student(rng: np.random.Generator, count: int) -> Floats:
    return 0.01 / math.sqrt(3) * rng.standard_t(3, count)


def throttled(rng: np.random.Generator, count: int) -> Floats:
    slow = rng.random(count) < 0.03
    result: Floats = normal(0.01)(rng, count) + slow * np.log(1 - rng.uniform(0.05, 0.3, count))
    return result


def carried_over(rng: np.random.Generator, count: int) -> Floats:
    """An autoregression with 0.6 from one to the next and a standard deviation of 1 %."""
    noise = 0.01 * rng.standard_normal(count)
    for k in range(1, count):
        noise[k] = 0.6 * noise[k - 1] + 0.8 * noise[k]
    return noise


def drift(rng: np.random.Generator, count: int) -> Floats:
    """A line or a sine that moves by 1 % in 200 figures, in noise of 0.5 %."""
    time_ = np.arange(count) / 200
    if rng.random() < 0.5:
        wander = 0.01 * rng.choice((-1, 1)) * time_
    else:
        wander = 0.005 * np.sin(np.pi * time_ + rng.uniform(0, 2 * np.pi))
    result: Floats = wander + normal(0.005)(rng, count)
    return result


def bimodal(rng: np.random.Generator, count: int) -> Floats:
    """Two levels 3 % apart, at random."""
    result: Floats = 0.03 * (rng.random(count) < 0.5) + normal(0.003)(rng, count)
    return result


def burst(rng: np.random.Generator, count: int) -> Floats:
    """Five figures are 8 % down, well away from where drops are."""
    logs = normal(0.01)(rng, count)
    start = int(rng.integers(20, 50))
    logs[start : start + 5] += math.log(0.92)
    return logs


CELLS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "0.5 %": normal(0.005),
    "1 %": normal(0.01),
    "2 %": normal(0.02),
    "t3": student,
    "throttle": throttled,
    "AR(1)": carried_over,
    "drift": drift,
    "bimodal": bimodal,
    "burst": burst,
}


def with_drop(logs: Floats, at: int, drop: float) -> Floats:
    result: Floats = 1000 * np.exp(logs + math.log1p(-drop) * (np.arange(logs.size) >= at))
    return result


# Methods -------------------------------------------------------------------------------------------------


class Method:
    name: str
    downward_only = False
    calls = 0
    seconds = 0.0

    def find(self, values: Floats) -> Found:
        began = time.perf_counter()
        found = self.report(values)
        self.calls += 1
        self.seconds += time.perf_counter() - began
        return found

    def report(self, values: Floats) -> Found:
        raise NotImplementedError

    def find_in_seconds(self, seconds: Floats) -> Found:
        return self.find(seconds)

    def close(self) -> None: ...


class Ours(Method):
    """Our own, which reports steps from `smallest` on; `significance` 0.001 is that of long histories."""

    def __init__(self, smallest: float, significance: float = 0.015) -> None:
        self.name = f"ours, {100 * smallest:g} %" + (", sure" if significance < 0.015 else "")
        self.smallest, self.significance = smallest, significance

    def report(self, values: Floats) -> Found:
        changes = find_changes(values, smallest=self.smallest, significance=self.significance).changes
        return [(change.at, change.effect) for change in changes]


class History(Method):
    """As histories are searched: surer of each change where there are many figures."""

    name = "history"

    def segmentation(self, values: Floats) -> Segmentation:
        is_long = np.isfinite(values).sum() >= MANY
        return find_changes(values, significance=SIGNIFICANCE if is_long else SIGNIFICANCE_OF_FEW)

    def report(self, values: Floats) -> Found:
        return [(change.at, change.effect) for change in self.segmentation(values).changes]


class AsvSteps(Method):
    name = "asv's steps"

    def __init__(self, step_detect: ModuleType, known: dict[bytes, list[AsvStep]]) -> None:
        self.step_detect = step_detect
        self.known = known
        """Steps of series seen: both of asv's methods start from them."""

    def steps(self, values: Floats) -> list[AsvStep]:
        key = values.tobytes()
        if key not in self.known:
            self.known[key] = list(self.step_detect.detect_steps((1 / values).tolist()))
        return self.known[key]

    def report(self, values: Floats) -> Found:
        steps = self.steps(values)
        return [(new[0], old[2] / new[2] - 1) for old, new in pairwise(steps)]

    def find_in_seconds(self, seconds: Floats) -> Found:
        return [(at, 1 / (1 + effect) - 1) for at, effect in self.find(1 / seconds)]


class AsvPage(AsvSteps):
    name = "asv's page, 5 %"
    downward_only = True

    def report(self, values: Floats) -> Found:
        _, _, regressions = self.step_detect.detect_regressions(self.steps(values), 0.05)
        return [(at, before / after - 1) for _, at, before, after in regressions or ()]


class Otava(Method):
    """With its default, 0.001, or another largest p-value."""

    def __init__(self, python: str, p_value: float = 0.001) -> None:
        self.name = "Otava 0.8.0" if p_value == 0.001 else f"Otava, p {p_value:g}"
        self.process = subprocess.Popen(
            [python, "-W", "ignore", "-c", f"P = {p_value}\n{OTAVA}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.find(np.full(3, 1.0))  # Its imports are no part of its time.
        self.calls, self.seconds = 0, 0.0

    def find(self, values: Floats) -> Found:
        if self.process.stdin is None or self.process.stdout is None:
            raise AssertionError
        figures = np.flatnonzero(~np.isnan(values))
        self.process.stdin.write(json.dumps(values[figures].tolist()) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"Otava's interpreter ended with {self.process.wait()}.")
        found, seconds = json.loads(line)
        self.calls += 1
        self.seconds += seconds
        return [(int(figures[index]), effect) for index, effect in found]

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


def methods_for(otava: str | None) -> tuple[list[Method], list[str]]:
    """Return the methods that can run here, and the reasons why others cannot."""
    methods: list[Method] = [Ours(0.01), Ours(0.01, SIGNIFICANCE), Ours(0.005), History()]
    left_out = []
    try:
        from asv import step_detect
    except ImportError as error:
        left_out.append(f"asv is left out: {error}.")
    else:
        known: dict[bytes, list[AsvStep]] = {}
        methods += [AsvSteps(step_detect, known), AsvPage(step_detect, known)]
    if otava:
        methods += [Otava(otava), Otava(otava, 1e-5)]
    else:
        left_out.append("Otava is left out: no --otava says which interpreter has it.")
    return methods, left_out


# Measures ------------------------------------------------------------------------------------------------


def is_hit(found: Found, at: int, drop: float) -> bool:
    """Return True if a drop is reported near its place with about its size."""
    return any(abs(place - at) <= TOLERANCE and drop / 3 <= -effect <= 3 * drop for place, effect in found)


def share_found(method: Method, cell: str, drop: float, seed: Sequence[int], repetitions: int) -> float:
    hits = 0
    for k in range(repetitions):
        rng = np.random.default_rng([*seed, k])
        at = int(rng.integers(60, 140))
        hits += is_hit(method.find(with_drop(CELLS[cell](rng, COUNT), at, drop)), at, drop)
    return hits / repetitions


def false_per_series(method: Method, cell: str, seed: Sequence[int], repetitions: int) -> float:
    reports = 0
    for k in range(repetitions):
        rng = np.random.default_rng([*seed, k])
        reports += len(method.find(1000 * np.exp(CELLS[cell](rng, COUNT))))
    return reports / repetitions


def share_in_five(method: Method, cell: str, drop: float, seed: Sequence[int], repetitions: int) -> float:
    hits = 0
    for k in range(repetitions):
        logs = CELLS[cell](np.random.default_rng([*seed, k]), BEFORE + 5)
        hits += is_hit(method.find(with_drop(logs, BEFORE, drop)), BEFORE, drop)
    return hits / repetitions


def lateness(method: Method, cell: str, drop: float, seed: Sequence[int], repetitions: int) -> float | None:
    """The median of how many figures of the new level there are when it is first reported; none above
    MOST_LATE.
    """
    late = []
    for k in range(repetitions):
        logs = CELLS[cell](np.random.default_rng([*seed, k]), BEFORE + MOST_LATE)
        values = with_drop(logs, BEFORE, drop)
        counts = range(1, MOST_LATE + 1)
        hits = (after for after in counts if is_hit(method.find(values[: BEFORE + after]), BEFORE, drop))
        late.append(next(hits, math.inf))
    median = sorted(late)[(repetitions - 1) // 2]
    return None if median == math.inf else float(median)


def false_when_grown(method: Method, cell: str, seed: Sequence[int], repetitions: int) -> float:
    """Reports per 200 figures when a series without a step is looked at after each figure. One that stays, or
    moves by a few places, counts once.
    """
    reports = 0
    for k in range(repetitions):
        rng = np.random.default_rng([*seed, k])
        values = 1000 * np.exp(CELLS[cell](rng, COUNT))
        told: list[int] = []
        for count in range(BEFORE, COUNT + 1):
            for place, _ in method.find(values[:count]):
                if all(abs(place - other) > 10 for other in told):
                    told.append(place)
        reports += len(told)
    return reports / repetitions * 200 / (COUNT - BEFORE)


def milliseconds(method: Method, count: int, seed: Sequence[int]) -> float:
    method.calls, method.seconds = 0, 0.0
    for k in range(20):
        logs = normal(0.01)(np.random.default_rng([*seed, k]), count)
        method.find(with_drop(logs, count // 2, 0.05))
        if method.seconds > 1:
            break
    return 1000 * method.seconds / method.calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    name: str
    values: Floats
    steps: tuple[int, ...]


def read_real(path: Path) -> list[Labelled]:
    return [
        Labelled(
            name=one["name"],
            values=np.array([math.nan if value is None else value for value in one["values"]], np.float64),
            steps=tuple(one["steps"]),
        )
        for one in json.loads(path.read_text("utf-8"))
    ]


def on_real(method: Method, series: Sequence[Labelled]) -> dict[str, float | None]:
    found = false = steps = figures = 0
    for one in series:
        places = [place for place, _ in method.find(one.values)]
        steps += len(one.steps)
        figures += int(np.isfinite(one.values).sum())
        found += sum(any(abs(place - step) <= TOLERANCE_REAL for place in places) for step in one.steps)
        false += sum(all(abs(place - step) > TOLERANCE_REAL for step in one.steps) for place in places)
    return {
        "series": float(len(series)),
        "steps": float(steps),
        "found": found / steps if steps else None,
        "false per 200": false * 200 / figures if figures else None,
    }


# A history with changes known by name --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    machine: str
    case: str
    positions: NDArray[np.int64]
    values: Floats
    """Seconds."""

    def holds(self, first: int, last: int, label: dict[str, Any]) -> bool:
        """Return True if a new level at one of these indices began in the label's commits."""
        after, until = self.positions[first - 1], self.positions[last]
        return bool(max(after, label["after"]) < min(until, label["until"]))


def read_newton(folder: Path) -> tuple[list[Recorded], list[dict[str, Any]]]:
    with gzip.open(folder / "series.json.gz", "rt", encoding="utf-8") as file:
        series = [
            Recorded(
                machine=one["machine"],
                case=one["case"],
                positions=np.array(one["position"], np.int64),
                values=np.array([value or math.nan for value in one["value"]], np.float64),
            )
            for one in json.load(file)
        ]
    return series, json.loads((folder / "labels.json").read_text("utf-8"))


def quiet_stretches(method: Method, series: Sequence[Recorded]) -> list[Floats]:
    """The figures between changes that a method reports, where there are a dozen or more."""
    stretches = []
    for one in series:
        values = one.values[np.isfinite(one.values) & (one.values > 0)]
        edges = sorted({0, *(at for at, _ in method.find_in_seconds(values)), values.size})
        stretches += [values[a:b] for a, b in pairwise(edges) if b - a >= 12]
    return stretches


def permuted(values: Floats, block: int, rng: np.random.Generator) -> Floats:
    blocks = [values[k : k + block] for k in range(0, values.size, block)]
    return np.concatenate([blocks[k] for k in rng.permutation(len(blocks))])


def false_when_permuted(method: Method, stretches: Sequence[Floats], block: int, seed: int) -> float:
    rng = np.random.default_rng([seed, block])
    reports = sum(len(method.find_in_seconds(permuted(values, block, rng))) for values in stretches)
    return reports * 200 / sum(values.size for values in stretches)


def planted_found(method: Method, stretches: Sequence[Floats], count: int, effect: float, seed: int) -> float:
    """The share of slowdowns found that were planted in the middle third of so many permuted figures."""
    rng = np.random.default_rng([seed, count])
    hits = []
    for values in stretches:
        if values.size >= count:
            start = int(rng.integers(values.size - count + 1))
            at = int(rng.integers(count // 3, count - count // 3 + 1))
            figures = permuted(values[start : start + count], 1, rng)
            figures[at:] *= 1 + effect
            hits.append(
                any(
                    abs(place - at) <= 2 and effect / 3 <= off <= 3 * effect
                    for place, off in method.find_in_seconds(figures)
                )
            )
    return sum(hits) / len(hits)


def on_newton(
    method: Method,
    series: Sequence[Recorded],
    labels: Sequence[dict[str, Any]],
    stretches: Sequence[Floats],
    seed: int,
) -> dict[str, float | None]:
    recorded = {(one.machine, one.case): one for one in series}
    found = reported = 0
    for label in labels:
        one = recorded[label["machine"], label["case"]]
        if isinstance(method, History):
            places = [(change.first, change.last) for change in method.segmentation(one.values).changes]
        else:
            places = [(at, at) for at, _ in method.find_in_seconds(one.values)]
        reported += len(places)
        found += any(one.holds(first, last, label) for first, last in places)
    long = [values for values in stretches if values.size >= 60]
    return {
        "labels": float(found),
        "reported": float(reported),
        "permuted": false_when_permuted(method, stretches, 1, seed),
        "blocks of 5": false_when_permuted(method, stretches, 5, seed),
        "+30 %, 12": planted_found(method, stretches, 12, 0.3, seed),
        "+100 %, 12": planted_found(method, stretches, 12, 1.0, seed),
        "+30 %, 15": planted_found(method, stretches, 15, 0.3, seed),
        "+30 %, 60": planted_found(method, long, 60, 0.3, seed),
        "+100 %, 60": planted_found(method, long, 60, 1.0, seed),
    }


def with_other_machines(
    series: Sequence[Recorded], labels: Sequence[dict[str, Any]]
) -> dict[str, float | None]:
    """Return rates of the search of every series, and of changes that other machines confirm."""
    method = History()
    began = time.process_time()
    found = [method.segmentation(one.values) for one in series]
    seconds = time.process_time() - began

    def hint(one: Recorded, change: ChangePoint, *, sure: bool) -> Hint:
        good, bad = int(one.positions[change.first - 1]), int(one.positions[change.last])
        effect = change.effect
        return Hint(machine=one.machine, case=one.case, good=good, bad=bad, effect=effect, sure=sure)

    hints = [
        hint(one, change, sure=sure)
        for one, said in zip(series, found, strict=True)
        for changes, sure in ((said.changes, True), (said.candidates, False))
        for change in changes
    ]
    more = confirmed(hints)
    counted = [one for k, one in enumerate(hints) if one.sure or k in set(more)]
    of_labels = (
        any(
            (one.machine, one.case) == (label["machine"], label["case"])
            and max(one.good, label["after"]) < min(one.bad, label["until"])
            for one in counted
        )
        for label in labels
    )
    return {
        "series": float(len(series)),
        "changes": float(sum(one.sure for one in hints)),
        "candidates": float(sum(not one.sure for one in hints)),
        "confirmed": float(len(more)),
        "labels": float(sum(of_labels)),
        "brief": float(sum(len(one.brief) for one in found)),
        "newest": float(sum(one.newest is not None for one in found)),
        "drifts": float(sum(find_drift(one.values) is not None for one in series)),
        "CPU s": seconds,
    }


# Shapes --------------------------------------------------------------------------------------------------


def latencies(method: Method, seed: int, repetitions: int) -> Rows:
    """Median figures after a drop when it is first reported, by noise and drop."""
    rows: Rows = {}
    for sd in (0.002, 0.01, 0.03):
        cell = f"{sd:.1%}"
        CELLS[cell] = normal(sd)
        rows[cell] = {
            f"{drop:.0%}": lateness(
                method, cell, drop, [seed, round(1000 * sd), round(1000 * drop)], repetitions
            )
            for drop in (0.01, 0.02, 0.05, 0.1)
        }
        del CELLS[cell]
    return rows


def fall(effect: float, over: int, before: int = 0, after: int = 0) -> Floats:
    """Logarithms that fall by `effect` over so many figures, between level ones."""
    line = math.log1p(effect) * np.arange(over) / over
    return np.concatenate((np.zeros(before), line, np.full(after, math.log1p(effect))))


SHAPES: dict[str, tuple[Floats, float]] = {
    "-30 % over 100": (fall(-0.3, 100), 0.002),
    "-30 % over 100, after 400 level": (fall(-0.3, 100, 400), 0.002),
    "-30 % over 100, then 50 level": (fall(-0.3, 100, 50, 50), 0.002),
    "-10 % over 100": (fall(-0.1, 100), 0.01),
    "-5 % over 120": (fall(-0.05, 120), 0.0005),
    "-5 % over 120, after 300 level": (fall(-0.05, 120, 300), 0.0005),
    "-10 % over 400": (fall(-0.1, 400), 0.005),
    "-5 % over 10, then 90 level": (fall(-0.05, 10, 100, 90), 0.003),
    "-8 % for 3 figures": (fall(-0.08, 0, 0, 3), 0.01),
    "-8 % for 6 figures": (fall(-0.08, 0, 0, 6), 0.01),
    "sine of 1 %, period 100": (0.01 * np.sin(2 * np.pi * np.arange(200) / 100), 0.002),
    "sine of 1 %, period 200": (0.01 * np.sin(2 * np.pi * np.arange(200) / 200), 0.005),
    "nothing": (np.zeros(200), 0.01),
}
"""Logarithms and the standard deviation of the noise on them. Short ones stand between 60 level figures."""


def shapes(seed: int, repetitions: int) -> Rows:
    """In what share of series each kind of report is made."""
    rows: Rows = {}
    for number, (name, (shape, sd)) in enumerate(SHAPES.items()):
        logs = np.concatenate((np.zeros(60), shape, np.zeros(60))) if shape.size < 10 else shape
        counts: dict[str, float] = defaultdict(float)
        for k in range(repetitions):
            values = 1000 * np.exp(logs + normal(sd)(np.random.default_rng([seed, number, k]), logs.size))
            said, drift = History().segmentation(values), find_drift(values)
            counts["steps"] += bool(said.changes)
            counts["brief"] += bool(said.brief)
            counts["drift"] += drift is not None
            counts["newest"] += said.newest is not None
            counts["any"] += bool(said.changes or said.brief or drift or said.newest)
            counts["steps each"] += len(said.changes)
        names = ("steps", "brief", "drift", "newest", "any", "steps each")
        rows[name] = {column: counts[column] / repetitions for column in names}
    return rows


# Tables --------------------------------------------------------------------------------------------------


def show(title: str, rows: Rows, form: str, none: str = "-") -> None:
    columns = list(next(iter(rows.values())))
    name = max(len(row) for row in rows) + 1
    wide = min(14, (WIDTH - name) // len(columns))
    print(f"\n{title}")
    print(" " * name + "".join(f"{column:>{wide}}" for column in columns))
    for row, cells in rows.items():
        texts = (none if cells[column] is None else format(cells[column], form) for column in columns)
        print(f"{row:<{name}}" + "".join(f"{text:>{wide}}" for text in texts))


def synthetic(methods: Sequence[Method], seed: int, repetitions: int) -> dict[str, Rows]:
    tables: dict[str, Rows] = defaultdict(lambda: defaultdict(dict))
    few = max(1, repetitions // 10)
    for order, method in enumerate(methods):
        name = method.name
        for number, cell in enumerate(CELLS):
            own = [seed, number]
            tables["false"][name][cell] = false_per_series(method, cell, own, 2 * repetitions)
            for drop in DROPS:
                own = [seed, number, round(1000 * drop)]
                shares = share_found, share_in_five
                for k, (title, share) in enumerate(zip(("found", "in five"), shares, strict=True)):
                    tables[f"{title} {drop:.0%}"][name][cell] = share(
                        method, cell, drop, [*own, k], repetitions
                    )
                tables[f"late {drop:.0%}"][name][cell] = lateness(method, cell, drop, [*own, 2], few)
        for number, cell in enumerate(GROWN):
            tables["grown"][name][cell] = false_when_grown(method, cell, [seed, number, 3], few)
        for count in SIZES:
            tables["ms"][name][f"{count:,}"] = milliseconds(method, count, [seed, count, order])
    return {title: {name: dict(row) for name, row in rows.items()} for title, rows in tables.items()}


def show_synthetic(tables: dict[str, Rows]) -> None:
    show(
        "False reports per 200 figures without a step, either way; of asv's page slowdowns only",
        tables["false"],
        ".3f",
    )
    show("The same, when the series is looked at after each figure", tables["grown"], ".2f")
    for drop in DROPS:
        show(f"Drops of {drop:.0%} found, of 200 figures", tables[f"found {drop:.0%}"], ".2f")
    for drop in DROPS:
        show(
            f"Drops of {drop:.0%} found with five figures after, 100 before",
            tables[f"in five {drop:.0%}"],
            ".2f",
        )
    for drop in DROPS:
        title = f"Drops of {drop:.0%}: figures after it when first found, median"
        show(title, tables[f"late {drop:.0%}"], ".0f", f">{MOST_LATE}")
    show("Milliseconds a call, by figures", tables["ms"], ".2f")


def show_newton(
    folder: Path, methods: Sequence[Method], chosen: Sequence[Method], seed: int
) -> dict[str, Any]:
    series, labels = read_newton(folder)
    # Cut at every change of the method that reports most, so that what is permuted has none.
    cutter = next((method for method in methods if isinstance(method, Otava)), methods[0])
    stretches = quiet_stretches(cutter, series)
    picked = np.random.default_rng(seed).permutation(len(stretches))[:STRETCHES]
    stretches = [stretches[k] for k in picked]
    fit = [method for method in chosen if not isinstance(method, Ours | AsvPage)]
    rows = {method.name: on_newton(method, series, labels, stretches, seed) for method in fit}
    title = f"{len(labels)} labels; false reports per 200 of {len(stretches)} stretches between changes of "
    show(
        f"{title}{cutter.name}, permuted; slowdowns found that were planted, of so many figures", rows, ".3g"
    )
    group = {"history": with_other_machines(series, labels)}
    show("All series, and what other machines confirm", group, ".4g")
    return {"methods": rows, "group": group}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=80, metavar="N", help="series of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--otava", metavar="PYTHON", help="an interpreter that has apache-otava 0.8.0")
    parser.add_argument("--real", type=Path, metavar="FILE", help="labelled series to judge too")
    parser.add_argument(
        "--newton", type=Path, metavar="FOLDER", help="judge by a history, not by made-up series"
    )
    parser.add_argument("--only", default="", metavar="WORD", help="methods with this in their name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    asked = parser.parse_args()
    methods, left_out = methods_for(asked.otava)
    chosen = [method for method in methods if asked.only in method.name]
    began = time.perf_counter()
    result: dict[str, Any] = {"seed": asked.seed, "repetitions": asked.repetitions, "left_out": left_out}
    try:
        if asked.newton:
            result["newton"] = show_newton(asked.newton, methods, chosen, asked.seed)
        else:
            result["late"] = latencies(History(), asked.seed, max(1, asked.repetitions // 4))
            title = "History: figures after a drop when first found, median, by noise"
            show(title, result["late"], ".0f", f">{MOST_LATE}")
            result["shapes"] = shapes(asked.seed, asked.repetitions)
            show("History: share of series with a report, and steps in each", result["shapes"], ".2f")
            result["synthetic"] = synthetic(chosen, asked.seed, asked.repetitions)
            show_synthetic(result["synthetic"])
        if asked.real:
            series = read_real(asked.real)
            result["real"] = {method.name: on_real(method, series) for method in chosen}
            show(
                f"Labelled series of {asked.real.name}, within {TOLERANCE_REAL} figures",
                result["real"],
                ".3g",
            )
    finally:
        for method in methods:
            method.close()
    result["seconds"] = time.perf_counter() - began
    print("\n" + "\n".join([*left_out, f"{result['seconds']:.0f} s, {asked.repetitions} repetitions."]))
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
