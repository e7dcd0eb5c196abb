"""Compute shaders through ModernGL, by EGL and without a display: cards of any vendor, and Mesa's llvmpipe
where there is none. OpenGL's own calls are in harness.device.backends.gl.
"""

from __future__ import annotations

__all__ = ["OpenGLDevice", "devices", "open_device"]

import contextlib
import functools
import hashlib
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.device.backends.base import Argument, Built, Looks, Memory, Stamping, Timing
from harness.device.backends.gl import Context, device_count
from harness.errors import BuildError, DeviceError, KernelError, LaunchError, MeasureError, OutOfMemoryError
from harness.records import DeviceInfo, Extent3, Launch, Resources, Toolchain
from harness.spec.sources import Program
from harness.spec.suite import Parameter

_FILE = re.compile(r"^#line \d+ (\d+) // (.+)$", re.MULTILINE)
_PLACE = re.compile(r"^(\d+)([:(]\d+)", re.MULTILINE)

_SPIN = """\
#version 430
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Sink { float sink[]; };
uniform int rounds;

void main()
{
    float value = float(gl_LocalInvocationID.x);
    for (int i = 0; i < rounds; ++i)
        for (int j = 0; j < 256; ++j)
            value = value * 0.999 + 1.0;
    if (value == -1.0)
        sink[0] = value;
}
"""
_SPIN_NS = 3e6
"""How long the timer is watched for before it is believed."""
_MOST_ROUNDS = 2**16 - 1
"""Mesa's llvmpipe leaves any loop after as many."""

_BARRIERS = 0x2000 | 0x0200
"""What a shader stored is seen by the next one, and by copies."""


@functools.cache
def _found() -> tuple[tuple[int, DeviceInfo], ...]:
    """EGL's devices that give a context, each with EGL's number for it: cards first, as in OpenCL.

    Only a context tells what a device is, so each is opened, once in a process.
    """
    described, problems = [], []
    for egl_index in range(device_count()):
        try:
            context = Context(egl_index)
            described.append((egl_index, context.describe()))
            context.close()
        except DeviceError as error:
            problems.append(error)
        except Exception as error:  # noqa: BLE001 - a driver that answers nonsense must not hide the others
            problems.append(DeviceError(f"EGL's device {egl_index} cannot be described ({error!r})."))
    if not described:
        raise problems[0]
    described.sort(key=lambda found: found[1].kind == "cpu")
    return tuple(
        (egl_index, replace(info, spec=f"opengl:{index}"))
        for index, (egl_index, info) in enumerate(described)
    )


def devices() -> list[DeviceInfo]:
    return [info for _, info in _found()]


