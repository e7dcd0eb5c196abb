"""OpenGL devices through EGL and ModernGL: compute shaders.

Functions that ModernGL lacks (limits, 64-bit times, filling, the reason of a lost context) are called in
OpenGL directly, through the context's own loader.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import math
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from ctypes.util import find_library
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from harness.device.backends.base import Argument, Built, Device, Memory, Timing, smallest_step
from harness.errors import (
    BuildError,
    DeviceError,
    HarnessError,
    KernelError,
    LaunchError,
    MeasureError,
    OutOfMemoryError,
)
from harness.records.types import DeviceInfo, Extent3, Launch, Resources, Toolchain
from harness.suite.layout import Parameter
from harness.suite.sources import Program

_INSTALL = "Install this project with its extra 'opengl': pip install -e '.[opengl]' in a clone."
_NO_EGL = (
    "Install the driver of your card with its OpenGL part, or Mesa's llvmpipe, which runs on the CPU: "
    "libegl1, libgl1 and libgl1-mesa-dri on Debian and Ubuntu."
)
_FOUND = re.compile(r"found (\d+) devices")
_SOFTWARE = ("llvmpipe", "softpipe", "swrast", "swiftshader", "software rasterizer")

_NO_ERROR, _OUT_OF_MEMORY, _CONTEXT_LOST = 0, 0x0505, 0x0507
_ERRORS = {
    0x0500: "GL_INVALID_ENUM",
    0x0501: "GL_INVALID_VALUE",
    0x0502: "GL_INVALID_OPERATION",
    _OUT_OF_MEMORY: "GL_OUT_OF_MEMORY",
    0x0506: "GL_INVALID_FRAMEBUFFER_OPERATION",
    _CONTEXT_LOST: "GL_CONTEXT_LOST",
}
_GUILTY = 0x8253
_RESETS = {
    _GUILTY: "GL_GUILTY_CONTEXT_RESET",
    0x8254: "GL_INNOCENT_CONTEXT_RESET",
    0x8255: "GL_UNKNOWN_CONTEXT_RESET",
}

_COPY_WRITE_BUFFER, _R8UI, _RED_INTEGER, _UNSIGNED_BYTE = 0x8F37, 0x8232, 0x8D94, 0x1401
_TIME_ELAPSED, _QUERY_RESULT = 0x88BF, 0x8866
_BARRIERS = 0x2000 | 0x0200
"""Barriers after a shader, for the next shader and for copies."""
_WORK_GROUP_SIZE, _MAX_SHARED_BYTES, _MAX_STORAGE_BYTES = 0x8267, 0x8262, 0x90DE
_NVX_TOTAL_KIB, _NVX_FREE_KIB, _NV_SM_COUNT, _DEVICE_UUID = 0x9048, 0x9049, 0x933B, 0x9597


def _moderngl() -> Any:
    try:
        import moderngl
    except ImportError as error:
        raise DeviceError(f"ModernGL cannot be imported ({error}). {_INSTALL}") from None
    return moderngl


def _egl(index: int) -> Any:
    """Return a context of an EGL device by number. Raises Exception with a message only, as
    glcontext does.
    """
    os.environ.setdefault("EGL_LOG_LEVEL", "fatal")  # otherwise Mesa reports its attempts on standard error
    from glcontext import egl

    return egl.create_context(
        mode="standalone",
        glversion=430,
        libgl=os.environ.get("GLCONTEXT_LINUX_LIBGL") or find_library("GL") or "libGL.so.1",
        libegl=os.environ.get("GLCONTEXT_LINUX_LIBEGL") or find_library("EGL") or "libEGL.so.1",
        device_index=index,
    )


def device_count() -> int:
    """Return the number of EGL devices. Raises DeviceError without one."""
    _moderngl()
    try:
        _egl(2**31 - 1)  # the error for an impossible number states how many there are
    except Exception as error:  # noqa: BLE001 - glcontext has no class of its own for anything
        found = _FOUND.search(str(error))
        if not found:
            raise DeviceError(f"EGL does not start ({error}). {_NO_EGL}") from None
        if found[1] == "0":
            raise DeviceError(f"EGL has no device. {_NO_EGL}") from None
        return int(found[1])
    raise DeviceError("EGL gave a context for a device that is not there: its driver cannot be trusted.")


_UINT, _POINTER, _SIZE = ctypes.c_uint, ctypes.c_void_p, ctypes.c_ssize_t
_TYPES: dict[str, tuple[Any, ...]] = {
    "glGetError": (_UINT,),
    "glGetInteger64v": (None, _UINT, _POINTER),
    "glGetProgramiv": (None, _UINT, _UINT, _POINTER),
    "glBindBuffer": (None, _UINT, _UINT),
    "glClearBufferSubData": (None, _UINT, _UINT, _SIZE, _SIZE, _UINT, _UINT, _POINTER),
    "glGenQueries": (None, ctypes.c_int, _POINTER),
    "glDeleteQueries": (None, ctypes.c_int, _POINTER),
    "glBeginQuery": (None, _UINT, _UINT),
    "glEndQuery": (None, _UINT),
    "glGetQueryObjectui64v": (None, _UINT, _UINT, _POINTER),
    "glFlush": (None,),
    "glGetGraphicsResetStatus": (_UINT,),
    "glGetUnsignedBytei_vEXT": (None, _UINT, _UINT, _POINTER),
}
"""Return and argument types of OpenGL's functions. Check for an extension before calling its functions."""


