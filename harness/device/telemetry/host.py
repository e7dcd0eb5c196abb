"""The host's state, for a device that is a CPU.

Files of /sys are read directly: on a large machine psutil's scan of every core and sensor takes longer than
the sampling interval. The available files are determined once, on opening.
"""

from __future__ import annotations

import os
import time
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from harness.device.plausible_ranges import plausible, plausible_or_none, reason_of
from harness.device.telemetry.base import DeviceLimits
from harness.records.types import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_T = TypeVar("_T")
_CPU_SENSORS = {"coretemp", "k10temp", "zenpower", "cpu_thermal"}
"""hwmon drivers whose first sensor is the CPU package."""
_MOST_CLOCKS_READ = 16
_SHORTEST_ENERGY_SPAN_S = 2e-3
"""Shortest span for power, in seconds: RAPL counters are updated about once in a millisecond."""
_SHORTEST_BUSY_SPAN_S = 0.1
"""Shortest span for load, in seconds: the kernel counts busy time in ticks of 1 to 10 ms."""

_NOT_A_GPU = "a CPU does not have it"
_NO_SENSOR = "no processor sensor under /sys/class/hwmon"
_FACTS = {
    "governor": "devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "clock_driver": "devices/system/cpu/cpu0/cpufreq/scaling_driver",
    "boost": "devices/system/cpu/cpufreq/boost",
    "no_turbo": "devices/system/cpu/intel_pstate/no_turbo",
    "smt": "devices/system/cpu/smt/control",
}


