"""Calls of the driver's library through ctypes, which PyCUDA lacks."""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from collections.abc import Sequence
from typing import Any

from harness.device.backends.cuda.driver import FAULT
from harness.errors import KernelError, LaunchError
from harness.records.types import Launch

_PERSISTING_L2_LIMIT, _ACCESS_POLICY_WINDOW, _ATTRIBUTE_BYTES = 6, 1, 64
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW; the size of any attribute."""
_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 14
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, ..._NON_PORTABLE_CLUSTER_SIZE_ALLOWED."""
_PORTABLE_CLUSTER_BLOCKS = 8
_COOPERATIVE, _CLUSTER_DIMENSION, _PROGRAMMATIC = 2, 4, 6
"""CU_LAUNCH_ATTRIBUTE_COOPERATIVE, ..._CLUSTER_DIMENSION, ..._PROGRAMMATIC_STREAM_SERIALIZATION."""
_INVALID_CLUSTER = 912
"""CUDA_ERROR_INVALID_CLUSTER_SIZE."""
_Extent = ctypes.c_uint * 3
_Value = ctypes.c_uint * 16


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: its value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", _Value))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", _Extent),
        ("block", _Extent),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


@functools.cache
def driver_library() -> Any:
    """Return the driver's library; None if it is not found by name."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def forget_persisting(stream: int) -> None:
    """Make persisting lines of the L2 normal, and allow no new ones. Older drivers and cards refuse."""
    library = driver_library()
    if library is None or not hasattr(library, "cuCtxResetPersistingL2Cache"):
        return
    no_window = (ctypes.c_byte * _ATTRIBUTE_BYTES)()
    library.cuStreamSetAttribute(ctypes.c_void_p(stream), _ACCESS_POLICY_WINDOW, no_window)
    library.cuCtxSetLimit(_PERSISTING_L2_LIMIT, ctypes.c_size_t(0))
    library.cuCtxResetPersistingL2Cache()


def required(name: str, what: str) -> Any:
    """Return the driver's library. Raises LaunchError where it is not found."""
    library = driver_library()
    if library is None:
        raise LaunchError(f"{name} needs {what}, and libcuda.so.1 is not found.")
    return library


class Driver:
    """Calls of the driver's library for one kernel, which errors name."""

    def __init__(self, library: Any, name: str) -> None:
        self.library, self.name = library, name

    def call(self, call: str, *arguments: Any) -> None:
        """Call the driver. Raises LaunchError, or KernelError for a kernel that faulted before."""
        if code := getattr(self.library, call)(*arguments):
            if code == _INVALID_CLUSTER:
                raise LaunchError(
                    f"{self.name}: the driver does not allow a cluster of this size on this card ({call}): "
                    "use a smaller cluster, or the one that its __cluster_dims__ names."
                )
            reason = self.meaning(code)
            kind = KernelError if FAULT.search(reason) or "launch failure" in reason else LaunchError
            raise kind(f"{self.name}: {call} gave {code} ({reason}).")

    def meaning(self, code: int) -> str:
        """Return the driver's text for an error."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(code, ctypes.byref(text))
        return (text.value or b"unknown").decode(errors="replace")


class DriverFunction(Driver):
    """A kernel of a binary, loaded once more, as PyCUDA does not tell the handle of a function."""

    def __init__(self, library: Any, binary: bytes, name: str) -> None:
        super().__init__(library, name)
        self.handle = ctypes.c_void_p()
        self._configs: dict[tuple[Launch, int], LaunchConfig] = {}
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(binary))
        self.close = weakref.finalize(self, library.cuModuleUnload, module)
        """Unload the binary; at the latest when nobody has the function any more."""
        self.close.atexit = False
        try:
            self.call(
                "cuModuleGetFunction", ctypes.byref(self.handle), module, ctypes.c_char_p(name.encode())
            )
        except (KernelError, LaunchError):
            self.close()
            raise

    def prepare(self, launch: Launch, stream: int) -> LaunchConfig:
        """Return the driver's form of a launch, and allow the function what the launch needs."""
        if (launch, stream) not in self._configs:
            if launch.dynamic_shared_bytes > 48 * 1024:
                self._allow(_MAX_DYNAMIC_SHARED, launch.dynamic_shared_bytes)
            if math.prod(launch.cluster or ()) > _PORTABLE_CLUSTER_BLOCKS:
                self._allow(_NON_PORTABLE_CLUSTER, 1)
            self._configs[launch, stream] = _config(launch, stream)
        return self._configs[launch, stream]

    def _allow(self, attribute: int, value: int) -> None:
        self.call("cuFuncSetAttribute", self.handle, ctypes.c_int(attribute), ctypes.c_int(value))

    def launch(self, launch: Launch, arguments: Sequence[bytes], stream: int) -> None:
        """Enqueue the kernel with the launch's attributes; `arguments` are the bytes of each parameter."""
        config = self.prepare(launch, stream)
        kept = [ctypes.create_string_buffer(argument, len(argument)) for argument in arguments]
        pointers = (ctypes.c_void_p * len(kept))(*map(ctypes.addressof, kept))
        self.call("cuLaunchKernelEx", ctypes.byref(config), self.handle, pointers, None)


def _config(launch: Launch, stream: int) -> LaunchConfig:
    made = [LaunchAttribute(_COOPERATIVE, 0, _Value(1))] if launch.cooperative else []
    made += [LaunchAttribute(_CLUSTER_DIMENSION, 0, _Value(*launch.cluster))] if launch.cluster else []
    made += [LaunchAttribute(_PROGRAMMATIC, 0, _Value(1))] if launch.programmatic else []
    attributes = (LaunchAttribute * len(made))(*made)
    grid, block = _Extent(*launch.grid), _Extent(*launch.block)
    return LaunchConfig(grid, block, launch.dynamic_shared_bytes, stream, attributes, len(made))


def function(binary: bytes, name: str) -> DriverFunction:
    """Load a kernel. Raises LaunchError where the driver's library is not found."""
    return DriverFunction(required(name, "launch attributes"), binary, name)


def resident_blocks(binary: bytes, name: str, launch: Launch) -> int | None:
    """Return the driver's occupancy of a launch; None without the library. Raises LaunchError."""
    library, blocks = driver_library(), ctypes.c_int()
    if library is None:
        return None
    kernel = DriverFunction(library, binary, name)
    try:
        kernel.prepare(launch, 0)
        threads, dynamic_bytes = math.prod(launch.block), ctypes.c_size_t(launch.dynamic_shared_bytes)
        call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        kernel.call(call, ctypes.byref(blocks), kernel.handle, ctypes.c_int(threads), dynamic_bytes)
    finally:
        kernel.close()
    return blocks.value


def resident_clusters(binary: bytes, name: str, launch: Launch) -> int | None:
    """Return how many clusters of a launch the card holds at once; None without the library."""
    library, clusters = driver_library(), ctypes.c_int()
    if library is None:
        return None
    kernel = DriverFunction(library, binary, name)
    try:
        config = kernel.prepare(launch, 0)
        kernel.call(
            "cuOccupancyMaxActiveClusters", ctypes.byref(clusters), kernel.handle, ctypes.byref(config)
        )
    finally:
        kernel.close()
    return clusters.value
