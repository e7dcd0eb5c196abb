"""The doctor's judgement of a machine's facts, line by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from harness.run.doctor.machine_facts import MachineFacts

WARM_AT_REST_C = 60.0
BUSY_AT_REST_PERCENT = 5.0
HELD_AT_REST = 0.1
"""Share of the card's memory in use at rest above the driver's own use."""
COARSE_TICK_NS = 500.0
BUSY_PER_CORE = 0.5
BUSY_PER_CORE_OF_A_DEVICE = 0.25
"""Load per core above which a CPU is too busy to be measured."""
TOO_FULL_BYTES = 2**30
NEARLY_FULL_BYTES = 10 * 2**30

_UNAVAILABLE = "unavailable: "
_NOT_THERE = "Not Supported"
_GEFORCE_BLACKWELL = 12
"""Major compute capability."""
_NEEDED_COUNTERS = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake")
_QUIET_EVENTS = {"idle", "application_clocks"}
_THERMAL_EVENTS = {"hw_thermal", "sw_thermal"}
_SLOWING_EVENTS = {"hw_slowdown", "hw_power_brake", *_THERMAL_EVENTS}


Status = Literal["good", "note", "warn", "bad", "unknown"]
Group = Literal["card", "timers", "host", "project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A line of the diagnosis."""

    id: str
    """Stable name, for scripts."""
    group: Group
    status: Status
    found: str
    advice: str = ""


class Assessment(NamedTuple):
    """A status, the finding with its unit, and what to do about it."""

    status: Status
    found: str
    advice: str = ""


def good_if(is_good: bool, found: str, otherwise: Status, advice: str) -> Assessment:
    return Assessment("good", found) if is_good else Assessment(otherwise, found, advice)


class NotKnown(Exception):  # noqa: N818 - an answer, not an error
    """The fact for a line is unknown. The reason may be empty."""


Judge = Callable[[MachineFacts], "Assessment | None"]
"""Makes a line; returns None if the line does not apply. Raises NotKnown."""
LINES: list[tuple[Group, str, Judge]] = []
"""Group, id and function of every line, in display order."""


def line(group: Group, *, watched: bool = False) -> Callable[[Judge], Judge]:
    """Register a function as a line of its name; `watched` if it needs NVML's facts."""

    def add(judge: Judge) -> Judge:
        def applies(facts: MachineFacts) -> Assessment | None:
            return judge(facts) if not watched or (facts.device and facts.probe == "nvml") else None

        LINES.append((group, judge.__name__.replace("_", "-"), applies))
        return judge

    return add


def diagnose(facts: MachineFacts) -> tuple[CheckResult, ...]:
    """Return every line that applies to this machine."""
    findings = []
    for group, name, judge in LINES:
        try:
            answer = judge(facts)
        except NotKnown as why:
            answer = Assessment("unknown", f"not told: {why}" if str(why) else "not told")
        if answer:
            findings.append(CheckResult(id=name, group=group, **answer._asdict()))
    return tuple(findings)


def is_fit(findings: Sequence[CheckResult]) -> bool:
    """Return whether this machine can measure at all."""
    return not _names(findings, "bad")


def verdict(facts: MachineFacts, findings: Sequence[CheckResult]) -> str:
    """Return the diagnosis in a sentence or two."""
    if bad := _names(findings, "bad"):
        return f"Not fit: nothing can be measured here before this is put right: {', '.join(bad)}."
    fit = {
        "gpu": "Fit to judge performance",
        "cpu": "Fit to judge kernels on this CPU, which says nothing about a GPU",
    }.get(
        facts.device.kind if facts.device else "other",
        "Fit to try things out, but no time taken on this device means anything",
    )
    warned, unknown = _names(findings, "warn"), _names(findings, "unknown")
    but = f"; verdicts are surer with this put right: {', '.join(warned)}" if warned else ""
    untold = f" Not known: {', '.join(unknown)}." if unknown else ""
    return f"{fit}{but}.{untold}"


def _names(findings: Sequence[CheckResult], status: Status) -> list[str]:
    return [finding.id for finding in findings if finding.status == status]


# The device


