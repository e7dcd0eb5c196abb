"""Calls of the driver's library through ctypes, which PyCUDA lacks."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

from harness.errors import LaunchError
from harness.records.types import Launch

_PERSISTING_L2_LIMIT, _ACCESS_POLICY_WINDOW, _ATTRIBUTE_BYTES = 6, 1, 64
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, and the size of
any attribute."""
_MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""


@functools.cache
def _library() -> Any:
    """Return the driver's library; None if it is not found by name."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def forget_persisting(stream: int) -> None:
    """Make persisting lines of the L2 normal, and allow no new ones. Older drivers and cards refuse."""
    library = _library()
    if library is None or not hasattr(library, "cuCtxResetPersistingL2Cache"):
        return
    no_window = (ctypes.c_byte * _ATTRIBUTE_BYTES)()
    library.cuStreamSetAttribute(ctypes.c_void_p(stream), _ACCESS_POLICY_WINDOW, no_window)
    library.cuCtxSetLimit(_PERSISTING_L2_LIMIT, ctypes.c_size_t(0))
    library.cuCtxResetPersistingL2Cache()


def resident_blocks(binary: bytes, name: str, launch: Launch) -> int | None:
    """Return the driver's occupancy of a launch; None without the library. Raises LaunchError.

    The binary is loaded once more, because PyCUDA does not expose the handle of a function.
    """
    library = _library()
    if library is None:
        return None

    def ask(call: str, *arguments: Any) -> None:
        if code := getattr(library, call)(*arguments):
            raise LaunchError(
                f"The driver does not tell how many blocks of {name} stay resident: {call} gave {code}."
            )

    module, function, blocks = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    ask("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(binary))
    try:
        ask("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        if launch.dynamic_shared_bytes > 48 * 1024:
            dynamic = ctypes.c_int(launch.dynamic_shared_bytes)
            ask("cuFuncSetAttribute", function, ctypes.c_int(_MAX_DYNAMIC_SHARED), dynamic)
        threads, dynamic_bytes = math.prod(launch.block), ctypes.c_size_t(launch.dynamic_shared_bytes)
        call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        ask(call, ctypes.byref(blocks), function, ctypes.c_int(threads), dynamic_bytes)
    finally:
        library.cuModuleUnload(module)
    return blocks.value