class HostProbe:
    """Reads the clocks, temperature and energy of the host's CPUs, and its load.

    `sysfs` is Linux's folder of hardware facts. Virtual machines rarely report any. Their /proc/cpuinfo has
    the nominal clock, which is ignored, because it is not measured.
    """

    name = "host"

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        self._sysfs = sysfs
        self._unavailable = dict.fromkeys(
            ("memory_clock_mhz", "p_state", "clock_event_reasons", "throttle_ns", "processes"), _NOT_A_GPU
        )
        clocks = sorted(sysfs.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
        self._clocks = clocks[:: max(1, ceil(len(clocks) / _MOST_CLOCKS_READ))]
        self._sensors = [
            name.with_name("temp1_input")
            for name in sorted(sysfs.glob("class/hwmon/hwmon*/name"))
            if _text(name) in _CPU_SENSORS
        ]
        # Only packages: their parts (intel-rapl:0:0) would count twice, and psys covers more than CPUs.
        self._packages = [
            name.parent
            for name in sorted(sysfs.glob("class/powercap/intel-rapl:*/name"))
            if (_text(name) or "").startswith("package")
        ]
        self._energy_uj: dict[Path, int] = {}
        self._energy_j = 0.0
        self._power_w = _Rate(_SHORTEST_ENERGY_SPAN_S)
        self._busy_share = _Rate(_SHORTEST_BUSY_SPAN_S * (psutil.cpu_count() or 1))
        self._tell("utilization_percent", self._read_utilization)
        self._read_energy(time.monotonic_ns())

    @property
    def unavailable(self) -> Mapping[str, str]:
        return dict(self._unavailable)

    def snapshot(self, *, full: bool = True) -> Snapshot:
        at_ns = time.monotonic_ns()
        energy_j, power_w = self._read_energy(at_ns)
        return Snapshot(
            at_ns=at_ns,
            sm_clock_mhz=self._mean("sm_clock_mhz", self._clocks, "no cpufreq under /sys/devices/system/cpu"),
            temperature_c=self._mean("temperature_c", self._sensors, _NO_SENSOR),
            power_w=self._tell("power_w", lambda: power_w),
            energy_j=energy_j,
            utilization_percent=self._tell("utilization_percent", self._read_utilization),
            memory_used_bytes=self._tell("memory_used_bytes", _used_bytes) if full else None,
            load_average=self._tell("load_average", lambda: os.getloadavg()[0]),
        )

    def _tell(self, field: str, read: Callable[[], _T]) -> _T | None:
        """Return a plausible value; None, with a reason noted, if it is implausible or reading fails."""
        try:
            value = read()
            if value is not None:
                plausible(field, value)
        except Exception as error:  # noqa: BLE001 - telemetry must not end a measurement
            self._unavailable[field] = reason_of(error)
            return None
        return value

    def identity(self) -> Mapping[str, str]:
        """Return settings that change a CPU's speed, as far as the host reports them."""
        facts = {fact: _text(self._sysfs / path) for fact, path in _FACTS.items()}
        return {fact: text for fact, text in facts.items() if text is not None}

    def limits(self) -> DeviceLimits:
        maxima = [_number(path.with_name("cpuinfo_max_freq")) for path in self._clocks]
        most_mhz = max((khz / 1e3 for khz in maxima if khz is not None), default=None)
        return DeviceLimits(max_sm_clock_mhz=plausible_or_none("max_sm_clock_mhz", most_mhz))

    def close(self) -> None:
        pass

    def _mean(self, field: str, paths: Sequence[Path], absent: str) -> float | None:
        """Return the mean of files in units of thousandths."""
        values = [value / 1e3 for value in map(_number, paths) if value is not None]
        if not values:
            self._unavailable[field] = f"{paths[0]} cannot be read" if paths else absent
            return None
        told = self._tell(field, lambda: values)
        return sum(told) / len(told) if told else None

    def _read_energy(self, at_ns: int) -> tuple[float | None, float | None]:
        """Return joules since opening, and watts since the last reading that is long enough ago."""
        for package in self._packages:
            now_uj = _number(package / "energy_uj")
            if now_uj is None:
                unread = f"{package / 'energy_uj'} cannot be read: most kernels let only root read it"
                return self._no_energy(unread)
            before_uj = self._energy_uj.get(package, now_uj)
            wrapped_uj = (_number(package / "max_energy_range_uj") or 0) if now_uj < before_uj else 0
            self._energy_j += (now_uj - before_uj + wrapped_uj) / 1e6
            self._energy_uj[package] = now_uj
        if not self._packages:
            return self._no_energy("no RAPL package under /sys/class/powercap")
        power_w = self._power_w.of(at_ns / 1e9, self._energy_j)
        if power_w is None:
            too_close = "at times: two readings of the energy were too close together"
            self._unavailable.setdefault("power_w", too_close)
        return self._energy_j, power_w

    def _no_energy(self, reason: str) -> tuple[None, None]:
        self._unavailable.update(energy_j=reason, power_w=reason)
        return None, None

    def _read_utilization(self) -> float | None:
        busy_s, total_s = _busy_and_total_s()
        share = self._busy_share.of(total_s, busy_s)
        if share is None:
            too_short = "at times: the probe was opened too short a time ago"
            self._unavailable.setdefault("utilization_percent", too_short)
        return None if share is None else 100 * share


class _Rate:
    """Rate at which a total grows, between the last two readings that are far enough apart."""

    def __init__(self, shortest_s: float) -> None:
        self._shortest_s = shortest_s
        self._since: tuple[float, float] | None = None
        self._rate: float | None = None

    def of(self, at_s: float, total: float) -> float | None:
        """Take a reading, and return the rate per second; None before the first two."""
        since_s, earlier = self._since = self._since or (at_s, total)
        if at_s - since_s >= self._shortest_s:
            self._rate = (total - earlier) / (at_s - since_s)
            self._since = at_s, total
        return self._rate


def _busy_and_total_s() -> tuple[float, float]:
    times = psutil.cpu_times()
    # Linux counts guests' time as user time too.
    total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total_s - times.idle - getattr(times, "iowait", 0.0), total_s


def _used_bytes() -> int:
    return int(psutil.virtual_memory().used)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_bytes())
    except (OSError, ValueError):
        return None
