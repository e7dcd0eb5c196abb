"""The figures that are derived from a row's raw values, in one place for tables, JSON and asv alike."""

from __future__ import annotations

__all__ = ["RowSummary", "outcome", "summary_of"]

from dataclasses import dataclass

from harness.history.metrics import median_during
from harness.records import LibraryShare, Row, Run
from harness.statistics import summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSummary:
    """What a measured row says. None where there is no measurement, or the card could not tell."""

    time_ms: float | None = None
    time_low_ms: float | None = None
    time_high_ms: float | None = None
    """The 99 % interval of the median."""
    spread: float | None = None
    slots: int = 0
    rate: float | None = None
    """In the unit of the suite's headline."""
    gflops: float | None = None
    gbytes_per_s: float | None = None
    peak_percent: float | None = None
    library_percent: float | None = None
    """Of the rate of the vendor's own kernel, measured in turns."""
    library_low_percent: float | None = None
    library_high_percent: float | None = None
    """The 99 % interval, as far as one process tells."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Of the whole measurement."""
    clock_event_reasons: tuple[str, ...] | None = None


def summary_of(row: Row, run: Run) -> RowSummary:
    """Medians over a row's slots and over the snapshots taken while it was measured."""
    if row.measurement is None:
        return RowSummary()
    times = summarize(row.measurement.times_ns)
    gflops = row.flop / times.median_ns if row.flop else None
    gbytes = row.moved_bytes / times.median_ns if row.moved_bytes else None
    rate = gflops if run.headline == "GFLOP/s" else gbytes
    peak = run.peaks.get(row.dtype if run.headline == "GFLOP/s" else "memory")
    return RowSummary(
        time_ms=times.median_ns / 1e6,
        time_low_ms=times.low_ns / 1e6,
        time_high_ms=times.high_ns / 1e6,
        spread=times.spread,
        slots=times.count,
        rate=rate,
        gflops=gflops,
        gbytes_per_s=gbytes,
        peak_percent=100 * rate / peak if rate and peak else None,
        **_library(row.library),
        sm_clock_mhz=median_during(row, "sm_clock_mhz"),
        memory_clock_mhz=median_during(row, "memory_clock_mhz"),
        temperature_c=median_during(row, "temperature_c"),
        power_w=median_during(row, "power_w"),
        energy_j=_energy(row),
        clock_event_reasons=_reasons(row),
    )


def _library(found: LibraryShare | None) -> dict[str, float | None]:
    if found is None:
        return {}
    shares = {"": found.share, "low_": found.low, "high_": found.high}
    return {f"library_{name}percent": share and 100 * share for name, share in shares.items()}


def _energy(row: Row) -> float | None:
    values = [s.energy_j for s in (row.telemetry.during if row.telemetry else ()) if s.energy_j is not None]
    return values[-1] - values[0] if len(values) > 1 else None


def _reasons(row: Row) -> tuple[str, ...] | None:
    seen = [
        s.clock_event_reasons
        for s in (row.telemetry.during if row.telemetry else ())
        if s.clock_event_reasons is not None
    ]
    return tuple(sorted({reason for reasons in seen for reason in reasons})) if seen else None


def outcome(row: Row) -> str:
    """A row in a few words, for a progress line: ``measured, 1.234 ms``, or what became of it and why."""
    if row.measurement is not None:
        return f"{row.status}, {summarize(row.measurement.times_ns).median_ns / 1e6:.4g} ms"
    return f"{row.status} ({row.reason})" if row.reason else row.status
