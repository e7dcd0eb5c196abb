"""OpenGL by EGL: what EGL has, and a context of one of its devices.

What ModernGL leaves out (limits, times of 64 bits, filling, why a context was lost) is asked of OpenGL
itself, by the functions that the context's own loader gives.
"""

from __future__ import annotations

__all__ = ["Context", "device_count"]

import contextlib
import ctypes
import functools
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from ctypes.util import find_library
from typing import Any, ClassVar, Literal

from harness.device.backends.base import Timing
from harness.errors import DeviceError, HarnessError, KernelError, MeasureError, OutOfMemoryError
from harness.records import DeviceInfo, Extent3

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
_WORK_GROUP_SIZE, _MAX_SHARED_BYTES, _MAX_STORAGE_BYTES = 0x8267, 0x8262, 0x90DE
_NVX_TOTAL_KIB, _NVX_FREE_KIB, _NV_SM_COUNT, _DEVICE_UUID = 0x9048, 0x9049, 0x933B, 0x9597


def _moderngl() -> Any:
    try:
        import moderngl
    except ImportError as error:
        raise DeviceError(f"ModernGL cannot be imported ({error}). {_INSTALL}") from None
    return moderngl


def _egl(index: int) -> Any:
    """A context of EGL's device of that number. Raises Exception, in words only, as glcontext does."""
    os.environ.setdefault("EGL_LOG_LEVEL", "fatal")  # Mesa else tells standard error what it tries
    from glcontext import egl

    return egl.create_context(
        mode="standalone",
        glversion=430,
        libgl=os.environ.get("GLCONTEXT_LINUX_LIBGL") or find_library("GL") or "libGL.so.1",
        libegl=os.environ.get("GLCONTEXT_LINUX_LIBEGL") or find_library("EGL") or "libEGL.so.1",
        device_index=index,
    )


def device_count() -> int:
    """How many devices EGL has: it says so when asked for one that it cannot have. Raises DeviceError where
    there is none.
    """
    _moderngl()
    try:
        _egl(2**31 - 1)
    except Exception as error:  # noqa: BLE001 - glcontext has no class of its own for anything
        found = _FOUND.search(str(error))
        if not found:
            raise DeviceError(f"EGL does not start ({error}). {_NO_EGL}") from None
        if found[1] == "0":
            raise DeviceError(f"EGL has no device. {_NO_EGL}") from None
        return int(found[1])
    raise DeviceError("EGL gave a context for a device that is not there: its driver cannot be trusted.")


