"""OpenCL devices through PyOpenCL: GPUs of any vendor, and CPUs.

The Intel CPU runtime from PyPI registers itself with a file that names a path of its build machine. So this
module writes a correct file and points the loader at it before PyOpenCL is imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import operator
import os
import secrets
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness.device.backends.arguments import as_bits
from harness.device.backends.base import (
    Argument,
    Built,
    Device,
    Memory,
    Timing,
    check_parts,
    sequence,
)
from harness.device.plausible_ranges import or_none, reason_of, text_of
from harness.errors import BuildError, DeviceError, LaunchError, MeasureError, OutOfMemoryError
from harness.records.types import DeviceInfo, Launch, Resources, Toolchain
from harness.suite.sources import Program, unusual_options
from harness.system.cache import BinaryCache, cache_dir, write_atomically

_INSTALL = "Install this project with its extra 'opencl': pip install -e '.[opencl]' in a clone."
_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")

_FLUSH = """
__kernel void flush(__global const uint4 *data, __global uint *sink, ulong count) {
    uint4 sum = (uint4)(0);
    for (ulong i = get_global_id(0); i < count; i += get_global_size(0)) sum ^= data[i];
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 1u) sink[0] = sum.x;
}
"""


def _point_loader_at_runtimes() -> None:
    """Make every runtime visible: the system's, and Intel's CPU runtime if this environment has it."""
    if "OCL_ICD_VENDORS" in os.environ or "OCL_ICD_FILENAMES" in os.environ:
        return
    runtime = Path(sys.prefix) / "lib" / "libintelocl.so"
    if not runtime.is_file():
        return
    wanted = {"harness-intel-cpu.icd": f"{runtime}\n"}
    for icd in sorted(_SYSTEM_VENDORS.glob("*.icd")) if _SYSTEM_VENDORS.is_dir() else ():
        text = icd.read_text(encoding="utf-8", errors="replace")
        if "libintelocl" not in text:
            wanted[icd.name] = text
    with contextlib.suppress(OSError):
        try:
            folder = _with_files(cache_dir() / "opencl-vendors", wanted)
        except OSError:  # without Intel's runtime, opencl:0 would be another device, such as a simulator
            folder = _with_files(Path(_temporary().name), wanted)
        os.environ["OCL_ICD_VENDORS"] = str(folder)


def _with_files(folder: Path, wanted: Mapping[str, str]) -> Path:
    for name, text in wanted.items():
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text:
            write_atomically(folder / name, text.encode())
    return folder


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="harness-opencl-")


def _pyopencl() -> Any:
    _point_loader_at_runtimes()
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # the harness has its own cache, with a known key
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyopencl as cl
    except ImportError as error:
        raise DeviceError(f"PyOpenCL cannot be imported ({error}). {_INSTALL}") from None
    return cl


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn PyOpenCL's errors into the harness's own."""
    cl = _pyopencl()
    try:
        yield
    except cl.MemoryError as error:
        raise OutOfMemoryError(f"{what}: the OpenCL device is out of memory ({error}).") from error
    except cl.LogicError as error:
        raise LaunchError(f"{what}: OpenCL refused it ({error}).") from error
    except cl.Error as error:
        raise MeasureError(f"{what}: OpenCL failed ({error}).") from error


def _handles() -> list[Any]:
    cl = _pyopencl()
    try:
        platforms = cl.get_platforms()
    except Exception as error:  # noqa: BLE001 - a driver raises whatever it likes
        raise DeviceError(f"OpenCL has no platform ({reason_of(error)}). {_INSTALL}") from None
    found: list[Any] = []
    problems: list[str] = []
    for platform in platforms:
        try:
            found += platform.get_devices()
        except Exception as error:  # noqa: BLE001 - of this platform, which costs no other platform
            problems.append(f"{_name_of(platform)}: {reason_of(error)}")
    if not found:
        why = f" ({'; '.join(problems)})" if problems else ""
        raise DeviceError(f"OpenCL has platforms but no device{why}. {_INSTALL}")
    # GPUs first and simulators last: an installed simulator is not meant as the default.
    return sorted(
        found, key=lambda d: ("oclgrind" in _name_of(d.platform).lower(), not d.type & cl.device_type.GPU)
    )


def _name_of(named: Any) -> str:
    """Return the name of a platform or device, or why it is unavailable."""
    return text_of(lambda: named.name)


def devices() -> list[DeviceInfo]:
    return [_describe(index, handle) for index, handle in enumerate(_handles())]


