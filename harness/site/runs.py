"""The telemetry of one run, as its page wants it."""

from __future__ import annotations

__all__ = ["run_document"]

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from harness.case_id import CaseId
from harness.output.summary import summary_of
from harness.records import Row, Snapshot
from harness.site.files import Floats
from harness.store.records_file import StoredRun

_TRACES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")


def run_document(stored: StoredRun, card: int, position: int | None) -> dict[str, Any]:
    """Rows with their places in time, and every snapshot of the card; seconds count from the first."""
    run = stored.run
    snapshots = sorted(_snapshots(stored.rows), key=lambda each: each.at_ns)
    starts = [row.measurement.started_ns for row in stored.rows if row.measurement]
    zero_ns = min([each.at_ns for each in snapshots] + starts, default=0)
    return {
        "card": card,
        "suite": run.source.suite,
        "commit": position,
        "hash": run.source.commit or "",
        "started_at": run.started_at,
        "harness_version": run.harness_version,
        "driver": run.device.driver,
        "device": run.device.name,
        "toolchain": run.toolchain.compiler if run.toolchain else "",
        "host": f"{run.host.cpu}, {run.host.os}, Python {run.host.python}",
        "settings": {key: str(value) for key, value in run.settings.items()},
        "rows": [_row(stored, row, zero_ns) for row in stored.rows],
        "telemetry": _telemetry(snapshots, zero_ns),
    }


def _snapshots(rows: Sequence[Row]) -> Iterator[Snapshot]:
    for row in rows:
        if row.telemetry:
            yield from (row.telemetry.before, *row.telemetry.during, row.telemetry.after)


def _row(stored: StoredRun, row: Row, zero_ns: int) -> dict[str, Any]:
    measured = row.measurement
    return {
        "name": CaseId.of(stored.run.source.suite, row.kernel, row.sizes).short,
        "status": row.status,
        "reason": row.reason,
        "message": row.message,
        "time_ms": summary_of(row, stored.run).time_ms,
        "library_share": row.library.share if row.library else None,
        "begin_s": (measured.started_ns - zero_ns) / 1e9 if measured else None,
        "end_s": (measured.ended_ns - zero_ns) / 1e9 if measured else None,
    }


def _telemetry(snapshots: Sequence[Snapshot], zero_ns: int) -> dict[str, Any] | None:
    if not snapshots:
        return None
    traces = {
        name: Floats(np.array([_number(getattr(each, name)) for each in snapshots])) for name in _TRACES
    }
    at_s = np.array([(each.at_ns - zero_ns) / 1e9 for each in snapshots])
    return {"at_s": Floats(at_s), **traces, "reasons": list(_reasons(snapshots, zero_ns))}


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _reasons(snapshots: Sequence[Snapshot], zero_ns: int) -> Iterator[tuple[float, float, str]]:
    """Spans in which the driver gave the same reasons for its clocks."""
    for reasons, group in groupby(snapshots, key=lambda each: each.clock_event_reasons or ()):
        span = list(group)
        if reasons:
            yield (span[0].at_ns - zero_ns) / 1e9, (span[-1].at_ns - zero_ns) / 1e9, ", ".join(reasons)
