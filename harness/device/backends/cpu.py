"""The host's own processor: functions of Python packages, called as they are.

What other backends are held against: a plain loop on one core, a library's product on all of them, a
compiler's code for this machine. There is nothing to launch, so a grid and a block have no meaning here.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.device.backends.base import Argument, Built, Looks, Memory, Stamping, Timing
from harness.device.machine import cpu_name
from harness.errors import BuildError, KernelError, OutOfMemoryError
from harness.records import DeviceInfo, Launch, Resources, Toolchain
from harness.spec.sources import Program

_MOST = 2**31 - 1
_ALIGNMENT = 256
"""Compilers ask for that of a vector unit's operands."""


def devices() -> list[DeviceInfo]:
    import psutil

    return [
        DeviceInfo(
            spec="cpu:0",
            backend="cpu",
            name=cpu_name(),
            vendor=platform.machine(),
            driver=platform.release(),
            kind="cpu",
            arch=f"{platform.machine()} {cpu_name()}",
            compute_units=os.cpu_count() or 1,
            memory_bytes=int(psutil.virtual_memory().total),
            max_threads_per_block=_MOST,
            max_block=(_MOST, _MOST, _MOST),
            max_grid=(_MOST, _MOST, _MOST),
            max_shared_bytes=_MOST,
        )
    ]


def open_device(index: int) -> CpuDevice:
    return CpuDevice(devices()[index])


@dataclass
class CpuBuilt:
    program: Program
    call: Callable[..., object]
    resources: Resources
    cached: bool = False
    stateless: bool = False


class CpuDevice:
    clock = "host"

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.toolchain = Toolchain(compiler=f"Python {platform.python_version()}, NumPy {np.__version__}")

    def compile(self, program: Program) -> None:
        """Nothing: what a function compiles, it keeps in its own process."""

    def build(self, program: Program) -> CpuBuilt:
        if program.host is None:
            raise BuildError(f"{program.name} is no function of the host: {self.info.spec} cannot run it.")
        try:
            call = program.host(0)
        except Exception as error:
            raise BuildError(f"{program.name} could not be made: {type(error).__name__}: {error}") from error
        identity = hashlib.sha256(f"{self.info.arch}\n{program.sha256}".encode()).hexdigest()
        return CpuBuilt(program, call, Resources(binary_sha256=identity))

    def free_bytes(self) -> int:
        import psutil

        return int(psutil.virtual_memory().available)

    def allocate(self, size_bytes: int) -> Memory:
        try:
            whole = np.empty(size_bytes + _ALIGNMENT, np.uint8)
        except MemoryError as error:
            raise OutOfMemoryError(
                f"Allocating {size_bytes} bytes: the host has no room ({error})."
            ) from None
        begin = -whole.ctypes.data % _ALIGNMENT
        return whole[begin : begin + size_bytes]

    def view(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:
        return memory[offset_bytes : offset_bytes + size_bytes]

    def release(self, memory: Memory) -> None:
        """Nothing: the last view of an array frees it."""

    def write(self, memory: Memory, offset_bytes: int, data: NDArray[Any]) -> None:
        memory[offset_bytes : offset_bytes + data.nbytes] = data.reshape(-1).view(np.uint8)

    def read(self, memory: Memory, offset_bytes: int, out: NDArray[Any]) -> None:
        out.reshape(-1).view(np.uint8)[:] = memory[offset_bytes : offset_bytes + out.nbytes]

    def fill(self, memory: Memory, offset_bytes: int, size_bytes: int, byte: int) -> None:
        memory[offset_bytes : offset_bytes + size_bytes] = byte

    def copy(self, source: Memory, destination: Memory, offset_bytes: int, size_bytes: int) -> None:
        destination[offset_bytes : offset_bytes + size_bytes] = source[:size_bytes]

    def launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        self.timed(built, launch, arguments, 1)

    def launch_held(self, built: Built, launch: Launch, arguments: Sequence[Argument], looks: Looks) -> bool:  # noqa: ARG002
        """Not told: a call runs at once."""
        self.launch(built, launch, arguments)
        return False

    def timed(self, built: Built, launch: Launch, arguments: Sequence[Argument], launches: int) -> Timing:  # noqa: ARG002
        assert isinstance(built, CpuBuilt)
        typed = [_typed(*each) for each in zip(built.program.parameters, arguments, strict=True)]
        try:
            start_ns = time.perf_counter_ns()
            for _ in range(launches):
                built.call(*typed)
            total_ns = float(time.perf_counter_ns() - start_ns)
        except Exception as error:
            raise KernelError(f"{built.program.name} raised {type(error).__name__}: {error}") from error
        return lambda: total_ns

    def flush_l2(self) -> None:
        """Nothing: a CPU's caches are shared with the whole machine."""

    def occupy(self, duration_ns: int) -> None:
        """Nothing: a call has ended when it returns."""

    def hold(self) -> Callable[[], None]:
        return lambda: None

    def stamp(self) -> Stamping:
        return lambda: None

    def canary(self) -> None:
        return None

    def globaltimer_tick_ns(self) -> None:
        return None

    def tick_ns(self) -> float:
        return max(1.0, time.get_clock_info("perf_counter").resolution * 1e9)

    def synchronize(self) -> None:
        """Nothing: a call has ended when it returns."""

    def close(self) -> None:
        """Nothing was opened."""


def _typed(parameter: Any, argument: Argument) -> Any:
    if parameter.shape is None:
        return int(argument)
    return argument.view(parameter.dtype).reshape(parameter.shape)
