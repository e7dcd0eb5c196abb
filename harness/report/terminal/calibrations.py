"""Results of a calibration, for the terminal and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import Any

from harness.judgement.noise import Calibration
from harness.judgement.statistics.rates import clopper_pearson, false_alarm_bound
from harness.numbers import clock, exact, number, percent_figure, rough
from harness.report.table import Column, Sheet
from harness.report.terminal.comparison_tables import counted_statuses, with_sentence
from harness.report.terminal.run_tables import console, print_error, print_out
from harness.report.words.of_verdict import explained
from harness.run.calibrate import CalibrationResult, Planting
from harness.suite.case_id import size_label

CONFIDENCE = 0.95
TRUSTED = 0.005
"""The slowdown that a card should detect: twice the margin, which would hold back a release."""


def as_json(result: CalibrationResult) -> dict[str, Any]:
    return {
        "device": result.device,
        "calibration": result.calibration,
        "false_alarm_bound": _bound(result.calibration),
        "same": list(map(with_sentence, result.same)),
        "planted": [
            {"case": each.case, "level": each.level, "verdict": with_sentence(each.verdict)}
            for each in result.planted
        ],
        "left_out": result.left_out,
        "complete": not result.interrupted,
        "path": str(result.path) if result.path else None,
    }


def print_calibration(results: Sequence[CalibrationResult]) -> None:
    """Print the noise by case, the planted slowdowns found, and the false-alarm rate so far."""
    out = console()
    for result in results:
        print_out(_noise_table(result))
        if result.planted:
            out.print()
            print_out(_planted_table(result.planted))
        for line in (*_rates(result.calibration), trust(result.calibration)):
            out.print(line)
        for verdict in (*result.same, *(each.verdict for each in result.planted)):
            if verdict.status in ("failed", "invalid"):
                print_error(f"{verdict.case}: {verdict.status} ({verdict.reason}): {explained(verdict)}")
        for message in result.left_out:
            print_error(f"Left out: {message}")
        if result.path:
            print_error(f"Calibration: {result.path}")
        if result.interrupted:
            print_error("Interrupted: finished trials are kept.")
        out.print()


def _noise_table(result: CalibrationResult) -> Sheet:
    cases = list(dict.fromkeys(verdict.case for verdict in result.same))
    trials = [[verdict for verdict in result.same if verdict.case == case] for case in cases]
    effects = [[effect for v in trial if v.time for effect in v.time.process_effects] for trial in trials]
    visible = [[v.smallest_visible for v in trial if v.smallest_visible is not None] for trial in trials]
    known = [result.calibration.every_case.get(case) for case in cases]
    exponents = [number(noise.clock_exponent if noise else None, 2) for noise in known]
    words = {True: "yes", False: "no", None: ""}
    capped = [words[noise.power_capped if noise else None] for noise in known]
    return Sheet(
        title=f"{result.device.name} ({result.device.spec})",
        columns=[
            Column("kernel", [trial[0].kernel for trial in trials], text=True),
            Column("size", [size_label(trial[0].sizes) for trial in trials]),
            Column("trials", [str(len(trial)) for trial in trials]),
            Column("mean %", list(map(_mean, effects))),
            Column("sd %", [number(100 * stdev(each), 3) if len(each) > 1 else "" for each in effects]),
            Column("visible %", [percent_figure(fmean(each)) if each else "" for each in visible]),
            Column("MHz", [clock(noise.sm_clock_mhz if noise else None) for noise in known], spare=1),
            Column("exponent", exponents, spare=2),
            Column("power cap", capped),
        ],
    )


def _planted_table(planted: Sequence[Planting]) -> Sheet:
    levels = sorted({each.level for each in planted})
    found = [[each.verdict for each in planted if each.level == level] for level in levels]
    missed = [Counter(v.status for v in each if v.status != "regression") for each in found]
    return Sheet(
        columns=[
            Column("planted %", [f"{100 * level:g}" for level in levels]),
            Column("trials", [str(len(each)) for each in found]),
            Column("found", [str(sum(v.status == "regression" for v in each)) for each in found]),
            Column("time %", [_mean([v.time.effect for v in each if v.time]) for each in found]),
            Column("cycles %", [_mean([v.cycles.effect for v in each if v.cycles]) for each in found]),
            Column("otherwise", [counted_statuses(each) for each in missed], text=True),
        ]
    )


def _bound(calibration: Calibration) -> float | None:
    """Return the upper bound of the false-alarm rate; None before the first verdict."""
    if not calibration.verdicts:
        return None
    return false_alarm_bound(calibration.false_alarms, calibration.verdicts, CONFIDENCE)


def _rates(calibration: Calibration) -> Iterator[str]:
    if (bound := _bound(calibration)) is not None:
        yield (
            f"False alarms on this device so far: {calibration.false_alarms} of {calibration.verdicts} "
            f"verdicts; below {rough(bound)} with {exact(CONFIDENCE)} confidence."
        )
    for level, rate in sorted(calibration.planted.items(), key=lambda item: float(item[0])):
        low, high = clopper_pearson(rate.found, rate.planted, CONFIDENCE)
        interval = f"{number(100 * low, 2)} to {rough(high)}"
        yield f"+{level} % planted so far: {rate.found} of {rate.planted} found ({interval})."


def trust(calibration: Calibration) -> str:
    """Return whether the card can detect a slowdown of 0.5 %, and if not, why."""
    size = exact(TRUSTED)
    visible = {name: noise.smallest_visible for name, noise in calibration.every_case.items()}
    told = {name: least for name, least in visible.items() if least is not None}
    if not told:
        return f"Trusted with {size}: not known, no case was judged."
    worst = max(told, key=lambda name: told[name])
    blind = sum(least > TRUSTED for least in told.values())
    planted = calibration.planted.get(f"{100 * TRUSTED:g}")
    reasons = []
    if blind:
        reasons.append(f"{blind} of {len(told)} cases show only more, {worst} {rough(told[worst])}")
    if planted and (missed := planted.planted - planted.found):
        reasons.append(f"{missed} of {planted.planted} planted were missed")
    if calibration.false_alarms:
        reasons.append(f"{calibration.false_alarms} of {calibration.verdicts} verdicts were false alarms")
    if reasons:
        return f"Trusted with {size}: no; {'; '.join(reasons)}."
    found = f", and all {planted.planted} planted were found" if planted and planted.planted else ""
    span = f"{number(100 * min(told.values()), 2)} to {rough(told[worst])}"
    return f"Trusted with {size}: yes; {len(told)} cases show {span}{found}."


def _mean(values: Sequence[float]) -> str:
    return percent_figure(fmean(values), sign=True) if values else ""
