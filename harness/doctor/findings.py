"""What facts mean for whoever wants to judge performance here: pure judgements, one a line.

A line is left out where it does not apply, and unknown, with why, where the machine would not say.
"""

from __future__ import annotations

__all__ = ["LINES", "STATUSES", "Finding", "Group", "Status", "diagnose", "is_fit", "verdict"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.doctor import card, surroundings
from harness.doctor.facts import Facts, Judge, Status

Group = Literal["card", "timers", "host", "project"]

STATUSES: tuple[Status, ...] = ("good", "note", "warn", "bad", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the diagnosis."""

    id: str
    """Stable, for scripts."""
    group: Group
    status: Status
    found: str
    advice: str = ""


LINES: tuple[tuple[Group, str, Judge], ...] = (
    ("card", "device", card.device),
    ("card", "cuda", card.cuda),
    ("card", "telemetry", card.telemetry),
    ("card", "driver", card.driver),
    ("card", "toolkit", card.toolkit),
    ("card", "persistence", card.persistence),
    ("card", "clocks", card.clocks),
    ("card", "power-limit", card.power_limit),
    ("card", "ecc", card.ecc),
    ("card", "mig", card.mig),
    ("card", "compute-mode", card.compute_mode),
    ("card", "display", card.display),
    ("card", "processes", card.processes),
    ("card", "memory", card.memory),
    ("card", "utilization", card.utilization),
    ("card", "temperature", card.temperature),
    ("card", "clock-events", card.clock_events),
    ("card", "throttle-counters", card.throttle_counters),
    ("card", "pcie", card.pcie),
    ("card", "virtualization", card.virtualization),
    ("timers", "event-tick", card.event_tick),
    ("timers", "globaltimer-tick", card.globaltimer_tick),
    ("host", "cpu-load", surroundings.cpu_load),
    ("host", "cpu-governor", surroundings.cpu_governor),
    ("host", "disk-results", surroundings.disk("results")),
    ("host", "disk-cache", surroundings.disk("cache")),
    ("host", "disk-temporary", surroundings.disk("temporary")),
    ("host", "python", surroundings.python),
    ("host", "packages", surroundings.packages),
    ("project", "git", surroundings.git),
    ("project", "repository", surroundings.repository),
    ("project", "calibration", surroundings.calibration),
)
"""Group, id and judgement of every line, in the order in which they are shown."""


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Every line that applies to this machine."""
    return tuple(
        Finding(id=line, group=group, status=told.status, found=told.found, advice=told.advice)
        for group, line, judge in LINES
        if (told := judge(facts))
    )


def is_fit(findings: Sequence[Finding]) -> bool:
    """Whether this machine can measure at all."""
    return not _names(findings, "bad")


def verdict(facts: Facts, findings: Sequence[Finding]) -> str:
    """The diagnosis in a sentence or two."""
    if bad := _names(findings, "bad"):
        return f"Not fit: nothing can be measured here before this is put right: {', '.join(bad)}."
    kind = facts.device.kind if facts.device else "other"
    fit = {
        "gpu": "Fit to judge performance",
        "cpu": "Fit to judge kernels on this CPU, which says nothing about a GPU",
    }.get(kind, "Fit to try things out, but no time taken on this device means anything")
    warned, unknown = _names(findings, "warn"), _names(findings, "unknown")
    but = f"; verdicts are surer with this put right: {', '.join(warned)}" if warned else ""
    untold = f" Not known: {', '.join(unknown)}." if unknown else ""
    return f"{fit}{but}.{untold}"


def _names(findings: Sequence[Finding], status: Status) -> list[str]:
    return [finding.id for finding in findings if finding.status == status]
