"""What a device says of itself while it is being measured: clocks, temperature, power, who else is on it.

A session opens one probe, and one sampler for each child process that measures:

    with closing(probe_for(device)) as probe, Sampler(probe) as sampler:
        ...  # start the child; it measures and reports started_ns and ended_ns
        telemetry = telemetry_of(sampler, started_ns, ended_ns, own_pids=[child.pid])
"""

from __future__ import annotations

__all__ = ["Limits", "NoProbe", "Probe", "Sampler", "ScriptedProbe", "probe_for", "telemetry_of"]

from typing import TYPE_CHECKING

from harness.device.telemetry.base import Limits, Probe, Sampler, telemetry_of
from harness.device.telemetry.scripted import NoProbe, ScriptedProbe
from harness.errors import DeviceError

if TYPE_CHECKING:
    from harness.records import DeviceInfo


def probe_for(device: DeviceInfo) -> Probe:
    """Return the probe that can tell most of the device; one that tells only why, where there is none.

    The caller closes it.
    """
    if device.backend == "null":
        return ScriptedProbe()
    if device.kind == "cpu":
        from harness.device.telemetry.host import HostProbe

        return HostProbe()
    if device.backend == "cuda" or "nvidia" in device.vendor.lower():
        from harness.device.telemetry.nvml import NvmlProbe

        try:
            return NvmlProbe(device.pci_bus_id, device.uuid)
        except DeviceError as error:
            return NoProbe(error.message)
    return NoProbe(f"{device.spec} is neither a CPU nor an NVIDIA card: nothing here can watch it")