@line("card")
def device(facts: MachineFacts) -> Assessment:
    found = facts.device
    if found is None:
        return Assessment("bad", "none", facts.device_problem)
    units = f"{found.compute_units} units, " if found.compute_units else ""
    said = f"{found.spec}, {found.name}, {units}{_gib(found.memory_bytes)}"
    if found.kind == "gpu":
        return Assessment("good", f"{said}, {found.arch}" if found.backend == "cuda" else said)
    if found.backend == "null":
        return Assessment(
            "note", said, "Its times are made up: use it to try a pipeline, never to judge a kernel."
        )
    meaning = "Right and wrong show here, and changes on this processor. Its times say nothing about a GPU."
    return Assessment("note", said, meaning)


@line("card")
def cuda(facts: MachineFacts) -> Assessment | None:
    if facts.device is None or not facts.cuda_problem:
        return None
    if facts.nvidia_driver:
        return Assessment("warn", "not used, though an NVIDIA driver is loaded", facts.cuda_problem)
    return Assessment("note", "no card", facts.cuda_problem)


@line("card")
def telemetry(facts: MachineFacts) -> Assessment | None:
    if facts.device is None or facts.device.kind != "gpu":
        return None
    if facts.probe != "none":
        return Assessment("good", facts.probe)
    why = next(iter(facts.unavailable.values()), "no probe fits this device").rstrip(".")
    return Assessment(
        "warn",
        "none",
        f"{why[:1].upper()}{why[1:]}. Nothing watches the card, so a slowdown by heat, the power limit or "
        "another process looks like the code's fault.",
    )


@line("card")
def driver(facts: MachineFacts) -> Assessment | None:
    if facts.device is None or facts.backend == "null":
        return None
    version = facts.device.driver
    newest = f"CUDA up to {facts.cuda_version}" if facts.cuda_version else ""
    return Assessment(
        "good", ", ".join(filter(None, (version if version != facts.cuda_version else "", newest)))
    )


@line("card")
def toolkit(facts: MachineFacts) -> Assessment | None:
    if facts.backend != "cuda":
        return None
    if facts.compiler in ("", "no nvcc"):
        return Assessment(
            "bad", "nvcc is not on PATH", "Install the CUDA toolkit, or add its bin folder to PATH."
        )
    if facts.kernel_problem:
        return Assessment("bad", f"{facts.compiler}; not even a small kernel runs", facts.kernel_problem)
    nvcc = _version(r"nvcc (\d+)\.(\d+)", facts.compiler)
    supported = _version(r"(\d+)\.(\d+)", facts.cuda_version)
    if not nvcc or not supported or nvcc <= supported:
        return Assessment("good", facts.compiler)
    newer = f"{facts.compiler}, newer than the driver's CUDA {facts.cuda_version}"
    if nvcc[0] == supported[0]:
        return Assessment("note", newer, "Within one major version that works, but not for PTX.")
    return Assessment("warn", newer, "Update the driver, or put an older toolkit first on PATH.")


def _version(pattern: str, text: str) -> tuple[int, int] | None:
    found = re.search(pattern, text)
    return (int(found[1]), int(found[2])) if found else None


# NVML's facts about the card


@line("card", watched=True)
def persistence(facts: MachineFacts) -> Assessment:
    mode = _identity(facts, "persistence")
    return good_if(
        mode == "on",
        mode,
        "warn",
        "Without a process on the card the driver unloads and forgets locked clocks and limits, and each "
        f"process pays for loading it. Let root enable nvidia-persistenced, or: {_smi(facts, '-pm 1')}",
    )


@line("card", watched=True)
def clocks(facts: MachineFacts) -> Assessment:
    most = _identity_or_none(facts, "max_sm_clock_mhz")
    now = facts.rest.sm_clock_mhz if facts.rest else None
    if most is None and now is None:
        _identity(facts, "max_sm_clock_mhz")  # raises with the reason
    chosen = _identity_or_none(facts, "application_sm_clock_mhz")
    said = [] if now is None else [f"SM {now:,.0f} MHz now"]
    said += [] if most is None else [f"{float(most):,.0f} MHz at most"]
    said += [] if chosen in (None, most) else [f"application clock {float(chosen):,.0f} MHz"]
    found = facts.device
    newest = found and "GeForce" in found.name and (found.compute_capability or (0,))[0] >= _GEFORCE_BLACKWELL
    never = " Never lock the memory clock of a GeForce Blackwell card (-lmc): that alone can slow it."
    return Assessment(
        "note",
        ", ".join(said),
        "Whether they are locked cannot be read back. Free is fine: comparisons are paired, and clocks are "
        "recorded. For a steadier history root can lock them, outside the job, at a step that the hottest "
        "kernel holds without throttling, as a rule 75 to 90 % of the highest: "
        f"{_smi(facts, '-lgc MHZ,MHZ')} (-rgc undoes it).{never if newest else ''}",
    )


