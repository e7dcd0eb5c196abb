"""A case's arrays on the device, each between two guard zones.

A kernel that writes past an array damages a guard zone, which is checked afterwards. Guard zones of inputs
are filled with NaN, which no masking multiplication by zero can hide. Guard zones of outputs have another
content. Otherwise a kernel that copies from beyond an input to beyond an output would leave the zone
unchanged.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.device.backends.base import POISON, Argument, Device, Memory, Place
from harness.errors import OutOfMemoryError, SuiteError
from harness.measure.memory_digest import MemoryDigests
from harness.suite.kernel import Generated, Kernel, PlacedArray, argument_names, workspaces
from harness.suite.layout import Layout, element_bits, fits, numpy_dtype
from harness.suite.problem import Case, Problem, computed
from harness.system.threads import side_by_side

if TYPE_CHECKING:
    from typing_extensions import Self

PIECE_BYTES = 2**22
"""Arrays are hashed and compared on the host in pieces of this size, in bytes."""
OUTPUT_GUARD = 0xFE
"""Fill byte of output guard zones: huge numbers in float32 and float64, NaN in float16. Input
zones differ."""

Kept = Mapping[str, Memory]
"""Copies of arrays on the device, by name."""


def _by_value(kernel: Kernel, name: str, value: Any, *, host: bool) -> Argument:
    """Return an argument from a setup: any value for a host function, else a NumPy scalar or bytes."""
    if host or (isinstance(value, np.generic) and not isinstance(value, np.void)):
        return value
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise SuiteError(
            f"Kernel {kernel.name!r}: its setup gave {name!r} as {type(value).__name__}; expected bytes, or "
            "a NumPy scalar, whose width is known, such as np.int32(4)."
        ) from None


def needed_bytes(problem: Problem, case: Case, guard_bytes: int) -> int:
    """Return the device memory of the case's arrays, including guard zones and stored initial contents."""
    layouts = {name: problem.layout(name, case) for name in problem.arrays}
    arrays = sum(layout.size_bytes + 2 * guard_bytes for layout in layouts.values())
    return arrays + sum(layouts[name].size_bytes for name in _copied_outputs(problem, layouts))


def _read_outputs(problem: Problem) -> set[str]:
    """Return the outputs that kernels read, because they have a content before a launch."""
    return {
        name for name, array in problem.outputs.items() if array.kind == "inout" or array.init is not None
    }


def _copied_outputs(problem: Problem, layouts: Mapping[str, Layout]) -> list[str]:
    """Return the outputs that are reset by a copy before a launch instead of a fill with one byte."""
    read = _read_outputs(problem)
    return [name for name in problem.outputs if name in read or layouts[name].padded]


def same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Tell whether arrays of one type are equal bit for bit: NaN equals NaN, and 0.0 differs from -0.0."""
    one, other = map(_bytes, (one, other))
    # Compare piece by piece: different arrays mostly differ early.
    return one.size == other.size and all(
        np.array_equal(one[start : start + PIECE_BYTES], other[start : start + PIECE_BYTES])
        for start in range(0, one.size, PIECE_BYTES)
    )


def digest(arrays: Iterable[NDArray[Any]]) -> str:
    """Return a digest of the digests of the arrays' pieces, in order. Threads compute them in parallel."""
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        data = _bytes(array)
        pieces = [data[start : start + PIECE_BYTES] for start in range(0, max(1, data.size), PIECE_BYTES)]
        for piece in side_by_side(_digest, pieces):
            found.update(piece)
    return found.hexdigest()


