"""Sampling, windows and foreign processes, played by scripted probes."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from harness.device.backends import null
from harness.device.telemetry import NoProbe, Probe, Sampler, SteadyProbe, probe_for, telemetry_of
from harness.device.telemetry.base import foreign_processes, nearest_or_within
from harness.device.telemetry.fixed import STEADY
from harness.errors import DeviceError
from harness.records.types import DeviceInfo, Snapshot
from tests.probes import ScriptedProbe

if TYPE_CHECKING:
    from collections.abc import Sequence


class Clock:
    """A clock that moves on one microsecond each time it is read."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1000
        return self.now_ns


def by_hand(*script: Snapshot | Exception, unavailable: dict[str, str] | None = None) -> Sampler:
    probe = ScriptedProbe(script or (STEADY,), clock_ns=Clock(), unavailable=unavailable)
    return Sampler(probe, interval_s=None)


def at(*times_ns: int) -> list[Snapshot]:
    return [Snapshot(at_ns=at_ns) for at_ns in times_ns]


def times(snapshots: Sequence[Snapshot]) -> list[int]:
    return [snapshot.at_ns for snapshot in snapshots]


@pytest.mark.parametrize(
    ("started_ns", "ended_ns", "expected"),
    [
        (10, 30, [10, 20, 30]),
        (11, 29, [20]),
        (-5, 100, [10, 20, 30]),
        (12, 14, [10]),
        (16, 18, [20]),
        (0, 5, [10]),
        (90, 99, [30]),
    ],
)
def test_a_window_holds_its_snapshots_or_the_nearest(started_ns, ended_ns, expected):
    assert times(nearest_or_within(at(10, 20, 30), started_ns, ended_ns)) == expected


def test_a_window_over_nothing_is_empty():
    assert nearest_or_within([], 0, 10) == ()


def test_a_light_snapshot_leaves_out_what_is_dear():
    light = SteadyProbe().snapshot(full=False)
    assert (light.throttle_ns, light.memory_used_bytes, light.processes) == (None, None, None)
    assert light.sm_clock_mhz == STEADY.sm_clock_mhz


def test_a_measurement_lies_between_marks():
    sampler = by_hand()
    with sampler:
        for _ in range(3):
            sampler.sample()
        sampler.mark()
        for _ in range(3):
            sampler.sample()
    telemetry = telemetry_of(sampler, 6000, 8000, own_pids=())
    assert telemetry.before.at_ns == 5000
    assert times(telemetry.during) == [6000, 7000, 8000]
    assert telemetry.after.at_ns == 9000
    assert telemetry.before.throttle_ns == telemetry.after.throttle_ns == STEADY.throttle_ns
    assert telemetry.during[0].throttle_ns is None
    assert telemetry.probe == "scripted"


def test_telemetry_asked_for_at_once_takes_the_mark_after():
    sampler = by_hand()
    with sampler:
        sampler.sample()
        telemetry = telemetry_of(sampler, 1500, 2500, own_pids=())
    assert telemetry.after.at_ns == 3000
    assert times(telemetry.during) == [2000]


def test_a_probe_that_raises_once_loses_one_sample_and_says_why():
    sampler = by_hand(STEADY, ValueError("bad byte"), STEADY)
    with sampler:
        sampler.sample()
        sampler.sample()
        assert not sampler.stopped
    assert times(sampler.snapshots) == [1000, 3000, 4000]
    assert (
        telemetry_of(sampler, 1000, 3000, own_pids=()).unavailable["probe"]
        == "ValueError: bad byte (1 failed, 3 kept)"
    )


def test_a_failed_mark_is_an_empty_snapshot():
    sampler = Sampler(ScriptedProbe([RuntimeError("no")]), interval_s=None)
    with sampler:
        pass
    telemetry = telemetry_of(sampler, 0, 1, own_pids=())
    assert telemetry.before.sm_clock_mhz is None
    assert len(telemetry.during) == 1
    assert telemetry.unavailable["probe"].startswith("RuntimeError: no")
    assert telemetry.foreign_processes is None