def open_device(index: int) -> OpenGLDevice:
    try:
        return OpenGLDevice(index)
    except MeasureError as error:
        raise DeviceError(error.message, log=error.log) from error


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A buffer, or a part of one."""

    buffer: Any
    offset_bytes: int
    size_bytes: int


@dataclass
class OpenGLBuilt:
    name: str
    shader: Any
    parameters: tuple[Parameter, ...]
    local_size: Extent3
    resources: Resources
    cached: bool = False
    """Never: what drivers keep of compiled shaders, they keep where nobody can see it."""
    stateless: bool = False


class OpenGLDevice:
    """One context. It belongs to the thread that opened it."""

    def __init__(self, index: int) -> None:
        egl_index, self.info = _found()[index]
        self.toolchain = Toolchain(compiler=f"{self.info.vendor} OpenGL {self.info.driver}")
        self._gl = Context(egl_index, self.info.name)
        self._most_bytes = self._gl.most_array_bytes()
        with self._gl.translated(f"Opening {self.info.spec}"):
            self._spin = self._gl.mgl.compute_shader(_SPIN)
            self._sink = self._gl.mgl.buffer(reserve=4)
            self._staging: Any = None
        self._round_ns, self.clock = self._check_timer()

    def _check_timer(self) -> tuple[float, str]:
        """What a round of the spinning kernel takes, and which clock to trust.

        A software renderer's timer may tell a nanosecond whatever runs.
        """
        rounds, host_ns = 1, 0.0
        self._spinning(1)  # compiled at the first run
        while host_ns < _SPIN_NS and rounds < _MOST_ROUNDS:
            rounds = min(4 * rounds, _MOST_ROUNDS)
            host_ns = self._spinning(rounds)[0]
        for _ in range(3):
            host_ns, timer_ns = self._spinning(rounds)
            if 0.5 * host_ns < timer_ns < 1.1 * host_ns:
                return timer_ns / rounds, "gl-timer"
        return host_ns / rounds, "host"

    def _spinning(self, rounds: int) -> tuple[float, float]:
        """Time of so many rounds by the host's clock and by OpenGL's, in ns."""
        with self._gl.translated("Checking the timer"):
            self._gl.mgl.finish()
            start_ns = time.perf_counter_ns()
            with self._gl.timer() as timing:
                self._enqueue_spin(rounds)
            self._gl.mgl.finish()
            return float(time.perf_counter_ns() - start_ns), timing()

    def _enqueue_spin(self, rounds: int) -> None:
        self._sink.bind_to_storage_buffer(0)
        self._spin["rounds"].value = rounds
        self._spin.run(1)

    def compile(self, program: Program) -> None:
        """Nothing: a context belongs to one thread, and no binaries are kept."""

    def build(self, program: Program) -> OpenGLBuilt:
        if program.kind != "kernel":
            raise BuildError(f"{program.name} is no shader: {self.info.spec} cannot run it.")
        self._gl.make_current()
        try:
            shader = self._gl.mgl.compute_shader(program.text)
        except Exception as error:  # noqa: BLE001 - ModernGL's own class, or Python's for a text it cannot pass
            self._gl.error()  # and forget it
            log = _with_names(str(error).strip(), program.text)
            raise BuildError(
                f"{program.name} does not compile with {self.toolchain.compiler}.", log=log
            ) from None
        with self._gl.translated(f"Building {program.name}"):
            local_size = self._gl.local_size(shader.glo)
        identity = hashlib.sha256(
            f"{self.info.arch}\n{program.text}{program.tree_sha256}".encode()
        ).hexdigest()
        threads = math.prod(local_size)
        resources = Resources(max_threads_per_block=threads, binary_sha256=identity)
        return OpenGLBuilt(program.name, shader, program.parameters, local_size, resources)

    def free_bytes(self) -> int | None:
        if self.info.kind == "cpu":
            import psutil

            return min(int(psutil.virtual_memory().available), self.info.memory_bytes)
        return self._gl.free_bytes() or None

    def allocate(self, size_bytes: int) -> Memory:
        with self._gl.translated(f"Allocating {size_bytes} bytes", OutOfMemoryError):
            return _Bytes(self._gl.mgl.buffer(reserve=size_bytes), 0, size_bytes)

    def view(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:
        if size_bytes > self._most_bytes:
            raise OutOfMemoryError(
                f"One array of {size_bytes} bytes is more than the {self._most_bytes} bytes that a shader "
                f"can reach on {self.info.name}."
            )
        return _Bytes(memory.buffer, memory.offset_bytes + offset_bytes, size_bytes)

    def release(self, memory: Memory) -> None:
        self._gl.make_current()
        memory.buffer.release()

    def write(self, memory: Memory, offset_bytes: int, data: NDArray[Any]) -> None:
        with self._gl.translated("Copying to the device"):
            memory.buffer.write(data.reshape(-1).view(np.uint8), offset=memory.offset_bytes + offset_bytes)

    def read(self, memory: Memory, offset_bytes: int, out: NDArray[Any]) -> None:
        """Reads by way of another buffer: a driver may move one that the host reads into the host's memory,
        where shaders find it twenty times slower (seen on NVIDIA's, with buffers of 6 MiB).
        """
        with self._gl.translated("Copying from the device"):
            if self._staging is None or self._staging.size < out.nbytes:
                if self._staging is not None:
                    self._staging.release()
                self._staging = self._gl.mgl.buffer(reserve=out.nbytes)
            self._gl.mgl.copy_buffer(
                self._staging,
                memory.buffer,
                out.nbytes,
                read_offset=memory.offset_bytes + offset_bytes,
            )
            self._staging.read_into(out.reshape(-1).view(np.uint8), size=out.nbytes)

    def fill(self, memory: Memory, offset_bytes: int, size_bytes: int, byte: int) -> None:
        with self._gl.translated("Filling device memory"):
            self._gl.fill(memory.buffer.glo, memory.offset_bytes + offset_bytes, size_bytes, byte)

    def copy(self, source: Memory, destination: Memory, offset_bytes: int, size_bytes: int) -> None:
        with self._gl.translated("Copying on the device"):
            self._gl.mgl.copy_buffer(
                destination.buffer,
                source.buffer,
                size_bytes,
                read_offset=source.offset_bytes,
                write_offset=destination.offset_bytes + offset_bytes,
            )

    def launch_held(self, built: Built, launch: Launch, arguments: Sequence[Argument], looks: Looks) -> bool:  # noqa: ARG002
        """Not told, and nothing to tell: a shader has no queue but the context's."""
        self.launch(built, launch, arguments)
        return False

    def launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        assert isinstance(built, OpenGLBuilt)
        _check_block(built, launch)
        with self._gl.translated(f"Launching grid {launch.grid}, block {launch.block}", LaunchError):
            self._enqueue(built, launch, arguments)

    def _enqueue(self, built: OpenGLBuilt, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Every part of a launch. The uniforms x0, y0 and z0 count invocations, not blocks."""
        _pass(built, arguments)
        for origin, extent in launch.parts():
            for name, first, threads in zip(("x0", "y0", "z0"), origin, launch.block, strict=True):
                _set(built.shader, name, first * threads)
            built.shader.run(*extent)
        self._gl.mgl.memory_barrier(_BARRIERS)

    def timed(self, built: Built, launch: Launch, arguments: Sequence[Argument], launches: int) -> Timing:
        assert isinstance(built, OpenGLBuilt)
        _check_block(built, launch)
        with self._gl.translated(f"Launching grid {launch.grid}, block {launch.block}", LaunchError):
            timed = self._timed_by_timer if self.clock == "gl-timer" else self._timed_by_host
            return timed(built, launch, arguments, launches)

    def _timed_by_timer(
        self, built: OpenGLBuilt, launch: Launch, arguments: Sequence[Argument], launches: int
    ) -> Timing:
        with self._gl.timer() as timing:
            for _ in range(launches):
                self._enqueue(built, launch, arguments)
        self._gl.flush()
        return timing

    def _timed_by_host(
        self, built: OpenGLBuilt, launch: Launch, arguments: Sequence[Argument], launches: int
    ) -> Timing:
        self._gl.mgl.finish()
        start_ns = time.perf_counter_ns()
        for _ in range(launches):
            self._enqueue(built, launch, arguments)
        self._gl.mgl.finish()
        total_ns = float(time.perf_counter_ns() - start_ns)
        return lambda: total_ns

    def flush_l2(self) -> None:
        """Nothing: OpenGL does not tell how large a card's caches are."""

    def occupy(self, duration_ns: int) -> None:
        """A spinning kernel on a card; nothing where the host's clock is read around a finish."""
        if self.clock == "gl-timer":
            with self._gl.translated("Occupying the card"):
                self._enqueue_spin(max(1, min(_MOST_ROUNDS, int(duration_ns / self._round_ns))))
                self._gl.flush()

    def hold(self) -> Callable[[], None]:
        return lambda: None

    def stamp(self) -> Stamping:
        return lambda: None

    def canary(self) -> None:
        return None

    def globaltimer_tick_ns(self) -> None:
        return None

    def tick_ns(self) -> float:
        """The smallest difference between distinct times: of empty intervals, or of the host's clock."""
        if self.clock == "host":
            return max(1.0, time.get_clock_info("perf_counter").resolution * 1e9)
        with self._gl.translated("Reading the timer"):
            timings = []
            for _ in range(128):
                with self._gl.timer() as timing:
                    pass
                timings.append(timing)
            times = sorted({timing() for timing in timings})
        steps = [later - earlier for earlier, later in pairwise(times)] or times
        return min(step for step in [*steps, 1000.0] if step > 0)

    def synchronize(self) -> None:
        with self._gl.translated("Waiting for the device", KernelError):
            self._gl.mgl.finish()

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a lost context cannot be closed, and need not be
            self._gl.close()


def _with_names(log: str, text: str) -> str:
    """A compiler's log with the names of files for their numbers: lines begin 0:12(3) or 0(12)."""
    names = dict(_FILE.findall(text))
    return _PLACE.sub(lambda place: f"{names.get(place[1], place[1])}{place[2]}", log)


def _check_block(built: OpenGLBuilt, launch: Launch) -> None:
    if launch.dynamic_shared_bytes:
        raise LaunchError(
            f"{built.name} asks for {launch.dynamic_shared_bytes} bytes of dynamic shared memory, which "
            "GLSL has not: declare a shared array whose size is a macro."
        )
    if launch.block != built.local_size:
        raise LaunchError(
            f"{built.name} is launched with block {launch.block} and was compiled with local size "
            f"{built.local_size}: give both the same macros."
        )


def _pass(built: OpenGLBuilt, arguments: Sequence[Argument]) -> None:
    """Arrays to the bindings 0, 1, 2 and so on, in order; axes to the uniforms of their names."""
    binding = 0
    for parameter, argument in zip(built.parameters, arguments, strict=True):
        if isinstance(argument, _Bytes):
            argument.buffer.bind_to_storage_buffer(
                binding, offset=argument.offset_bytes, size=argument.size_bytes
            )
            binding += 1
        else:
            _set(built.shader, parameter.name, argument.item())


def _set(shader: Any, name: str, value: float) -> None:
    """A uniform that the shader does not use is one that its compiler drops."""
    uniform = shader.get(name, None)
    if uniform is not None:
        uniform.value = value