def _digest(piece: NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(piece.data, digest_size=16).digest()


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Buffers:
    """The arrays of one case on a device; a context manager. Raises OutOfMemoryError before allocating."""

    def __init__(self, device: Device, problem: Problem, case: Case, *, guarded: bool = True) -> None:
        """Allocate the arrays. Without guard zones, a simulator that knows where an array ends sees accesses
        beyond it.
        """
        self.guard_bytes = guard_bytes = device.guard_bytes if guarded else 0
        needed, free = needed_bytes(problem, case, guard_bytes), device.free_bytes()
        limit = (device.info.memory_bytes or 0) if free is None else free
        if needed > limit:
            raise OutOfMemoryError(
                f"{case.id} needs {needed / 2**30:.1f} GiB on the device; {device.info.name} has "
                f"{limit / 2**30:.1f} GiB free: use a smaller size."
            )
        self.device, self.problem, self.case = device, problem, case
        self.layouts = {name: problem.layout(name, case) for name in problem.arrays}
        self.sizes = {name: layout.size_bytes for name, layout in self.layouts.items()}
        self.restores = bool(_read_outputs(problem))
        """True if kernels read their outputs, so that these are reset before each launch."""
        self.whole: dict[str, Memory] = {}
        self.views: dict[str, Memory] = {}
        self.first: dict[str, Memory] = {}
        """Initial content of some outputs, by name."""
        self._allocated: list[Memory] = []
        self._workspaces: dict[tuple[str, int], Memory] = {}
        """Workspaces by name and size in bytes, guard zones included. Compared kernels share equal ones."""
        self._given: list[object] = []
        """Results of setups. The arrays keep them alive, because setups may allocate memory."""
        try:
            for name in _copied_outputs(problem, self.layouts):
                self.first[name] = self._allocate(self.sizes[name])
                if name not in problem.inputs:
                    device.write(self.first[name], 0, self._filled(name))
            for name, size_bytes in self.sizes.items():
                self.whole[name] = self._allocate(size_bytes + 2 * guard_bytes)
                self.views[name] = device.view(self.whole[name], guard_bytes, size_bytes)
                for begin in (0, guard_bytes + size_bytes) if guard_bytes else ():
                    device.fill(self.whole[name], begin, guard_bytes, self._guard(name))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for container in (self.views, self._given, self._workspaces, self.first, self.whole):
            container.clear()
        while self._allocated:
            self.device.release(self._allocated.pop())

    def _allocate(self, size_bytes: int) -> Memory:
        self._allocated.append(self.device.allocate(size_bytes))
        return self._allocated[-1]

    def _guard(self, name: str) -> int:
        return OUTPUT_GUARD if name in self.problem.outputs else POISON

    def _filled(self, name: str) -> NDArray[np.uint8]:
        """Return the content of an output before a launch."""
        layout, value = self.layouts[name], self.problem.arrays[name].init
        if value is None:
            return layout.filled(POISON, self._guard(name))
        if not fits(value, layout.dtype):
            raise SuiteError(f"Output {name!r} has init={value!r}, which {layout.dtype} cannot hold.")
        return self.packed(name, np.full(layout.shape, value).astype(numpy_dtype(layout.dtype)))

    def packed(self, name: str, data: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the bytes of an array that holds these data."""
        return self.layouts[name].pack(data, self._guard(name))

    def write(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Copy data into the arrays. Raises SuiteError for data of another size than their array."""
        self._check(data)
        for name, array in data.items():
            packed = self.packed(name, array)
            self.device.write(self.whole[name], self.guard_bytes, packed)
            if name in self.first:
                self.device.write(self.first[name], 0, packed)

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
        """Copy data to the device beside the arrays, or into `place`; None if memory is short. Raises as
        write() does.
        """
        self._check(data)
        kept = place or self.room(data)
        for name, memory in (kept or {}).items():
            self.device.write(memory, 0, self.packed(name, data[name]))
        return kept

    def keep_written(self) -> Kept | None:
        """Return copies of the inputs as `keep` does, from the arrays, whose inputs must be as written."""
        kept = self.room(self.problem.inputs)
        for name, memory in (kept or {}).items():
            self.device.copy(self.first.get(name, self.views[name]), memory, 0, self.sizes[name])
        return kept

    def room(self, names: Iterable[str]) -> Kept | None:
        """Return further memory for copies of these arrays; None if memory is short."""
        sizes = {name: self.sizes[name] for name in names}
        needed, free = sum(sizes.values()), self.device.free_bytes()
        # Use at most half of the free memory, or an eighth of all if the free memory is unknown. Copies must
        # not cause a failure.
        if needed > ((self.device.info.memory_bytes or 0) // 8 if free is None else free // 2):
            return None
        try:
            return {name: self._allocate(size_bytes) for name, size_bytes in sizes.items()}
        except OutOfMemoryError:
            return None

    def save(self, kept: Kept) -> None:
        """Enqueue a copy of these arrays into `kept`."""
        for name, memory in kept.items():
            self.device.copy(self.views[name], memory, 0, self.sizes[name])

    def restore(self, kept: Kept) -> None:
        """Enqueue a copy of kept data over the inputs."""
        for name, memory in kept.items():
            self.device.copy(memory, self.whole[name], self.guard_bytes, self.sizes[name])
            if name in self.first:
                self.device.copy(memory, self.first[name], 0, self.sizes[name])

    def begin(self) -> None:
        """Reset the outputs that kernels read to their content before a launch. Other outputs stay."""
        for name in _read_outputs(self.problem) & self.first.keys():
            self.device.copy(self.first[name], self.whole[name], self.guard_bytes, self.sizes[name])

    def poison(self) -> None:
        """Fill every output with NaN or its content before a launch, and every workspace with NaN."""
        for name in self.problem.outputs:
            if name in self.first:
                self.device.copy(self.first[name], self.whole[name], self.guard_bytes, self.sizes[name])
            else:
                self.device.fill(self.whole[name], self.guard_bytes, self.sizes[name], POISON)
        for (_, size_bytes), whole in self._workspaces.items():
            self.device.fill(whole, self.guard_bytes, size_bytes, POISON)

    def outputs(self, kept: Kept | None = None) -> Iterator[Place]:
        """Yield the memory of every output, or of its copy in `kept`."""
        memory, begin = (self.whole, self.guard_bytes) if kept is None else (kept, 0)
        for name in self.problem.outputs:
            yield memory[name], begin, self.sizes[name]

    def spots(self, count: int, most_bytes: int) -> Iterator[tuple[Memory, int, NDArray[np.uint8]]]:
        """Yield places in each output with their content before a launch: allocation, offset and bytes."""
        for name in self.problem.outputs:
            size_bytes = self.sizes[name]
            for place in np.linspace(0, max(0, size_bytes - most_bytes), count, dtype=np.int64):
                held = np.full(min(size_bytes, most_bytes), POISON, np.uint8)
                if name in self.first:
                    self.device.read(self.first[name], int(place), held)
                yield self.whole[name], self.guard_bytes + int(place), held

    def read(self, name: str, part: tuple[slice, ...] = (), kept: Kept | None = None) -> NDArray[Any]:
        """Return an array or its copy in `kept`, in whole or in part."""
        layout = self.layouts[name]
        if not layout.plain or any(each != slice(None) for each in part[1:]) or not part:
            return layout.unpack(self._raw(name, kept))[part]
        start, stop, _ = part[0].indices(layout.shape[0])
        row_bytes = self.sizes[name] // layout.shape[0]
        lines = dataclasses.replace(layout, shape=(stop - start, *layout.shape[1:]))
        return lines.unpack(self._raw(name, kept, start * row_bytes, (stop - start) * row_bytes))

    def _raw(
        self, name: str, kept: Kept | None = None, start: int = 0, size_bytes: int | None = None
    ) -> NDArray[np.uint8]:
        out = np.empty(self.sizes[name] if size_bytes is None else size_bytes, np.uint8)
        memory, begin = (self.whole, self.guard_bytes) if kept is None else (kept, 0)
        self.device.read(memory[name], begin + start, out)
        return out

    def damage(self, inputs: Mapping[str, NDArray[Any]], digests: MemoryDigests | None = None) -> str:
        """Return a sentence on what a kernel wrote outside its arrays or into inputs; empty if nothing.

        `digests` are those of the process for this device, if it has any.
        """
        digests = digests or MemoryDigests(self.device, "")
        found: list[str] = []
        for (name, size_bytes), whole in self._workspaces.items():
            found += self._beside(name, size_bytes, whole, OUTPUT_GUARD)
        for name, size_bytes in self.sizes.items():
            found += self._beside(name, size_bytes, self.whole[name], self._guard(name))
            if self.layouts[name].padded and (
                touched := self.layouts[name].written_between(self._raw(name), self._guard(name))
            ):
                found.append(f"{touched} bytes in the padding of {name}")
        read = ((name, data) for name, data in inputs.items() if name not in self.problem.outputs)
        changed = [name for name, data in read if self._has_changed(name, data, digests)]
        outside = f"The kernel wrote outside its arrays: {', '.join(found)}." if found else ""
        inside = f"The kernel changed its inputs: {', '.join(changed)}." if changed else ""
        return " ".join(filter(None, (outside, inside)))

    def _has_changed(self, name: str, data: NDArray[Any], digests: MemoryDigests) -> bool:
        if self.layouts[name].padded:  # Padding between the lines is reported separately.
            return not same_bits(self.read(name), data)
        place = self.whole[name], self.guard_bytes, self.sizes[name]
        return not digests.holds(place, self.packed(name, data))

    def _beside(self, name: str, size_bytes: int, whole: Memory, guard: int) -> Iterator[str]:
        """Yield a sentence for each write into the guard zones on both sides of an array or a workspace."""
        zone = np.empty(self.guard_bytes, np.uint8)
        for side, offset in (("before", 0), ("after", self.guard_bytes + size_bytes)):
            self.device.read(whole, offset, zone)
            if touched := int(np.count_nonzero(zone != guard)):
                yield f"{touched} bytes {side} {name}"

    def arguments(
        self, kernel: Kernel, problem: Problem | None = None, case: Case | None = None
    ) -> list[Argument]:
        """Return the kernel's arguments in order, and call its setup.

        Arrays are device views, scalars have their dtypes, and axes are 32-bit integers. `problem` and `case`
        are the kernel's own if they differ from those of the arrays.
        """
        problem, case = problem or self.problem, case or self.case
        arguments: dict[str, Argument] = {name: np.int32(size) for name, size in case.sizes.items()}
        for name, value in case.scalars.items():
            if name in problem.scalars:
                arguments[name] = numpy_dtype(problem.scalars[name].dtype).type(value)
        sizes = workspaces(kernel, case)
        arguments |= {name: self._workspace(name, size) for name, size in sizes.items()} | self.views
        if kernel.setup is not None:
            layouts = self.layouts | {name: Layout((size,), "uint8") for name, size in sizes.items()}
            views = {name: (arguments[name], layout) for name, layout in layouts.items()}
            arguments |= self._set_up(kernel, case, views)
        names = argument_names(problem, kernel)
        for name in names:
            if name not in arguments:
                what = f"{name!r}, which is no array, scalar or axis of its problem"
                given = "" if kernel.setup is None else " and nothing that its setup gave"
                raise SuiteError(f"Kernel {kernel.name!r} has argument {what}{given}.")
        return [arguments[name] for name in names]

    def _workspace(self, name: str, size_bytes: int) -> Memory:
        """Return a view of a kernel's workspace, allocated if there is none of this name and size."""
        key = name, size_bytes
        if key not in self._workspaces:
            whole = self._workspaces[key] = self._allocate(size_bytes + 2 * self.guard_bytes)
            self.device.fill(whole, 0, size_bytes + 2 * self.guard_bytes, OUTPUT_GUARD)
            self.device.fill(whole, self.guard_bytes, size_bytes, POISON)
        return self.device.view(self._workspaces[key], self.guard_bytes, size_bytes)

    def _set_up(
        self, kernel: Kernel, case: Case, views: Mapping[str, tuple[Memory, Layout]]
    ) -> dict[str, Argument]:
        """Return a kernel's arguments from its setup, by name."""
        arrays = {}
        for name, (view, layout) in views.items():
            steps = tuple(step * element_bits(layout.dtype) // 8 for step in layout.strides)
            address = self.device.address(view)
            arrays[name] = PlacedArray(address, layout.shape, layout.dtype, steps, layout.size_bytes)
        setup = kernel.setup
        assert setup is not None
        given = computed(kernel.name, "setup", lambda case: setup(case, arrays), case)
        if not isinstance(given, Mapping):
            raise SuiteError(f"Kernel {kernel.name!r}: its setup gave {given!r}; expected arguments by name.")
        self._given.append(given)
        host = not isinstance(kernel.source_for(self.device.info.backend), (str, Generated))
        return {name: _by_value(kernel, name, value, host=host) for name, value in given.items()}
