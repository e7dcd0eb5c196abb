"""CUDA cards through PyCUDA.

One primary context per device, shared with whatever else the process runs on the card. Kernels are
`SourceModule`s whose binaries come from the harness's own cache, under a key that holds the compiler's
version.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.device import frameworks
from harness.device.backends import cubin, nvcc
from harness.device.backends.base import (
    MOST_HELD_NS,
    POISON,
    Argument,
    Built,
    Device,
    Looks,
    Memory,
    Stamp,
    Stamping,
    Timing,
    as_bits,
    as_python,
    check_parts,
    host_function,
    host_resources,
    sequence,
    smallest_step,
)
from harness.errors import (
    BuildError,
    DeviceError,
    HarnessError,
    KernelError,
    LaunchError,
    MeasureError,
    OutOfMemoryError,
)
from harness.records import DeviceInfo, Launch, Resources, Toolchain
from harness.spec.kernel import Parameter
from harness.spec.sources import Program
from harness.system.cache import BinaryCache
from harness.system.files import scratch_folder

_HELPERS = Path(__file__).resolve().parents[2] / "assets" / "kernels" / "helpers.cu"
_ORIGIN = "harness_origin"
"""The name of a variable in kernels/portable/cuda.h: the first block of a part of a grid."""
_STAMPS = 2**16
"""Kept on the card between two reads: more than one measurement enqueues between two waits."""
_CANARY_STEPS = 10_000
_SETTLE_S = 0.03
"""How long after a function has returned what does not wait for the stream has to show."""
_LOOK_NS, _LET_GO_NS = 350_000_000, 400_000_000
"""When outputs are looked at, and when the stream is let go, under a function that does not return before:
later than the card is ever held while it is timed."""
_MOST_FILLED = 8
"""How often a function is called until it returns the memory that it has just returned."""
_NEVER_THE_SAME = (
    "It returns its result in other memory at each call, so nobody can tell whether the work waited for the "
    "stream: let the function take the output as a parameter and write it there."
)
_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: a stream that the default stream does not wait for, nor it for that one."""

_PERSISTING_L2_LIMIT, _ACCESS_POLICY_WINDOW, _ATTRIBUTE_BYTES = 6, 1, 64
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW; the size of any attribute."""
_FAULT = re.compile("illegal|misaligned|assert|hardware stack|invalid pc", re.IGNORECASE)
"""How CUDA words what a kernel did, as against what a call asked for; PyCUDA has one class for both."""


def _driver() -> Any:
    try:
        from pycuda import driver
    except ImportError as error:
        if "libcuda" in str(error):
            message = f"There is no NVIDIA driver ({error}). Install the driver of your card."
            raise DeviceError(message) from None
        raise DeviceError(
            f"PyCUDA cannot be imported ({error}). With the CUDA toolkit on PATH, install this "
            "project with its extra 'cuda': pip install -e '.[cuda]' in a clone."
        ) from None
    try:
        driver.init()
    except driver.Error as error:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hint = (
            f"CUDA_VISIBLE_DEVICES is {visible!r}, which hides every card: unset it."
            if visible is not None and "no CUDA-capable device" in str(error)
            else "'nvidia-smi' tells whether the driver and a card are there."
        )
        raise DeviceError(f"CUDA does not start ({error}). {hint}") from None
    return driver


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """PyCUDA's errors as the harness's own. CUDA reports a kernel's fault at a later call: at `what`."""
    driver = _driver()
    try:
        yield
    except driver.MemoryError as error:
        raise OutOfMemoryError(f"{what}: the card is out of memory ({error}).") from error
    except driver.LaunchError as error:
        raise KernelError(f"{what}: the kernel failed on the card ({error}).") from error
    except driver.LogicError as error:
        kind = KernelError if _FAULT.search(str(error)) else LaunchError
        raise kind(f"{what}: {error}.") from error
    except driver.Error as error:
        raise MeasureError(f"{what}: {error}.") from error


