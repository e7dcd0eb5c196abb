"""The settings of comparisons, and the limits that their cases are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.device.lock import Busy
from harness.device.toolchains import FoundToolchain
from harness.judgement.judge import Policy, policy_of
from harness.judgement.limits import USUAL_LIMITS
from harness.measure.protocol import SideName
from harness.measure.quads import PairSettings
from harness.records.types import DeviceInfo, L2Policy, fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Settings that comparisons of kernels and of executables share."""

    device: str | None = None
    margin: float | None = None
    tolerance: float | None = None
    """Limits as shares; None for the device's default limit."""
    confidence: float = 0.999
    timeout_s: float = 120.0
    """Timeout of one case in one process, in seconds; for executables, of one process."""
    busy: Busy = "wait"
    """Behaviour while another process measures on the device."""
    budget_s: float | None = None
    """Device time in seconds after which no process is begun; for executables, their run time."""
    seed: int = 1
    results: Path | None = None
    """Folder of all records, with calibrations; None for none."""
    save: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings(JudgeSettings):
    command: str = "compare"
    l2: L2Policy | None = None
    pair: PairSettings | None = None
    """Number of quads and length of a block; None for the device's defaults."""
    solo_s: float = 1.0
    """Time in seconds that each side of a flagged case runs alone, to measure its power; 0 skips this."""
    explain: Literal["", "regressions", "all"] = ""
    """Cases whose cause hardware counters of both sides are to show, after their verdicts."""
    twins: bool | None = None
    """True to measure twins. None: in CI only, and not on a CPU, whose noise would hide the
    planted slowdown."""
    measure_identical: bool = False
    """True to measure kernels with identical compiled code too, to estimate the noise."""
    toolchains: Mapping[SideName, FoundToolchain] = field(default_factory=dict)
    """Compilers by side, if both sides have the same source; empty for the default compiler."""


def policy_for(device: DeviceInfo, settings: JudgeSettings) -> Policy:
    """Return the requested limits, or the device's defaults. Raises UsageError for contradictory limits."""
    usual = USUAL_LIMITS[device.kind]
    return policy_of(usual, settings.margin, settings.tolerance, confidence=settings.confidence)


def recorded_settings(settings: JudgeSettings, policy: Policy) -> dict[str, str | float | None]:
    """Return the settings for the record of a comparison."""
    return {
        **fields_of(settings, "seed", "timeout_s", "budget_s"),
        **fields_of(policy, "margin", "tolerance", "confidence"),
        "looks": ",".join(map(str, policy.looks)),
    }


def pair_settings_for(device: DeviceInfo, policy: Policy) -> PairSettings:
    """Return settings with enough quads for an error well below the margin; fewer for long launches."""
    few = device.kind == "cpu"
    return PairSettings(
        min_quads=10 if few else 6,
        max_quads=30 if few else 100,
        standard_error=policy.margin / 5,
        max_time_s=10.0 if few else 1.0,
    )
