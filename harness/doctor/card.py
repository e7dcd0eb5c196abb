"""What the doctor knows of a machine, and the form in which it is judged. What could not be told is None or
empty, with a problem beside it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.records import DeviceInfo, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A folder that the harness writes to, there already or not."""

    path: str
    free_bytes: int | None
    writable: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A device and the machine around it."""

    device: DeviceInfo | None = None
    device_problem: str = ""
    cuda_problem: str = ""
    """Why the default is no CUDA card; empty where it is one, or the device was named."""
    nvidia_driver: bool = False
    """Whether the host has NVIDIA's driver loaded."""
    cuda_version: str = ""
    """The newest CUDA that the driver knows."""
    compiler: str = ""

    probe: str = "none"
    identity: Mapping[str, str] = field(default_factory=dict)
    rest: Snapshot | None = None
    """The device before it is given any work."""
    rest_problem: str = ""
    unavailable: Mapping[str, str] = field(default_factory=dict)

    tick_ns: float | None = None
    globaltimer_tick_ns: float | None = None
    timers_problem: str = ""
    kernel_problem: str = ""
    """Why not even the harness's own small kernel runs."""

    load_average: float | None = None
    cpu_count: int = 1
    governor: str | None = None
    disks: Mapping[str, Disk] = field(default_factory=dict)
    """Disks by what they are for: results, cache, temporary."""
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)

    git: str | None = None
    """Its version; None where the command is not on PATH."""
    repository: str | None = None
    """The repository's top folder; None outside any."""
    shallow: bool = False
    repository_problem: str = ""
    machine: str = ""
    calibrated_at: str | None = None
    calibrated_driver: str | None = None
    calibration_problem: str = ""