class Context:
    """An open context of one of EGL's devices. It belongs to the thread that opened it.

    `mgl` is ModernGL's, for what that offers.
    """

    _current: ClassVar[Context | None] = None
    # A loader gives an address for names that it does not know as well, so an extension is asked about before
    # its functions are called.
    _TYPES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "glGetError": (ctypes.c_uint,),
        "glGetInteger64v": (None, ctypes.c_uint, ctypes.c_void_p),
        "glGetProgramiv": (None, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p),
        "glBindBuffer": (None, ctypes.c_uint, ctypes.c_uint),
        "glClearBufferSubData": (
            None, ctypes.c_uint, ctypes.c_uint, ctypes.c_ssize_t, ctypes.c_ssize_t, ctypes.c_uint,
            ctypes.c_uint, ctypes.c_void_p,
        ),
        "glGenQueries": (None, ctypes.c_int, ctypes.c_void_p),
        "glDeleteQueries": (None, ctypes.c_int, ctypes.c_void_p),
        "glBeginQuery": (None, ctypes.c_uint, ctypes.c_uint),
        "glEndQuery": (None, ctypes.c_uint),
        "glGetQueryObjectui64v": (None, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p),
        "glFlush": (None,),
        "glGetGraphicsResetStatus": (ctypes.c_uint,),
        "glGetUnsignedBytei_vEXT": (None, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p),
    }  # fmt: skip

    def __init__(self, egl_index: int, name: str = "") -> None:
        """`name` is the device's, for what is said of it. Raises DeviceError."""
        self._name = name
        self._functions: dict[str, Any] = {}
        try:
            self._egl = _egl(egl_index)
            self.mgl = _moderngl().create_context(require=430, standalone=True, context=self._egl)
        except Exception as error:  # noqa: BLE001 - as above
            raise DeviceError(
                f"EGL's device {egl_index} gives no context of OpenGL 4.3 ({error}). {_NO_EGL}"
            ) from None
        Context._current = self
        self._extensions = set(self.mgl.extensions)
        self.error()

    def make_current(self) -> None:
        """OpenGL works on one context at a time, and a process may hold several."""
        if Context._current is not self:
            self._egl.__enter__()
            Context._current = self

    def close(self) -> None:
        self.make_current()
        self.mgl.release()
        Context._current = None

    @contextlib.contextmanager
    def translated(self, what: str, refused: type[HarnessError] = MeasureError) -> Iterator[None]:
        """ModernGL's and OpenGL's errors as the harness's own. OpenGL raises none: it is asked afterwards."""
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
        """What it tells of its device, whose number in the spec is for whoever has opened them all."""
        import psutil

        info = self.mgl.info
        name, vendor = str(info["GL_RENDERER"]).strip(), str(info["GL_VENDOR"]).strip()
        version = str(info["GL_VERSION"]).strip()
        kind: Literal["gpu", "cpu"] = "cpu" if any(word in name.lower() for word in _SOFTWARE) else "gpu"
        units, memory_bytes = self._integer(_NV_SM_COUNT), 1024 * self._integer(_NVX_TOTAL_KIB)
        return DeviceInfo(
            spec="opengl",
            backend="opengl",
            name=name.partition("/")[0] if kind == "gpu" else name,
            vendor=vendor,
            driver=version,
            kind=kind,
            arch=f"{name} OpenGL {version}",
            uuid=self._uuid() if kind == "gpu" else None,
            compute_units=units or (os.cpu_count() if kind == "cpu" else None) or 1,
            memory_bytes=memory_bytes or int(psutil.virtual_memory().total),
            max_threads_per_block=int(info["GL_MAX_COMPUTE_WORK_GROUP_INVOCATIONS"]),
            max_block=_extents(info["GL_MAX_COMPUTE_WORK_GROUP_SIZE"]),
            max_grid=_extents(info["GL_MAX_COMPUTE_WORK_GROUP_COUNT"]),
            max_shared_bytes=self._integer(_MAX_SHARED_BYTES),
        )

    def most_array_bytes(self) -> int:
        """The size of the largest array that a shader can reach."""
        return self._integer(_MAX_STORAGE_BYTES)

    def free_bytes(self) -> int:
        """0 where OpenGL cannot tell."""
        self.make_current()
        return 1024 * self._integer(_NVX_FREE_KIB)

    def flush(self) -> None:
        """Have the device begin what is enqueued."""
        self._call("glFlush")

    def local_size(self, program: int) -> Extent3:
        found = (ctypes.c_int * 3)()
        self._call("glGetProgramiv", program, _WORK_GROUP_SIZE, found)
        return found[0], found[1], found[2]

    def fill(self, buffer: int, offset_bytes: int, size_bytes: int, byte: int) -> None:
        self._call("glBindBuffer", _COPY_WRITE_BUFFER, buffer)
        value = ctypes.c_ubyte(byte)
        self._call(
            "glClearBufferSubData", _COPY_WRITE_BUFFER, _R8UI, offset_bytes, size_bytes, _RED_INTEGER,
            _UNSIGNED_BYTE, ctypes.byref(value),
        )  # fmt: skip

    @contextlib.contextmanager
    def timer(self) -> Iterator[Timing]:
        """Times what is enqueued meanwhile, in ns; what it gives waits for the time, and may be asked again.

        ModernGL reads 32 bits, which are four seconds.
        """
        query = ctypes.c_uint(0)

        @functools.cache
        def read() -> float:
            self.make_current()
            value = ctypes.c_uint64(0)
            self._call("glGetQueryObjectui64v", query, _QUERY_RESULT, ctypes.byref(value))
            self._call("glDeleteQueries", 1, ctypes.byref(query))
            return float(value.value)

        self._call("glGenQueries", 1, ctypes.byref(query))
        self._call("glBeginQuery", _TIME_ELAPSED, query)
        try:
            yield read
        finally:
            self._call("glEndQuery", _TIME_ELAPSED)

    def _check(self, what: str, refused: type[HarnessError]) -> None:
        error, reset = self.error(), self._reset_status()
        if reset or error == _CONTEXT_LOST:
            told = _RESETS.get(reset, _ERRORS[_CONTEXT_LOST])
            kind = KernelError if reset == _GUILTY else MeasureError
            raise kind(
                f"{what}: the context was lost ({told}). A kernel that runs too long makes the system reset "
                "the card: launch it in parts, with --max-launch-ms."
            )
        if error == _OUT_OF_MEMORY:
            raise OutOfMemoryError(f"{what}: {self._name} is out of memory (GL_OUT_OF_MEMORY).")
        if error:
            raise refused(f"{what}: OpenGL refused it ({_ERRORS.get(error, hex(error))}).")

    def error(self) -> int:
        """The first error since it was last asked for; 0 for none."""
        first = found = int(self._call("glGetError"))
        for _ in range(8):  # a lost context may go on telling so
            if found == _NO_ERROR:
                break
            found = int(self._call("glGetError"))
        return first

    def _reset_status(self) -> int:
        """Why the context was lost; 0 where it was not, or where OpenGL cannot tell."""
        if "GL_KHR_robustness" not in self._extensions:
            return 0
        return int(self._call("glGetGraphicsResetStatus"))

    def _integer(self, name: int) -> int:
        """A limit; 0 where OpenGL does not know it."""
        value = ctypes.c_int64(0)
        self._call("glGetInteger64v", name, ctypes.byref(value))
        return 0 if self.error() else value.value

    def _uuid(self) -> str | None:
        """As NVML writes it."""
        if "GL_EXT_memory_object" not in self._extensions:
            return None
        found = (ctypes.c_ubyte * 16)()
        self._call("glGetUnsignedBytei_vEXT", _DEVICE_UUID, 0, found)
        return None if self.error() or not any(found) else f"GPU-{uuid.UUID(bytes=bytes(found))}"

    def _call(self, name: str, *arguments: Any) -> Any:
        if name not in self._functions:
            self._functions[name] = ctypes.CFUNCTYPE(*self._TYPES[name])(self._egl.load(name))
        return self._functions[name](*arguments)


def _extents(found: Sequence[int]) -> Extent3:
    x, y, z = (int(extent) for extent in found)
    return x, y, z
