"""A device's state during a measurement: clocks, temperature, power, other processes.

A session opens one probe, and one Sampler for each child process that measures. `telemetry_of` turns samples
into one measurement's telemetry.
"""

from __future__ import annotations

__all__ = ["NoProbe", "Probe", "Sampler", "SteadyProbe", "probe_for", "telemetry_of"]

from harness.device.telemetry.base import Probe, Sampler, telemetry_of
from harness.device.telemetry.fixed import NoProbe, SteadyProbe
from harness.errors import DeviceError
from harness.records.types import DeviceInfo


def probe_for(device: DeviceInfo) -> Probe:
    """Return the probe that reports most about the device, for the caller to close; else a NoProbe."""
    if device.backend == "null":
        return SteadyProbe()
    if device.kind == "cpu":
        from harness.device.telemetry.host import HostProbe

        return HostProbe()
    if device.backend == "cuda" or "nvidia" in device.vendor.lower():
        from harness.device.telemetry.nvml import NvmlProbe

        try:
            return NvmlProbe(device.pci_bus_id, device.uuid)
        except DeviceError as error:
            return NoProbe(error.message)
    return NoProbe(f"{device.spec} is neither a CPU nor an NVIDIA card: there is no telemetry for it")
