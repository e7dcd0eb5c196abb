"""The host probe over a made-up /sys, and over whatever this machine has."""

from __future__ import annotations

import os
from collections import namedtuple
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest

from harness.device.telemetry.host import HostProbe

if TYPE_CHECKING:
    from pathlib import Path

CPU = "devices/system/cpu"
RAPL = "class/powercap/intel-rapl:"


class Sysfs:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str | int) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(f"{text}\n", encoding="ascii")


@pytest.fixture
def sysfs(tmp_path):
    made = Sysfs(tmp_path)
    for core, khz in enumerate((2_000_000, 3_000_000)):
        made.write(f"{CPU}/cpu{core}/cpufreq/scaling_cur_freq", khz)
        made.write(f"{CPU}/cpu{core}/cpufreq/cpuinfo_max_freq", 4_700_000)
        made.write(f"{CPU}/cpu{core}/cpufreq/scaling_governor", "performance")
    made.write("class/hwmon/hwmon0/name", "nvme")
    made.write("class/hwmon/hwmon0/temp1_input", 90_000)
    made.write("class/hwmon/hwmon1/name", "coretemp")
    made.write("class/hwmon/hwmon1/temp1_input", 55_000)
    made.write(f"{RAPL}0/name", "package-0")
    made.write(f"{RAPL}0/energy_uj", 1_000_000)
    made.write(f"{RAPL}0/max_energy_range_uj", 10_000_000)
    made.write(f"{RAPL}0:0/name", "core")
    made.write(f"{RAPL}0:0/energy_uj", 77_000_000)
    made.write(f"{RAPL}1/name", "psys")
    made.write(f"{RAPL}1/energy_uj", 88_000_000)
    return made


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(ns=0)
    monkeypatch.setattr("harness.device.telemetry.host.time", SimpleNamespace(monotonic_ns=lambda: now.ns))
    return now


def test_clock_is_the_mean_of_the_cores_and_temperature_the_packages(sysfs):
    probe = HostProbe(sysfs.root)
    snapshot = probe.snapshot()
    assert (snapshot.sm_clock_mhz, snapshot.temperature_c) == (2500, 55)
    assert snapshot.memory_clock_mhz is None
    assert "memory_clock_mhz" in probe.unavailable
    assert probe.identity() == {"governor": "performance"}
    assert probe.limits().max_sm_clock_mhz == 4700


def test_energy_counts_packages_since_opening_and_power_between_readings(sysfs, clock):
    probe = HostProbe(sysfs.root)
    clock.ns = 100_000_000
    sysfs.write(f"{RAPL}0/energy_uj", 3_000_000)
    snapshot = probe.snapshot()
    assert snapshot.energy_j == pytest.approx(2)
    assert snapshot.power_w == pytest.approx(20)


def test_a_counter_that_wraps_goes_on(sysfs, clock):
    probe = HostProbe(sysfs.root)
    clock.ns = 1_000_000_000
    sysfs.write(f"{RAPL}0/energy_uj", 500_000)
    assert probe.snapshot().energy_j == pytest.approx(9.5)


def test_power_keeps_its_last_value_over_too_short_a_time(sysfs, clock):
    probe = HostProbe(sysfs.root)
    assert probe.snapshot().power_w is None
    assert "too close together" in probe.unavailable["power_w"]
    clock.ns = 1_000_000_000
    sysfs.write(f"{RAPL}0/energy_uj", 8_000_000)
    first = probe.snapshot().power_w
    clock.ns += 1_000
    assert probe.snapshot().power_w == first == pytest.approx(7)


def test_many_cores_are_sampled(sysfs):
    for core in range(200):
        sysfs.write(f"{CPU}/cpu{core}/cpufreq/scaling_cur_freq", 1_500_000)
    probe = HostProbe(sysfs.root)
    assert probe.snapshot().sm_clock_mhz == 1500
    assert 8 <= len(probe._clocks) <= 16


def test_a_virtual_machine_tells_little_and_says_why(tmp_path):
    probe = HostProbe(tmp_path)
    snapshot = probe.snapshot()
    for field in ("sm_clock_mhz", "temperature_c", "power_w", "energy_j"):
        assert getattr(snapshot, field) is None
        assert probe.unavailable[field].startswith("no ")
    assert snapshot.load_average is not None
    assert probe.identity() == {}
    assert probe.limits().max_sm_clock_mhz is None


def test_energy_that_only_root_may_read(sysfs):
    (sysfs.root / f"{RAPL}0/energy_uj").unlink()
    probe = HostProbe(sysfs.root)
    assert (probe.snapshot().energy_j, probe.snapshot().power_w) == (None, None)
    assert "only root" in probe.unavailable["energy_j"]


def test_utilization_is_over_the_time_between_two_readings(monkeypatch, tmp_path):
    Times = namedtuple("Times", "user system idle iowait guest guest_nice")  # noqa: PYI024
    times = iter([Times(10, 0, 10, 0, 5, 0), Times(10.01, 0, 10, 0, 5, 0), Times(13, 0, 11, 0, 5, 0)])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(times))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 1)
    probe = HostProbe(tmp_path)
    assert probe.snapshot().utilization_percent is None
    assert "opened too short" in probe.unavailable["utilization_percent"]
    assert probe.snapshot().utilization_percent == pytest.approx(75)


def test_a_light_snapshot_leaves_memory_out(tmp_path):
    probe = HostProbe(tmp_path)
    assert probe.snapshot(full=False).memory_used_bytes is None
    assert (probe.snapshot().memory_used_bytes or 0) > 0


def test_this_machine():
    probe = HostProbe()
    snapshot = probe.snapshot()
    told = [f for f in ("sm_clock_mhz", "temperature_c", "energy_j") if getattr(snapshot, f) is not None]
    assert not set(told) & set(probe.unavailable)
    probe.close()


def test_sensors_that_cannot_be_true_are_unavailable(sysfs, clock):
    probe = HostProbe(sysfs.root)
    sysfs.write(f"{CPU}/cpu1/cpufreq/scaling_cur_freq", 0)
    sysfs.write("class/hwmon/hwmon1/temp1_input", -1000)
    sysfs.write(f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq", 2**32 - 1)
    clock.ns = 1_000_000_000
    sysfs.write(f"{RAPL}0/energy_uj", 9_999_000_000)
    snapshot = probe.snapshot()
    assert (snapshot.sm_clock_mhz, snapshot.temperature_c, snapshot.power_w) == (None, None, None)
    assert "the driver says 0 MHz" in probe.unavailable["sm_clock_mhz"]
    assert "the driver says -1 °C" in probe.unavailable["temperature_c"]
    assert "W, and" in probe.unavailable["power_w"]
    assert probe.limits().max_sm_clock_mhz is None


def test_a_host_that_counts_nothing_ends_nothing(sysfs, monkeypatch):
    def refuse(*_):
        raise RuntimeError("no /proc")

    for module, name in ((psutil, "cpu_times"), (psutil, "virtual_memory"), (os, "getloadavg")):
        monkeypatch.setattr(module, name, refuse)
    probe = HostProbe(sysfs.root)
    snapshot = probe.snapshot()
    assert (snapshot.utilization_percent, snapshot.memory_used_bytes, snapshot.load_average) == (None,) * 3
    assert probe.unavailable["load_average"] == "RuntimeError: no /proc"
