"""Records of a history as the documents that pages and programs read: plain functions, no files."""

from __future__ import annotations

__all__ = [
    "calibration_document",
    "calibration_summary",
    "change_document",
    "figure",
    "numbers",
    "run_document",
]

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.history.commits import Commits
from harness.history.reading import sentence
from harness.history.series import Case
from harness.history.triage import Stated
from harness.judgement.noise import Calibration
from harness.output.summary import summary_of
from harness.records import Row, Snapshot
from harness.site.files import Numbers
from harness.spec.case_id import CaseId
from harness.statistics.rates import false_alarm_bound
from harness.store.records_file import StoredRun

_TRACES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")


def change_document(each: Stated, case: Case, card: int, commits: Commits, series: str) -> dict[str, Any]:
    """A change with its state, of the card and the series that are so called."""
    change = each.change
    bad = commits[change.bad]
    decision = each.decision
    return {
        "id": change.id,
        "card": card,
        "case": case.order,
        "series": series,
        "kind": change.kind,
        "state": each.state,
        "attribution": change.attribution,
        "before": figure(change.before),
        "after": figure(change.after),
        "effect": figure(change.effect),
        "low": figure(change.low),
        "high": figure(change.high),
        "p_value": figure(change.p_value),
        "good": change.good,
        "bad": change.bad,
        "commits": change.commits,
        "good_hash": commits[change.good].hash,
        "bad_hash": bad.hash,
        "subject": bad.subject[:500],
        "author": bad.author[:200],
        "time": bad.time,
        "cycles_effect": figure(change.cycles_effect),
        "clock_before": figure(change.clock_before),
        "clock_after": figure(change.clock_after),
        "static": change.static,
        "triage": decision
        and {
            "reason": decision.reason,
            "author": decision.author,
            "expires": decision.expires.isoformat() if decision.expires else None,
            "largest_percent": decision.largest_percent,
        },
        "fixed_by": each.fixed_by,
        "sentence": sentence(change, case),
        "epoch": change.epoch,
    }


def numbers(figures: npt.NDArray[np.float64] | None, kind: Any) -> Numbers | None:
    return None if figures is None else Numbers(figures, kind)


def figure(value: float | None) -> float | None:
    """Six digits, as there is no more in a history's figures; None for no figure."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")


def calibration_summary(calibration: Calibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    return {
        "measured_at": calibration.measured_at,
        "verdicts": calibration.verdicts,
        "false_alarms": calibration.false_alarms,
        "bound": false_alarm_bound(calibration.false_alarms, calibration.verdicts)
        if calibration.verdicts
        else None,
    }


def calibration_document(calibration: Calibration | None) -> dict[str, Any] | None:
    summary = calibration_summary(calibration)
    if calibration is None or summary is None:
        return None
    planted = [
        {"percent": float(percent), "planted": rate.planted, "found": rate.found}
        for percent, rate in sorted(calibration.planted.items(), key=lambda item: float(item[0]))
    ]
    cases = [
        {
            "case": case,
            "smallest_visible": noise.smallest_visible,
            "clock_exponent": noise.clock_exponent,
            "sm_clock_mhz": noise.sm_clock_mhz,
            "power_capped": noise.power_capped,
            "effects": [each.value for each in noise.time],
        }
        for case, noise in calibration.cases.items()
    ]
    return {**summary, "planted": planted, "cases": cases}


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
        name: Numbers(np.array([getattr(each, name) for each in snapshots], np.float64))  # None is NaN
        for name in _TRACES
    }
    at_s = np.array([(each.at_ns - zero_ns) / 1e9 for each in snapshots])
    return {"at_s": Numbers(at_s), **traces, "reasons": list(_reasons(snapshots, zero_ns))}


def _reasons(snapshots: Sequence[Snapshot], zero_ns: int) -> Iterator[tuple[float, float, str]]:
    """Spans in which the driver gave the same reasons for its clocks."""
    for reasons, group in groupby(snapshots, key=lambda each: each.clock_event_reasons or ()):
        span = list(group)
        if reasons:
            yield (span[0].at_ns - zero_ns) / 1e9, (span[-1].at_ns - zero_ns) / 1e9, ", ".join(reasons)
