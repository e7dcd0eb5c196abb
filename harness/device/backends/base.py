"""The interface of every backend.

A backend is a module with two functions, `devices()` and `open_device(index)`, and a class derived from
`Device`. Work is enqueued in order and runs asynchronously. Times are read after `synchronize()`.
"""

from __future__ import annotations

import hashlib
import math
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import BuildError, GraphRefusedError, HarnessError, LaunchError, MeasureError
from harness.records.types import DeviceInfo, KernelLaunch, Launch, Resources, Toolchain
from harness.suite.sources import Program

if TYPE_CHECKING:  # a command, which has no arrays, would wait for it
    from numpy.typing import NDArray

Memory = Any
"""A device's own handle of an allocation or of a part of it; opaque to other modules."""

Place = tuple[Memory, int, int]
"""An allocation, an offset in it and a size, both in bytes."""

Argument = Any
"""A view of a Memory, or a by-value argument: a NumPy scalar, or raw bytes."""


def host_resources(program: Program, arch: str) -> Resources:
    """Return the resources of a host function: only its identity is known."""
    code = program.python.code_sha256 if program.python else program.sha256
    return Resources(binary_sha256=hashlib.sha256(f"{arch}\n{code}".encode()).hexdigest())


def host_function(program: Program, stream: int) -> Callable[..., object]:
    """Return the call for each launch of a host function. Raises BuildError."""
    assert program.host is not None
    try:
        return program.host(stream)
    except HarnessError:
        raise
    except Exception as error:
        raise BuildError(f"{program.name} could not be made: {type(error).__name__}: {error}") from error


MOST_HELD_NS = 200_000_000
"""Longest wait of a device for a host, in ns. The host may itself be waiting for the device."""
Looks = Sequence[tuple[Memory, int, Any]]
"""Places to read: an allocation, an offset in bytes, and the contiguous host array to fill."""

MOST_GRAPH_LAUNCHES = 512
"""Most launches in one CUDA graph. Capturing a launch takes the host some microseconds."""
POISON = 0xFF
"""Byte that fills memory before a kernel writes it. With all bits set, every IEEE format reads NaN."""

Timing = Callable[[], float]
"""Returns the device time in ns of its work. Call it after synchronize()."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The device's own counters at one moment."""

    cycles: float
    """Cycle count of one SM, always the same one: SMs count from different starts."""
    time_ns: float


Stamping = Callable[[], "Stamp | None"]
"""Reads a stamp after synchronize(); None if the device has no counters, or missed the stamp."""

Work = tuple[Callable[[], object], Callable[[], object]]
"""A function that prepares work whose counters are read, and a function that enqueues the work."""


@dataclass(kw_only=True)
class Built:
    """A kernel built for one device."""

    resources: Resources = field(default_factory=Resources)
    by_host: bool = False
    """True if host code enqueues the work, which may take longer than the work."""
    stateless: bool = False
    """True if the kernel certainly keeps nothing between launches except in its arguments."""
    code: str = ""
    """Hash of the code that runs, independent of the compiler; for a program that names its compiler."""
    steps: tuple[tuple[Built, int], ...] = ()
    """Kernels that run after it in a launch, each with its number of arguments, which are the first ones."""


def sequence(
    built: Built, launch: Launch, arguments: Sequence[Argument]
) -> list[tuple[Built, Launch, Sequence[Argument]]]:
    """Return the parts of a launch, in order."""
    begin, after = 0, []
    for (step, count), of_step in zip(built.steps, launch.steps, strict=True):
        after.append((step, of_step, arguments[begin : begin + count]))
        begin += count
    return [(built, launch, arguments[begin:]), *after]


