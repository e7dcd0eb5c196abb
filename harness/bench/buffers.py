"""A case's arrays on the device, each between two guard zones.

A kernel that writes past an array damages a zone, which is looked at afterwards. The zones of inputs are
filled with NaN: a kernel that reads past an input gets it, and no masking multiplication by zero can hide it.
The zones of outputs are filled with something else, or a kernel that copies from beyond an input to beyond an
output would leave the damage looking intact.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.device.backends.base import Argument, Device, Memory
from harness.errors import OutOfMemoryError, SuiteError
from harness.spec.suite import Case, Kernel, Problem, argument_names, numpy_dtype

if TYPE_CHECKING:
    from typing_extensions import Self

GUARD_BYTES = 2**20
"""Per side. Wide enough for one tile row past the end of a matrix 4096 columns wide."""
POISON = 0xFF
"""Every IEEE format reads a word of ones as NaN."""
PIECE_BYTES = 2**22
"""Arrays are hashed and compared on the host in pieces of this size."""
_OUTPUT_GUARD = 0xFE
"""Huge numbers in float32 and float64, NaN in float16: not what a read past an input gives."""

Kept = Mapping[str, Memory]
"""Inputs put aside on the device, by name."""


def needed_bytes(problem: Problem, case: Case) -> int:
    """Device memory that the case's arrays take, guard zones included."""
    return sum(_size_bytes(problem, case, name) + 2 * GUARD_BYTES for name in problem.arrays)


def _size_bytes(problem: Problem, case: Case, name: str) -> int:
    array = problem.arrays[name]  # in Python's integers: NumPy's would overflow for a huge size
    return math.prod(array.shape_at(case)) * numpy_dtype(array.dtype_at(case)).itemsize


def same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays of one type are equal bit for bit: NaN is itself, and zero is not minus zero."""
    one, other = map(_bytes, (one, other))
    # Piece by piece: what differs mostly does so from the start.
    return one.size == other.size and all(
        np.array_equal(one[start : start + PIECE_BYTES], other[start : start + PIECE_BYTES])
        for start in range(0, one.size, PIECE_BYTES)
    )


def digest(arrays: Iterable[NDArray[Any]]) -> str:
    """A digest of the arrays' bytes, in order: one of the digests of their pieces, which are made side by
    side, as one processor takes a hundred times as long for it as a card takes to write them.
    """
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        data = _bytes(array)
        pieces = [data[start : start + PIECE_BYTES] for start in range(0, max(1, data.size), PIECE_BYTES)]
        for piece in _HASHING.map(_digest, pieces) if len(pieces) > 1 else map(_digest, pieces):
            found.update(piece)
    return found.hexdigest()


def _digest(piece: NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(piece.data, digest_size=16).digest()


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


_HASHING = ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1), thread_name_prefix="digest")
"""hashlib lets go of the interpreter's lock for what is as long as a piece. Threads start when used."""


