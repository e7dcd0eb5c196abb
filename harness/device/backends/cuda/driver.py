"""PyCUDA's driver API: its errors as the harness's own, and facts about a card."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from typing import Any

from harness.device.plausible_ranges import or_none, reason_of, text_of
from harness.errors import DeviceError, KernelError, LaunchError, MeasureError, OutOfMemoryError
from harness.records.types import DeviceInfo, Launch

FAULT = re.compile("illegal|misaligned|assert|hardware stack|invalid pc", re.IGNORECASE)
"""CUDA's words for a kernel's fault, as against a call's; PyCUDA has one class for both."""


def api() -> Any:
    try:
        from pycuda import driver
    except ImportError as error:
        if "libcuda" in str(error):
            message = f"There is no NVIDIA driver ({error}). Install the driver of your card."
            raise DeviceError(message) from None
        raise DeviceError(
            f"PyCUDA cannot be imported ({error}). With the CUDA toolkit on PATH, install this "
            "project with its extra 'cuda': pip install -e '.[cuda]' in a clone."
        ) from None
    try:
        driver.init()
    except Exception as error:  # noqa: BLE001 - of a driver of any version
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hint = (
            f"CUDA_VISIBLE_DEVICES is {visible!r}, which hides every card: unset it."
            if visible is not None and "no CUDA-capable device" in str(error)
            else "'nvidia-smi' shows whether the driver and a card are there."
        )
        raise DeviceError(f"CUDA does not start ({reason_of(error)}). {hint}") from None
    return driver


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn PyCUDA's errors into the harness's own. CUDA reports a kernel's fault at a later call, `what`."""
    driver = api()
    try:
        yield
    except driver.MemoryError as error:
        raise OutOfMemoryError(f"{what}: the card is out of memory ({error}).") from error
    except driver.LaunchError as error:
        raise KernelError(f"{what}: the kernel failed on the card ({error}).") from error
    except driver.LogicError as error:
        kind = KernelError if FAULT.search(str(error)) else LaunchError
        raise kind(f"{what}: {error}.") from error
    except driver.Error as error:
        raise MeasureError(f"{what}: {error}.") from error


def launching(launch: Launch) -> contextlib.AbstractContextManager[None]:
    """Turn errors of a launch into the harness's own, with its grid and block."""
    return translated(f"Launching grid {launch.grid}, block {launch.block}")


def describe(index: int, handle: Any) -> DeviceInfo:
    driver = api()
    a = driver.device_attribute
    major, minor = handle.compute_capability()

    def read(*names: str) -> Any:
        """Return the first attribute that this PyCUDA has a name for; None if it has none."""
        return next((int(handle.get_attribute(getattr(a, name))) for name in names if hasattr(a, name)), None)

    return DeviceInfo(
        spec=f"cuda:{index}",
        backend="cuda",
        name=text_of(handle.name),
        vendor="NVIDIA",
        driver=".".join(map(str, divmod(driver.get_driver_version() // 10, 100))),
        kind="gpu",
        arch=f"sm_{major}{minor}",
        pci_bus_id=or_none(handle.pci_bus_id),
        compute_capability=(major, minor),
        compute_units=read("MULTIPROCESSOR_COUNT"),
        memory_bytes=int(handle.total_memory()),
        l2_bytes=read("L2_CACHE_SIZE") or None,
        max_threads_per_block=read("MAX_THREADS_PER_BLOCK"),
        max_block=(read("MAX_BLOCK_DIM_X"), read("MAX_BLOCK_DIM_Y"), read("MAX_BLOCK_DIM_Z")),
        max_grid=(read("MAX_GRID_DIM_X"), read("MAX_GRID_DIM_Y"), read("MAX_GRID_DIM_Z")),
        max_shared_bytes=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "MAX_SHARED_MEMORY_PER_BLOCK"),
        max_clock_mhz=read("CLOCK_RATE") // 1000 or None,
        warp_size=read("WARP_SIZE"),
        max_threads_per_sm=read("MAX_THREADS_PER_MULTIPROCESSOR"),
        registers_per_sm=read("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        shared_bytes_per_sm=read("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
    )


def load(binary: bytes) -> Any:
    """Return the module of a binary, as a SourceModule of PyCUDA, whose cache cannot return one."""
    return _cached_source_module()(binary)


@functools.cache
def _cached_source_module() -> Any:
    """Return PyCUDA's SourceModule class, for a binary instead of a source."""
    from pycuda.compiler import SourceModule

    class CachedSourceModule(SourceModule):  # type: ignore[misc]
        def __init__(self, binary: bytes) -> None:
            self.module = api().module_from_buffer(binary)
            self._bind_module()

    return CachedSourceModule