class GLContext:
    """A context of an EGL device, as ModernGL's `mgl`. It belongs to the thread that opened it."""

    _current: ClassVar[GLContext | None] = None

    def __init__(self, egl_index: int, name: str = "") -> None:
        """Open a context. `name` is the device's, for messages. Raises DeviceError."""
        self._name = name
        self._functions: dict[str, Any] = {}
        try:
            self._egl = _egl(egl_index)
            self.mgl = _moderngl().create_context(require=430, standalone=True, context=self._egl)
        except Exception as error:  # noqa: BLE001 - as above
            raise DeviceError(
                f"EGL's device {egl_index} gives no context of OpenGL 4.3 ({error}). {_NO_EGL}"
            ) from None
        GLContext._current = self
        self._extensions = set(self.mgl.extensions)
        self.error()

    def make_current(self) -> None:
        """Make this context current, because a process may have several."""
        if GLContext._current is not self:
            self._egl.__enter__()
            GLContext._current = self

    def close(self) -> None:
        self.make_current()
        self.mgl.release()
        GLContext._current = None

    @contextlib.contextmanager
    def translated(self, what: str, refused: type[HarnessError] = MeasureError) -> Iterator[None]:
        """Turn ModernGL's and OpenGL's errors into the harness's own. OpenGL raises none, so it is asked
        afterwards.
        """
        self.make_current()
        try:
            yield
        except HarnessError:
            raise
        except Exception as error:
            self._check(what, refused)
            raise refused(f"{what}: OpenGL failed ({error}).") from error
        self._check(what, refused)

    def describe(self) -> DeviceInfo:
        """Return the device, with a spec without number: `_found` adds it."""
        import psutil

        info = self.mgl.info
        name, vendor = str(info["GL_RENDERER"]).strip(), str(info["GL_VENDOR"]).strip()
        version = str(info["GL_VERSION"]).strip()
        kind: Literal["gpu", "cpu"] = "cpu" if any(word in name.lower() for word in _SOFTWARE) else "gpu"
        units, memory_bytes = self.integer(_NV_SM_COUNT), 1024 * self.integer(_NVX_TOTAL_KIB)
        return DeviceInfo(
            spec="opengl",
            backend="opengl",
            name=name.partition("/")[0] if kind == "gpu" else name,
            vendor=vendor,
            driver=version,
            kind=kind,
            arch=f"{name} OpenGL {version}",
            uuid=self._uuid() if kind == "gpu" else None,
            compute_units=units or (os.cpu_count() if kind == "cpu" else None),
            memory_bytes=memory_bytes or int(psutil.virtual_memory().total),
            max_threads_per_block=int(info["GL_MAX_COMPUTE_WORK_GROUP_INVOCATIONS"]),
            max_block=_extents(info["GL_MAX_COMPUTE_WORK_GROUP_SIZE"]),
            max_grid=_extents(info["GL_MAX_COMPUTE_WORK_GROUP_COUNT"]),
            max_shared_bytes=self.integer(_MAX_SHARED_BYTES),
        )

    @contextlib.contextmanager
    def timer(self) -> Iterator[Timing]:
        """Time the work enqueued in this block, in ns, as 64 bits. The Timing may be called repeatedly."""
        query = ctypes.c_uint(0)

        @functools.cache
        def read() -> float:
            self.make_current()
            value = ctypes.c_uint64(0)
            self.call("glGetQueryObjectui64v", query, _QUERY_RESULT, ctypes.byref(value))
            self.call("glDeleteQueries", 1, ctypes.byref(query))
            return float(value.value)

        self.call("glGenQueries", 1, ctypes.byref(query))
        self.call("glBeginQuery", _TIME_ELAPSED, query)
        try:
            yield read
        finally:
            self.call("glEndQuery", _TIME_ELAPSED)

    def _check(self, what: str, refused: type[HarnessError]) -> None:
        error, reset = self.error(), self._reset_status()
        if reset or error == _CONTEXT_LOST:
            why = _RESETS.get(reset, _ERRORS[_CONTEXT_LOST])
            kind = KernelError if reset == _GUILTY else MeasureError
            raise kind(
                f"{what}: the context was lost ({why}). A kernel that runs too long makes the system reset "
                "the card: launch it in parts, with --max-launch-ms."
            )
        if error == _OUT_OF_MEMORY:
            raise OutOfMemoryError(f"{what}: {self._name} is out of memory (GL_OUT_OF_MEMORY).")
        if error:
            raise refused(f"{what}: OpenGL refused it ({_ERRORS.get(error, hex(error))}).")

    def error(self) -> int:
        """Return the first error since the last call; 0 for none."""
        errors = [int(self.call("glGetError"))]
        while errors[-1] != _NO_ERROR and len(errors) < 9:  # a lost context may report it forever
            errors.append(int(self.call("glGetError")))
        return errors[0]

    def _reset_status(self) -> int:
        """Return why the context was lost; 0 if it was not, or if OpenGL cannot say."""
        if "GL_KHR_robustness" not in self._extensions:
            return 0
        return int(self.call("glGetGraphicsResetStatus"))

    def integer(self, name: int) -> int:
        """Return a limit; 0 if OpenGL does not know it."""
        value = ctypes.c_int64(0)
        self.call("glGetInteger64v", name, ctypes.byref(value))
        return 0 if self.error() else value.value

    def _uuid(self) -> str | None:
        """Return the card's UUID in NVML's form."""
        if "GL_EXT_memory_object" not in self._extensions:
            return None
        found = (ctypes.c_ubyte * 16)()
        self.call("glGetUnsignedBytei_vEXT", _DEVICE_UUID, 0, found)
        return None if self.error() or not any(found) else f"GPU-{uuid.UUID(bytes=bytes(found))}"

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of OpenGL in _TYPES."""
        if name not in self._functions:
            self._functions[name] = ctypes.CFUNCTYPE(*_TYPES[name])(self._egl.load(name))
        return self._functions[name](*arguments)


def _extents(found: Iterable[int]) -> Extent3:
    x, y, z = map(int, found)
    return x, y, z


_FILE = re.compile(r"^#line \d+ (\d+) // (.+)$", re.MULTILINE)
_PLACE = re.compile(r"^(\d+)([:(]\d+)", re.MULTILINE)

_SPIN = Path(__file__).resolve().with_name("spin.glsl")
_SPIN_NS = 3e6
"""Time in ns for which the timer is observed before it is trusted."""
_MOST_ROUNDS = 2**16 - 1
"""Rounds after which Mesa's llvmpipe leaves any loop."""


