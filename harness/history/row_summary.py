"""The main values of a measured row: medians of its times and of the card's state, rates and shares."""

from __future__ import annotations

from dataclasses import dataclass

from harness.device.peaks import peak_of, unit_of
from harness.history.figures import median_during
from harness.judgement.statistics import summarize
from harness.records.types import Row, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSummary:
    """Values of a measured row. None stands for a missing measurement or an unknown value."""

    time_ms: float | None = None
    time_low_ms: float | None = None
    time_high_ms: float | None = None
    """Ends of the median's 99.9 % interval."""
    spread: float | None = None
    slots: int = 0
    rate: float | None = None
    """Rate in the unit of the suite's headline."""
    gflops: float | None = None
    gbytes_per_s: float | None = None
    peak_percent: float | None = None
    unit: str = ""
    """Key of the peak that the rate in FLOP/s is compared with.

    It is the dtype's, or tf32 for a float32 rate beyond float32's peak. Empty if no operations are counted.
    """
    library_percent: float | None = None
    """Rate over that of the vendor's kernel, measured alternately, in percent."""
    library_low_percent: float | None = None
    library_high_percent: float | None = None
    """Ends of the 99.9 % interval, as far as one process can show."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Energy of the whole measurement."""
    clock_event_reasons: tuple[str, ...] | None = None


def summary_of(row: Row, run: Run) -> RowSummary:
    """Return medians over a row's slots, and over the snapshots during its measurement."""
    if row.measurement is None:
        return RowSummary()
    times = summarize(row.measurement.times_ns)
    gflops = row.flop / times.median_ns if row.flop else None
    gbytes = row.moved_bytes / times.median_ns if row.moved_bytes else None
    rate = {"GFLOP/s": gflops, "GB/s": gbytes}.get(run.headline)
    peak = peak_of(run.peaks, run.headline, row.dtype, rate)
    library = row.library
    during = row.telemetry.during if row.telemetry else ()
    energies = [each.energy_j for each in during if each.energy_j is not None]
    reasons = [each.clock_event_reasons for each in during if each.clock_event_reasons is not None]
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
        unit=unit_of(run.peaks, row.dtype, gflops) if gflops else "",
        library_percent=_percent(library.share if library else None),
        library_low_percent=_percent(library.low if library else None),
        library_high_percent=_percent(library.high if library else None),
        sm_clock_mhz=median_during(row, "sm_clock_mhz"),
        memory_clock_mhz=median_during(row, "memory_clock_mhz"),
        temperature_c=median_during(row, "temperature_c"),
        power_w=median_during(row, "power_w"),
        energy_j=energies[-1] - energies[0] if len(energies) > 1 else None,
        clock_event_reasons=tuple(sorted(set().union(*reasons))) if reasons else None,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