@line("card", watched=True)
def power_limit(facts: MachineFacts) -> Assessment:
    limit = float(_identity(facts, "power_limit_w"))
    default = float(_identity_or_none(facts, "power_limit_default_w") or limit)
    draw = facts.rest.power_w if facts.rest else None
    said = f"{limit:,.0f} W" + (f", drawing {draw:,.0f} W now" if draw is not None else "")
    if limit == default:
        return Assessment("good", said)
    return Assessment(
        "note",
        f"{said}; the default is {default:,.0f} W",
        "Hot kernels run at whatever clock the limit allows: always keep the same one, or the default: "
        f"{_smi(facts, f'-pl {default:.0f}')}",
    )


@line("card", watched=True)
def ecc(facts: MachineFacts) -> Assessment:
    return _setting(facts, "ecc")


@line("card", watched=True)
def mig(facts: MachineFacts) -> Assessment:
    answer = _setting(facts, "mig")
    if answer.found != "on":
        return answer
    return Assessment(
        "warn",
        "on",
        "Instances share the card's power and clocks, and NVML tells less of them: leave the other instances "
        "idle, or switch MIG off.",
    )


@line("card", watched=True)
def compute_mode(facts: MachineFacts) -> Assessment:
    mode = _identity(facts, "compute_mode")
    if mode == "default":
        return Assessment(
            "note",
            mode,
            "Anybody's process may join in while a kernel is timed; it would be noticed. To shut others out: "
            f"{_smi(facts, '-c EXCLUSIVE_PROCESS')}",
        )
    if mode == "prohibited":
        return Assessment("bad", mode, f"No process may compute on this card: {_smi(facts, '-c DEFAULT')}")
    return Assessment("good", mode)


@line("card", watched=True)
def display(facts: MachineFacts) -> Assessment:
    is_free = _identity(facts, "display_active") == "no"
    shared = "The desktop uses the card while kernels are timed: stop it, or give it another card."
    return good_if(is_free, "none active" if is_free else "active", "warn", shared)


@line("card", watched=True)
def processes(facts: MachineFacts) -> Assessment:
    pids = _at_rest(facts, "processes")
    if not pids:
        return Assessment("good", "none other")
    return Assessment(
        "warn",
        f"{len(pids)} other: {', '.join(map(str, pids))}",
        "These are process ids (in a container: the host's). Their kernels slow the timed ones: end them, or "
        "wait.",
    )


@line("card", watched=True)
def memory(facts: MachineFacts) -> Assessment:
    assert facts.device is not None
    used, size = _at_rest(facts, "memory_used_bytes"), facts.device.memory_bytes or 0
    said = f"{_gib(used)} of {_gib(size)} used"
    holder = "Somebody holds it, listed above or not: a container's processes need not be."
    return good_if(used <= HELD_AT_REST * size, said, "warn", holder)


@line("card", watched=True)
def utilization(facts: MachineFacts) -> Assessment:
    busy = _at_rest(facts, "utilization_percent")
    if busy == 0:
        return Assessment("good", "0 %")
    status: Status = "warn" if busy >= BUSY_AT_REST_PERCENT else "note"
    whom = "Another process uses the card: 'nvidia-smi pmon -c 1' lists it."
    return Assessment(status, f"{busy:.0f} %", whom)


@line("card", watched=True)
def temperature(facts: MachineFacts) -> Assessment:
    degrees = _at_rest(facts, "temperature_c")
    cool = "Hot before any work of ours: let it cool; look after fans, dust and the air's way."
    return good_if(degrees <= WARM_AT_REST_C, f"{degrees:.0f} °C", "warn", cool)


@line("card", watched=True)
def clock_events(facts: MachineFacts) -> Assessment:
    events = _at_rest(facts, "clock_event_reasons")
    said = ", ".join(events) or "none"
    if slowing := _SLOWING_EVENTS.intersection(events):
        suspects = "cooling" if slowing <= _THERMAL_EVENTS else "power supply, connectors and cooling"
        return Assessment("warn", said, f"The card is slowed before any work of ours: look at {suspects}.")
    if set(events) <= _QUIET_EVENTS:
        return Assessment("good", said)
    return Assessment("note", said, "Something other than idleness holds the clock, before any work of ours.")