@functools.cache
def _found() -> tuple[tuple[int, DeviceInfo], ...]:
    """Return EGL's devices that give a context, with EGL's numbers, cards first. Opened once."""
    described, problems = [], []
    for egl_index in range(device_count()):
        try:
            context = GLContext(egl_index)
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
    """A buffer, or a part of it."""

    buffer: Any
    offset_bytes: int
    size_bytes: int


@dataclass
class OpenGLBuilt(Built):
    """A shader. It is never `cached`: drivers' caches are invisible."""

    name: str
    shader: Any
    parameters: tuple[Parameter, ...]
    local_size: Extent3


class OpenGLDevice(Device):
    """A context used by one thread. Nothing is flushed, because OpenGL does not report cache sizes."""

    def __init__(self, index: int) -> None:
        egl_index, self.info = _found()[index]
        self.toolchain = Toolchain(compiler=f"{self.info.vendor} OpenGL {self.info.driver}")
        self._gl = GLContext(egl_index, self.info.name)
        self._most_bytes = self._gl.integer(_MAX_STORAGE_BYTES)
        with self._gl.translated(f"Opening {self.info.spec}"):
            self._spin = self._gl.mgl.compute_shader(_SPIN.read_text(encoding="utf-8"))
            self._sink = self._gl.mgl.buffer(reserve=4)
            self._staging: Any = None
        self._round_ns, self.clock = self._check_timer()

    def _check_timer(self) -> tuple[float, str]:
        """Return the time of a round in ns, and the clock to trust: a software renderer's timer
        may be wrong.
        """
        rounds, host_ns = 1, 0.0
        self._spinning(1)  # compiled in the first run
        while host_ns < _SPIN_NS and rounds < _MOST_ROUNDS:
            rounds = min(4 * rounds, _MOST_ROUNDS)
            host_ns = self._spinning(rounds)[0]
        for _ in range(3):
            host_ns, timer_ns = self._spinning(rounds)
            if 0.5 * host_ns < timer_ns < 1.1 * host_ns:
                return timer_ns / rounds, "gl-timer"
        return host_ns / rounds, "host"

    def _spinning(self, rounds: int) -> tuple[float, float]:
        """Return the time of `rounds` rounds by the host's clock and by OpenGL's, in ns."""
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

    def build(self, program: Program) -> OpenGLBuilt:
        if program.kind != "kernel":
            raise BuildError(f"{program.name} is no shader: {self.info.spec} cannot run it.")
        for parameter in program.parameters:
            if parameter.layout is None and parameter.dtype in ("int64", "uint64"):
                raise BuildError(
                    f"{program.name} is given {parameter.name!r} as {parameter.dtype}, which no uniform of "
                    "GLSL is: declare a Scalar of 32 bits."
                )
        self._gl.make_current()
        try:
            shader = self._gl.mgl.compute_shader(program.text)
        except Exception as error:  # noqa: BLE001 - ModernGL's own class, or Python's for a text it cannot pass
            self._gl.error()  # and drop it
            message = f"{program.name} does not compile with {self.toolchain.compiler}."
            raise BuildError(message, log=_with_names(str(error).strip(), program.text)) from None
        with self._gl.translated(f"Building {program.name}"):
            found = (ctypes.c_int * 3)()
            self._gl.call("glGetProgramiv", shader.glo, _WORK_GROUP_SIZE, found)
        local_size = _extents(found)
        identity = f"{self.info.arch}\n{program.text}{program.tree_sha256}".encode()
        resources = Resources(
            max_threads_per_block=math.prod(local_size), binary_sha256=hashlib.sha256(identity).hexdigest()
        )
        return OpenGLBuilt(program.name, shader, program.parameters, local_size, resources=resources)

    def free_bytes(self) -> int | None:
        if self.info.kind == "cpu":
            import psutil

            return min(int(psutil.virtual_memory().available), self.info.memory_bytes or 0)
        self._gl.make_current()
        return 1024 * self._gl.integer(_NVX_FREE_KIB) or None

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
        """Read through another buffer.

        NVIDIA's driver moves a buffer that the host reads, and shaders then access it twenty times slower
        (seen with buffers of 6 MiB).
        """
        with self._gl.translated("Copying from the device"):
            if self._staging is None or self._staging.size < out.nbytes:
                if self._staging is not None:
                    self._staging.release()
                self._staging = self._gl.mgl.buffer(reserve=out.nbytes)
            begin = memory.offset_bytes + offset_bytes
            self._gl.mgl.copy_buffer(self._staging, memory.buffer, out.nbytes, read_offset=begin)
            self._staging.read_into(out.reshape(-1).view(np.uint8), size=out.nbytes)

    def fill(self, memory: Memory, offset_bytes: int, size_bytes: int, byte: int) -> None:
        with self._gl.translated("Filling device memory"):
            self._gl.call("glBindBuffer", _COPY_WRITE_BUFFER, memory.buffer.glo)
            value, begin = ctypes.c_ubyte(byte), memory.offset_bytes + offset_bytes
            self._gl.call(
                "glClearBufferSubData", _COPY_WRITE_BUFFER, _R8UI, begin, size_bytes, _RED_INTEGER,
                _UNSIGNED_BYTE, ctypes.byref(value),
            )  # fmt: skip

    def copy(self, source: Memory, destination: Memory, offset_bytes: int, size_bytes: int) -> None:
        with self._gl.translated("Copying on the device"):
            self._gl.mgl.copy_buffer(
                destination.buffer,
                source.buffer,
                size_bytes,
                read_offset=source.offset_bytes,
                write_offset=destination.offset_bytes + offset_bytes,
            )

    def launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        assert isinstance(built, OpenGLBuilt)
        _check_block(built, launch)
        with self._gl.translated(f"Launching grid {launch.grid}, block {launch.block}", LaunchError):
            self._enqueue(built, launch, arguments)

    def _enqueue(self, built: OpenGLBuilt, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Enqueue every part, with arrays at bindings 0, 1 and so on, and axes and first invocations as
        uniforms.
        """
        bindings = itertools.count()
        for parameter, argument in zip(built.parameters, arguments, strict=True):
            if isinstance(argument, _Bytes):
                argument.buffer.bind_to_storage_buffer(
                    next(bindings), offset=argument.offset_bytes, size=argument.size_bytes
                )
            else:
                _set(built.shader, parameter.name, argument.item())
        for origin, extent in launch.parts():
            for name, first, threads in zip(("x0", "y0", "z0"), origin, launch.block, strict=True):
                _set(built.shader, name, first * threads)
            built.shader.run(*extent)
        self._gl.mgl.memory_barrier(_BARRIERS)

    def timed(self, built: Built, launch: Launch, arguments: Sequence[Argument], launches: int) -> Timing:
        assert isinstance(built, OpenGLBuilt)
        _check_block(built, launch)
        with self._gl.translated(f"Launching grid {launch.grid}, block {launch.block}", LaunchError):
            if self.clock == "gl-timer":
                with self._gl.timer() as timing:
                    for _ in range(launches):
                        self._enqueue(built, launch, arguments)
                self._gl.call("glFlush")
                return timing
            self._gl.mgl.finish()
            start_ns = time.perf_counter_ns()
            for _ in range(launches):
                self._enqueue(built, launch, arguments)
            self._gl.mgl.finish()
            total_ns = float(time.perf_counter_ns() - start_ns)
            return lambda: total_ns

    def occupy(self, duration_ns: int) -> None:
        """Run a spinning kernel on a card; do nothing if the host's clock is read around a finish."""
        if self.clock == "gl-timer":
            with self._gl.translated("Occupying the card"):
                self._enqueue_spin(max(1, min(_MOST_ROUNDS, int(duration_ns / self._round_ns))))
                self._gl.call("glFlush")

    def tick_ns(self) -> float:
        if self.clock == "host":
            return max(1.0, time.get_clock_info("perf_counter").resolution * 1e9)
        with self._gl.translated("Reading the timer"):
            timings = []
            for _ in range(128):
                with self._gl.timer() as timing:
                    pass
                timings.append(timing)
            return smallest_step(timing() for timing in timings)

    def synchronize(self) -> None:
        with self._gl.translated("Waiting for the device", KernelError):
            self._gl.mgl.finish()

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a lost context cannot be closed, and need not be
            self._gl.close()


def _with_names(log: str, text: str) -> str:
    """Return a compiler's log with file names instead of numbers: lines begin 0:12(3) or 0(12)."""
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


def _set(shader: Any, name: str, value: float) -> None:
    """Set a uniform, unless the compiler dropped it because the shader does not use it."""
    uniform = shader.get(name, None)
    if uniform is not None:
        uniform.value = value