def test_sampling_stops_when_the_device_is_lost():
    sampler = by_hand(STEADY, DeviceError("gone"))
    with sampler:
        sampler.sample()
        assert sampler.stopped
    assert "gone" in sampler.unavailable["probe"]


def test_sampling_stops_after_ten_failures_in_a_row_and_not_before():
    sampler = by_hand(STEADY, *[OSError("no")] * 9, STEADY, *[OSError("no")] * 10)
    sampler.mark()
    for _ in range(19):
        sampler.sample()
    assert not sampler.stopped
    sampler.sample()
    assert sampler.stopped


def test_the_thread_samples_and_marks_until_it_is_left():
    enough = threading.Event()
    seen = []

    def script(at_ns):
        seen.append(at_ns)
        if len(seen) == 20:
            enough.set()
        return STEADY

    sampler = Sampler(ScriptedProbe(script), interval_s=0.0, mark_s=0.0)
    with sampler:
        assert enough.wait(60)
    assert times(sampler.snapshots) == seen
    assert sampler.marks == sampler.snapshots
    assert not sampler._thread.is_alive()


def test_a_probe_that_breaks_ends_the_thread_and_not_the_measurement():
    sampler = Sampler(ScriptedProbe([STEADY, OSError("broken")]), interval_s=0.0)
    with sampler:
        sampler._thread.join(60)
        assert sampler.stopped
    assert telemetry_of(sampler, 0, 1, own_pids=()).before.sm_clock_mhz == STEADY.sm_clock_mhz


def test_a_probe_that_hangs_does_not_hang_the_harness(monkeypatch):
    monkeypatch.setattr("harness.device.telemetry.base._PROBE_ANSWERS_WITHIN_S", 0.01)
    inside, release = threading.Event(), threading.Event()

    def script(_at_ns):
        if threading.current_thread().name == "telemetry":
            inside.set()
            release.wait(60)
        return STEADY

    sampler = Sampler(ScriptedProbe(script), interval_s=0.0)
    with sampler:
        assert inside.wait(60)
        assert sampler.mark().sm_clock_mhz is None
    assert "gave no answer" in sampler.unavailable["probe"]
    release.set()
    sampler._thread.join(60)


@pytest.mark.parametrize(
    ("earlier", "while_measuring", "own", "expected"),
    [
        pytest.param([()], [(50,)], {50}, (), id="alone"),
        pytest.param([(9,)], [(9, 50)], {50}, (9,), id="neighbour-from-before"),
        pytest.param([()], [(50,), (50, 60)], {50}, (60,), id="neighbour-while-measuring"),
        pytest.param([(9,)], [(50,), (50,)], {50}, (), id="neighbour-left-before"),
        pytest.param([()], [(50, 51)], {50, 51}, (), id="our-whole-family"),
        pytest.param([()], [(90123,)], {17}, (), id="container-alone"),
        pytest.param([(800,)], [(800, 90123)], {17}, (800,), id="container-neighbour-from-before"),
        pytest.param([(), (90123,)], [(90123, 400)], {17}, (400,), id="container-ours-came-first"),
        pytest.param([(), (400,)], [(90123,)], {17}, (), id="container-passer-by-left"),
        pytest.param([(800,)], [(800,)], {17}, (800,), id="container-hides-ours"),
        pytest.param([()], [()], {17}, None, id="nothing-listed"),
        pytest.param([None], [(90123,)], {17}, None, id="unknown-at-rest"),
        pytest.param([None], [(50, 60)], {50}, (60,), id="unknown-at-rest-but-ours-is-named"),
        pytest.param([()], [None, None], {17}, None, id="lists-refused"),
        pytest.param([()], [None, (50, 60)], {50}, (60,), id="one-list-refused"),
        pytest.param([()], [(3,)], (), (3,), id="nothing-of-ours"),
    ],
)
def test_foreign_processes(earlier, while_measuring, own, expected):
    assert foreign_processes(earlier, while_measuring, own) == expected


