"""Tensor maps: what Hopper's copy engine must know of an array, in the driver's own 128 bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import Case

BYTES = 128
ALIGNMENT = 64
"""Of the address that the driver writes a map to."""
TYPES = {"float16": 6, "float32": 7, "bfloat16": 9}
"""CUtensorMapDataType."""
SWIZZLE_128B = 3
"""CUtensorMapSwizzle: a row of a box is 128 bytes, in which its chunks of 16 bytes are exchanged."""
PROMOTION_256B = 3
"""CUtensorMapL2promotion: the L2 reads 256 bytes of an array at once."""
SPAN_BYTES = 128


def of_inputs(case: Case, arrays: Mapping[str, Any]) -> dict[str, bytes]:
    """Maps of A in boxes of BM rows, and of B in boxes of BK rows; zeros where the kernel uses none."""
    if case.ALIGNMENT == 1:
        return {"map_a": bytes(BYTES), "map_b": bytes(BYTES)}
    return {"map_a": encoded(arrays["a"], case.BM), "map_b": encoded(arrays["b"], case.BK)}


def of_all(case: Case, arrays: Mapping[str, Any]) -> dict[str, bytes]:
    """The same, and of C in boxes of the 64 rows that a warpgroup has."""
    whole = case.ALIGNMENT != 1
    return of_inputs(case, arrays) | {"map_c": encoded(arrays["c"], 64) if whole else bytes(BYTES)}


def encoded(array: Any, box_rows: int) -> bytes:
    """Map of a matrix in boxes of `box_rows` rows of 128 bytes, which land swizzled in shared memory.

    Raises RuntimeError if the driver refuses it: addresses and rows must begin at multiples of 16 bytes.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    rows, columns = array.shape
    pitch, element_bytes = array.strides
    held = ctypes.create_string_buffer(BYTES + ALIGNMENT)
    address = ctypes.addressof(held) + -ctypes.addressof(held) % ALIGNMENT
    code = driver.cuTensorMapEncodeTiled(
        ctypes.c_void_p(address),
        TYPES[array.dtype],
        2,  # dimensions, the innermost first
        ctypes.c_void_p(array.address),
        (ctypes.c_uint64 * 2)(columns, rows),
        (ctypes.c_uint64 * 1)(pitch),
        (ctypes.c_uint32 * 2)(SPAN_BYTES // element_bytes, box_rows),
        (ctypes.c_uint32 * 2)(1, 1),  # no element of a box is left out
        0,  # no interleaving
        SWIZZLE_128B,
        PROMOTION_256B,
        0,  # zeros outside of the matrix
    )
    if code:
        raise RuntimeError(
            f"cuTensorMapEncodeTiled gave {code} for {rows}x{columns} elements of {array.dtype} at "
            f"{array.address:#x}, rows {pitch} bytes apart: both must be multiples of 16."
        )
    return ctypes.string_at(address, BYTES)