class Device(Protocol):
    """An open device. Its methods raise BuildError, OutOfMemoryError, LaunchError and MeasureError.

    A method with a body here is the default for a device without the feature.
    """

    info: DeviceInfo
    toolchain: Toolchain
    clock: str
    """Name of the clock: cuda-event, opencl-profiling, gl-timer, host or scripted."""
    guard_bytes: int = 2**20
    """Bytes of a guard zone: wide enough for one tile row past the end of a matrix 4096 columns wide."""
    warms_up: bool = True
    """True if times depend on how long the device has been busy. Otherwise warm-up has no effect."""

    def compile(self, program: Program) -> None:  # noqa: ARG002
        """Compile into the cache if needed. Several threads may call it."""
        return

    def build(self, program: Program) -> Built:
        """Load a kernel onto the device, compiled or from the cache."""

    def resident_blocks(self, built: Built, launch: Launch) -> int | None:  # noqa: ARG002
        """Return the blocks of a launch that one multiprocessor holds at once; None if unknown."""
        return None

    def resident_grid(self, built: Built, launch: Launch) -> int | None:
        """Blocks of a launch that the whole device holds at once; None where the device cannot tell."""
        blocks = self.resident_blocks(built, launch)
        return None if blocks is None else blocks * (self.info.compute_units or 1)

    def free_bytes(self) -> int | None:
        """Return the memory that an allocation could still get; None if unknown."""

    def allocate(self, size_bytes: int) -> Memory: ...

    def view(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:
        """Return a part of an allocation, to pass as an argument; the offset is a multiple of 1 MiB."""

    def address(self, memory: Memory) -> int | None:  # noqa: ARG002
        """Return the address of an allocation; None if it has none."""
        return None

    def release(self, memory: Memory) -> None: ...

    def write(self, memory: Memory, offset_bytes: int, data: NDArray[Any]) -> None:
        """Copy a contiguous host array to the device, and wait for the copy."""

    def read(self, memory: Memory, offset_bytes: int, out: NDArray[Any]) -> None:
        """Fill a contiguous host array from the device, after all work enqueued before."""

    def fill(self, memory: Memory, offset_bytes: int, size_bytes: int, byte: int) -> None: ...

    def copy(self, source: Memory, destination: Memory, offset_bytes: int, size_bytes: int) -> None:
        """Enqueue a copy of the first bytes of one allocation to an offset in another."""

    def first_launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:  # noqa: ARG002
        """Call a function until it has compiled and tuned itself. Then `built.resources` has its kernels."""
        return

    def capture(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:  # noqa: ARG002
        """Capture a launch in a CUDA graph, which `launch` and `timed` replay. It may run the kernel.

        Raises GraphRefusedError if the launch cannot be captured, or two captures differ.
        """
        return

    def launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Enqueue a grid, in parts if `launch` has parts, which needs a program built for it."""

    def fill_results(
        self,
        built: Built,  # noqa: ARG002
        launch: Launch,  # noqa: ARG002
        arguments: Sequence[Argument],  # noqa: ARG002
    ) -> None:
        """Run the function and poison the memory of its results, because old results would hide
        early work.
        """
        return

    def launch_held(self, built: Built, launch: Launch, arguments: Sequence[Argument], looks: Looks) -> bool:  # noqa: ARG002
        """Launch while the queue is held, and read `looks`: memory that changed meanwhile did not wait for
        the queue.

        Return False without reading if the test is impossible, as for kernels on the harness's queue.
        """
        self.launch(built, launch, arguments)
        return False

    def timed(self, built: Built, launch: Launch, arguments: Sequence[Argument], launches: int) -> Timing:
        """Enqueue launches back to back, and return their total time. Call deliver() after it."""

    def deliver(self, built: Built, arguments: Sequence[Argument]) -> None:  # noqa: ARG002
        """Enqueue copies of returned results to their outputs. No time and no cycle count includes them."""
        return

    def flush_l2(self) -> None:
        """Enqueue work that evicts earlier arrays from the last-level cache, if the device can."""
        return

    def occupy(self, duration_ns: int) -> None:  # noqa: ARG002
        """Enqueue a busy wait, so that the following work runs without gaps. It may do nothing."""
        return

    def hold(self) -> Callable[[], None]:
        """Enqueue a wait for the host, and return a function that ends it, to call once the launches are
        enqueued.

        The queue must hold them, so they are a few hundred at most. The wait ends by itself after
        MOST_HELD_NS. A device without a canary may do nothing, because only a canary shows that a wait helps.
        """
        return lambda: None

    def stamp(self) -> Stamping:
        """Enqueue a reading of the device's counters, which costs at most a few microseconds of
        device time.
        """
        return lambda: None

    def count(self, works: Sequence[Work]) -> list[dict[str, float]]:  # noqa: ARG002
        """Return hardware counters of each of these works, by their names in harness.device.counters.

        All are done several times, in order. Raises MeasureError if the device has no counters, or this user
        may not read them.
        """
        raise MeasureError(f"The harness reads no hardware counters with the backend {self.info.backend}.")

    def launched(self, run: Callable[[], object]) -> list[tuple[KernelLaunch, float]]:  # noqa: ARG002
        """Return each kernel that `run` enqueues with its time in ns, in order; none if unknown.

        Raises MeasureError.
        """
        return []

    def captured_launches(
        self,
        built: Built,  # noqa: ARG002
        launch: Launch,  # noqa: ARG002
        arguments: Sequence[Argument],  # noqa: ARG002
    ) -> list[KernelLaunch]:
        """Return the kernels of a launch by its capture in a CUDA graph; none on a device without graphs.

        Raises GraphRefusedError for a launch that cannot be captured.
        """
        return []

    def canary(self) -> Timing | None:
        """Enqueue and time a small constant kernel, which reveals disturbances; None if there is none."""
        return None

    def tick_ns(self) -> float:
        """Return the measured resolution of the clock."""

    def globaltimer_tick_ns(self) -> float | None:
        """Return the measured resolution of the time in stamps; None without stamps."""
        return None

    def context_limits(self) -> dict[str, str]:
        """Return the limits of the device's context by name; none if the backend has no such limits."""
        return {}

    def synchronize(self) -> None:
        return

    def close(self) -> None:
        return


class HostMemory(Device, Protocol):
    """A device that uses host memory: a Memory is an array of bytes."""

    def view(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:
        return memory[offset_bytes : offset_bytes + size_bytes]

    def address(self, memory: Memory) -> int | None:
        return int(memory.ctypes.data)

    def write(self, memory: Memory, offset_bytes: int, data: NDArray[Any]) -> None:
        memory[offset_bytes : offset_bytes + data.nbytes] = data.reshape(-1).view("uint8")

    def read(self, memory: Memory, offset_bytes: int, out: NDArray[Any]) -> None:
        out.reshape(-1).view("uint8")[:] = memory[offset_bytes : offset_bytes + out.nbytes]

    def fill(self, memory: Memory, offset_bytes: int, size_bytes: int, byte: int) -> None:
        memory[offset_bytes : offset_bytes + size_bytes] = byte

    def copy(self, source: Memory, destination: Memory, offset_bytes: int, size_bytes: int) -> None:
        destination[offset_bytes : offset_bytes + size_bytes] = source[:size_bytes]


class Backend(Protocol):
    """Functions of a backend's module."""

    def devices(self) -> list[DeviceInfo]:
        """Return every device, without opening one. Raises DeviceError with a remedy."""

    def open_device(self, index: int) -> Device: ...


def compile_all(device: Device, programs: Iterable[Program]) -> None:
    """Compile several programs in parallel, each text once. The error of a broken one is raised when it is
    built.
    """

    def compile_one(program: Program) -> None:
        with suppress(HarnessError):
            device.compile(program)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        list(pool.map(compile_one, {program.compiled: program for program in programs}.values()))


def check_launch(launch: Launch, device: DeviceInfo, resources: Resources | None = None) -> None:
    """Raise LaunchError for a launch beyond the device's limits, or beyond the kernel's after the build."""
    for step in launch.steps:
        check_launch(step, device)
    needs = resources or Resources()
    threads = math.prod(launch.block)
    shared_bytes = launch.dynamic_shared_bytes + (needs.static_shared_bytes or 0)
    most_threads = min(device.max_threads_per_block, needs.max_threads_per_block or threads)
    if min(*launch.block, *launch.grid, *(launch.dispatch or (1,))) < 1:
        raise LaunchError(
            f"Grid {launch.grid}, block {launch.block} and dispatch {launch.dispatch} need at least 1 in "
            "every direction."
        )
    if threads > most_threads:
        raise LaunchError(
            f"A block of {_by(launch.block)} = {threads} threads is more than the {most_threads} that "
            f"{device.name} can run of this kernel: use a smaller block, or fewer registers per thread."
        )
    grid = tuple(map(min, launch.grid, launch.dispatch or launch.grid))
    for what, extents, most in (("Block", launch.block, device.max_block), ("Grid", grid, device.max_grid)):
        if any(map(operator.gt, extents, most)):
            largest = f"{device.name}'s largest {what.lower()} {_by(most)}"
            raise LaunchError(f"{what} {_by(extents)} exceeds {largest}.")
    _check_attributes(launch, device)
    if shared_bytes > device.max_shared_bytes:
        raise LaunchError(
            f"A block needs {shared_bytes} bytes of shared memory; {device.name} has "
            f"{device.max_shared_bytes} per block: use a smaller size or tile."
        )


_WITH_GRAPHS = ("cuda", "null")
"""Backends that replay CUDA graphs."""
MOST_CLUSTER_BLOCKS = 16
"""Largest cluster of any card; more than 8 blocks fit on some cards alone, which the driver tells."""


def _check_attributes(launch: Launch, device: DeviceInfo) -> None:
    """Raises LaunchError for a graph, a cluster or a cooperative grid that no kernel could have on the
    device.
    """
    if launch.graph and device.backend not in _WITH_GRAPHS:
        raise GraphRefusedError(
            f"{device.name} ({device.spec}) has no CUDA graphs: run it there without --graph, or without "
            "graph=True in its Kernel."
        )
    cluster = launch.cluster or (1, 1, 1)
    capability = device.compute_capability
    if (launch.cluster or launch.programmatic) and capability and tuple(capability) < (9, 0):
        what = "Clusters need" if launch.cluster else "Programmatic dependent launch needs"
        raise LaunchError(f"{what} sm_90; {device.name} is sm_{capability[0]}{capability[1]}.")
    if not 1 <= math.prod(cluster) <= MOST_CLUSTER_BLOCKS or min(cluster) < 1:
        raise LaunchError(
            f"A cluster of {_by(cluster)} blocks is not from 1 to {MOST_CLUSTER_BLOCKS} blocks, the most of "
            "any card: use a smaller cluster."
        )
    if any(map(operator.mod, launch.grid, cluster)):
        raise LaunchError(
            f"Grid {_by(launch.grid)} is no multiple of cluster {_by(cluster)}: round each direction up."
        )
    units, threads = device.compute_units, math.prod(launch.block)
    if launch.cooperative and units and device.max_threads_per_sm:
        check_resident(launch, units * (device.max_threads_per_sm // threads), device)


def check_resident(launch: Launch, resident_blocks: int | None, device: DeviceInfo) -> None:
    """Raises LaunchError for a cluster that does not fit, and for a cooperative grid larger than what is
    resident at once; None for `resident_blocks` where that cannot be told.
    """
    if resident_blocks is None:
        return
    if launch.cluster and not resident_blocks:
        raise LaunchError(
            f"Not one cluster of {_by(launch.cluster)} blocks fits on {device.name}: use a smaller cluster "
            "or block, or less shared memory."
        )
    if launch.cooperative and math.prod(launch.grid) > resident_blocks:
        raise LaunchError(
            f"The cooperative grid {_by(launch.grid)} has more than the {resident_blocks} blocks that "
            f"{device.name} holds at once: let each block do more work, with "
            "grid=lambda c: c.resident_blocks * c.device.sm_count."
        )


def check_parts(launch: Launch, *, in_parts: bool) -> None:
    """Refuse to launch a program in parts that was built for a whole grid: each part would repeat
    the first.
    """
    if launch.in_parts and not in_parts:
        raise LaunchError(
            f"Grid {_by(launch.grid)} is to be launched {_by(launch.dispatch or ())} blocks at a time, and "
            "the kernel was built for a whole one: give its launch to program()."
        )


def smallest_step(times_ns: Iterable[float]) -> float:
    """Return the smallest difference between distinct times of empty intervals, in ns: the clock's
    resolution.
    """
    distinct = sorted(set(times_ns))
    steps = [later - earlier for earlier, later in pairwise(distinct)] or distinct
    return float(min(step for step in [*steps, 1000] if step > 0))


def _by(extents: tuple[int, ...]) -> str:
    return "x".join(map(str, extents))
