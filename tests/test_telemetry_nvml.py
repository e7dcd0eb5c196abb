"""The NVML probe against a card that answers, refuses, stutters and dies as told to."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from harness.device.backends import null
from harness.device.telemetry import Sampler, probe_for, telemetry_of
from harness.device.telemetry.nvml import NvmlProbe, clock_event_reasons, visible_card
from harness.errors import DeviceError

LIGHT_CALLS = {
    "nvmlDeviceGetTemperatureV": 61,
    "nvmlDeviceGetTemperature": 60,
    "nvmlDeviceGetPowerUsage": 290_000,
    "nvmlDeviceGetTotalEnergyConsumption": 123_456,
    "nvmlDeviceGetPerformanceState": 2,
    "nvmlDeviceGetPowerState": 2,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x8,
}
OTHER_CALLS = {
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2**30),
    "nvmlDeviceGetComputeRunningProcesses": [
        SimpleNamespace(pid=12),
        SimpleNamespace(pid=7),
        SimpleNamespace(pid=12),
    ],
    "nvmlDeviceGetComputeRunningProcesses_v2": [SimpleNamespace(pid=8)],
    "nvmlSystemGetDriverVersion": "580.65.06",
    "nvmlDeviceGetName": "NVIDIA GeForce RTX 3090",
    "nvmlDeviceGetUUID": "GPU-4b0e",
    "nvmlDeviceGetVbiosVersion": "94.02",
    "nvmlDeviceGetEnforcedPowerLimit": 315_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 350_000,
    "nvmlDeviceGetApplicationsClock": 1395,
    "nvmlDeviceGetMemoryBusWidth": 384,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetEccMode": [0, 1],
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetComputeMode": 3,
    "nvmlDeviceGetVirtualizationMode": 1,
    "nvmlDeviceGetMaxPcieLinkGeneration": 4,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetCurrPcieLinkWidth": 8,
    "nvmlInit": None,
    "nvmlShutdown": None,
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "card 0",
    "nvmlDeviceGetHandleByPciBusId": "card by bus",
    "nvmlDeviceGetHandleByUUID": "card by uuid",
}
ULL, UINT = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT


class FakeNvml:
    """pynvml over a scripted card: its constants and errors are the real ones.

    An answer is a value, a dict of values by argument, an exception to raise, or a Script of those.
    """

    def __init__(self, **changes: Any) -> None:
        self.answers: dict[str, Any] = {
            **LIGHT_CALLS,
            **OTHER_CALLS,
            "nvmlDeviceGetClockInfo": {pynvml.NVML_CLOCK_SM: 1500, pynvml.NVML_CLOCK_MEM: 9501},
            "nvmlDeviceGetMaxClockInfo": {pynvml.NVML_CLOCK_SM: 2100, pynvml.NVML_CLOCK_MEM: 9751},
            **changes,
        }
        self.fields: dict[int, Any] = {
            74: (ULL, 5_000),
            76: (ULL, 0),
            269: (ULL, 0),
            270: (ULL, 7),
            271: (ULL, 0),
            186: (UINT, 301_500),
        }
        self.calls: list[tuple[Any, ...]] = []

    def asked(self, name: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == name]

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers and name != "nvmlDeviceGetFieldValues":
            return getattr(pynvml, name)

        def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            if name == "nvmlDeviceGetFieldValues" and name not in self.answers:
                return [self._field_value(field_id) for field_id in arguments[1]]
            answer = self.answers[name]
            if isinstance(answer, dict):
                answer = answer[arguments[1]]
            if isinstance(answer, Script):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def _field_value(self, field_id: int) -> Any:
        answer = self.fields[field_id]
        value = pynvml.c_nvmlFieldValue_t(fieldId=field_id)
        if isinstance(answer, int):
            value.nvmlReturn = answer
            return value
        value.valueType, number = answer
        member = {ULL: "ullVal", UINT: "uiVal"}[value.valueType]
        setattr(value.value, member, number)
        return value


class Script(list[Any]):
    """Answers given in turn, the last for ever."""


def refuse(code: int = pynvml.NVML_ERROR_NOT_SUPPORTED) -> Exception:
    error: Exception = pynvml.NVMLError(code)
    return error


def probe(nvml: FakeNvml) -> NvmlProbe:
    return NvmlProbe("0000:65:00.0", nvml=nvml)


def test_a_willing_card_tells_everything_in_our_units():
    nvml = FakeNvml()
    watcher = probe(nvml)
    snapshot = watcher.snapshot()
    assert snapshot.sm_clock_mhz == 1500
    assert snapshot.memory_clock_mhz == 9501
    assert snapshot.temperature_c == 61
    assert snapshot.power_w == 301.5
    assert snapshot.energy_j == 123.456
    assert snapshot.p_state == 2
    assert snapshot.utilization_percent == 97
    assert snapshot.clock_event_reasons == ("sw_power_cap",)
    assert snapshot.throttle_ns == {
        "sw_power_cap": 5000,
        "sync_boost": 0,
        "sw_thermal": 0,
        "hw_thermal": 7,
        "hw_power_brake": 0,
    }
    assert snapshot.memory_used_bytes == 2**30
    assert snapshot.processes == (7, 12)
    assert list(watcher.unavailable) == ["load_average"]


def test_a_light_snapshot_does_not_ask_what_is_dear():
    nvml = FakeNvml()
    snapshot = probe(nvml).snapshot(full=False)
    assert (snapshot.throttle_ns, snapshot.processes, snapshot.memory_used_bytes) == (None, None, None)
    assert nvml.asked("nvmlDeviceGetComputeRunningProcesses") == []
    assert [ids for _, _, ids in nvml.asked("nvmlDeviceGetFieldValues")] == [[186]]


def test_the_probe_calls_nothing_that_changes_a_card():
    nvml = FakeNvml()
    watcher = probe(nvml)
    watcher.snapshot()
    watcher.identity()
    watcher.limits()
    assert not [name for name, *_ in nvml.calls if "Set" in name or "Reset" in name or "Clear" in name]


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_DEPRECATED,
    ],
)
def test_a_refused_field_is_none_with_its_reason_and_not_asked_again(code):
    nvml = FakeNvml(nvmlDeviceGetUtilizationRates=refuse(code))
    watcher = probe(nvml)
    first, second = watcher.snapshot(), watcher.snapshot()
    assert (first.utilization_percent, second.utilization_percent) == (None, None)
    assert (first.sm_clock_mhz, second.temperature_c) == (1500, 61)
    assert set(watcher.unavailable) == {"load_average", "utilization_percent"}
    assert watcher.unavailable["utilization_percent"].startswith("nvmlDeviceGetUtilizationRates: ")
    assert len(nvml.asked("nvmlDeviceGetUtilizationRates")) == 1


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_UNKNOWN,
        pynvml.NVML_ERROR_TIMEOUT,
        pynvml.NVML_ERROR_IN_USE,
        pynvml.NVML_ERROR_NO_DATA,
    ],
)
def test_a_passing_failure_is_noted_and_asked_again(code):
    nvml = FakeNvml(nvmlDeviceGetTemperatureV=Script([refuse(code), 63]))
    watcher = probe(nvml)
    assert [watcher.snapshot().temperature_c for _ in range(2)] == [None, 63]
    assert watcher.unavailable["temperature_c"].startswith("at times: nvmlDeviceGetTemperatureV: ")
    assert nvml.asked("nvmlDeviceGetTemperature") == []


def test_older_calls_stand_in_for_newer_ones():
    newer = (
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetPerformanceState",
        "nvmlDeviceGetCurrentClocksEventReasons",
    )
    nvml = FakeNvml(**{name: refuse(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) for name in newer})
    nvml.answers["nvmlDeviceGetComputeRunningProcesses"] = pynvml.NVMLLibraryMismatchError("too old")
    nvml.fields[186] = pynvml.NVML_ERROR_NOT_SUPPORTED
    watcher = probe(nvml)
    snapshot = watcher.snapshot()
    assert snapshot.temperature_c == 60
    assert snapshot.power_w == 290
    assert snapshot.p_state == 2
    assert snapshot.clock_event_reasons == ("hw_slowdown",)
    assert snapshot.processes == (8,)
    assert list(watcher.unavailable) == ["load_average"]
    assert watcher.identity()["power_w_is_from"].startswith("nvmlDeviceGetPowerUsage")


def test_an_older_binding_without_the_function_is_a_refusal():
    nvml = FakeNvml(nvmlDeviceGetTotalEnergyConsumption=AttributeError("no such function"))
    watcher = probe(nvml)
    assert watcher.snapshot().energy_j is None
    assert "no such function" in watcher.unavailable["energy_j"]


def test_both_ways_refused_gives_both_reasons():
    nvml = FakeNvml(nvmlDeviceGetPowerUsage=refuse())
    nvml.fields[186] = pynvml.NVML_ERROR_NO_PERMISSION
    watcher = probe(nvml)
    assert watcher.snapshot().power_w is None
    assert "Insufficient Permissions" in watcher.unavailable["power_w"]
    assert "Not Supported" in watcher.unavailable["power_w"]
    assert watcher.identity()["power_w_is_from"] == "unavailable"


def test_each_throttle_counter_is_judged_by_its_own_return():
    nvml = FakeNvml()
    nvml.fields[269] = pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.fields[76] = pynvml.NVML_ERROR_UNKNOWN
    watcher = probe(nvml)
    first = watcher.snapshot()
    assert first.throttle_ns == {"sw_power_cap": 5000, "hw_thermal": 7, "hw_power_brake": 0}
    assert watcher.unavailable["throttle_ns.sw_thermal"] == "field 269: Not Supported"
    assert watcher.unavailable["throttle_ns.sync_boost"] == "at times: field 76: Unknown Error"
    assert "throttle_ns" not in watcher.unavailable
    nvml.fields[76] = (ULL, 4)
    second = watcher.snapshot()
    assert second.throttle_ns == {"sw_power_cap": 5000, "sync_boost": 4, "hw_thermal": 7, "hw_power_brake": 0}
    assert nvml.asked("nvmlDeviceGetFieldValues")[-1][2] == [74, 76, 270, 271]


def test_a_counter_of_all_ones_is_no_counter():
    nvml = FakeNvml()
    nvml.fields[270] = (ULL, 2**64 - 1)
    watcher = probe(nvml)
    assert "hw_thermal" not in (watcher.snapshot().throttle_ns or {})
    assert "throttle_ns.hw_thermal" in watcher.unavailable


def test_no_counter_at_all_is_none_and_never_an_empty_map():
    nvml = FakeNvml()
    nvml.fields = dict.fromkeys(nvml.fields, pynvml.NVML_ERROR_NOT_SUPPORTED)
    watcher = probe(nvml)
    assert watcher.snapshot().throttle_ns is None
    assert "Not Supported" in watcher.unavailable["throttle_ns"]
    asked = len(nvml.asked("nvmlDeviceGetFieldValues"))
    assert watcher.snapshot().throttle_ns is None
    assert len(nvml.asked("nvmlDeviceGetFieldValues")) == asked


def test_a_card_that_refuses_everything_leaves_no_gap_without_a_reason():
    others = [name for name in OTHER_CALLS if "Running" in name or "MemoryInfo" in name]
    refused = ["nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues", *LIGHT_CALLS, *others]
    watcher = probe(FakeNvml(**dict.fromkeys(refused, refuse())))
    snapshot = watcher.snapshot()
    missing = {field.name for field in fields(snapshot) if getattr(snapshot, field.name) is None}
    assert missing == {field.name for field in fields(snapshot)} - {"at_ns"}
    assert missing == set(watcher.unavailable)


def test_field_values_refused_as_a_whole():
    nvml = FakeNvml(nvmlDeviceGetFieldValues=refuse())
    watcher = probe(nvml)
    snapshot = watcher.snapshot()
    assert (snapshot.throttle_ns, snapshot.power_w) == (None, 290)
    assert watcher.unavailable["throttle_ns"] == "nvmlDeviceGetFieldValues: Not Supported"


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0, ()),
        (0x1, ("idle",)),
        (0x4, ("sw_power_cap",)),
        (0x68, ("hw_slowdown", "sw_thermal", "hw_thermal")),
        (0x192, ("application_clocks", "sync_boost", "hw_power_brake", "display_clocks")),
        (0x804, ("sw_power_cap", "bit_0x800")),
    ],
)
def test_reasons_are_decoded(mask, names):
    assert clock_event_reasons(mask) == names


def test_our_bits_are_nvmls():
    bits = {
        "idle": pynvml.nvmlClocksEventReasonGpuIdle,
        "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
        "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
        "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
        "sw_thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        "hw_thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
        "hw_power_brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
        "display_clocks": pynvml.nvmlClocksEventReasonDisplayClockSetting,
    }
    assert {name: clock_event_reasons(bit) for name, bit in bits.items()} == {name: (name,) for name in bits}


def test_an_unknown_p_state_is_no_p_state():
    watcher = probe(FakeNvml(nvmlDeviceGetPerformanceState=pynvml.NVML_PSTATE_UNKNOWN))
    assert watcher.snapshot().p_state is None
    assert "p_state" in watcher.unavailable


def test_a_lost_card_is_a_device_error():
    nvml = FakeNvml(nvmlDeviceGetTemperatureV=Script([61, refuse(pynvml.NVML_ERROR_GPU_IS_LOST)]))
    watcher = probe(nvml)
    watcher.snapshot()
    with pytest.raises(DeviceError, match=r"GPU is lost.*Xid"):
        watcher.snapshot()


def test_a_card_lost_in_one_field_value_is_a_device_error():
    nvml = FakeNvml()
    nvml.fields[270] = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(DeviceError, match="GPU is lost"):
        probe(nvml).snapshot()


def test_a_card_lost_while_sampled_ends_the_sampling_alone():
    clock = Script([1500, 1500, refuse(pynvml.NVML_ERROR_GPU_IS_LOST)])
    sampler = Sampler(probe(FakeNvml(nvmlDeviceGetClockInfo=clock)), interval_s=None)
    with sampler:
        sampler.sample()
        assert sampler.stopped
    telemetry = telemetry_of(sampler, 0, 1, own_pids=())
    assert telemetry.before.sm_clock_mhz == 1500
    assert "GPU is lost" in telemetry.unavailable["probe"]


def test_the_card_is_found_by_bus_id_then_by_uuid_and_never_by_index():
    nvml = FakeNvml()
    NvmlProbe("0000:65:00.0", "GPU-4b0e", nvml=nvml)
    NvmlProbe(None, "4b0e", nvml=nvml)
    NvmlProbe(None, "MIG-77", nvml=nvml)
    handles = [call for call in nvml.calls if "Handle" in call[0]]
    assert handles == [
        ("nvmlDeviceGetHandleByPciBusId", "0000:65:00.0"),
        ("nvmlDeviceGetHandleByUUID", "GPU-4b0e"),
        ("nvmlDeviceGetHandleByUUID", "MIG-77"),
    ]


def test_a_nameless_card_must_be_the_only_one():
    NvmlProbe(nvml=FakeNvml())
    nvml = FakeNvml(nvmlDeviceGetCount=2)
    with pytest.raises(DeviceError, match="2 cards"):
        NvmlProbe(nvml=nvml)
    assert nvml.asked("nvmlShutdown")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)}, "Shared Library Not Found"),
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)}, "Driver Not Loaded"),
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)}, "mismatch"),
        ({"nvmlDeviceGetHandleByPciBusId": refuse(pynvml.NVML_ERROR_NOT_FOUND)}, "0000:65:00.0: Not Found"),
        (
            {"nvmlDeviceGetHandleByPciBusId": refuse(pynvml.NVML_ERROR_NO_PERMISSION)},
            "Insufficient Permissions",
        ),
    ],
)
def test_what_cannot_be_opened_is_a_device_error(changes, message):
    nvml = FakeNvml(**changes)
    with pytest.raises(DeviceError, match=message):
        probe(nvml)
    assert len(nvml.asked("nvmlShutdown")) == ("nvmlInit" not in changes)


def test_closing_twice_shuts_down_once():
    nvml = FakeNvml()
    watcher = probe(nvml)
    watcher.close()
    watcher.close()
    assert len(nvml.asked("nvmlShutdown")) == 1


def test_identity_and_limits():
    watcher = probe(FakeNvml(nvmlDeviceGetEccMode=refuse()))
    identity = watcher.identity()
    assert identity["driver"] == "580.65.06"
    assert identity["power_limit_w"] == "315"
    assert identity["persistence"] == "on"
    assert identity["mig"] == "off"
    assert identity["ecc"] == "unavailable: Not Supported"
    assert identity["compute_mode"] == "exclusive_process"
    assert identity["virtualization"] == "passthrough"
    assert (identity["pcie_generation"], identity["pcie_width"], identity["pcie_width_now"]) == (
        "4",
        "16",
        "8",
    )
    assert identity["power_w_is_from"] == "field 186 (instant)"
    limits = watcher.limits()
    assert (limits.max_sm_clock_mhz, limits.max_memory_clock_mhz) == (2100, 9751)
    assert limits.memory_bus_bits == 384


class SpeechlessError(Exception):
    """An error of a library of any kind."""

    def __str__(self) -> str:
        raise RuntimeError

    @property
    def value(self) -> int:
        raise RuntimeError


ERRORS = [
    UnicodeDecodeError("utf-8", b"\xf8", 0, 1, "invalid start byte"),
    TypeError("an integer is required"),
    AttributeError("no such function"),
    ValueError("bad"),
    RuntimeError(),
    OSError("libnvidia-ml.so.1"),
    pynvml.NVMLLibraryMismatchError("too old"),
    StopIteration(pynvml.NVML_ERROR_GPU_IS_LOST),
    SpeechlessError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_exception_of_any_type_is_a_reason_and_ends_nothing(error):
    nvml = FakeNvml()
    watcher = probe(nvml)
    asked = [name for name in nvml.answers if name not in ("nvmlInit", "nvmlDeviceGetHandleByPciBusId")]
    nvml.answers |= dict.fromkeys([*asked, "nvmlDeviceGetFieldValues"], error)
    snapshot = watcher.snapshot()
    silent = {field.name for field in fields(snapshot)} - {"at_ns"}
    assert {name for name in silent if getattr(snapshot, name) is None} == silent == set(watcher.unavailable)
    assert type(error).__name__ in watcher.unavailable["energy_j"]
    assert type(error).__name__ in watcher.identity()["name"]
    assert {each for each in watcher.identity().values() if not each.startswith("unavailable")} == set()
    assert watcher.limits().max_sm_clock_mhz is None
    watcher.close()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetHandleByPciBusId"])
def test_a_library_that_cannot_be_opened_leaves_a_device_without_a_probe(call, error, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(**{call: error, "nvmlShutdown": error}))
    card = replace(null.devices()[0], backend="cuda", kind="gpu", pci_bus_id="0000:65:00.0")
    watcher = probe_for(card)
    assert watcher.snapshot().sm_clock_mhz is None
    assert type(error).__name__ in watcher.unavailable["sm_clock_mhz"]


UINT32 = 2**32 - 1
CLOCKS = (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)


@pytest.mark.parametrize(
    ("field", "changes", "words"),
    [
        ("sm_clock_mhz", {"nvmlDeviceGetClockInfo": dict.fromkeys(CLOCKS, 0)}, "0 MHz"),
        ("memory_clock_mhz", {"nvmlDeviceGetClockInfo": dict.fromkeys(CLOCKS, UINT32)}, "4294967295 MHz"),
        ("temperature_c", {"nvmlDeviceGetTemperatureV": 0, "nvmlDeviceGetTemperature": -1}, "-1 °C"),
        ("power_w", {"fields": 2**32 - 2, "nvmlDeviceGetPowerUsage": UINT32}, "4294967.295 W"),
        ("power_w", {"fields": 0, "nvmlDeviceGetPowerUsage": 0}, "0 W"),
        ("energy_j", {"nvmlDeviceGetTotalEnergyConsumption": 0}, "0 J"),
        ("energy_j", {"nvmlDeviceGetTotalEnergyConsumption": float("nan")}, "nan J"),
        (
            "utilization_percent",
            {"nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=UINT32)},
            "4294967295 %",
        ),
        ("memory_used_bytes", {"nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2**64 - 1)}, str(2**64 - 1)),
        (
            "processes",
            {
                "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=7), SimpleNamespace(pid=UINT32)],
                "nvmlDeviceGetComputeRunningProcesses_v2": [SimpleNamespace(pid=0)],
            },
            "4294967295",
        ),
        ("p_state", {"nvmlDeviceGetPerformanceState": 16, "nvmlDeviceGetPowerState": 16}, "16"),
        (
            "clock_event_reasons",
            {
                "nvmlDeviceGetCurrentClocksEventReasons": UINT32,
                "nvmlDeviceGetCurrentClocksThrottleReasons": UINT32,
            },
            "4294967295",
        ),
    ],
)
def test_what_cannot_be_true_is_unavailable_and_not_measured(field, changes, words):
    nvml = FakeNvml(**changes)
    nvml.fields[186] = (UINT, changes.get("fields", 301_500))
    watcher = probe(nvml)
    assert getattr(watcher.snapshot(), field) is None
    assert f"the driver says {words}" in watcher.unavailable[field]


def test_a_value_that_cannot_be_true_at_rest_may_be_true_later():
    clock = Script([0, 9501, 1500, 9501, UINT32, 9501, 1400])
    watcher = probe(FakeNvml(nvmlDeviceGetClockInfo=clock))
    assert [watcher.snapshot().sm_clock_mhz for _ in range(4)] == [None, 1500, None, 1400]
    assert watcher.unavailable["sm_clock_mhz"].startswith("at times: nvmlDeviceGetClockInfo(SM): the driver")


def test_a_field_has_one_meaning_once_it_has_told():
    nvml = FakeNvml()
    watcher = probe(nvml)
    assert watcher.snapshot().power_w == 301.5
    nvml.fields[186] = (UINT, 0)
    assert watcher.snapshot().power_w is None
    nvml.fields[186] = (UINT, 250_000)
    assert watcher.snapshot().power_w == 250


@pytest.mark.parametrize(
    ("fact", "call", "answer", "words"),
    [
        ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", UINT32, "4294967.295 W"),
        ("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", 0, "0 W"),
        ("max_sm_clock_mhz", "nvmlDeviceGetMaxClockInfo", dict.fromkeys(CLOCKS, 0), "0 MHz"),
        ("application_sm_clock_mhz", "nvmlDeviceGetApplicationsClock", UINT32, "4294967295 MHz"),
        ("memory_bus_bits", "nvmlDeviceGetMemoryBusWidth", 0, "0 bits"),
        ("pcie_generation", "nvmlDeviceGetMaxPcieLinkGeneration", 0, "0"),
        ("pcie_width_now", "nvmlDeviceGetCurrPcieLinkWidth", UINT32, "4294967295 lanes"),
        ("ecc", "nvmlDeviceGetEccMode", [UINT32, UINT32], "4294967295"),
        ("compute_mode", "nvmlDeviceGetComputeMode", 7, "7"),
        ("virtualization", "nvmlDeviceGetVirtualizationMode", -1, "-1"),
    ],
)
def test_facts_and_limits_that_cannot_be_true(fact, call, answer, words):
    watcher = probe(FakeNvml(**{call: answer}))
    assert watcher.identity()[fact].startswith(f"unavailable: the driver says {words}")
    assert getattr(watcher.limits(), fact, None) is None


def test_names_of_an_older_binding_are_text():
    watcher = probe(FakeNvml(nvmlDeviceGetName=b"NVIDIA RTX\xf8", nvmlDeviceGetUUID=b"GPU-1"))
    assert (watcher.identity()["name"], watcher.identity()["uuid"]) == ("NVIDIA RTX\ufffd", "GPU-1")


def test_a_lost_card_ends_neither_identity_nor_limits():
    names = ("nvmlDeviceGetName", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetPowerUsage")
    nvml = FakeNvml(**dict.fromkeys(names, refuse(pynvml.NVML_ERROR_GPU_IS_LOST)))
    nvml.fields[186] = pynvml.NVML_ERROR_NOT_SUPPORTED
    watcher = probe(nvml)
    assert "GPU is lost" in watcher.identity()["name"]
    assert watcher.limits().max_sm_clock_mhz is None


def test_limits_that_are_refused_are_none():
    watcher = probe(FakeNvml(nvmlDeviceGetMemoryBusWidth=refuse()))
    assert watcher.limits().memory_bus_bits is None


def test_the_fake_answers_only_calls_that_exist():
    assert [name for name in FakeNvml().answers if not hasattr(pynvml, name)] == []


def cards(*names: str) -> Any:
    """An NVML with these cards, by their places on the bus."""
    numbers = {f"GPU-{number}": number for number in range(len(names))}
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetHandleByUUID=numbers.__getitem__,
        nvmlDeviceGetName=lambda card: names[card].encode(),
        nvmlDeviceGetUUID=lambda card: f"GPU-{card}",
        nvmlDeviceGetCudaComputeCapability=lambda _card: (9, 0),
        nvmlSystemGetDriverVersion=lambda: "580.1",
        nvmlDeviceGetPciInfo=lambda card: SimpleNamespace(busId=f"0000:0{card}:00.0"),
        nvmlDeviceGetMemoryInfo=lambda _card: SimpleNamespace(total=2**36),
    )


def test_a_card_is_described_without_any_cuda():
    found = visible_card({}, cards("NVIDIA H100", "NVIDIA H100"))
    assert (found.spec, found.name, found.uuid, found.arch) == ("cuda:0", "NVIDIA H100", "GPU-0", "sm_90")
    assert (found.pci_bus_id, found.driver, found.memory_bytes) == ("0000:00:00.0", "580.1", 2**36)


@pytest.mark.parametrize(
    ("variables", "uuid"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, "GPU-1"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1"}, "GPU-1"),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, None),
        ({"CUDA_VISIBLE_DEVICES": "7"}, None),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1"}, None),
        ({"CUDA_VISIBLE_DEVICES": "GPU-7"}, None),
    ],
)
def test_the_card_is_the_first_that_cuda_may_see(variables, uuid):
    nvml = cards("NVIDIA H100", "NVIDIA H100")
    if uuid:
        assert visible_card(variables, nvml).uuid == uuid
    else:
        with pytest.raises(DeviceError):
            visible_card(variables, nvml)


def test_which_of_two_models_is_cudas_first_is_not_guessed():
    nvml = cards("NVIDIA T4", "NVIDIA H100")
    with pytest.raises(DeviceError, match="cards of several models"):
        visible_card({}, nvml)
    assert visible_card({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, nvml).name == "NVIDIA T4"