def _describe(index: int, handle: Any) -> DeviceInfo:
    cl = _pyopencl()
    types = cl.device_type
    kind: Literal["gpu", "cpu", "other"] = (
        "gpu" if handle.type & types.GPU else "cpu" if handle.type & types.CPU else "other"
    )
    width, height, depth = map(int, handle.max_work_item_sizes[:3])
    name = _name_of(handle)
    return DeviceInfo(
        spec=f"opencl:{index}",
        backend="opencl",
        name=name,
        vendor=text_of(lambda: handle.platform.vendor),
        driver=text_of(lambda: handle.driver_version),
        kind=kind,
        arch=f"{_name_of(handle.platform)} {text_of(lambda: handle.version)} {name}",
        pci_bus_id=or_none(lambda: _pci_bus_id(handle)),
        compute_units=int(handle.max_compute_units),
        memory_bytes=int(handle.global_mem_size),
        # A CPU shares its caches with the host program, so a flush could not be guaranteed.
        l2_bytes=int(handle.global_mem_cache_size) or None if kind == "gpu" else None,
        max_threads_per_block=int(handle.max_work_group_size),
        max_block=(width, height, depth),
        max_grid=(2**31 - 1, 2**31 - 1, 2**31 - 1),
        max_shared_bytes=int(handle.local_mem_size),
        max_clock_mhz=int(handle.max_clock_frequency) or None,
        # NVIDIA's extension, and AMD's term for the same.
        warp_size=or_none(lambda: int(handle.warp_size_nv))
        or or_none(lambda: int(handle.wavefront_width_amd)),
    )


def _pci_bus_id(handle: Any) -> str:
    """Return an NVIDIA card's PCI address in NVML's form. PyOpenCL supports no other vendor and no UUID."""
    device, function = divmod(handle.pci_slot_id_nv, 8)
    return f"{handle.pci_domain_id_nv:08x}:{handle.pci_bus_id_nv:02x}:{device:02x}.{function:x}"


def open_device(index: int) -> OpenCLDevice:
    return OpenCLDevice(index, _handles()[index])


_HEEDED = (
    *("PYOPENCL_BUILD_OPTIONS", "AMD_OCL_BUILD_OPTIONS", "AMD_OCL_BUILD_OPTIONS_APPEND"),
    *("POCL_EXTRA_BUILD_FLAGS", "CL_CONFIG_CPU_TARGET_ARCH", "CL_CONFIG_CPU_VECTORIZER_MODE"),
)
"""Variables with which PyOpenCL and the runtimes of AMD, PoCL and Intel build a different program."""


def _environment() -> tuple[str, ...]:
    return tuple(f"{name}={os.environ[name]}" for name in _HEEDED if os.environ.get(name))


@dataclass
class OpenCLBuilt(Built):
    kernel: Any
    in_parts: bool