def test_container_neighbours_that_came_together_are_still_counted():
    assert len(foreign_processes([()], [(400, 90123)], {17}) or ()) == 1


def test_telemetry_tells_who_else_was_there():
    quiet, ours, shared = (replace(STEADY, processes=pids) for pids in ((), (90123,), (400, 90123)))
    sampler = by_hand(quiet, ours, shared, ours)
    with sampler:
        for _ in range(2):
            sampler.mark()
    assert telemetry_of(sampler, 2500, 2600, own_pids=[17]).foreign_processes == (400,)
    assert telemetry_of(sampler, 3500, 3600, own_pids=[17]).foreign_processes == (400,)
    assert telemetry_of(sampler, 4000, 4000, own_pids=[17]).foreign_processes == ()


def test_children_that_opened_the_device_before_their_turn_are_no_company():
    """In a container whose driver lists the host's process ids: one of ours measures, one waits."""
    here = replace(STEADY, processes=(800, 90123, 90124))
    at_rest = replace(STEADY, processes=(800,))
    for known, company in ((at_rest, (800,)), (None, (800, 90123, 90124))):
        sampler = Sampler(ScriptedProbe((here,), clock_ns=Clock()), interval_s=None, at_rest=known)
        with sampler:
            found = telemetry_of(sampler, 1500, 1600, own_pids=[17, 18])
        assert found.foreign_processes == company


def test_unknown_company_has_a_reason():
    hidden = by_hand(replace(STEADY, processes=()), unavailable={})
    with hidden:
        telemetry = telemetry_of(hidden, 0, 10, own_pids=[17])
    assert telemetry.foreign_processes is None
    assert "not even show" in telemetry.unavailable["foreign_processes"]
    refused = by_hand(STEADY, unavailable={"processes": "Not Supported"})
    with refused:
        telemetry = telemetry_of(refused, 0, 10, own_pids=[17])
    assert telemetry.unavailable["foreign_processes"] == "Not Supported"


def test_no_probe_gives_its_reason_for_every_value():
    probe: Probe = NoProbe("nothing here")
    snapshot = probe.snapshot()
    values = {field.name: getattr(snapshot, field.name) for field in fields(Snapshot)}
    assert values.pop("at_ns") > 0
    assert set(values.values()) == {None}
    assert dict(probe.unavailable) == dict.fromkeys(values, "nothing here")


def device(**changes: Any) -> DeviceInfo:
    return replace(null.devices()[0], **changes)


def test_the_null_device_is_scripted_and_explains_what_it_lacks():
    probe = probe_for(device())
    snapshot = probe.snapshot()
    missing = {f.name for f in fields(Snapshot) if getattr(snapshot, f.name) is None}
    assert (probe.name, missing) == ("scripted", set(probe.unavailable))


def test_a_cpu_has_the_host_probe():
    assert probe_for(device(backend="opencl", kind="cpu", vendor="Intel(R) Corporation")).name == "host"


def test_another_vendors_gpu_has_none_and_says_so():
    probe = probe_for(device(spec="opencl:1", backend="opencl", kind="gpu", vendor="AMD"))
    assert probe.name == "none"
    assert probe.unavailable["sm_clock_mhz"].startswith("opencl:1 is neither")


@pytest.mark.parametrize("backend", ["cuda", "opencl"])
def test_an_nvidia_card_without_nvml_falls_back_with_the_reason(monkeypatch, backend):
    pynvml = pytest.importorskip("pynvml")

    def missing():
        raise pynvml.NVMLError_LibraryNotFound

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    probe = probe_for(
        device(backend=backend, kind="gpu", vendor="NVIDIA Corporation", pci_bus_id="0000:01:00.0")
    )
    assert probe.name == "none"
    assert "NVML Shared Library Not Found" in probe.unavailable["power_w"]
