"""Judgements on the machine around the device, and on the project."""

from __future__ import annotations

__all__ = ["calibration", "cpu_governor", "cpu_load", "disk", "git", "packages", "python", "repository"]

from harness.doctor.facts import Facts, Judge, Told, gib, unknown

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