Status = Literal["good", "note", "warn", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Told:
    """A status, what was found with its unit, and what to do about it."""

    status: Status
    found: str
    advice: str = ""


Judge = Callable[[Facts], "Told | None"]
"""None where the line does not apply."""


def unknown(why: str) -> Told:
    return Told("unknown", f"not told: {why}" if why else "not told")


def gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


WARM_AT_REST_C = 60.0
BUSY_AT_REST_PERCENT = 5.0
HELD_AT_REST = 0.1
"""Share of the card's memory in use at rest that is more than what the driver keeps for itself."""
COARSE_TICK_NS = 500.0

_UNTOLD = "unavailable: "
_NOT_THERE = "Not Supported"
_GEFORCE_BLACKWELL = 12
"""Major compute capability."""
_NEEDED_COUNTERS = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake")
_QUIET_EVENTS = {"idle", "application_clocks"}
_THERMAL_EVENTS = {"hw_thermal", "sw_thermal"}
_SLOWING_EVENTS = {"hw_slowdown", "hw_power_brake", *_THERMAL_EVENTS}


def _of_a_watched_card(judge: Callable[[Facts], Told]) -> Judge:
    """A line that applies where NVML tells of the device."""

    @functools.wraps(judge)
    def judged(facts: Facts) -> Told | None:
        return judge(facts) if facts.device is not None and facts.probe == "nvml" else None

    return judged


def device(facts: Facts) -> Told:
    found = facts.device
    if found is None:
        return Told("bad", "none", facts.device_problem)
    said = f"{found.spec}, {found.name}, {found.compute_units} units, {gib(found.memory_bytes)}"
    if found.kind == "gpu":
        return Told("good", f"{said}, {found.arch}" if found.backend == "cuda" else said)
    if found.backend == "null":
        return Told("note", said, "Its times are made up: use it to try a pipeline, never to judge a kernel.")
    return Told(
        "note",
        said,
        "Right and wrong show here, and changes on this processor. Its times say nothing about a GPU.",
    )


def cuda(facts: Facts) -> Told | None:
    if facts.device is None or not facts.cuda_problem:
        return None
    if facts.nvidia_driver:
        return Told("warn", "not used, though an NVIDIA driver is loaded", facts.cuda_problem)
    return Told("note", "no card", facts.cuda_problem)


def telemetry(facts: Facts) -> Told | None:
    if facts.device is None or facts.device.kind != "gpu":
        return None
    if facts.probe != "none":
        return Told("good", facts.probe)
    return Told(
        "warn",
        "none",
        f"{_sentence(next(iter(facts.unavailable.values()), 'no probe fits this device'))} Nobody watches "
        "the card, so what heat, the power limit or another process slows looks like the code's fault.",
    )


def driver(facts: Facts) -> Told | None:
    if facts.device is None or facts.device.backend == "null":
        return None
    version = facts.device.driver
    newest = f"CUDA up to {facts.cuda_version}" if facts.cuda_version else ""
    return Told("good", ", ".join(filter(None, (version if version != facts.cuda_version else "", newest))))


def toolkit(facts: Facts) -> Told | None:
    if facts.device is None or facts.device.backend != "cuda":
        return None
    nvcc = _version(r"nvcc (\d+)\.(\d+)", facts.compiler)
    if facts.compiler in ("", "no nvcc"):
        return Told("bad", "nvcc is not on PATH", "Install the CUDA toolkit, or add its bin folder to PATH.")
    if facts.kernel_problem:
        return Told("bad", f"{facts.compiler}; not even a small kernel runs", facts.kernel_problem)
    known = _version(r"(\d+)\.(\d+)", facts.cuda_version)
    if not nvcc or not known or nvcc <= known:
        return Told("good", facts.compiler)
    newer = f"{facts.compiler}, newer than the driver's CUDA {facts.cuda_version}"
    if nvcc[0] == known[0]:
        return Told("note", newer, "Within one major version that works, but not for PTX.")
    return Told("warn", newer, "Update the driver, or put an older toolkit first on PATH.")


@_of_a_watched_card
def persistence(facts: Facts) -> Told:
    mode, why = _fact(facts, "persistence")
    if mode is None:
        return unknown(why)
    if mode == "on":
        return Told("good", mode)
    return Told(
        "warn",
        mode,
        "With nobody on the card the driver unloads and forgets locked clocks and limits, and each process "
        f"pays for loading it. Let root enable nvidia-persistenced, or: {_smi(facts, '-pm 1')}",
    )


@_of_a_watched_card
def clocks(facts: Facts) -> Told:
    most, why = _fact(facts, "max_sm_clock_mhz")
    now = facts.rest.sm_clock_mhz if facts.rest else None
    if most is None and now is None:
        return unknown(why)
    chosen, _ = _fact(facts, "application_sm_clock_mhz")
    said = [] if now is None else [f"SM {now:,.0f} MHz now"]
    said += [] if most is None else [f"{float(most):,.0f} MHz at most"]
    said += [] if chosen in (None, most) else [f"application clock {float(chosen):,.0f} MHz"]
    blackwell = (
        " Never lock the memory clock of a GeForce Blackwell card (-lmc): that alone can slow it."
        if _is_geforce_blackwell(facts)
        else ""
    )
    return Told(
        "note",
        ", ".join(said),
        "Whether they are locked cannot be read back. Free is fine: comparisons are paired, and clocks are "
        "recorded. For a steadier history root can lock them, outside the job, at a step that the hottest "
        "kernel holds without throttling, as a rule 75 to 90 % of the highest: "
        f"{_smi(facts, '-lgc MHZ,MHZ')} (-rgc undoes it).{blackwell}",
    )


@_of_a_watched_card
def power_limit(facts: Facts) -> Told:
    limit, why = _fact(facts, "power_limit_w")
    if limit is None:
        return unknown(why)
    default, _ = _fact(facts, "power_limit_default_w")
    draw = facts.rest.power_w if facts.rest else None
    said = f"{float(limit):,.0f} W" + (f", drawing {draw:,.0f} W now" if draw is not None else "")
    if default is None or float(limit) == float(default):
        return Told("good", said)
    return Told(
        "note",
        f"{said}; the default is {float(default):,.0f} W",
        "Hot kernels run at whatever clock the limit allows: always keep the same one, or the default: "
        f"{_smi(facts, f'-pl {float(default):.0f}')}",
    )


@_of_a_watched_card
def ecc(facts: Facts) -> Told:
    return _setting(facts, "ecc", "")


@_of_a_watched_card
def mig(facts: Facts) -> Told:
    return _setting(
        facts,
        "mig",
        "Instances share the card's power and clocks, and NVML tells less of them: leave the other instances "
        "idle, or switch MIG off.",
    )


@_of_a_watched_card
def compute_mode(facts: Facts) -> Told:
    mode, why = _fact(facts, "compute_mode")
    if mode is None:
        return unknown(why)
    if mode == "default":
        return Told(
            "note",
            mode,
            "Anybody's process may join in while a kernel is timed; it would be noticed. To shut others out: "
            f"{_smi(facts, '-c EXCLUSIVE_PROCESS')}",
        )
    if mode == "prohibited":
        return Told("bad", mode, f"No process may compute on this card: {_smi(facts, '-c DEFAULT')}")
    return Told("good", mode)


@_of_a_watched_card
def display(facts: Facts) -> Told:
    active, why = _fact(facts, "display_active")
    if active is None:
        return unknown(why)
    if active == "no":
        return Told("good", "none active")
    return Told(
        "warn",
        "active",
        "What is drawn shares the card with what is timed: stop the desktop, or give it another card.",
    )


@_of_a_watched_card
def processes(facts: Facts) -> Told:
    pids = facts.rest.processes if facts.rest else None
    if pids is None:
        return unknown(_why(facts, "processes"))
    if not pids:
        return Told("good", "none other")
    return Told(
        "warn",
        f"{len(pids)} other: {', '.join(map(str, pids))}",
        "Those are process ids, of the host where this is a container. Their kernels slow what is timed: end "
        "them, or wait.",
    )


@_of_a_watched_card
def memory(facts: Facts) -> Told:
    assert facts.device is not None
    used = facts.rest.memory_used_bytes if facts.rest else None
    if used is None:
        return unknown(_why(facts, "memory_used_bytes"))
    said = f"{gib(used)} of {gib(facts.device.memory_bytes)} used"
    if used <= HELD_AT_REST * facts.device.memory_bytes:
        return Told("good", said)
    return Told("warn", said, "Somebody holds it, listed above or not: a container's processes need not be.")


@_of_a_watched_card
def utilization(facts: Facts) -> Told:
    busy = facts.rest.utilization_percent if facts.rest else None
    if busy is None:
        return unknown(_why(facts, "utilization_percent"))
    said = f"{busy:.0f} %"
    if busy == 0:
        return Told("good", said)
    return Told(
        "warn" if busy >= BUSY_AT_REST_PERCENT else "note",
        said,
        "The card works for somebody else. 'nvidia-smi pmon -c 1' tells whom.",
    )


@_of_a_watched_card
def temperature(facts: Facts) -> Told:
    degrees = facts.rest.temperature_c if facts.rest else None
    if degrees is None:
        return unknown(_why(facts, "temperature_c"))
    said = f"{degrees:.0f} °C"
    if degrees <= WARM_AT_REST_C:
        return Told("good", said)
    return Told(
        "warn", said, "Hot before any work of ours: let it cool; look after fans, dust and the air's way."
    )


@_of_a_watched_card
def clock_events(facts: Facts) -> Told:
    events = facts.rest.clock_event_reasons if facts.rest else None
    if events is None:
        return unknown(_why(facts, "clock_event_reasons"))
    said = f"{', '.join(events) or 'none'}"
    if slowing := _SLOWING_EVENTS.intersection(events):
        suspects = "cooling" if slowing <= _THERMAL_EVENTS else "power supply, connectors and cooling"
        return Told("warn", said, f"The card is slowed before any work of ours: look at {suspects}.")
    if set(events) <= _QUIET_EVENTS:
        return Told("good", said)
    return Told("note", said, "Something other than idleness holds the clock, before any work of ours.")


@_of_a_watched_card
def throttle_counters(facts: Facts) -> Told:
    counted = (facts.rest.throttle_ns if facts.rest else None) or {}
    missing = [name for name in _NEEDED_COUNTERS if name not in counted]
    if not missing:
        return Told("good", ", ".join(_NEEDED_COUNTERS))
    if len(missing) == len(_NEEDED_COUNTERS):
        said = f"none: {_why(facts, 'throttle_ns')}"
    else:
        said = f"without {', '.join(missing)}"
    return Told(
        "note",
        said,
        "Throttling is then known from samples alone, and what falls between two of them goes unseen. A "
        "newer driver may count it.",
    )


@_of_a_watched_card
def pcie(facts: Facts) -> Told:
    now, why = _fact(facts, "pcie_width_now")
    most, why_most = _fact(facts, "pcie_width")
    if now is None or most is None:
        return unknown(why or why_most)
    generation, _ = _fact(facts, "pcie_generation")
    said = f"x{now}" + (f", generation {generation}" if generation else "")
    if now == most:
        return Told("good", said)
    return Told(
        "note",
        f"{said}; card and slot allow x{most}",
        "Kernel times do not hang on it, copies do. Some cards narrow it when idle; else reseat the card.",
    )


@_of_a_watched_card
def virtualization(facts: Facts) -> Told:
    kind, why = _fact(facts, "virtualization")
    if kind is None:
        return unknown(why)
    if kind in ("none", "passthrough"):
        return Told("good", kind)
    return Told(
        "warn", kind, "Others may share the card without being seen: judge on a card passed through whole."
    )


def event_tick(facts: Facts) -> Told | None:
    if facts.device is None or facts.device.backend == "null":
        return None
    if facts.tick_ns is None:
        return unknown(facts.timers_problem)
    said = f"{facts.tick_ns:,.0f} ns"
    if facts.tick_ns < COARSE_TICK_NS:
        return Told("good", said)
    return Told(
        "warn",
        said,
        "Times move in steps of that size, as on GeForce and RTX A-series cards. A slot lasts at least 100 "
        "steps, so a short kernel is launched many times in each; a single launch of it cannot be told.",
    )


def globaltimer_tick(facts: Facts) -> Told | None:
    if facts.device is None or facts.device.backend != "cuda":
        return None
    if facts.globaltimer_tick_ns is None:
        return unknown(facts.kernel_problem or facts.timers_problem)
    said = f"{facts.globaltimer_tick_ns:,.0f} ns"
    if facts.globaltimer_tick_ns < COARSE_TICK_NS:
        return Told("good", said)
    return Told("note", said, "The SM clock is told from long spans only: less sure for short slots.")


def _setting(facts: Facts, name: str, advice: str) -> Told:
    """A setting that some cards do not have; `advice` is for where it is on."""
    value, why = _fact(facts, name)
    if value is None:
        return Told("good", "this card has none") if _NOT_THERE in why else unknown(why)
    return Told("warn" if advice and value == "on" else "good", value, advice if value == "on" else "")


def _fact(facts: Facts, name: str) -> tuple[str | None, str]:
    """What the card says of itself, or None and why it does not."""
    value = facts.identity.get(name)
    if value is None:
        return None, facts.rest_problem
    if value.startswith(_UNTOLD):
        return None, value.removeprefix(_UNTOLD)
    return value, ""


def _why(facts: Facts, field: str) -> str:
    return facts.unavailable.get(field) or facts.rest_problem


def _smi(facts: Facts, option: str) -> str:
    bus = facts.device.pci_bus_id if facts.device else None
    return f"sudo nvidia-smi {f'-i {bus} ' if bus else ''}{option}"


def _version(pattern: str, text: str) -> tuple[int, int] | None:
    found = re.search(pattern, text)
    return (int(found[1]), int(found[2])) if found else None


def _is_geforce_blackwell(facts: Facts) -> bool:
    found = facts.device
    return (
        found is not None
        and "GeForce" in found.name
        and (found.compute_capability or (0, 0))[0] >= _GEFORCE_BLACKWELL
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