class Arena:
    """The arrays of one case on one device; a context manager that frees them. Raises OutOfMemoryError,
    before allocating anything, where they cannot fit.
    """

    def __init__(self, device: Device, problem: Problem, case: Case) -> None:
        needed, free = needed_bytes(problem, case), device.free_bytes()
        limit = (device.info.memory_bytes or 0) if free is None else free
        if needed > limit:
            raise OutOfMemoryError(
                f"{case.id} needs {needed / 2**30:.1f} GiB on the device; {device.info.name} has "
                f"{limit / 2**30:.1f} GiB free: use a smaller size."
            )
        self.device, self.problem, self.case = device, problem, case
        self.sizes = {name: _size_bytes(problem, case, name) for name in problem.arrays}
        self.whole: dict[str, Memory] = {}
        self.views: dict[str, Memory] = {}
        self._kept: list[Memory] = []
        try:
            for name, size_bytes in self.sizes.items():
                self.whole[name] = device.allocate(size_bytes + 2 * GUARD_BYTES)
                self.views[name] = device.view(self.whole[name], GUARD_BYTES, size_bytes)
                device.fill(self.whole[name], 0, GUARD_BYTES, self._guard(name))
                device.fill(self.whole[name], GUARD_BYTES + size_bytes, GUARD_BYTES, self._guard(name))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.views.clear()
        while self._kept:
            self.device.release(self._kept.pop())
        while self.whole:
            self.device.release(self.whole.popitem()[1])

    def _guard(self, name: str) -> int:
        return _OUTPUT_GUARD if name in self.problem.outputs else POISON

    def write(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Raises SuiteError for data that do not fit their arrays: they would be written past them."""
        self._check(data)
        for name, array in data.items():
            self.device.write(self.whole[name], GUARD_BYTES, np.ascontiguousarray(array))

    def _check(self, data: Mapping[str, NDArray[Any]]) -> None:
        inputs = self.problem.inputs
        if data.keys() != inputs.keys():
            raise SuiteError(
                f"data() of {self.case.suite} gave {', '.join(data) or 'nothing'}; "
                f"expected {', '.join(inputs) or 'nothing'}."
            )
        for name, array in data.items():
            shape, dtype = inputs[name].shape_at(self.case), numpy_dtype(inputs[name].dtype_at(self.case))
            found = np.shape(array), getattr(array, "dtype", type(array).__name__)
            if found != (shape, dtype):
                raise SuiteError(
                    f"data() of {self.case.suite} gave {found[1]} of shape {found[0]} for input {name!r}; "
                    f"expected {dtype} of shape {shape}."
                )

    def keep(self, data: Mapping[str, NDArray[Any]], place: Kept | None = None) -> Kept | None:
        """Put data aside on the device, for restore(), in the place of others if that is given; None where
        memory is short. Raises as write() does.
        """
        self._check(data)
        kept = place or self.room(data)
        for name, memory in (kept or {}).items():
            self.device.write(memory, 0, np.ascontiguousarray(data[name]))
        return kept

    def room(self, names: Iterable[str]) -> Kept | None:
        """Memory for these arrays beside the arena; None where it is short."""
        sizes = {name: self.sizes[name] for name in names}
        needed, free = sum(sizes.values()), self.device.free_bytes()
        # Not more than half of what is free, or an eighth of all where nobody tells: it is worth no failure.
        if needed > ((self.device.info.memory_bytes or 0) // 8 if free is None else free // 2):
            return None
        kept = {}
        try:
            for name, size_bytes in sizes.items():
                kept[name] = self.device.allocate(size_bytes)
                self._kept.append(kept[name])
        except OutOfMemoryError:
            return None
        return kept

    def save(self, kept: Kept) -> None:
        """Enqueue a copy of these arrays."""
        for name, memory in kept.items():
            self.device.copy(self.views[name], memory, 0, self.sizes[name])

    def restore(self, kept: Kept) -> None:
        """Enqueue a copy of kept data over the inputs."""
        for name, memory in kept.items():
            self.device.copy(memory, self.whole[name], GUARD_BYTES, self.sizes[name])

    def poison(self) -> None:
        """Fill every output with NaN."""
        for memory, offset_bytes, size_bytes in self.outputs():
            self.device.fill(memory, offset_bytes, size_bytes, POISON)

    def outputs(self) -> Iterator[tuple[Memory, int, int]]:
        """Where each output lies: its allocation, its offset in it, its size in bytes."""
        for name in self.problem.outputs:
            yield self.whole[name], GUARD_BYTES, self.sizes[name]

    def digest(self, kept: Kept | None = None) -> str:
        """A digest of every output, or of their copies, bit for bit."""
        return digest(self.read(name, kept) for name in self.problem.outputs)

    def read(self, name: str, kept: Kept | None = None) -> NDArray[Any]:
        """An array, or its copy in `kept`."""
        array = self.problem.arrays[name]
        out = np.empty(array.shape_at(self.case), numpy_dtype(array.dtype_at(self.case)))
        memory, begin = (self.whole, GUARD_BYTES) if kept is None else (kept, 0)
        self.device.read(memory[name], begin, out)
        return out

    def damage(self, inputs: Mapping[str, NDArray[Any]]) -> str:
        """What a kernel wrote that it should not have, guard zones and inputs, in words; empty if nothing."""
        zone = np.empty(GUARD_BYTES, np.uint8)
        found = []
        for name, size_bytes in self.sizes.items():
            for side, offset in (("before", 0), ("after", GUARD_BYTES + size_bytes)):
                self.device.read(self.whole[name], offset, zone)
                if touched := int(np.count_nonzero(zone != self._guard(name))):
                    found.append(f"{touched} bytes {side} {name}")
        changed = [name for name, data in inputs.items() if not same_bits(self.read(name), data)]
        outside = f"The kernel wrote outside its arrays: {', '.join(found)}." if found else ""
        inside = f"The kernel changed its inputs: {', '.join(changed)}." if changed else ""
        return " ".join(filter(None, (outside, inside)))

    def arguments(self, kernel: Kernel, problem: Problem | None = None) -> list[Argument]:
        """The kernel's arguments in order: arrays as device views, axes as 32-bit integers.

        `problem` is the kernel's own where that is another one of the same arrays.
        """
        sizes, names = self.case.sizes, argument_names(problem or self.problem, kernel)
        for name in names:
            if name not in self.views and name not in sizes:
                what = f"{name!r}, which is no array and no axis of its problem"
                raise SuiteError(f"Kernel {kernel.name!r} has argument {what}.")
        return [self.views[name] if name in self.views else np.int32(sizes[name]) for name in names]
