"""Measures a device's noise: every case against itself, and against itself with planted slowdowns."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import harness
from harness.judgement.case_trial import CaseTrial, Round
from harness.judgement.limits import JUDGED
from harness.judgement.noise import Calibration, CaseNoise, PlantedRate, read_calibration, write_calibration
from harness.judgement.statistics.paired import ProcessEffect
from harness.measure import protocol
from harness.records.types import DeviceInfo, Verdict
from harness.run.compare import Comparing
from harness.run.pair_session import CaseEntry
from harness.suite.planning import PlannedCase

MOST_EFFECTS = 256
"""Most effects kept for each case, the newest, so that the file does not grow forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateSettings:
    trials: int = 4
    """Verdicts of each case against itself."""
    planted_trials: int = 1
    """Verdicts of each case with each slowdown planted."""
    levels: tuple[float, ...] = (0.005, 0.01, 0.02, 0.03)


@dataclass(frozen=True, slots=True)
class Planting:
    case: str
    level: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    device: DeviceInfo
    calibration: Calibration
    """Everything known about the device, including earlier calibrations."""
    same: tuple[Verdict, ...]
    """This calibration's verdicts of code against itself."""
    planted: tuple[Planting, ...]
    left_out: tuple[str, ...]
    path: Path | None
    interrupted: bool = False


def calibrate(
    comparing: Comparing, plan: Sequence[PlannedCase], settings: CalibrateSettings
) -> CalibrationResult:
    """Measure the noise of these cases on an open device, and add it to the device's calibration.

    The file is written after each trial, so an interrupt keeps finished trials. Raises StoreError if it
    cannot be written.
    """
    fit, left_out = comparing.divide(plan)
    work = _Work(comparing, fit, settings)
    interrupted = False
    try:
        work.measure()
    except KeyboardInterrupt:
        interrupted = True
    return CalibrationResult(
        comparing.device,
        comparing.calibration or blank(comparing.device),
        tuple(work.same),
        tuple(work.planted),
        (*left_out, *comparing.unplanted),
        work.path,
        interrupted,
    )


class _Work:
    def __init__(
        self, comparing: Comparing, plan: Sequence[PlannedCase], settings: CalibrateSettings
    ) -> None:
        self.comparing, self.plan, self.settings = comparing, plan, settings
        self.same: list[Verdict] = []
        self.planted: list[Planting] = []
        self.path: Path | None = None
        self._digests: dict[str, dict[str, str]] = {}
        """Digests of each case's outputs, which were verified in full in the first trial."""

    def measure(self) -> None:
        for _ in range(self.settings.trials):
            self._same()
        if self.settings.planted_trials and self.settings.levels:
            plantings = self._plantings()
            for _ in range(self.settings.planted_trials):
                self._plant(plantings)

    def _same(self) -> None:
        entries = [
            self._entry(protocol.against_itself(planned.case, planned.case.id), planned)
            for planned in self.plan
        ]
        result = self.comparing.compare(entries)
        self._digests |= {entry.pair.id: entry.digests for entry in entries if entry.digests}
        self.same += result.verdicts
        self._keep(lambda known: with_same(known, [entry.trial for entry in entries], result.verdicts))
        if result.interrupted:
            raise KeyboardInterrupt

    def _plantings(self) -> list[tuple[PlannedCase, float, int]]:
        """Return every case with every slowdown, and the number of steps for it."""
        wanted = [(planned, level) for planned in self.plan for level in self.settings.levels]
        pairs = [protocol.against_itself(planned.case, planned.case.id, steps=0) for planned, _ in wanted]
        steps = self.comparing.find_steps(pairs, [level for _, level in wanted])
        return [(*each, found) for each, found in zip(wanted, steps, strict=True) if found is not None]

    def _plant(self, plantings: Sequence[tuple[PlannedCase, float, int]]) -> None:
        entries = [
            self._entry(
                protocol.against_itself(planned.case, f"{planned.case.id} +{100 * level:g} %", steps), planned
            )
            for planned, level, steps in plantings
        ]
        result = self.comparing.compare(entries)
        self.planted += [
            Planting(planned.case.id, level, verdict)
            for (planned, level, _), verdict in zip(plantings, result.verdicts, strict=True)
        ]
        levels = [level for _, level, _ in plantings]
        self._keep(lambda known: _with_planted(known, levels, result.verdicts))
        if result.interrupted:
            raise KeyboardInterrupt

    def _entry(self, pair: protocol.PairOf, planned: PlannedCase) -> CaseEntry:
        """Return a case whose outputs are verified in full once in a calibration, because planting does not
        change them.

        Different outputs are verified again.
        """
        entry = self.comparing.entry(pair, planned.case)
        entry.digests = dict(self._digests.get(planned.case.id, {}))
        return entry

    def _keep(self, change: Callable[[Calibration], Calibration]) -> None:
        """Apply a change to the calibration on disk, and judge by the result from here on."""
        comparing = self.comparing
        folder = comparing.folder if comparing.settings.save else None
        now, self.path = keep(folder, comparing.calibration or blank(comparing.device), change)
        comparing.judge_by(now)


