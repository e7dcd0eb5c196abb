"""CUDA cards through PyCUDA.

`device.py` is the device. `held_launch.py` checks whether a host function waited for its stream.
"""

from __future__ import annotations

from harness.device.backends.cuda import driver
from harness.device.backends.cuda.device import CudaDevice
from harness.errors import DeviceError
from harness.records.types import DeviceInfo


def devices() -> list[DeviceInfo]:
    api = driver.api()
    found = [driver.describe(index, api.Device(index)) for index in range(api.Device.count())]
    if not found:
        raise DeviceError(
            "CUDA sees no card. 'nvidia-smi' shows whether the driver does; check CUDA_VISIBLE_DEVICES."
        )
    return found


def open_device(index: int) -> CudaDevice:
    return CudaDevice(index)
