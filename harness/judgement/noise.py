"""Noise of a card: the difference between two measurements of the same code.

A calibration compares kernels with themselves. Its file lies beside the card's records. It holds how much
processes differ, the smallest visible change of each case, and the number of false alarms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.judgement.case_trial import NoisePriors
from harness.judgement.statistics.moderated import (
    DEFAULT_PRIOR,
    PROPORTION,
    UNKNOWN_DF,
    Prior,
    fit_prior,
    prior_of_case,
)
from harness.judgement.statistics.paired import ProcessEffect
from harness.records.record_files import CalibrationSummary, refuse_newer
from harness.records.types import DeviceInfo
from harness.system.cache import write_file
from harness.system.decoding import decode
from harness.system.files import UNREADABLE, read_regular

FILE = "calibration.harness"
"""JSON, but without its extension: asv reads every .json file beside its results and requires a version in
it."""
SCHEMA_VERSION = 1
_MOST = 100.0
"""Limit of logarithms of time ratios, larger than any real one."""
ELSEWHERE = Prior(variance=0.01**2, df=4.0, proportion=PROPORTION)
"""Prior of a CPU without history. The other work on its host adds noise."""

_FEWEST_EFFECTS = 4
"""Fewest pairs of processes that can change the assumption about a case."""
APART = Prior(variance=0.0005**2, df=UNKNOWN_DF, proportion=PROPORTION)
"""Prior of a GPU for sides with a process each, until the case is calibrated. APART_NS is added."""
APART_NS = 100.0
"""Standard deviation of a launch's time between two processes that run the same code, in nanoseconds.

On an H100, 13 functions of 6.7 to 342 us had 84 to 213 ns over 14 pairs of processes. In one pair the
difference was nearly the same for every function. One of four kernels had four times as much. The lower end
is assumed: larger differences show in the data, and 640 replayed verdicts held no false alarm.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseNoise:
    """Noise of one case, from comparing it with itself."""

    time: tuple[ProcessEffect, ...]
    cycles: tuple[ProcessEffect, ...] = ()
    smallest_visible: float | None = None
    clock_exponent: float | None = None
    sm_clock_mhz: float | None = None
    power_capped: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedRate:
    """Number of planted slowdowns of one size, and of those found."""

    planted: int = 0
    found: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(CalibrationSummary):
    """Noise of one device from its calibration."""

    schema_version: int = SCHEMA_VERSION
    harness_version: str
    uuid: str | None
    cases: Mapping[str, CaseNoise] = field(default_factory=dict)
    """Cases whose sides share a process."""
    apart: Mapping[str, CaseNoise] = field(default_factory=dict)
    """Cases whose sides have a process each: functions and calls of scripts."""
    planted: Mapping[str, PlantedRate] = field(default_factory=dict)
    """Number of planted and found slowdowns, by size in percent, such as "0.5"."""

    @property
    def every_case(self) -> Mapping[str, CaseNoise]:
        return {**self.cases, **self.apart}


def noise_of_card(calibration: Calibration | None, device: DeviceInfo) -> NoisePriors:
    """Return the prior of a device for any case: the history of all its cases together."""
    assumed = ELSEWHERE if device.kind == "cpu" else DEFAULT_PRIOR
    cases = calibration.cases.values() if calibration else ()
    time = [noise.time for noise in cases if len(noise.time) > 1]
    cycles = [noise.cycles for noise in cases if len(noise.cycles) > 1]
    return NoisePriors(
        time=fit_prior(time) if time else assumed,
        cycles=fit_prior(cycles) if cycles else assumed,
        calibrated=bool(time),
    )


def noise_apart(device: DeviceInfo, calibration: Calibration | None, case: str) -> NoisePriors:
    """Return the prior for pairs of processes that each hold one side.

    If the case itself was calibrated, its launches were measured too, and nothing is added for them.
    """
    assumed = ELSEWHERE if device.kind == "cpu" else APART
    known = calibration.apart.get(case) if calibration else None
    if known is None or len(known.time) < _FEWEST_EFFECTS:
        return NoisePriors(time=assumed, cycles=assumed, launch_ns=0.0 if device.kind == "cpu" else APART_NS)
    return NoisePriors(
        time=prior_of_case(assumed, known.time),
        cycles=prior_of_case(assumed, known.cycles),
        calibrated=True,
        floor=known.smallest_visible,
    )


def noise_of_case(noise: NoisePriors, calibration: Calibration | None, case: str) -> NoisePriors:
    """Return the device's noise with the calibration of this case, if there is one."""
    known = calibration.cases.get(case) if calibration else None
    return dataclasses.replace(
        noise,
        time=prior_of_case(noise.time, known.time if known else ()),
        cycles=prior_of_case(noise.cycles, known.cycles if known else ()),
        floor=known.smallest_visible if known else None,
    )


def read_calibration(folder: Path) -> Calibration | None:
    """Return the calibration in a device's folder of records; None if there is none.

    Raises StoreError for a damaged file or a newer schema.
    """
    path = folder / FILE
    try:
        content = read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    try:
        found = decode(content, Calibration)
    except UNREADABLE as error:
        raise StoreError(
            f"{path} is no calibration ({error}). Delete it and run 'harness calibrate'."
        ) from None
    refuse_newer(path, found.schema_version, SCHEMA_VERSION)
    effects = (effect for case in found.every_case.values() for effect in (*case.time, *case.cycles))
    if not all(abs(e.value) < _MOST and 0 <= e.standard_error < _MOST and e.df >= 1 for e in effects):
        raise StoreError(
            f"{path} holds figures that no device has shown: it was edited or damaged. Delete it and run "
            "'harness calibrate'."
        )
    return found


def write_calibration(folder: Path, calibration: Calibration) -> Path:
    """Write the calibration and return its path. Raises StoreError on failure, which leaves an older file
    whole.
    """
    path = folder / FILE
    content = msgspec.json.format(msgspec.json.encode(calibration), indent=1) + b"\n"
    write_file(path, content, "Choose another folder with --results.")
    return path
