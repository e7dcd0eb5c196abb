"""The host's CPU: functions of Python packages, called directly.

It is a baseline for other backends: a plain loop on one core, a library's product on all cores, or compiled
code for this machine. Nothing is launched, so grid and block have no meaning.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.device import frameworks
from harness.device.backends.arguments import as_python
from harness.device.backends.base import (
    Argument,
    Built,
    HostMemory,
    Memory,
    Timing,
    host_function,
    host_resources,
)
from harness.device.machine import cpu_name
from harness.errors import BuildError, HarnessError, KernelError, OutOfMemoryError
from harness.records.types import DeviceInfo, Launch, Toolchain
from harness.suite.layout import Parameter
from harness.suite.sources import Program

_MOST = 2**31 - 1
_ALIGNMENT = 256
"""Alignment that compilers require for operands of a vector unit."""


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
class CpuBuilt(Built):
    program: Program
    call: Callable[..., object]
    python: frameworks.FrameworkFunction | None = None


class CpuDevice(HostMemory):
    """Calls functions. A call is complete when it returns. Caches are shared with the whole machine."""

    clock = "host"

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.toolchain = Toolchain(compiler=f"Python {platform.python_version()}, NumPy {np.__version__}")

    def build(self, program: Program) -> CpuBuilt:
        resources = host_resources(program, self.info.arch)
        if program.python is not None:
            python = frameworks.FrameworkFunction(program.python, frameworks.ExecutionContext())
            return CpuBuilt(program, python, python, resources=resources)
        if program.host is None:
            raise BuildError(f"{program.name} is no function of the host: {self.info.spec} cannot run it.")
        return CpuBuilt(program, host_function(program, 0), resources=resources)

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

    def release(self, memory: Memory) -> None:
        """Do nothing: the last view of an array frees it."""

    def first_launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:  # noqa: ARG002
        assert isinstance(built, CpuBuilt)
        if built.python is not None:
            kernels = built.python.first(arguments, self.synchronize)
            built.resources = frameworks.with_kernels(built.resources, kernels)

    def launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        self.timed(built, launch, arguments, 1)

    def timed(self, built: Built, launch: Launch, arguments: Sequence[Argument], launches: int) -> Timing:  # noqa: ARG002
        assert isinstance(built, CpuBuilt)
        python = built.python
        parts = zip(built.program.parameters, arguments, strict=True)
        given = [arguments] if python else [_as_host(*part) for part in parts]
        try:
            start_ns = time.perf_counter_ns()
            for _ in range(launches):
                built.call(*given)
            total_ns = float(time.perf_counter_ns() - start_ns)
        except HarnessError:
            raise
        except Exception as error:
            raise KernelError(f"{built.program.name} raised {type(error).__name__}: {error}") from error
        for result in python.results(arguments) if python else ():
            ctypes.memmove(result.destination, result.address, result.size_bytes)
        return lambda: total_ns

    def tick_ns(self) -> float:
        return max(1.0, time.get_clock_info("perf_counter").resolution * 1e9)


def _as_host(parameter: Parameter, argument: Argument) -> Any:
    """Return an array in its layout, a number as Python's, and an argument of a setup unchanged."""
    if parameter.layout is not None:
        return parameter.layout.unpack(argument)
    return as_python(argument)
