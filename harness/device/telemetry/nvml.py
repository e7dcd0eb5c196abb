"""An NVIDIA card's state. Only this module uses NVML.

The calls that a card answers depend on model, driver, virtualization and permissions. So every value has
several ways to read it, and a permanently refused call is not repeated. Any exception and any implausible
answer make a value unavailable, with the reason.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import fields
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from harness.device.plausible_ranges import RANGES, ImplausibleError, plausible, reason_of
from harness.device.telemetry.base import DeviceLimits
from harness.errors import DeviceError
from harness.records.imports.imported import undescribed_device
from harness.records.types import DeviceInfo, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Read = Callable[[Any, Any], Any]
    """Reads one value from the NVML module and the card's handle."""

CLOCK_EVENT_REASONS = {
    0x001: "idle",
    0x002: "application_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bit to name. Numbers, since NVML renames the constants and drops the old names in CUDA 14."""

_THROTTLE_FIELDS = {
    74: "sw_power_cap",
    76: "sync_boost",
    269: "sw_thermal",
    270: "hw_thermal",
    271: "hw_power_brake",
}
"""Field id of each counter of throttled nanoseconds (nvml.h: NVML_FI_DEV_CLOCKS_EVENT_REASON_*)."""
_POWER_INSTANT_FIELD = 186

_LOST = {15, 16, 28}  # GpuIsLost, ResetRequired, GpuNotFound
_PASSING = {7, 10, 14, 19, 20, 21, 23, 27, 999}
"""Error codes worth a retry: InsufficientSize, Timeout, IrqIssue, InUse, Memory, NoData and the like."""

_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of the value union by NVML_VALUE_TYPE_*."""
_NOT_A_VALUE = {"uiVal": 2**32 - 1, "ulVal": 2**64 - 1, "ullVal": 2**64 - 1}
"""NVML_VALUE_NOT_AVAILABLE: all bits set, which some drivers return with a success."""

_SWITCH = ("off", "on")
_NO_OR_YES = ("no", "yes")
_VIRTUALIZATION = ("none", "passthrough", "vgpu", "host_vgpu", "host_vsga")
_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")


def clock_event_reasons(mask: int) -> tuple[str, ...]:
    """Return the names of a mask's bits, lowest first. A bit without a name is returned as a number."""
    bits = (1 << n for n in range(mask.bit_length()))
    return tuple(CLOCK_EVENT_REASONS.get(bit, f"bit_{bit:#x}") for bit in bits if mask & bit)


class NvmlProbe:
    """Reads one card through NVML, and changes nothing.

    The card is found by `pci_bus_id` (0000:65:00.0) or else `uuid` (GPU-... or MIG-...), never by index,
    because NVML's order of cards differs from CUDA's. Without either it must be the machine's only card.
    `nvml` replaces the pynvml module.

    Raises DeviceError if the library, the driver or the card is missing. Later only `snapshot` raises it, for
    a lost card.
    """

    name = "nvml"

    def __init__(self, pci_bus_id: str | None = None, uuid: str | None = None, *, nvml: Any = None) -> None:
        self._nvml = nvml or _pynvml()
        self._own_error: type[Exception] | tuple[()] = getattr(self._nvml, "NVMLError", ())
        self._unavailable = {"load_average": "a card has none"}
        self._ways = {field: dict(ways) for field, ways in {**_LIGHT, **_FULL}.items()}
        self._told: set[str] = set()
        """Fields that have had a value."""
        self._throttle_fields = dict(_THROTTLE_FIELDS)
        self._closed = False
        try:
            self._nvml.nvmlInit()
        except Exception as error:  # from a binding and a driver of any version
            raise DeviceError(
                f"NVML cannot start: {self._reason(error)}. It comes with the NVIDIA driver as "
                "libnvidia-ml.so.1; see what nvidia-smi says, and inside a container that the driver's "
                "utilities are let in"
            ) from error
        try:
            self._card = _card(self._nvml, pci_bus_id, uuid)
        except DeviceError:
            self.close()
            raise
        except Exception as error:
            self.close()
            wanted = pci_bus_id or uuid or "the only card"
            raise DeviceError(f"NVML does not give access to {wanted}: {self._reason(error)}") from error

    @property
    def unavailable(self) -> Mapping[str, str]:
        return dict(self._unavailable)

    def snapshot(self, *, full: bool = True) -> Snapshot:
        """Read the card now. Raises DeviceError if it is lost."""
        at_ns = time.monotonic_ns()
        values = {field: self._ask(field) for field in _LIGHT}
        if full:
            values.update({field: self._ask(field) for field in _FULL})
            values["throttle_ns"] = self._throttle_ns()
        return Snapshot(at_ns=at_ns, **values)

    def identity(self) -> Mapping[str, str]:
        """Return facts of the card and its settings; 'unavailable: why' for facts that the card refuses."""
        facts = {}
        for fact in _FACTS:
            value, error = self._try_fact(fact)
            facts[fact] = f"unavailable: {self._reason(error)}" if error else _words(value)
        with contextlib.suppress(DeviceError):
            self._ask("power_w")
        facts["power_w_is_from"] = next(iter(self._ways["power_w"]), "unavailable")
        return facts

    def limits(self) -> DeviceLimits:
        """Return the card's limits; None for each that the card does not report plausibly."""
        return DeviceLimits(**{each.name: self._try_fact(each.name)[0] for each in fields(DeviceLimits)})

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()

    def _ask(self, field: str) -> Any:
        """Return a field's value in the first way that works; None, with the reason noted, if none does."""
        refusals = []
        ways = self._ways[field]
        for way, read in tuple(ways.items()):
            value, error = self._try(read, field)
            if error is None:
                self._settle(field, way)
                return value
            if self._passes(error) or (field in self._told and isinstance(error, ImplausibleError)):
                # Not the next way: a field must not mix two meanings, such as instant and mean power.
                self._note_passing(field, way, error)
                return None
            refusals.append(f"{way}: {self._reason(error)}")
            if not isinstance(error, ImplausibleError):  # an idle card may report 0 MHz, and later more
                del ways[way]
        if refusals:
            self._unavailable[field] = "; ".join(refusals)
        return None

    def _settle(self, field: str, way: str) -> None:
        """Try this way first from now on, because it was the first to return a value."""
        if field not in self._told:
            self._told.add(field)
            for earlier in takewhile(lambda each: each != way, tuple(self._ways[field])):
                del self._ways[field][earlier]
            if why := self._unavailable.pop(field, ""):
                self._unavailable[field] = f"at times: {why.removeprefix('at times: ')}"

    def _throttle_ns(self) -> Mapping[str, int] | None:
        """Return the counters of this card. Each can be refused separately."""
        wanted = self._throttle_fields
        if not wanted:
            return None
        answers, error = self._try(lambda n, c: n.nvmlDeviceGetFieldValues(c, list(wanted)))
        if error is not None:
            self._note("throttle_ns", "nvmlDeviceGetFieldValues", error)
            if not self._passes(error):
                wanted.clear()
            return None
        counters: dict[str, int] = {}
        for answer in answers:
            value, error = self._try(partial(_field_value, answer), "throttle_ns")
            if error is None:
                counters[wanted[answer.fieldId]] = int(value)
                continue
            self._note(f"throttle_ns.{wanted[answer.fieldId]}", f"field {answer.fieldId}", error)
            if not self._passes(error):
                del wanted[answer.fieldId]
        if not counters and error is not None:
            self._note("throttle_ns", "every counter", error)
        return counters or None

    def _note(self, field: str, way: str, error: Exception) -> None:
        if self._passes(error):
            self._note_passing(field, way, error)
        else:
            self._unavailable[field] = f"{way}: {self._reason(error)}"

    def _note_passing(self, field: str, way: str, error: Exception) -> None:
        self._unavailable.setdefault(field, f"at times: {way}: {self._reason(error)}")

    def _try(self, read: Read, name: str = "") -> tuple[Any, Exception | None]:
        """Return a plausible value and no error, or None and the error. Raises DeviceError for a
        lost card.
        """
        try:
            value = read(self._nvml, self._card)
            return plausible(name, value) if name in RANGES else value, None
        except Exception as error:
            if self._code(error) in _LOST:
                raise DeviceError(
                    f"the card was lost while it was watched: NVML says {self._reason(error)}. Look for Xid "
                    "errors in the kernel log (dmesg); as a rule the card needs a reset or the machine a "
                    "restart"
                ) from error
            return None, error

    def _try_fact(self, fact: str) -> tuple[Any, Exception | None]:
        """Try to read a fact or limit of the card. A lost card just does not report it."""
        try:
            return self._try(_FACTS[fact], fact)
        except DeviceError as error:
            return None, error

    def _code(self, error: Exception) -> int | None:
        """Return NVML's number of one of its errors."""
        code = getattr(error, "value", None) if isinstance(error, self._own_error) else None
        return code if isinstance(code, int) else None

    def _passes(self, error: Exception) -> bool:
        return self._code(error) in _PASSING

    def _reason(self, error: Exception) -> str:
        """Return an error's message; with its type, unless it is NVML's or ours."""
        why = reason_of(error)
        known = isinstance(error, (self._own_error, ImplausibleError, DeviceError))
        return why.partition(": ")[2] or why if known else why


def _pynvml() -> Any:
    try:
        import pynvml
    except Exception as error:
        raise DeviceError(f"the package nvidia-ml-py cannot be imported: {reason_of(error)}") from error
    return pynvml


def _card(nvml: Any, pci_bus_id: str | None, uuid: str | None) -> Any:
    if pci_bus_id:
        return nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
    if uuid:
        return nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
    count = nvml.nvmlDeviceGetCount()
    if count != 1:
        raise DeviceError(f"NVML sees {count} cards, and the backend does not tell which of them it uses")
    return nvml.nvmlDeviceGetHandleByIndex(0)


def visible_card(variables: Mapping[str, str], nvml: Any = None) -> DeviceInfo:
    """Describe CUDA's first card through its driver, if there is no CUDA library.

    `variables` are the environment's. Raises DeviceError without a card, or if only CUDA knows which card is
    first.
    """
    nvml = nvml or _pynvml()
    try:
        nvml.nvmlInit()
        try:
            return _described(nvml, _first_visible(nvml, variables))
        finally:
            nvml.nvmlShutdown()
    except DeviceError:
        raise
    except Exception as error:  # from a binding and a driver of any version
        raise DeviceError(f"NVML reports no card: {reason_of(error)}") from error


def _first_visible(nvml: Any, variables: Mapping[str, str]) -> Any:
    first = variables.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    if first.startswith("GPU-"):
        return nvml.nvmlDeviceGetHandleByUUID(first)
    cards = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    if not first.isdecimal() or int(first) >= len(cards):
        raise DeviceError(f"CUDA_VISIBLE_DEVICES={first} hides all of the {len(cards)} cards that NVML sees")
    # CUDA orders cards by speed, NVML by bus position.
    models = {_words(nvml.nvmlDeviceGetName(card)) for card in cards}
    if len(models) > 1 and variables.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise DeviceError("cards of several models are here, and CUDA_DEVICE_ORDER is not PCI_BUS_ID")
    return cards[int(first)]


def _described(nvml: Any, card: Any) -> DeviceInfo:
    unknown = "unavailable: only CUDA tells it"
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(card)
    return undescribed_device(
        unknown,
        spec="cuda:0",
        backend="cuda",
        vendor="NVIDIA",
        kind="gpu",
        name=_words(nvml.nvmlDeviceGetName(card)),
        driver=_words(nvml.nvmlSystemGetDriverVersion()),
        arch=f"sm_{major}{minor}",
        compute_capability=(major, minor),
        uuid=_words(nvml.nvmlDeviceGetUUID(card)),
        pci_bus_id=_words(nvml.nvmlDeviceGetPciInfo(card).busId),
        memory_bytes=nvml.nvmlDeviceGetMemoryInfo(card).total,
    )


def _field_value(answer: Any, nvml: Any, _: Any) -> float:
    """Return one answer's number. The call succeeds even if a field in it is refused."""
    if answer.nvmlReturn:
        raise nvml.NVMLError(answer.nvmlReturn)
    member = _VALUE_MEMBERS[answer.valueType]
    value: float = getattr(answer.value, member)
    if value == _NOT_A_VALUE.get(member):
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return value


def _p_state(nvml: Any, state: int) -> int:
    if state == nvml.NVML_PSTATE_UNKNOWN:
        raise nvml.NVMLError(nvml.NVML_ERROR_NO_DATA)
    return state


def _pids(processes: Any) -> tuple[int, ...]:
    # Under MIG a process is listed once for each instance.
    return tuple(sorted({process.pid for process in processes}))


def _reasons(mask: int) -> tuple[str, ...]:
    return clock_event_reasons(plausible("clock_event_mask", mask))


def _named(names: tuple[str, ...], value: int) -> str:
    if value not in range(len(names)):
        raise ImplausibleError(f"the driver says {value}, and {len(names) - 1} is the last that has a name")
    return names[value]


def _words(value: Any) -> str:
    """Return a fact as text. An older binding returns bytes, and a driver's name may be invalid UTF-8."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _by_call(name: str, converted: Callable[[Any], Any]) -> dict[str, Read]:
    """Return a way to read that calls one NVML function with the card."""
    return {name: lambda n, c: converted(getattr(n, name)(c))}


_LIGHT: dict[str, dict[str, Read]] = {
    "sm_clock_mhz": {
        "nvmlDeviceGetClockInfo(SM)": lambda n, c: float(n.nvmlDeviceGetClockInfo(c, n.NVML_CLOCK_SM)),
    },
    "memory_clock_mhz": {
        "nvmlDeviceGetClockInfo(MEM)": lambda n, c: float(n.nvmlDeviceGetClockInfo(c, n.NVML_CLOCK_MEM)),
    },
    "temperature_c": {
        "nvmlDeviceGetTemperatureV": lambda n, c: float(
            n.nvmlDeviceGetTemperatureV(c, n.NVML_TEMPERATURE_GPU)
        ),
        "nvmlDeviceGetTemperature": lambda n, c: float(n.nvmlDeviceGetTemperature(c, n.NVML_TEMPERATURE_GPU)),
    },
    # nvmlDeviceGetPowerUsage averages over a second on GA10x and newer: too slow for most measurements.
    "power_w": {
        "field 186 (instant)": lambda n, c: (
            _field_value(n.nvmlDeviceGetFieldValues(c, [_POWER_INSTANT_FIELD])[0], n, c) / 1e3
        ),
        "nvmlDeviceGetPowerUsage (mean of a second on GA10x and newer)": lambda n, c: (
            n.nvmlDeviceGetPowerUsage(c) / 1e3
        ),
    },
    "energy_j": _by_call("nvmlDeviceGetTotalEnergyConsumption", lambda millijoules: millijoules / 1e3),
    "p_state": {
        "nvmlDeviceGetPerformanceState": lambda n, c: _p_state(n, n.nvmlDeviceGetPerformanceState(c)),
        "nvmlDeviceGetPowerState": lambda n, c: _p_state(n, n.nvmlDeviceGetPowerState(c)),
    },
    "utilization_percent": _by_call("nvmlDeviceGetUtilizationRates", lambda rates: float(rates.gpu)),
    "clock_event_reasons": {
        **_by_call("nvmlDeviceGetCurrentClocksEventReasons", _reasons),
        **_by_call("nvmlDeviceGetCurrentClocksThrottleReasons", _reasons),
    },
}
"""Cheap values, by field and by way to read, the better way first."""

_FULL: dict[str, dict[str, Read]] = {
    "memory_used_bytes": _by_call("nvmlDeviceGetMemoryInfo", lambda memory: int(memory.used)),
    "processes": {
        **_by_call("nvmlDeviceGetComputeRunningProcesses", _pids),
        **_by_call("nvmlDeviceGetComputeRunningProcesses_v2", _pids),
    },
}
"""Values of a full snapshot in addition to the light ones and the throttle counters."""

_FACTS: dict[str, Read] = {
    "driver": lambda n, _: n.nvmlSystemGetDriverVersion(),
    "name": lambda n, c: n.nvmlDeviceGetName(c),
    "uuid": lambda n, c: n.nvmlDeviceGetUUID(c),
    "vbios": lambda n, c: n.nvmlDeviceGetVbiosVersion(c),
    "power_limit_w": lambda n, c: n.nvmlDeviceGetEnforcedPowerLimit(c) / 1e3,
    "power_limit_default_w": lambda n, c: n.nvmlDeviceGetPowerManagementDefaultLimit(c) / 1e3,
    "max_sm_clock_mhz": lambda n, c: n.nvmlDeviceGetMaxClockInfo(c, n.NVML_CLOCK_SM),
    "max_memory_clock_mhz": lambda n, c: n.nvmlDeviceGetMaxClockInfo(c, n.NVML_CLOCK_MEM),
    # NVML cannot read locked clocks. Only the sampled clocks show a lock.
    "application_sm_clock_mhz": lambda n, c: n.nvmlDeviceGetApplicationsClock(c, n.NVML_CLOCK_SM),
    "application_memory_clock_mhz": lambda n, c: n.nvmlDeviceGetApplicationsClock(c, n.NVML_CLOCK_MEM),
    "memory_bus_bits": lambda n, c: n.nvmlDeviceGetMemoryBusWidth(c),
    "persistence": lambda n, c: _named(_SWITCH, n.nvmlDeviceGetPersistenceMode(c)),
    "ecc": lambda n, c: _named(_SWITCH, n.nvmlDeviceGetEccMode(c)[0]),
    "mig": lambda n, c: _named(_SWITCH, n.nvmlDeviceGetMigMode(c)[0]),
    "compute_mode": lambda n, c: _named(_COMPUTE_MODES, n.nvmlDeviceGetComputeMode(c)),
    # Its presence means nothing: an H200, which has no outlet, reports one.
    "display_active": lambda n, c: _named(_NO_OR_YES, n.nvmlDeviceGetDisplayActive(c)),
    "virtualization": lambda n, c: _named(_VIRTUALIZATION, n.nvmlDeviceGetVirtualizationMode(c)),
    # The maximum of card and slot: the current generation drops whenever the card idles.
    "pcie_generation": lambda n, c: n.nvmlDeviceGetMaxPcieLinkGeneration(c),
    "pcie_width": lambda n, c: n.nvmlDeviceGetMaxPcieLinkWidth(c),
    "pcie_width_now": lambda n, c: n.nvmlDeviceGetCurrPcieLinkWidth(c),
}
