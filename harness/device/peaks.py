"""Peaks of a card: the roof under which a kernel's rate is judged.

A peak is a rate for one multiprocessor and clock, times multiprocessors, times clock; a multiply-add counts
as two. At the card's highest clock it is above the data sheet's, which is at the boost clock; both are
theoretical.

Sources, each recomputed as TFLOP/s over multiprocessors and boost clock in GHz:

- FP32 lanes: CUDA C++ Programming Guide, table "Throughput of Native Arithmetic Instructions".
- float16 on tensor cores, dense, accumulated in float32, from NVIDIA's white papers and data sheets:
  V100 125 (80, 1.53), T4 65 (40, 1.59), RTX 2080 Ti 53.8 (68, 1.545), A100 312 (108, 1.41),
  RTX 3090 71 (82, 1.695), RTX A6000 154.8 (84, 1.80), A10 125 (72, 1.695), RTX 4090 165.2 (128, 2.52),
  L4 121 (58, 2.04), L40 181 (142, 2.49), L40S 362 (142, 2.52), RTX 6000 Ada 364.2 (142, 2.505),
  H100 SXM 989.4 (132, 1.83), B200 2250 (148, 1.86), RTX 5090 209.5 (170, 2.407).
  RTX PRO 6000 Blackwell, 500 (188, 2.6), is an eighth of its published 4000 sparse FP4 TOP/s.
  GeForce accumulates in float32 at half the rate of the same chip elsewhere, and so does the L40.
- memory: NVML counts the memory clock so that a pin carries two bits in a cycle, for GDDR and HBM alike:
  RTX 3090, 9751 MHz and 384 bits, is 936 GB/s; A100, 1215 MHz and 5120 bits, is 1555 GB/s; both as published.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.device.plausible_ranges import plausible_or_none
from harness.errors import MeasureError

if TYPE_CHECKING:
    from harness.records.types import DeviceInfo, L2Policy
    from harness.suite.problem import Case, Problem

SLACK = 1.05
"""Factor by which a rate may exceed its peak, for the timer's resolution and clocks above the
card's limit."""

_FP32_LANES = {
    **dict.fromkeys([(7, 0), (7, 2), (7, 5), (8, 0)], 64),
    **dict.fromkeys([(8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)], 128),
}
"""Lanes of a multiprocessor, by compute capability."""

_FLOAT16_FLOP = {
    **dict.fromkeys([(7, 0), (7, 5), (8, 6), (8, 9), (12, 0)], 1024),
    (8, 0): 2048,
    (9, 0): 4096,
    (10, 0): 8192,
}
"""Operations of a multiprocessor per clock, by compute capability, unless float32 accumulation is halved.

Capabilities without a published number to check against, such as 8.7 and 12.1, are left out.
"""

_HALVED = {(7, 5), (8, 6), (8, 9), (12, 0)}
"""Capabilities at which GeForce cards accumulate in float32 at half rate."""

_HALF_RATE_NAME = re.compile(r"GeForce|\bL40$")
_NO_TENSOR_CORES = re.compile(r"\bGTX\b|\bMX ?\d|\bT\d{3,4}\b")
"""Turing's TU116 and TU117, which have capability 7.5 and no tensor cores: GTX 16, MX450, T400 to T2000."""


def peaks(
    device: DeviceInfo,
    max_sm_clock_mhz: float | None = None,
    memory_clock_mhz: float | None = None,
    bus_width_bits: float | None = None,
) -> dict[str, float]:
    """Return peaks by name: float32, float16 (tensor cores) and so on in GFLOP/s, memory in GB/s.

    An unknown peak has no key. Without a plausible clock, the device's own maximum is used.
    """
    found: dict[str, float] = {}
    clocks_mhz = (
        plausible_or_none("max_sm_clock_mhz", each) for each in (max_sm_clock_mhz, device.max_clock_mhz)
    )
    clock_mhz = next(filter(None, clocks_mhz), None)
    memory_clock_mhz = plausible_or_none("max_memory_clock_mhz", memory_clock_mhz)
    bus_width_bits = plausible_or_none("memory_bus_bits", bus_width_bits)
    capability = device.compute_capability
    if clock_mhz and capability and device.compute_units:
        gigacycles = device.compute_units * clock_mhz / 1e3
        if lanes := _FP32_LANES.get(capability):
            found["float32"] = 2 * lanes * gigacycles
        if flop := _float16_flop(capability, device.name):
            found["float16"] = flop * gigacycles
            if capability >= (8, 0):  # bfloat16 at the same rate, TF32 at half: the same data sheets
                found["bfloat16"] = found["float16"]
                found["tf32"] = found["float16"] / 2
    if memory_clock_mhz and bus_width_bits:
        found["memory"] = 2 * memory_clock_mhz * bus_width_bits / 8 / 1e3
    return found