def blank(device: DeviceInfo) -> Calibration:
    """Return an empty calibration of a device."""
    return Calibration(
        measured_at="", harness_version=harness.__version__, uuid=device.uuid, driver=device.driver
    )


def keep(
    folder: Path | None, known: Calibration, change: Callable[[Calibration], Calibration]
) -> tuple[Calibration, Path | None]:
    """Apply a change to the calibration on disk, or to `known` without one; return it and its file.

    Raises StoreError.
    """
    now = dataclasses.replace(
        change((folder and read_calibration(folder)) or known),
        measured_at=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        harness_version=harness.__version__,
    )
    return now, write_calibration(folder, now) if folder else None


def with_same(known: Calibration, trials: Sequence[CaseTrial], verdicts: Sequence[Verdict]) -> Calibration:
    """Return the calibration with trials of cases against themselves added. Verdicts have the same order."""
    cases, apart = dict(known.cases), dict(known.apart)
    for trial, verdict in zip(trials, verdicts, strict=True):
        if verdict.status in JUDGED and not trial.unfinished:
            rounds = [*trial.rounds, *trial.again]
            among = apart if any(each.block.in_turns for each in rounds) else cases
            among[trial.id] = _noise(among.get(trial.id), rounds, verdict)
    judged = [verdict for verdict in verdicts if verdict.status in JUDGED and verdict.complete]
    return dataclasses.replace(
        known,
        cases=cases,
        apart=apart,
        verdicts=known.verdicts + len(judged),
        false_alarms=known.false_alarms + sum(v.status in ("regression", "improvement") for v in judged),
    )


def _noise(earlier: CaseNoise | None, rounds: Sequence[Round], verdict: Verdict) -> CaseNoise:
    time = [each.all.time for each in rounds if each.all.time]
    cycles = [each.all.cycles for each in rounds if each.all.cycles]
    return CaseNoise(
        time=_newest(earlier.time if earlier else (), time),
        cycles=_newest(earlier.cycles if earlier else (), cycles),
        smallest_visible=verdict.smallest_visible,
        clock_exponent=verdict.clock_exponent,
        sm_clock_mhz=verdict.base.sm_clock_mhz if verdict.base else None,
        power_capped=verdict.power_capped,
    )


def _newest(earlier: Sequence[ProcessEffect], now: Sequence[ProcessEffect]) -> tuple[ProcessEffect, ...]:
    return (*earlier, *(effect for effect in now if math.isfinite(effect.value)))[-MOST_EFFECTS:]


def _with_planted(known: Calibration, levels: Sequence[float], verdicts: Sequence[Verdict]) -> Calibration:
    rates = dict(known.planted)
    for level, verdict in zip(levels, verdicts, strict=True):
        if verdict.status in JUDGED and verdict.complete:
            rate = rates.get(f"{100 * level:g}", PlantedRate())
            rates[f"{100 * level:g}"] = PlantedRate(
                planted=rate.planted + 1, found=rate.found + (verdict.status == "regression")
            )
    return dataclasses.replace(known, planted=rates)
