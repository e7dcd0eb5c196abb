"""What a calibration found, for the terminal and as JSON."""

from __future__ import annotations

__all__ = ["as_json", "print_calibration", "trust"]

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.judgement.noise import Calibration
from harness.output.tables import console, natural_width, plain_table, print_out
from harness.run.calibrate import CalibrationResult, Planting
from harness.spec.suite import size_label
from harness.statistics.rates import clopper_pearson, false_alarm_bound

CONFIDENCE = 0.95
TRUSTED = 0.005
"""The slowdown that a card should show: what a release is held back for, twice the margin."""


def as_json(result: CalibrationResult) -> dict[str, Any]:
    calibration = result.calibration
    return {
        "calibration": calibration,
        "false_alarm_bound": (
            false_alarm_bound(calibration.false_alarms, calibration.verdicts, CONFIDENCE)
            if calibration.verdicts
            else None
        ),
        "same": result.same,
        "planted": [
            {"case": each.case, "level": each.level, "verdict": each.verdict} for each in result.planted
        ],
        "left_out": result.left_out,
        "complete": not result.interrupted,
        "path": str(result.path) if result.path else None,
    }


def print_calibration(results: Sequence[CalibrationResult]) -> None:
    """Noise by case, what was found of what was planted, and the false-alarm rate so far."""
    errors = Console(stderr=True)
    for result in results:
        print_out(_noise_table(result, console().width))
        if result.planted:
            console().print()
            print_out(_planted_table(result.planted))
        for line in (*_rates(result.calibration), trust(result.calibration)):
            console().print(line, highlight=False, markup=False)
        for verdict in (*result.same, *(each.verdict for each in result.planted)):
            if verdict.status in ("failed", "invalid"):
                errors.print(
                    f"{verdict.case}: {verdict.status} ({verdict.reason}): {verdict.message}", markup=False
                )
        for message in result.left_out:
            errors.print(f"Left out: {message}", highlight=False, markup=False, soft_wrap=True)
        if result.path:
            errors.print(f"Calibration: {result.path}", highlight=False, markup=False, soft_wrap=True)
        if result.interrupted:
            errors.print("Interrupted: finished trials are kept.", highlight=False)
        console().print()


def _noise_table(result: CalibrationResult, width: int) -> Table:
    """Of every case against itself: how far apart processes were, and what would be seen."""
    columns: dict[str, list[str]] = {}
    for case in dict.fromkeys(verdict.case for verdict in result.same):
        for name, cell in _noise_row(result, case).items():
            columns.setdefault(name, []).append(cell)
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    for left_out in ("exponent", "MHz", None):
        table = plain_table(*(name if name == "kernel" else f">{name}" for name in columns))
        for row in zip(*columns.values(), strict=True):
            table.add_row(*row)
        if left_out is None or natural_width(table) <= width:
            break
        columns.pop(left_out, None)
    return table


def _noise_row(result: CalibrationResult, case: str) -> dict[str, str]:
    verdicts = [verdict for verdict in result.same if verdict.case == case]
    effects = [effect for v in verdicts if v.time for effect in v.time.process_effects]
    visible = [v.smallest_visible for v in verdicts if v.smallest_visible is not None]
    known = result.calibration.cases.get(case)
    return {
        "kernel": verdicts[0].kernel,
        "size": size_label(verdicts[0].sizes),
        "trials": str(len(verdicts)),
        "mean %": f"{100 * fmean(effects):+.3f}" if effects else "",
        "sd %": f"{100 * stdev(effects):.3f}" if len(effects) > 1 else "",
        "visible %": f"{100 * fmean(visible):.2f}" if visible else "",
        "MHz": f"{known.sm_clock_mhz:.0f}" if known and known.sm_clock_mhz else "",
        "exponent": f"{known.clock_exponent:.2f}" if known and known.clock_exponent is not None else "",
        "power cap": {True: "yes", False: "no", None: ""}[known.power_capped if known else None],
    }


def _planted_table(planted: Sequence[Planting]) -> Table:
    """How many slowdowns of each size were found, and what they measured."""
    table = plain_table(">planted %", ">trials", ">found", ">time %", ">cycles %", "otherwise")
    for level in sorted({each.level for each in planted}):
        verdicts = [each.verdict for each in planted if each.level == level]
        found = sum(verdict.status == "regression" for verdict in verdicts)
        others = [verdict.status for verdict in verdicts if verdict.status != "regression"]
        table.add_row(
            f"{100 * level:g}",
            str(len(verdicts)),
            str(found),
            _mean([v.time.effect for v in verdicts if v.time]),
            _mean([v.cycles.effect for v in verdicts if v.cycles]),
            ", ".join(f"{others.count(status)} {status}" for status in dict.fromkeys(others)),
        )
    return table


def _rates(calibration: Calibration) -> list[str]:
    lines = []
    if calibration.verdicts:
        bound = false_alarm_bound(calibration.false_alarms, calibration.verdicts, CONFIDENCE)
        lines.append(
            f"False alarms on this device so far: {calibration.false_alarms} of {calibration.verdicts} "
            f"verdicts; below {100 * bound:.2g} % with {100 * CONFIDENCE:g} % confidence."
        )
    for level, rate in sorted(calibration.planted.items(), key=lambda item: float(item[0])):
        low, high = clopper_pearson(rate.found, rate.planted, CONFIDENCE)
        lines.append(
            f"+{level} % planted so far: {rate.found} of {rate.planted} found ({100 * low:.0f} to "
            f"{100 * high:.0f} %)."
        )
    return lines


def trust(calibration: Calibration) -> str:
    """Whether the card can be trusted with a slowdown of 0.5 %, and if not, why."""
    size = f"{100 * TRUSTED:g} %"
    visible = {name: noise.smallest_visible for name, noise in calibration.cases.items()}
    told = {name: least for name, least in visible.items() if least is not None}
    if not told:
        return f"Trusted with {size}: not known, no case was judged."
    worst = max(told, key=lambda name: told[name])
    blind = sum(least > TRUSTED for least in told.values())
    planted = calibration.planted.get(f"{100 * TRUSTED:g}")
    missed = planted.planted - planted.found if planted else 0
    reasons = []
    if blind:
        reasons.append(f"{blind} of {len(told)} cases show only more, {worst} {100 * told[worst]:.2g} %")
    if missed and planted:
        reasons.append(f"{missed} of {planted.planted} planted were missed")
    if calibration.false_alarms:
        reasons.append(f"{calibration.false_alarms} of {calibration.verdicts} verdicts were false alarms")
    if reasons:
        return f"Trusted with {size}: no; {'; '.join(reasons)}."
    found = f", and all {planted.planted} planted were found" if planted and planted.planted else ""
    return (
        f"Trusted with {size}: yes; {len(told)} cases show {100 * min(told.values()):.2g} to "
        f"{100 * told[worst]:.2g} %{found}."
    )


def _mean(values: Sequence[float]) -> str:
    return f"{100 * fmean(values):+.2f}" if values else ""
