"""Records of a history as the documents that pages and programs read: plain functions, no files."""

from __future__ import annotations

__all__ = [
    "calibration_document",
    "calibration_summary",
    "change_document",
    "figure",
    "numbers",
]

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.history.commits import Commits
from harness.history.reading import sentence
from harness.history.series import Case
from harness.history.triage import Stated
from harness.judgement.noise import Calibration
from harness.site.files import Numbers
from harness.statistics.rates import false_alarm_bound


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
