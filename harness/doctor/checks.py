"""Judgements on the machine around the device, on the project, and the order in which they are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.doctor import card
from harness.doctor.card import Facts, Judge, Status, Told, gib, unknown

BUSY_PER_CORE = 0.5
BUSY_PER_CORE_OF_A_DEVICE = 0.25
"""The share of each core above which a CPU device is too busy to be measured."""
TOO_FULL_BYTES = 2**30
NEARLY_FULL_BYTES = 10 * 2**30

_MOVE = {"results": "HARNESS_RESULTS", "cache": "HARNESS_CACHE_DIR", "temporary": "TMPDIR"}


def _on_cpu(facts: Facts) -> bool:
    return facts.device is not None and facts.device.kind == "cpu"


def cpu_load(facts: Facts) -> Told:
    if facts.load_average is None:
        return unknown("the system has no load average")
    said = f"{facts.load_average:.1f} on {facts.cpu_count} cores"
    most = BUSY_PER_CORE_OF_A_DEVICE if _on_cpu(facts) else BUSY_PER_CORE
    if facts.load_average <= most * facts.cpu_count:
        return Told("good", said)
    return Told(
        "warn",
        said,
        "Others keep the processor busy: launches come late, and builds and references take longer. Judge on "
        "a quiet machine.",
    )


def cpu_governor(facts: Facts) -> Told:
    if facts.governor is None:
        return unknown("the kernel shows no frequency scaling, as in most virtual machines")
    if facts.governor == "performance":
        return Told("good", facts.governor)
    return Told(
        "warn" if _on_cpu(facts) else "note",
        facts.governor,
        "The processor's clock follows its load. For steadier launches: "
        "sudo cpupower frequency-set -g performance",
    )


def disk(purpose: str) -> Judge:
    def judge(facts: Facts) -> Told | None:
        folder = facts.disks.get(purpose)
        if folder is None:
            return None
        if folder.free_bytes is None:
            return unknown(f"{folder.path}: {folder.problem}")
        elsewhere = f"point {_MOVE[purpose]} at another folder"
        if not folder.writable:
            return Told("bad", f"{folder.path} cannot be written to", f"Change its owner, or {elsewhere}.")
        said = f"{gib(folder.free_bytes)} free for {folder.path}"
        if folder.free_bytes < TOO_FULL_BYTES:
            return Told("bad", said, f"Free some space, or {elsewhere}.")
        if folder.free_bytes < NEARLY_FULL_BYTES:
            return Told("note", said, f"Little: sooner or later free some space, or {elsewhere}.")
        return Told("good", said)

    return judge


def python(facts: Facts) -> Told:
    return Told("good", facts.python)


def packages(facts: Facts) -> Told:
    return Told("good", ", ".join(f"{name} {version}" for name, version in facts.packages.items()))


def git(facts: Facts) -> Told:
    if facts.git is not None:
        return Told("good", facts.git)
    return Told(
        "warn",
        "not on PATH",
        "Without it only the working tree can be measured, under no commit: install git.",
    )


def repository(facts: Facts) -> Told | None:
    if facts.git is None:
        return None
    if facts.repository_problem:
        return unknown(facts.repository_problem)
    if facts.repository is None:
        return Told("note", "none", "Only the working tree can be measured here, under no commit.")
    if not facts.shallow:
        return Told("good", "with all of its history")
    return Told(
        "warn",
        "shallow",
        "Older commits are not there to be measured or compared with: git fetch --unshallow; in GitHub "
        "Actions, give actions/checkout 'fetch-depth: 0'.",
    )


def calibration(facts: Facts) -> Told | None:
    if facts.device is None:
        return None
    if facts.calibration_problem:
        return Told("warn", "unreadable", facts.calibration_problem)
    if facts.calibrated_at is None:
        return Told(
            "note",
            f"none of {facts.machine}",
            "How far two measurements of the same code lie apart here is assumed, not measured: "
            "run harness calibrate.",
        )
    driver = facts.device.driver
    said = f"of {facts.calibrated_at}"
    if facts.calibrated_driver in (None, driver):
        return Told("good", said)
    return Told(
        "note",
        f"{said}, under driver {facts.calibrated_driver}",
        f"The driver is {driver} now: run harness calibrate again.",
    )


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
    ("host", "cpu-load", cpu_load),
    ("host", "cpu-governor", cpu_governor),
    ("host", "disk-results", disk("results")),
    ("host", "disk-cache", disk("cache")),
    ("host", "disk-temporary", disk("temporary")),
    ("host", "python", python),
    ("host", "packages", packages),
    ("project", "git", git),
    ("project", "repository", repository),
    ("project", "calibration", calibration),
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
