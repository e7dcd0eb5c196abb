"""What one row of a record says in numbers, metric by metric, for histories, pages and asv's tracks."""

from __future__ import annotations

__all__ = ["HEADLINES", "METRICS", "Metric", "figure_of", "median_during"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from harness.history.direction import Direction
from harness.records import Row

HEADLINES = {"GFLOP/s": "gflops", "GB/s": "gbytes_per_s"}
"""The metric of each headline that a suite may have."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a measured row. Without a unit in its name it has the one given here."""

    unit: str
    direction: Direction
    """Which way is better."""
    read: Callable[[Row], float | tuple[float, ...] | None]
    """The number, or one a slot, whose median is the number; None where the row has none."""
    headline: str | None = None
    """The only headline with which the metric makes sense; None for all."""
    wrong: int | None = None
    """The number of a kernel whose result is wrong; None where it has none, and counts as failed."""


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
    """Median of a snapshot's field while a row was measured; None where the device did not tell."""
    snapshots = row.telemetry.during if row.telemetry and row.measurement else ()
    values = [value for each in snapshots if (value := getattr(each, name)) is not None]
    return median(values) if values else None


METRICS = {
    "gflops": Metric("GFLOP/s", "higher", _rate(lambda row: row.flop), "GFLOP/s"),
    "gbytes_per_s": Metric("GB/s", "higher", _rate(lambda row: row.moved_bytes), "GB/s"),
    "time_ms": Metric("ms", "lower", _time_ms),
    "sm_clock_mhz": Metric("MHz", "none", lambda row: median_during(row, "sm_clock_mhz")),
    "memory_clock_mhz": Metric("MHz", "none", lambda row: median_during(row, "memory_clock_mhz")),
    "temperature_c": Metric("°C", "none", lambda row: median_during(row, "temperature_c")),
    "power_w": Metric("W", "none", lambda row: median_during(row, "power_w")),
    "verified": Metric("1 if right, 0 if wrong", "higher", lambda _row: 1, wrong=0),
    "error_ratio": Metric("largest error / bound", "lower", _error_ratio),
    "registers": Metric(
        "registers per thread", "lower", lambda row: row.resources.registers if row.resources else None
    ),
    "local_bytes": Metric(
        "bytes per thread", "lower", lambda row: row.resources.local_bytes if row.resources else None
    ),
}


def figure_of(metric: Metric, row: Row) -> float:
    """A metric of a row; NaN where there is nothing to tell, infinite where the row failed."""
    if row.status == "skipped":
        return math.nan
    if row.status == "failed":
        is_wrong = row.reason == "wrong-result" and metric.wrong is not None
        return float(metric.wrong or 0) if is_wrong else math.inf
    found = metric.read(row)
    if found is None or found == ():
        return math.nan
    return float(median(found) if isinstance(found, tuple) else found)
