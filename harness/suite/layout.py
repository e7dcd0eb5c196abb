"""Layouts of arrays in memory: element types, fastest index, padding between lines.

NumPy is imported where it is used: a process that only asks a worker to measure needs none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.errors import SuiteError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Order = Literal["C", "F"]

ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4")
"""Types that NumPy lacks. The package ml_dtypes provides them."""
_PACKED = ("int4", "uint4")
"""Types of which two share a byte, the first in its lower half. On the host each has its own byte."""
_ADDED = 2
"""Value of NumPy's `isbuiltin` for a type that a package adds."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype for a name. Raises SuiteError for an unknown name.

    ``tf32`` is float32 of which the hardware reads 10 bits of the fraction.
    """
    import numpy as np

    found: np.dtype[Any]
    if name in ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise SuiteError(f"{name} needs the package ml-dtypes: pip install 'ml-dtypes>=0.5'.") from None
        found = np.dtype(getattr(ml_dtypes, name))
        return found
    try:
        found = np.dtype("float32" if name == "tf32" else name)
    except TypeError:
        raise SuiteError(
            f"dtype {name!r} is unknown: expected NumPy's name of one, tf32 or {', '.join(ML_DTYPES)}."
        ) from None
    if found.kind not in "biuf" and found.isbuiltin != _ADDED:  # float64 could not hold it exactly
        raise SuiteError(
            f"dtype {name!r} is not of real numbers: describe complex ones as floats, with a last axis of 2."
        )
    return found


def element_bits(name: str) -> int:
    """Return the bits of an element in device memory."""
    return 4 if name in _PACKED else 8 * numpy_dtype(name).itemsize


def integer_limits(name: str) -> tuple[int, int] | None:
    """Return the smallest and the largest integer of a dtype; None for a dtype that is not integer."""
    if name in _PACKED:
        return (-8, 7) if name == "int4" else (0, 15)
    dtype = numpy_dtype(name)
    if dtype.kind not in "iu":
        return None
    import numpy as np

    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def exact_limits(name: str) -> tuple[int, int]:
    """Return two integers between which a dtype holds all integers exactly."""
    if limits := integer_limits(name):
        return limits
    dtype = numpy_dtype(name)
    if name in ML_DTYPES:
        import ml_dtypes

        most = 2 ** (int(ml_dtypes.finfo(dtype).nmant) + 1)
    elif dtype.kind == "f":
        import numpy as np

        most = 2 ** (int(np.finfo(dtype).nmant) + 1)
    else:
        most = 1
    return -most, most


def fits(value: float, name: str) -> bool:
    """Tell whether a dtype can hold a number: integers exactly, others rounded, infinity if the dtype has
    one.
    """
    import numpy as np

    if limits := integer_limits(name):
        return limits[0] <= value <= limits[1] and value == int(value)
    try:
        with np.errstate(over="ignore"):
            rounded = float(np.array(float(value)).astype(numpy_dtype(name)))
    except OverflowError:  # an integer larger than any float
        return False
    return rounded == value if math.isinf(value) else math.isfinite(rounded)


@dataclass(frozen=True)
class Layout:
    """An array in memory as adjacent lines of elements: rows, or columns with order F."""

    shape: tuple[int, ...]
    dtype: str
    order: Order = "C"
    ld: int | None = None
    """Elements from the start of a line to the start of the next; None without padding."""

    @property
    def inner(self) -> int:
        """Return the elements of a line."""
        return self.shape[-1 if self.order == "C" else 0] if self.shape else 1

    @property
    def lines(self) -> int:
        return math.prod(self.shape[:-1] if self.order == "C" else self.shape[1:])

    @property
    def line_bytes(self) -> int:
        return self.inner * element_bits(self.dtype) // 8

    @property
    def pitch_bytes(self) -> int:
        """Return the bytes from the start of a line to the start of the next."""
        return (self.ld or self.inner) * element_bits(self.dtype) // 8

    @property
    def padded(self) -> bool:
        return self.pitch_bytes > self.line_bytes

    @property
    def plain(self) -> bool:
        """Return True if it is NumPy's own layout."""
        return not self.padded and self.dtype not in _PACKED and (self.order == "C" or len(self.shape) < 2)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the array, including padding between its lines."""
        return self.lines * self.pitch_bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the elements from one index to the next, in each dimension."""
        steps, step = [1], self.ld or self.inner
        inwards = self.shape[-2::-1] if self.order == "C" else self.shape[1:]
        for extent in inwards:
            steps.append(step)
            step *= extent
        steps = steps[: len(self.shape)]
        return tuple(reversed(steps) if self.order == "C" else steps)

    def pack(self, array: NDArray[Any], padding: int) -> NDArray[np.uint8]:
        """Return the bytes of an array in memory, with `padding` between lines."""
        import numpy as np

        ordered = array if self.order == "C" else array.T
        values: NDArray[Any] = np.ascontiguousarray(ordered).reshape(-1).view(np.uint8)
        if self.dtype in _PACKED:
            values = (values[0::2] & 0xF) | (values[1::2] << 4)
        return self.filled(values.reshape(self.lines, self.line_bytes), padding) if self.padded else values

    def filled(self, content: int | NDArray[np.uint8], padding: int) -> NDArray[np.uint8]:
        """Return lines of one byte, or of the rows of `content`, with another byte between them."""
        import numpy as np

        whole = np.full((self.lines, self.pitch_bytes), padding, np.uint8)
        whole[:, : self.line_bytes] = content
        return whole.reshape(-1)

    def unpack(self, raw: NDArray[np.uint8]) -> NDArray[Any]:
        """Return an array of these bytes, as a view if possible."""
        import numpy as np

        dtype = numpy_dtype(self.dtype)
        if self.dtype not in _PACKED:
            return np.ndarray(
                self.shape, dtype, raw, strides=tuple(dtype.itemsize * step for step in self.strides)
            )
        values = raw.reshape(self.lines, self.pitch_bytes)[:, : self.line_bytes]
        halves: NDArray[Any] = np.stack((values & 0xF, values >> 4), axis=-1).astype(np.int8)
        whole = ((halves ^ 8) - 8 if self.dtype == "int4" else halves).astype(dtype)
        return whole.reshape(self.shape) if self.order == "C" else whole.reshape(self.shape[::-1]).T

    def written_between(self, raw: NDArray[np.uint8], padding: int) -> int:
        """Count the bytes between the lines that are no longer `padding`."""
        import numpy as np

        return int(
            np.count_nonzero(raw.reshape(self.lines, self.pitch_bytes)[:, self.line_bytes :] != padding)
        )


@dataclass(frozen=True)
class Parameter:
    """An argument of a kernel's function: an array, a scalar, or an axis as a 32-bit integer."""

    name: str
    dtype: str
    layout: Layout | None = None
    """Layout of an array; None for a scalar or an axis."""