@line("card", watched=True)
def throttle_counters(facts: MachineFacts) -> Assessment:
    counted = (facts.rest.throttle_ns if facts.rest else None) or {}
    missing = [name for name in _NEEDED_COUNTERS if name not in counted]
    if not missing:
        return Assessment("good", ", ".join(_NEEDED_COUNTERS))
    none = len(missing) == len(_NEEDED_COUNTERS)
    return Assessment(
        "note",
        f"none: {_why(facts, 'throttle_ns')}" if none else f"without {', '.join(missing)}",
        "Throttling is then known from samples alone, and what falls between two of them goes unseen. A "
        "newer driver may count it.",
    )


@line("card", watched=True)
def pcie(facts: MachineFacts) -> Assessment:
    now, most = _identity(facts, "pcie_width_now"), _identity(facts, "pcie_width")
    generation = _identity_or_none(facts, "pcie_generation")
    said = f"x{now}" + (f", generation {generation}" if generation else "")
    if now == most:
        return Assessment("good", said)
    return Assessment(
        "note",
        f"{said}; card and slot allow x{most}",
        "Kernel times do not hang on it, copies do. Some cards narrow it when idle; else reseat the card.",
    )


@line("card", watched=True)
def virtualization(facts: MachineFacts) -> Assessment:
    kind = _identity(facts, "virtualization")
    whole = "Others may share the card without being seen: judge on a card passed through whole."
    return good_if(kind in ("none", "passthrough"), kind, "warn", whole)


@line("card", watched=True)
def counters(facts: MachineFacts) -> Assessment | None:
    if facts.counters_for is None or facts.backend != "cuda":
        return None
    if facts.counters_for == "all":
        return Assessment("good", "for all users")
    return good_if(
        facts.is_administrator,
        "for administrators alone",
        "note",
        "--explain reads counters. CAP_SYS_ADMIN allows it to one process, the option "
        "NVreg_RestrictProfilingToAdminUsers=0 of the kernel module nvidia to every user.",
    )


def _setting(facts: MachineFacts, name: str) -> Assessment:
    """Return the line of a setting that some cards do not have."""
    try:
        return Assessment("good", _identity(facts, name))
    except NotKnown as why:
        if _NOT_THERE in str(why):
            return Assessment("good", "this card has none")
        raise


def _identity(facts: MachineFacts, name: str) -> str:
    """Return an identity field of the card. Raises NotKnown with the reason if the card does not
    report it.
    """
    value = facts.identity.get(name)
    if value is None:
        raise NotKnown(facts.rest_problem)
    if value.startswith(_UNAVAILABLE):
        raise NotKnown(value.removeprefix(_UNAVAILABLE))
    return value


def _identity_or_none(facts: MachineFacts, name: str) -> str | None:
    try:
        return _identity(facts, name)
    except NotKnown:
        return None


def _at_rest(facts: MachineFacts, name: str) -> Any:
    """Return the card's values at rest, before it gets any work. Raises NotKnown."""
    value = getattr(facts.rest, name, None)
    if value is None:
        raise NotKnown(_why(facts, name))
    return value


def _why(facts: MachineFacts, name: str) -> str:
    return facts.unavailable.get(name) or facts.rest_problem


def _smi(facts: MachineFacts, option: str) -> str:
    bus = facts.device.pci_bus_id if facts.device else None
    return f"sudo nvidia-smi {f'-i {bus} ' if bus else ''}{option}"


def _gib(size_bytes: float | None) -> str:
    return "unknown" if size_bytes is None else f"{size_bytes / 2**30:.1f} GiB"


# Timers


@line("timers")
def event_tick(facts: MachineFacts) -> Assessment | None:
    if facts.backend in ("", "null"):
        return None
    if facts.tick_ns is None:
        raise NotKnown(facts.timers_problem)
    return good_if(
        facts.tick_ns < COARSE_TICK_NS,
        f"{facts.tick_ns:,.0f} ns",
        "warn",
        "Times move in steps of that size, as on GeForce and RTX A-series cards. A slot lasts at least 100 "
        "steps, so a short kernel is launched many times in each; a single launch of it cannot be told.",
    )


@line("timers")
def globaltimer_tick(facts: MachineFacts) -> Assessment | None:
    if facts.backend != "cuda":
        return None
    if facts.globaltimer_tick_ns is None:
        raise NotKnown(facts.kernel_problem or facts.timers_problem)
    said, is_fine = f"{facts.globaltimer_tick_ns:,.0f} ns", facts.globaltimer_tick_ns < COARSE_TICK_NS
    return good_if(
        is_fine, said, "note", "The SM clock is told from long spans only: less sure for short slots."
    )