def devices() -> list[DeviceInfo]:
    driver = _driver()
    found = [_describe(index, driver.Device(index)) for index in range(driver.Device.count())]
    if not found:
        raise DeviceError(
            "CUDA sees no card. 'nvidia-smi' tells whether the driver does; check CUDA_VISIBLE_DEVICES."
        )
    return found


def _describe(index: int, handle: Any) -> DeviceInfo:
    driver = _driver()
    a = driver.device_attribute
    major, minor = handle.compute_capability()

    def read(*names: str) -> Any:
        """The first attribute that this PyCUDA has a name for; None where an old one has none."""
        return next((int(handle.get_attribute(getattr(a, name))) for name in names if hasattr(a, name)), None)

    return DeviceInfo(
        spec=f"cuda:{index}",
        backend="cuda",
        name=handle.name(),
        vendor="NVIDIA",
        driver=".".join(map(str, divmod(driver.get_driver_version() // 10, 100))),
        kind="gpu",
        arch=f"sm_{major}{minor}",
        pci_bus_id=handle.pci_bus_id(),
        compute_capability=(major, minor),
        compute_units=read("MULTIPROCESSOR_COUNT"),
        memory_bytes=int(handle.total_memory()),
        l2_bytes=read("L2_CACHE_SIZE") or None,
        max_threads_per_block=read("MAX_THREADS_PER_BLOCK"),
        max_block=(read("MAX_BLOCK_DIM_X"), read("MAX_BLOCK_DIM_Y"), read("MAX_BLOCK_DIM_Z")),
        max_grid=(read("MAX_GRID_DIM_X"), read("MAX_GRID_DIM_Y"), read("MAX_GRID_DIM_Z")),
        max_shared_bytes=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "MAX_SHARED_MEMORY_PER_BLOCK"),
        max_clock_mhz=read("CLOCK_RATE") // 1000 or None,
        warp_size=read("WARP_SIZE"),
        max_threads_per_sm=read("MAX_THREADS_PER_MULTIPROCESSOR"),
        registers_per_sm=read("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        shared_bytes_per_sm=read("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
    )


def open_device(index: int) -> CudaDevice:
    return CudaDevice(index)


@dataclass(kw_only=True)
class CudaBuilt(Built):
    function: Any = None
    call: Callable[[Sequence[Argument]], None] | None = None
    """What enqueues the work of a host function; there is no `function` then."""
    parameters: tuple[tuple[int, int], ...] | None = None
    """Offset and size in bytes of each parameter, as the compiler laid them out; None where that is not
    known."""
    name: str = ""
    python: frameworks.FrameworkFunction | None = None
    """What `call` is where it is a framework's function."""
    filled: set[int] = field(default_factory=set)
    """Where results lie that were filled last."""
    image: tuple[bytes, str] | None = None
    """What the driver loads, and the name of the function in it."""
    origin: int | None = None
    """The address at which a kernel that is launched in parts finds its part's first block."""


class CudaDevice(Device):
    clock = "cuda-event"

    def __init__(self, index: int) -> None:
        driver = _driver()
        handle = driver.Device(index)
        self.index = index
        self.info = _describe(index, handle)
        self.cache = BinaryCache()
        options = (*nvcc.STANDARD, *nvcc.environment())
        self.toolchain = Toolchain(compiler=nvcc.version() or "no nvcc", options=options)
        self._prepared: dict[tuple[Any, ...], Any] = {}
        self._origins: dict[tuple[Any, ...], Memory] = {}
        self._loaded_helpers: dict[str, CudaBuilt] = {}
        """Kernels of _HELPERS, by name."""
        self._flush: tuple[Memory, Memory, int] | None = None
        self._idle = True
        """Whether nothing was enqueued since the last wait to flush, hold or occupy the card."""
        self._stamps_taken = 0
        self._held = 0
        """How often the card was held."""
        self._stamps_read: np.ndarray[Any, Any] | None = None
        with _translated(f"Opening {self.info.spec}"):
            self.context = handle.retain_primary_context()
            self.context.push()
            self.stream = driver.Stream()

    def build(self, program: Program) -> CudaBuilt:
        if program.kind == "host":
            return self._host(program)
        binary, cached = self._binary(program)
        if program.kind == "library":
            # What it reads when it is called is in nobody's list: the tree stands in for it.
            identity = hashlib.sha256(program.tree_sha256.encode() + binary).hexdigest()
            resources = Resources(binary_sha256=identity)
            return CudaBuilt(call=self._library(program, binary), resources=resources, cached=cached)
        if program.kind == "image":
            nvcc.check_image(program, self.info.arch)
        with _translated(f"Loading {program.name}"):
            module = self._module(program, binary)
            symbol = nvcc.entry(program, binary)
            try:
                function = module.get_function(symbol)
            except _driver().LogicError:
                raise BuildError(
                    f"{program.name} has no kernel function named {program.function!r}: check its entry."
                ) from None
            origin = int(module.get_global(_ORIGIN)[0]) if program.in_parts else None
        return CudaBuilt(
            function=function,
            image=(binary, symbol),
            resources=_resources(function, binary),
            cached=cached,
            code=cubin.code_of_any_compiler(binary) if program.compiler else "",
            # What a setup gave may point at memory that nobody else looks at.
            stateless=cubin.has_no_memory(binary) and not program.setup,
            origin=origin,
            parameters=cubin.parameters(binary, symbol),
            name=program.name,
            steps=tuple(
                (self.build(dataclasses.replace(program, function=name, instance="", steps=())), count)
                for name, count in program.steps
            ),
        )

    def _module(self, program: Program, binary: bytes) -> Any:
        try:
            return _source_module()(binary)
        except _driver().Error as error:
            if not program.content and program.suffix == ".cu":
                raise
            raise BuildError(
                f"{program.name}: the driver does not load it on {self.info.name}, {self.info.arch} "
                f"({error}). It must be built for this card, by a toolkit no newer than the driver."
            ) from None

    def resident_blocks(self, built: Built, launch: Launch) -> int | None:
        assert isinstance(built, CudaBuilt)
        library = _libcuda()
        if built.image is None or library is None:
            return None
        return _resident_blocks(library, *built.image, launch)

    @contextlib.contextmanager
    def _starting(self) -> Iterator[None]:
        """What imports a host function, or calls it for the first time, belongs in here: a framework that
        starts may leave another card current (JAX does).
        """
        try:
            yield
        finally:
            with _translated("Making the card current"):
                self.context.push()  # in place of whatever is current
                self.context.pop()

    def _host(self, program: Program) -> CudaBuilt:
        identity = host_resources(program, self.info.arch)
        if program.python is not None:
            context = frameworks.ExecutionContext(int(self.stream.handle), self.index, cubin.code_sha256)
            with self._starting():
                python = frameworks.FrameworkFunction(program.python, context)
            return CudaBuilt(call=python, python=python, resources=identity, by_host=True)
        with self._starting():
            call = host_function(program, int(self.stream.handle))

        def enqueue(arguments: Sequence[Argument]) -> None:
            try:
                call(*map(as_python, arguments))
            except HarnessError:
                raise
            except Exception as error:
                raise LaunchError(f"{program.name} raised {type(error).__name__}: {error}") from error

        return CudaBuilt(call=enqueue, resources=identity, by_host=True)

    def _library(self, program: Program, binary: bytes) -> Callable[[Sequence[Argument]], None]:
        with scratch_folder() as folder:
            file = folder / "library.so"
            file.write_bytes(binary)
            try:
                function = ctypes.CDLL(str(file))[program.function]
            except (OSError, AttributeError) as error:
                raise BuildError(
                    f"{program.name}: its library has no function {program.function!r} ({error}). "
                    f'Declare it extern "C" int {program.function}(void *stream, ...).'
                ) from None
        function.argtypes = [ctypes.c_void_p] + [
            ctypes.c_void_p if parameter.shape is not None else _c_type(program, parameter)
            for parameter in program.parameters
        ]
        function.restype = ctypes.c_int
        stream = int(self.stream.handle)

        def enqueue(arguments: Sequence[Argument]) -> None:
            if code := function(stream, *map(as_python, arguments)):
                meaning = program.errors.get(code, "its documentation says what that is")
                raise LaunchError(f"{program.name} returned {code}: {meaning}.")

        return enqueue

    def compile(self, program: Program) -> None:
        """Without loading: that needs a context, which threads do not have."""
        if program.kind != "host":
            self._binary(program)

    def _binary(self, program: Program) -> tuple[bytes, bool]:
        if program.content:
            return program.content, False
        if program.suffix == ".ptx" and not program.compiler and nvcc.path() is None:
            nvcc.ptx_target(program, self.info.arch)
            return program.text.encode(), False  # the driver has a ptxas of its own
        # With what only it has, such as sm_90a: a library's own code asks for it.
        arch = nvcc.specific(self.info.arch) if program.kind == "library" else self.info.arch

        def compile_(options: tuple[str, ...]) -> bytes:
            if program.kind == "library":
                return nvcc.library(program, options, arch)
            return nvcc.cubin(program, options, arch)[0]

        return nvcc.through_cache(self.cache, program, (*nvcc.STANDARD, *program.all_options), arch, compile_)

    def free_bytes(self) -> int:
        with _translated("Asking for free memory"):
            return int(_driver().mem_get_info()[0])

    def allocate(self, size_bytes: int) -> Memory:
        with _translated(f"Allocating {size_bytes} bytes"):
            return _driver().mem_alloc(size_bytes)

    def view(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:  # noqa: ARG002
        return np.uintp(int(memory) + offset_bytes)

    def address(self, memory: Memory) -> int:
        return int(memory)

    def release(self, memory: Memory) -> None:
        with _translated("Freeing memory"):
            memory.free()

    def write(self, memory: Memory, offset_bytes: int, data: np.ndarray[Any, Any]) -> None:
        with _translated("Copying to the card"):
            _driver().memcpy_htod(int(memory) + offset_bytes, data)

    def read(self, memory: Memory, offset_bytes: int, out: np.ndarray[Any, Any]) -> None:
        """Reads by the harness's own stream: what is still being written elsewhere gets no time to."""
        with _translated("Copying from the card"):
            _driver().memcpy_dtoh_async(out, int(memory) + offset_bytes, self.stream)
            self.stream.synchronize()
            self._idle = True

    def fill(self, memory: Memory, offset_bytes: int, size_bytes: int, byte: int) -> None:
        with _translated("Filling the card's memory"):
            _driver().memset_d8_async(int(memory) + offset_bytes, byte, size_bytes, self.stream)

    def copy(self, source: Memory, destination: Memory, offset_bytes: int, size_bytes: int) -> None:
        with _translated("Copying on the card"):
            _driver().memcpy_dtod_async(int(destination) + offset_bytes, int(source), size_bytes, self.stream)

    def first_launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        assert isinstance(built, CudaBuilt)
        if built.python is None:
            return
        with _translated(f"Launching grid {launch.grid}, block {launch.block}"), self._starting():
            kernels = built.python.first(arguments, self.synchronize)
        self.synchronize()
        built.resources = frameworks.with_kernels(built.resources, kernels)

    def launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        with _translated(f"Launching grid {launch.grid}, block {launch.block}"):
            # Before it is timed, a function of Python's is called in here.
            with self._starting() if built.by_host else contextlib.nullcontext():
                for each in sequence(built, launch, arguments):
                    self._run(*each)
            self._deliver(self._returned(built, arguments))

    def _returned(self, built: Built, arguments: Sequence[Argument]) -> list[frameworks.ReturnedArray]:
        python = built.python if isinstance(built, CudaBuilt) else None
        return python.results(arguments) if python else []

    def _deliver(self, returned: Sequence[frameworks.ReturnedArray]) -> None:
        """Enqueue a copy of what was returned to the outputs, behind what computes it."""
        for result in returned:
            _driver().memcpy_dtod_async(result.destination, result.address, result.size_bytes, self.stream)

    def launch_held(self, built: Built, launch: Launch, arguments: Sequence[Argument], looks: Looks) -> bool:
        """Only a host function can use another stream: a kernel is enqueued on the harness's own.

        Looks are enqueued before the function is called: one that waits for the card does not return while
        the stream is held. Where it put a result is known when it returns, and looked at then.
        """
        assert isinstance(built, CudaBuilt)
        if built.call is None:
            self.launch(built, launch, arguments)
            return False
        driver = _driver()
        aside, looked, held = driver.Stream(_NON_BLOCKING), driver.Event(), driver.Event()
        self.synchronize()
        copies = self.allocate(sum(out.nbytes for _, _, out in looks))
        with _translated("Looking aside"):
            look = self._hold(_LOOK_NS, aside)
            for (memory, offset_bytes, out), place in zip(looks, _places(copies, looks), strict=True):
                driver.memcpy_dtod_async(place, int(memory) + offset_bytes, out.nbytes, aside)
            looked.record(aside)
            let_go = self._hold(_LET_GO_NS, self.stream)
            held.record(self.stream)
        try:
            with _translated(f"Launching grid {launch.grid}, block {launch.block}"):
                self._run(built, launch, arguments)
                returned = self._returned(built, arguments)
            time.sleep(_SETTLE_S)
            with _translated("Looking aside"):
                look()
                moved = self._look_at_returned(returned, looks, aside)
                if held.query():
                    moved = {}
        finally:
            let_go()
        if any(result.address not in built.filled for result in returned):
            raise LaunchError(_NEVER_THE_SAME)
        with _translated("Looking aside"):
            self._deliver(returned)
            held.synchronize()
            was_held = bool(looked.time_till(held) > 0)
            for number, ((_, _, out), place) in enumerate(zip(looks, _places(copies, looks), strict=True)):
                if number not in moved:
                    driver.memcpy_dtoh(out, place)
                elif (moved[number] != POISON).any():
                    out[:] = moved[number]
        self.release(copies)
        return was_held

    def _look_at_returned(
        self, returned: Sequence[frameworks.ReturnedArray], looks: Looks, aside: Any
    ) -> dict[int, np.ndarray[Any, Any]]:
        """What lies now where a function put its results, by the number of the look."""
        moved = {}
        for number, (memory, offset_bytes, out) in enumerate(looks):
            address = int(memory) + offset_bytes
            place = frameworks.source_of(address, returned)
            if place != address:
                moved[number] = np.empty_like(out)
                _driver().memcpy_dtoh_async(moved[number], place, aside)
        aside.synchronize()
        return moved

    def fill_results(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        """A framework gives a call the memory that the last one was given, as that is free again. Raises
        LaunchError for a function that keeps returning other memory.
        """
        assert isinstance(built, CudaBuilt)
        if built.python is None or not built.python.returns:
            return
        with _translated("Filling results"):
            for _ in range(_MOST_FILLED):
                filled = self._run_and_fill(built, launch, arguments)
                if filled == built.filled:
                    return
                built.filled = filled
        raise LaunchError(_NEVER_THE_SAME)

    def _run_and_fill(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> set[int]:
        """The addresses of the results. A call of its own, as what is returned must be let go before the next
        run, which would else be given other memory.
        """
        self._run(built, launch, arguments)
        returned = self._returned(built, arguments)
        for result in returned:
            _driver().memset_d8_async(result.address, POISON, result.size_bytes, self.stream)
        return {result.address for result in returned}

    def _run(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        assert isinstance(built, CudaBuilt)
        if built.call is not None:
            built.call(arguments)
        elif built.origin is not None:
            self._run_parts(built, launch, arguments)
        else:
            check_parts(launch, in_parts=False)
            self._enqueue(built, launch, arguments)

    def _run_parts(self, built: CudaBuilt, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Each part after a copy of its origin, in the order of the stream: the host waits for nothing."""
        key = launch.grid, launch.dispatch
        if key not in self._origins:
            origins = np.array([origin for origin, _ in launch.parts()], np.int32)
            self._origins[key] = self.allocate(origins.nbytes)
            self.write(self._origins[key], 0, origins)
        first = int(self._origins[key])
        for number, (_, extent) in enumerate(launch.parts()):
            _driver().memcpy_dtod_async(built.origin, first + 12 * number, 12, self.stream)
            self._enqueue(built, dataclasses.replace(launch, grid=extent), arguments)

    def _enqueue(
        self, built: CudaBuilt, launch: Launch, arguments: Sequence[Any], stream: Any = None
    ) -> None:
        """Enqueue a kernel over a whole grid, on the harness's stream if on no other."""
        function, arguments = built.function, [as_bits(argument) for argument in arguments]
        key = (id(function), launch.dynamic_shared_bytes)
        if key not in self._prepared:
            function.prepare(_formats(built.name, arguments, built.parameters))
            if launch.dynamic_shared_bytes > 48 * 1024:
                attribute = _driver().function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                function.set_attribute(attribute, launch.dynamic_shared_bytes)
            self._prepared[key] = function  # kept, so that its id stays its own
        function.prepared_async_call(
            launch.grid,
            launch.block,
            stream or self.stream,
            *arguments,
            shared_size=launch.dynamic_shared_bytes,
        )

    def timed(self, built: Built, launch: Launch, arguments: Sequence[Argument], launches: int) -> Timing:
        driver = _driver()
        start, end = driver.Event(), driver.Event()
        steps = sequence(built, launch, arguments)
        with _translated(f"Launching grid {launch.grid}, block {launch.block}"):
            start.record(self.stream)
            for _ in range(launches):
                for each in steps:
                    self._run(*each)
            end.record(self.stream)
        return lambda: float(end.time_since(start)) * 1e6  # PyCUDA counts in ms

    def deliver(self, built: Built, arguments: Sequence[Argument]) -> None:
        with _translated("Copying what was returned"):
            self._deliver(self._returned(built, arguments))

    @functools.cached_property
    def _helpers(self) -> Any:
        binary, _ = self._binary(Program("harness.helpers", "", _HELPERS.read_text(encoding="utf-8")))
        return _source_module()(binary)

    def _helper(self, name: str) -> CudaBuilt:
        if name not in self._loaded_helpers:
            function = self._helpers.get_function(f"harness_{name}")
            self._loaded_helpers[name] = CudaBuilt(function=function)
        return self._loaded_helpers[name]

    def _enqueue_helper(self, name: str, blocks: int, threads: int, *arguments: Any) -> None:
        launch = Launch(grid=(blocks, 1, 1), block=(threads, 1, 1))
        self._enqueue(self._helper(name), launch, arguments)

    @property
    def _sm_count(self) -> int:
        return self.info.compute_units or 1

    def flush_l2(self) -> None:
        if self.info.l2_bytes is None:
            return
        with _translated("Flushing the L2 cache"):
            self._forget_persisting()
            self._helper("flush")  # loaded before memory is taken
            if self._flush is None:
                size_bytes = 3 * self.info.l2_bytes // 16 * 16
                self._flush = (self.allocate(size_bytes), self.allocate(4), size_bytes // 16)
                self.fill(self._flush[0], 0, size_bytes, 0)
            data, sink, count = self._flush
            arguments = (np.uintp(int(data)), np.uintp(int(sink)), np.uint64(count))
            self._enqueue_helper("flush", 4 * self._sm_count, 512, *arguments)

    def _forget_persisting(self) -> None:
        """Before the first flush since a wait, and before what keeps the card busy until then: the host waits
        here until the card has done all that it was given.
        """
        if self._idle:
            self._idle = False
            _forget_persisting(int(self.stream.handle))

    def occupy(self, duration_ns: int) -> None:
        with _translated("Occupying the card"):
            self._forget_persisting()
            self._enqueue_helper("occupy", 1, 1, np.uint64(duration_ns))

    def hold(self) -> Callable[[], None]:
        with _translated("Holding the card"):
            self._forget_persisting()
            return self._hold(MOST_HELD_NS, self.stream)

    def _hold(self, most_ns: int, stream: Any) -> Callable[[], None]:
        """Enqueue a wait for what is returned to be called, or that of a later hold, at most so long."""
        released, address = self._gate
        self._held += 1
        ticket = self._held
        arguments = (np.uintp(address), np.uint32(ticket), np.uint64(most_ns))
        self._enqueue(self._helper("hold"), Launch(grid=(1, 1, 1), block=(1, 1, 1)), arguments, stream)

        def release() -> None:
            released[0] = ticket

        return release

    @functools.cached_property
    def _gate(self) -> tuple[np.ndarray[Any, Any], int]:
        """What the card waits for: a number in memory of the host's that the card reads as well."""
        driver = _driver()
        released = driver.pagelocked_zeros(1, np.uint32, mem_flags=driver.host_alloc_flags.DEVICEMAP)
        return released, int(released.base.get_device_pointer())

    def stamp(self) -> Stamping:
        with _translated("Reading the card's counters"):
            begin = int(self._stamps)
            index, self._stamps_read = self._stamps_taken % _STAMPS, None
            self._stamps_taken += 1
            self._enqueue_helper("stamp", self._sm_count, 1, np.uintp(begin + 16 * index))
        return lambda: self._stamp_at(index)

    @functools.cached_property
    def _stamps(self) -> Memory:
        memory = self.allocate(16 * _STAMPS)
        self.fill(memory, 0, 16 * _STAMPS, 0)
        return memory

    def _stamp_at(self, index: int) -> Stamp | None:
        if self._stamps_read is None:
            self._stamps_read = np.empty((_STAMPS, 2), np.uint64)
            self.read(self._stamps, 0, self._stamps_read)
            self.fill(self._stamps, 0, 16 * _STAMPS, 0)  # a stamp that SM 0 misses must not show an older one
        cycles, time_ns = self._stamps_read[index]
        return Stamp(float(cycles), float(time_ns)) if cycles else None

    def canary(self) -> Timing:
        launch = Launch(grid=(2 * self._sm_count, 1, 1), block=(256, 1, 1))
        arguments = (np.uintp(int(self._canary_sink)), np.int32(_CANARY_STEPS))
        return self.timed(self._helper("canary"), launch, arguments, launches=1)

    @functools.cached_property
    def _canary_sink(self) -> Memory:
        """The memory itself, not its address alone: PyCUDA frees what nobody holds."""
        return self.allocate(4)

    def tick_ns(self) -> float:
        driver = _driver()
        pairs = [(driver.Event(), driver.Event()) for _ in range(128)]
        for start, end in pairs:
            start.record(self.stream)
            end.record(self.stream)
        self.synchronize()
        return smallest_step(round(end.time_since(start) * 1e6) for start, end in pairs)

    def globaltimer_tick_ns(self) -> float:
        """The smallest difference between distinct readings in one thread."""
        count = 64
        with _translated("Reading the card's timer"):
            memory, readings = self.allocate(8 * count), np.empty(count, np.uint64)
            self._enqueue_helper("globaltimer", 1, 1, np.uintp(int(memory)), np.int32(count))
            self.read(memory, 0, readings)
            self.release(memory)
        return float(np.diff(readings).min())

    def synchronize(self) -> None:
        with _translated("Waiting for the card"):
            self.stream.synchronize()
            self._idle = True

    def close(self) -> None:
        with contextlib.suppress(MeasureError), _translated("Closing the card"):
            self.context.pop()
            self.context.detach()


@functools.cache
def _libcuda() -> Any:
    """The driver's library, for what PyCUDA has no call for; None where it is not found by its name."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def _forget_persisting(stream: int) -> None:
    """Make lines of the L2 ordinary that were set to persist, of which a flush would leave some, and let none
    be set. A driver or card without such lines refuses, which does no harm.
    """
    library = _libcuda()
    if library is None or not hasattr(library, "cuCtxResetPersistingL2Cache"):
        return
    no_window = (ctypes.c_byte * _ATTRIBUTE_BYTES)()
    library.cuStreamSetAttribute(ctypes.c_void_p(stream), _ACCESS_POLICY_WINDOW, no_window)
    library.cuCtxSetLimit(_PERSISTING_L2_LIMIT, ctypes.c_size_t(0))
    library.cuCtxResetPersistingL2Cache()


_MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""


def _resident_blocks(library: Any, binary: bytes, name: str, launch: Launch) -> int:
    """What the driver's occupancy call says of a launch. Raises LaunchError.

    The binary is loaded once more for it: PyCUDA does not tell the handle of a function.
    """

    def ask(call: str, *arguments: Any) -> None:
        if code := getattr(library, call)(*arguments):
            raise LaunchError(
                f"The driver does not tell how many blocks of {name} stay resident: {call} gave {code}."
            )

    module, function, blocks = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    ask("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(binary))
    try:
        ask("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        if launch.dynamic_shared_bytes > 48 * 1024:
            dynamic = ctypes.c_int(launch.dynamic_shared_bytes)
            ask("cuFuncSetAttribute", function, ctypes.c_int(_MAX_DYNAMIC_SHARED), dynamic)
        threads, dynamic_bytes = math.prod(launch.block), ctypes.c_size_t(launch.dynamic_shared_bytes)
        call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        ask(call, ctypes.byref(blocks), function, ctypes.c_int(threads), dynamic_bytes)
    finally:
        library.cuModuleUnload(module)
    return blocks.value


def _resources(function: Any, binary: bytes) -> Resources:
    attribute = _driver().function_attribute
    return Resources(
        registers=int(function.get_attribute(attribute.NUM_REGS)),
        static_shared_bytes=int(function.get_attribute(attribute.SHARED_SIZE_BYTES)),
        local_bytes=int(function.get_attribute(attribute.LOCAL_SIZE_BYTES)),
        max_threads_per_block=int(function.get_attribute(attribute.MAX_THREADS_PER_BLOCK)),
        arch=cubin.built_for(binary),
        binary_sha256=hashlib.sha256(binary).hexdigest(),
        code_sha256=cubin.code_sha256(binary),
    )


def _places(memory: Memory, looks: Looks) -> list[int]:
    """Where the copy of each look lies."""
    sizes = [out.nbytes for _, _, out in looks]
    return [int(memory) + sum(sizes[:number]) for number in range(len(sizes))]


def _formats(
    name: str, arguments: Sequence[Argument], laid_out: Sequence[tuple[int, int]] | None
) -> list[str]:
    """Each argument as the module struct writes it, at the place where the compiler expects it.

    Raises LaunchError for arguments of other sizes than the function's parameters.
    """
    sizes = [len(argument) if isinstance(argument, bytes) else argument.nbytes for argument in arguments]
    wanted = [size for _, size in laid_out or ()]
    if laid_out is not None and sizes != wanted:
        raise LaunchError(
            f"{name} has parameters of {', '.join(map(str, wanted)) or 'no'} bytes and is given arguments of "
            f"{', '.join(map(str, sizes)) or 'no'} bytes: check its args, and the dtypes of its scalars."
        )
    formats, end = [], 0
    for number, (argument, size) in enumerate(zip(arguments, sizes, strict=True)):
        begin = laid_out[number][0] if laid_out is not None else end + -end % _alignment(argument, size)
        written = f"{size}s" if isinstance(argument, bytes) else np.dtype(type(argument)).char
        formats.append(f"{begin - end}x{written}" if begin > end else written)
        end = begin + size
    return formats


def _alignment(argument: Argument, size: int) -> int:
    """The alignment of a tensor map is 64 bytes, of another structure what its size allows, up to 16."""
    most = size if not isinstance(argument, bytes) else 64 if size == 128 else 16
    return min(size & -size, most)


def _c_type(program: Program, parameter: Parameter) -> Any:
    """The type by which ctypes passes a scalar or an axis."""
    try:
        return np.ctypeslib.as_ctypes_type(np.dtype(parameter.dtype))
    except (NotImplementedError, TypeError):
        raise BuildError(
            f"{program.name} is a HostLibrary, whose function cannot be given {parameter.name!r} as "
            f"{parameter.dtype} by value: pass a float, and round it there."
        ) from None


@functools.cache
def _source_module() -> Any:
    """PyCUDA's SourceModule, given a binary in place of a source: its own cache cannot be asked for one."""
    from pycuda.compiler import SourceModule

    class CachedSourceModule(SourceModule):  # type: ignore[misc]
        def __init__(self, binary: bytes) -> None:
            self.module = _driver().module_from_buffer(binary)
            self._bind_module()

    return CachedSourceModule