def _float16_flop(capability: tuple[int, int], name: str) -> float | None:
    flop = _FLOAT16_FLOP.get(capability)
    if flop is None or (capability == (7, 5) and _NO_TENSOR_CORES.search(name)):
        return None
    halved = capability in _HALVED and _HALF_RATE_NAME.search(name)
    return flop / 2 if halved else flop


def unit_of(peaks: Mapping[str, float], dtype: str, gflops: float) -> str:
    """Return the name of the peak for a measured rate: the dtype, or tf32 for float32 beyond its own peak."""
    beyond = gflops > SLACK * peaks.get(dtype, math.inf)
    return "tf32" if dtype == "float32" and beyond and "tf32" in peaks else dtype


def peak_of(peaks: Mapping[str, float], unit: str, dtype: str, rate: float | None) -> float | None:
    """Return the peak for a measured rate in GFLOP/s or GB/s; None if unknown."""
    if unit == "GFLOP/s":
        return peaks.get(unit_of(peaks, dtype, rate or 0.0))
    return peaks.get("memory") if unit == "GB/s" else None


def fastest_unit(device: DeviceInfo, peaks: Mapping[str, float], dtype: str) -> str:
    """Return the name of the highest peak at which a function may compute a dtype: for float32
    possibly TF32.
    """
    has_tf32 = "tf32" in peaks or (device.compute_capability or (0, 0)) >= (8, 0)
    units = (dtype, "tf32") if dtype == "float32" and has_tf32 else (dtype,)
    return max(units, key=lambda unit: peaks.get(unit, math.inf))


class BeyondPeakError(MeasureError):
    reason = "beyond-peak"


def check_rates(
    device: DeviceInfo,
    peaks: Mapping[str, float],
    problem: Problem,
    case: Case,
    l2: L2Policy,
    time_ns: float,
    *,
    tensor_cores: bool = False,
) -> None:
    """Raise BeyondPeakError for a launch whose rate exceeds the card's peak.

    `tensor_cores` marks functions that may use them, such as libraries. An unknown peak is not checked.
    """
    unit_of_flop = fastest_unit(device, peaks, case.dtype) if tensor_cores else case.dtype
    done = (
        ("GB/s", "memory", _crossing_bytes(device, problem, case, l2)),
        ("GFLOP/s", unit_of_flop, problem.flop(case)),
    )
    for unit, limit, amount in done:
        if not amount:
            continue
        # A time of 0 is shorter than the timer's tick: impossibly fast, or nothing was timed.
        rate = amount / time_ns if time_ns > 0 else math.inf
        peak = peaks.get(limit, math.inf)
        if rate > SLACK * peak:
            raise BeyondPeakError(
                f"{rate:,.0f} {unit}, where {device.name} can do {peak:,.0f} at most"
                f"{'' if limit == 'memory' else f' in {limit}'}: not all of the work was in the time. "
                "A kernel that computes in another precision says so by its dtype; a problem that needs less "
                "than it seems to, by its flop() and moved_bytes()."
            )


def _crossing_bytes(device: DeviceInfo, problem: Problem, case: Case, l2: L2Policy) -> int:
    """Return the fewest bytes to or from device memory, with the best use of the L2."""
    if device.l2_bytes is None:
        return 0
    read, written = (problem.size_bytes(case, arrays) for arrays in (problem.inputs, problem.outputs))
    if l2 == "cold":  # no inputs are there, and as many outputs as fit may stay
        crossing = read + max(0, written - device.l2_bytes)
    else:
        crossing = max(0, read + written - device.l2_bytes)
    return min(crossing, problem.moved_bytes(case))