# The host


@line("host")
def cpu_load(facts: MachineFacts) -> Assessment:
    if facts.load_average is None:
        raise NotKnown("the system has no load average")
    most = BUSY_PER_CORE_OF_A_DEVICE if facts.is_cpu else BUSY_PER_CORE
    return good_if(
        facts.load_average <= most * facts.cpu_count,
        f"{facts.load_average:.1f} on {facts.cpu_count} cores",
        "warn",
        "Others keep the processor busy: launches come late, and builds and references take longer. Judge on "
        "a quiet machine.",
    )


@line("host")
def cpu_governor(facts: MachineFacts) -> Assessment:
    if facts.governor is None:
        raise NotKnown("the kernel shows no frequency scaling, as in most virtual machines")
    return good_if(
        facts.governor == "performance",
        facts.governor,
        "warn" if facts.is_cpu else "note",
        "The processor's clock follows its load. For steadier launches: "
        "sudo cpupower frequency-set -g performance",
    )


def _disk(purpose: str, variable: str, facts: MachineFacts) -> Assessment | None:
    folder = facts.disks.get(purpose)
    if folder is None:
        return None
    if folder.free_bytes is None:
        raise NotKnown(f"{folder.path}: {folder.problem}")
    elsewhere = f"point {variable} at another folder"
    if not folder.writable:
        return Assessment("bad", f"{folder.path} cannot be written to", f"Change its owner, or {elsewhere}.")
    said = f"{_gib(folder.free_bytes)} free for {folder.path}"
    if folder.free_bytes < TOO_FULL_BYTES:
        return Assessment("bad", said, f"Free some space, or {elsewhere}.")
    if folder.free_bytes < NEARLY_FULL_BYTES:
        return Assessment("note", said, f"Little: sooner or later free some space, or {elsewhere}.")
    return Assessment("good", said)


for _purpose, _variable in (
    ("results", "HARNESS_RESULTS"),
    ("cache", "HARNESS_CACHE_DIR"),
    ("temporary", "TMPDIR"),
):
    LINES.append(("host", f"disk-{_purpose}", partial(_disk, _purpose, _variable)))


@line("host")
def python(facts: MachineFacts) -> Assessment:
    if not facts.bytecode_missing_in:
        return Assessment("good", facts.python)
    return Assessment(
        "note",
        f"{facts.python}, which compiles the harness again for each command, in up to a second",
        f"No bytecode is kept: python -m compileall {facts.bytecode_missing_in}, or unset "
        "PYTHONDONTWRITEBYTECODE.",
    )


@line("host")
def packages(facts: MachineFacts) -> Assessment:
    return Assessment("good", ", ".join(f"{name} {version}" for name, version in facts.packages.items()))


# The project


@line("project")
def git(facts: MachineFacts) -> Assessment:
    only = "Without it only the working tree can be measured, under no commit: install git."
    return good_if(facts.git is not None, facts.git or "not on PATH", "warn", only)


@line("project")
def repository(facts: MachineFacts) -> Assessment | None:
    if facts.git is None:
        return None
    if facts.repository_problem:
        raise NotKnown(facts.repository_problem)
    if facts.repository is None:
        return Assessment("note", "none", "Only the working tree can be measured here, under no commit.")
    if not facts.shallow:
        return Assessment("good", "with all of its history")
    return Assessment(
        "warn",
        "shallow",
        "Older commits are not there to be measured or compared with: git fetch --unshallow; in GitHub "
        "Actions, give actions/checkout 'fetch-depth: 0'.",
    )


@line("project")
def calibration(facts: MachineFacts) -> Assessment | None:
    if facts.device is None:
        return None
    if facts.calibration_problem:
        return Assessment("warn", "unreadable", facts.calibration_problem)
    if facts.calibrated_at is None:
        return Assessment(
            "note",
            f"none of {facts.machine}",
            "The noise of this device is assumed, not measured: run harness calibrate.",
        )
    said, version = f"of {facts.calibrated_at}", facts.device.driver
    if facts.calibrated_driver in (None, version):
        return Assessment("good", said)
    again = f"The driver is {version} now: run harness calibrate again."
    return Assessment("note", f"{said}, under driver {facts.calibrated_driver}", again)