class OpenCLDevice(Device):
    """An OpenCL device.

    Its only queue is the harness's, and profiling counts from a launch's own start. So no hold is needed, and
    gaps before a launch are not in its time.
    """

    clock = "opencl-profiling"

    def __init__(self, index: int, handle: Any) -> None:
        self.cl = cl = _pyopencl()
        self.info = _describe(index, handle)
        self.handle = handle
        version = text_of(lambda: handle.version)
        self.toolchain = Toolchain(
            compiler=f"{self.info.vendor} OpenCL {version}, driver {self.info.driver}",
            options=_environment(),
        )
        self.cache = BinaryCache()
        with _translated(f"Opening {self.info.spec}"):
            self.context = cl.Context([handle])
            profiling = cl.command_queue_properties.PROFILING_ENABLE
            self.queue = cl.CommandQueue(self.context, properties=profiling)
        self._flush: tuple[Any, Any, Any, int] | None = None
        self._build_lock = threading.Lock()

    def compile(self, program: Program) -> None:
        if not program.tree_sha256:
            self._program(program)

    def build(self, program: Program) -> OpenCLBuilt:
        built = self._program(program)
        try:
            kernel = self.cl.Kernel(built, program.function)
        except self.cl.Error as error:
            names = ""
            with contextlib.suppress(self.cl.Error):  # for a source without any kernel
                names = built.get_info(self.cl.program_info.KERNEL_NAMES).replace(";", ", ")
            raise BuildError(
                f"{program.name} has no kernel function named {program.function!r} ({error}). The source has "
                f"{names or 'none'}: name the function by entry."
            ) from None
        info = self.cl.kernel_work_group_info
        resources = Resources(
            static_shared_bytes=int(kernel.get_work_group_info(info.LOCAL_MEM_SIZE, self.handle)),
            max_threads_per_block=int(kernel.get_work_group_info(info.WORK_GROUP_SIZE, self.handle)),
            binary_sha256=hashlib.sha256(built.binaries[0]).hexdigest(),
        )
        steps = tuple(
            (self.build(dataclasses.replace(program, function=name, steps=())), count)
            for name, count in program.steps
        )
        return OpenCLBuilt(kernel, program.in_parts, resources=resources, steps=steps)

    def _program(self, program: Program) -> Any:
        """Return the compiled program; from the cache if it depends only on text and options."""
        words = [word for setting in _environment() for word in setting.partition("=")[2].split()]
        if program.tree_sha256 or unusual_options([word for word in words if word[:1] == "-"]):
            # Drivers cache compiled programs, some by source alone: make every text unique.
            unique = dataclasses.replace(program, text=f"{program.text}\n// {secrets.token_hex(8)}\n")
            with self._build_lock:
                return self._compile(unique)
        options = (*program.all_options, *_environment())
        key = BinaryCache.key(program.text, options, self.toolchain.compiler, self.info.arch)
        binary = self.cache.get(key)
        with self._build_lock:  # not every runtime's compiler is as thread-safe as the standard requires
            if binary and (loaded := self._load(program, binary)):
                return loaded
            compiled = self._compile(program)
        self.cache.put(key, compiled.binaries[0])
        return compiled

    def _load(self, program: Program, binary: bytes) -> Any | None:
        try:
            return self._built(program, [self.handle], [binary])
        except self.cl.Error:
            return None  # a driver may refuse its own binary, for example after an update: compile again

    def _compile(self, program: Program) -> Any:
        try:
            return self._built(program, program.text)
        except self.cl.RuntimeError as error:
            message = f"{program.name} does not compile with {self.toolchain.compiler}."
            raise BuildError(message, log=str(error)) from None

    def _built(self, program: Program, *given: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compiler remarks arrive as warnings; errors carry their log
            return self.cl.Program(self.context, *given).build(list(program.all_options))

    def resident_blocks(self, built: Built, launch: Launch) -> int | None:  # noqa: ARG002
        """Return 1 on a CPU, where a compute unit is a thread that runs one block after the other."""
        return 1 if self.info.kind == "cpu" else None

    def free_bytes(self) -> int | None:
        if self.info.kind != "cpu":
            return None
        import psutil

        return int(psutil.virtual_memory().available)

    def allocate(self, size_bytes: int) -> Memory:
        most = int(self.handle.max_mem_alloc_size)
        if size_bytes > most:
            raise OutOfMemoryError(
                f"One array of {size_bytes} bytes is more than the {most} bytes that {self.info.name} "
                "can allocate at once."
            )
        with _translated(f"Allocating {size_bytes} bytes"):
            return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, size_bytes)

    def view(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:
        with _translated("Making a view"):
            return memory.get_sub_region(offset_bytes, size_bytes)

    def release(self, memory: Memory) -> None:
        memory.release()

    def write(self, memory: Memory, offset_bytes: int, data: np.ndarray[Any, Any]) -> None:
        with _translated("Copying to the device"):
            self.cl.enqueue_copy(self.queue, memory, data, dst_offset=offset_bytes, is_blocking=True)

    def read(self, memory: Memory, offset_bytes: int, out: np.ndarray[Any, Any]) -> None:
        with _translated("Copying from the device"):
            self.cl.enqueue_copy(self.queue, out, memory, src_offset=offset_bytes, is_blocking=True)

    def fill(self, memory: Memory, offset_bytes: int, size_bytes: int, byte: int) -> None:
        with _translated("Filling device memory"):
            self.cl.enqueue_fill_buffer(self.queue, memory, np.uint8(byte), offset_bytes, size_bytes)

    def copy(self, source: Memory, destination: Memory, offset_bytes: int, size_bytes: int) -> None:
        with _translated("Copying on the device"):
            self.cl.enqueue_copy(
                self.queue, destination, source, byte_count=size_bytes, dst_offset=offset_bytes
            )

    def launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        self._enqueue(built, launch, arguments)

    def _enqueue(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> tuple[Any, Any]:
        """Return the events of the first and of the last part."""
        ends = [self._enqueue_one(*step) for step in sequence(built, launch, arguments)]
        return ends[0][0], ends[-1][1]

    def _enqueue_one(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> tuple[Any, Any]:
        assert isinstance(built, OpenCLBuilt)
        check_parts(launch, in_parts=built.in_parts)
        local = (self.cl.LocalMemory(launch.dynamic_shared_bytes),) if launch.dynamic_shared_bytes else ()
        with _translated(f"Launching grid {launch.grid}, block {launch.block}"):
            built.kernel.set_args(*map(as_bits, arguments), *local)
            # OpenCL counts threads, CUDA counts blocks.
            events = [
                self.cl.enqueue_nd_range_kernel(
                    self.queue,
                    built.kernel,
                    tuple(map(operator.mul, extent, launch.block)),
                    launch.block,
                    global_work_offset=tuple(map(operator.mul, origin, launch.block)),
                )
                for origin, extent in launch.parts()
            ]
            return events[0], events[-1]

    def timed(self, built: Built, launch: Launch, arguments: Sequence[Argument], launches: int) -> Timing:
        events = [self._enqueue(built, launch, arguments) for _ in range(launches)]
        self.queue.flush()
        return lambda: float(events[-1][1].profile.end - events[0][0].profile.start)

    def flush_l2(self) -> None:
        if self.info.l2_bytes is None:
            return
        if self._flush is None:
            size_bytes = 3 * self.info.l2_bytes
            program = self.cl.Program(self.context, _FLUSH).build()
            data, sink = self.allocate(size_bytes), self.allocate(4)
            self._flush = self.cl.Kernel(program, "flush"), data, sink, size_bytes // 16
        kernel, data, sink, count = self._flush
        kernel.set_args(data, sink, np.uint64(count))
        self.cl.enqueue_nd_range_kernel(self.queue, kernel, ((self.info.compute_units or 1) * 1024,), None)

    def tick_ns(self) -> float:
        return float(self.handle.profiling_timer_resolution)

    def synchronize(self) -> None:
        with _translated("Waiting for the device"):
            self.queue.finish()

    def close(self) -> None:
        self.queue.finish()
