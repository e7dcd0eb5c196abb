"""A card through PyCUDA.

It uses the device's primary context, which is shared with everything else in the process. Kernels are
`SourceModule`s whose binaries come from the harness's own cache, with the compiler's version in the key.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.device import counters, frameworks
from harness.device.backends import cubin, nvcc
from harness.device.backends.arguments import as_bits
from harness.device.backends.base import (
    MOST_GRAPH_LAUNCHES,
    MOST_HELD_NS,
    Argument,
    Built,
    Device,
    Looks,
    Memory,
    Stamp,
    Stamping,
    Timing,
    Work,
    check_parts,
    host_resources,
    sequence,
    smallest_step,
)
from harness.device.backends.cuda import cupti, driver, graphs, held_launch, libcuda
from harness.device.backends.cuda.built import CudaBuilt, formats
from harness.device.backends.cuda.graphs import Graph
from harness.device.backends.cuda.host_functions import library_function, python_function
from harness.device.frameworks import ReturnedArray
from harness.errors import BuildError, MeasureError
from harness.records.types import KernelLaunch, Launch, Resources, Toolchain
from harness.suite.sources import Program
from harness.system.cache import BinaryCache

_HELPERS = Path(__file__).resolve().with_name("helpers.cu")
_ORIGIN = "harness_origin"
"""Variable in kernels/portable/cuda.h with the first block of a part of a grid."""
_STAMPS = 2**16
"""Stamps kept on the card between two reads: more than one measurement enqueues between two waits."""
_CANARY_STEPS = 10_000


class CudaDevice(Device):
    clock = "cuda-event"
    _is_flushed = False
    """True if the L2 was flushed since the last launch of a framework's function."""

    def __init__(self, index: int) -> None:
        handle = driver.api().Device(index)
        self.index = index
        self.info = driver.describe(index, handle)
        self.cache = BinaryCache()
        options = (*nvcc.STANDARD, *nvcc.environment())
        self.toolchain = Toolchain(compiler=nvcc.version() or "no nvcc", options=options)
        self._prepared: dict[tuple[Any, ...], Any] = {}
        self._origins: dict[tuple[Any, ...], Memory] = {}
        self._loaded_helpers: dict[str, CudaBuilt] = {}
        """The harness's own kernels (_HELPERS) by name."""
        self._flush: tuple[Memory, Memory, int] | None = None
        self._idle = True
        """True if nothing was enqueued since the last wait to flush, hold or occupy the card."""
        self._stamps_taken = 0
        self._held = 0
        """Number of holds of the card so far."""
        self._stamps_read: np.ndarray[Any, Any] | None = None
        with driver.translated(f"Opening {self.info.spec}"):
            self.context = handle.retain_primary_context()
            self.context.push()
            self.stream = driver.api().Stream()

    def build(self, program: Program) -> CudaBuilt:
        if program.kind == "host":
            return self._host(program)
        binary = self._binary(program)
        if program.kind == "library":
            # Files that it opens when called are listed nowhere, so the whole tree counts.
            identity = hashlib.sha256(program.tree_sha256.encode() + binary).hexdigest()
            resources = Resources(binary_sha256=identity)
            call = library_function(program, binary, int(self.stream.handle))
            return CudaBuilt(call=call, resources=resources, name=program.name)
        if program.kind == "image":
            nvcc.check_image(program, self.info.arch)
        with driver.translated(f"Loading {program.name}"):
            module = self._module(program, binary)
            symbol = nvcc.entry(program, binary)
            try:
                function = module.get_function(symbol)
            except driver.api().LogicError:
                raise BuildError(
                    f"{program.name} has no kernel function named {program.function!r}: check its entry."
                ) from None
            origin = int(module.get_global(_ORIGIN)[0]) if program.in_parts else None
        return CudaBuilt(
            function=function,
            image=(binary, symbol),
            resources=_resources(function, binary),
            code=cubin.code_of_any_compiler(binary) if program.compiler else "",
            # An argument of a setup may point at memory that nothing else checks.
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
            return driver.load(binary)
        except driver.api().Error as error:
            if not program.content and program.suffix == ".cu":
                raise
            raise BuildError(
                f"{program.name}: the driver does not load it on {self.info.name}, {self.info.arch} "
                f"({error}). It must be built for this card, by a toolkit no newer than the driver."
            ) from None

    def resident_blocks(self, built: Built, launch: Launch) -> int | None:
        assert isinstance(built, CudaBuilt)
        return None if built.image is None else libcuda.resident_blocks(*built.image, launch)

    def resident_grid(self, built: Built, launch: Launch) -> int | None:
        assert isinstance(built, CudaBuilt)
        if launch.cluster is None or built.image is None:
            return super().resident_grid(built, launch)
        clusters = libcuda.resident_clusters(*built.image, launch)
        return None if clusters is None else clusters * math.prod(launch.cluster)

    @contextlib.contextmanager
    def _starting(self) -> Iterator[None]:
        """Make this card current again after host code, because a framework may change it (JAX does)."""
        try:
            yield
        finally:
            with driver.translated("Making the card current"):
                self.context.push()  # whatever is current
                self.context.pop()

    def _host(self, program: Program) -> CudaBuilt:
        identity = host_resources(program, self.info.arch)
        if program.python is not None:
            context = frameworks.ExecutionContext(
                int(self.stream.handle), self.index, program.python.cards, cubin.code_sha256
            )
            with self._starting():
                python = frameworks.FrameworkFunction(program.python, context)
            return CudaBuilt(call=python, python=python, resources=identity, by_host=True, name=program.name)
        with self._starting():
            call = python_function(program, int(self.stream.handle))
        return CudaBuilt(call=call, resources=identity, by_host=True, name=program.name)

    def compile(self, program: Program) -> None:
        """Compile without loading, which needs a context that threads do not have."""
        if program.kind != "host":
            self._binary(program)

    def _binary(self, program: Program) -> bytes:
        if program.suffix == ".ptx" and not program.compiler and nvcc.path() is None:
            nvcc.ptx_target(program, self.info.arch)
            return program.text.encode()  # the driver contains its own ptxas
        # With architecture-specific features, such as sm_90a, which library code asks for.
        arch = nvcc.specific(self.info.arch) if program.kind == "library" else self.info.arch
        return nvcc.binary_of(self.cache, program, arch)

    def free_bytes(self) -> int:
        with driver.translated("Asking for free memory"):
            return int(driver.api().mem_get_info()[0])

    def allocate(self, size_bytes: int) -> Memory:
        with driver.translated(f"Allocating {size_bytes} bytes"):
            return driver.api().mem_alloc(size_bytes)

    def view(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:  # noqa: ARG002
        return np.uintp(int(memory) + offset_bytes)

    def address(self, memory: Memory) -> int:
        return int(memory)

    def release(self, memory: Memory) -> None:
        with driver.translated("Freeing memory"):
            memory.free()

    def write(self, memory: Memory, offset_bytes: int, data: np.ndarray[Any, Any]) -> None:
        with driver.translated("Copying to the card"):
            driver.api().memcpy_htod(int(memory) + offset_bytes, data)

    def read(self, memory: Memory, offset_bytes: int, out: np.ndarray[Any, Any]) -> None:
        """Read by the harness's own stream, so that work on other streams gets no extra time."""
        with driver.translated("Copying from the card"):
            driver.api().memcpy_dtoh_async(out, int(memory) + offset_bytes, self.stream)
            self.stream.synchronize()
            self._idle = True

    def fill(self, memory: Memory, offset_bytes: int, size_bytes: int, byte: int) -> None:
        with driver.translated("Filling the card's memory"):
            driver.api().memset_d8_async(int(memory) + offset_bytes, byte, size_bytes, self.stream)

    def copy(self, source: Memory, destination: Memory, offset_bytes: int, size_bytes: int) -> None:
        with driver.translated("Copying on the card"):
            driver.api().memcpy_dtod_async(
                int(destination) + offset_bytes, int(source), size_bytes, self.stream
            )

    def first_launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        assert isinstance(built, CudaBuilt)
        if built.python is None:
            return
        with driver.launching(launch), self._starting():
            built.python.begin(arguments)
            kernels = built.python.first(arguments, self.synchronize)
        self.synchronize()
        built.resources = frameworks.with_kernels(built.resources, kernels)

    def capture(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Capture twice after eager launches, because libraries load and allocate at their first calls."""
        assert isinstance(built, CudaBuilt)
        self._run_eagerly(built, launch, arguments)
        first = self._captured(built, launch, arguments, 1).nodes
        again = self._captured(built, launch, arguments, 1)
        again.check_is(first)
        built.graphs[launch, id(arguments), 1] = again
        self.synchronize()

    def _run_eagerly(self, built: CudaBuilt, launch: Launch, arguments: Sequence[Argument]) -> None:
        self._begin(built, arguments)
        with self._for_graph(built), driver.launching(launch):
            for each in sequence(built, launch, arguments):
                self._run(*each)
            _returned(built, arguments)

    def _captured(
        self, built: CudaBuilt, launch: Launch, arguments: Sequence[Argument], launches: int
    ) -> Graph:
        """Return a graph of some launches. An eager launch before it allocates memory in the pool."""
        parts = sequence(built, launch, arguments)

        def enqueue() -> None:
            with driver.launching(launch):
                for _ in range(launches):
                    for each in parts:
                        self._run(*each)

        self._run_eagerly(built, launch, arguments)
        with self._for_graph(built):
            graph = graphs.captured(built.name, int(self.stream.handle), enqueue)
            graph.arguments, graph.returned = arguments, _returned(built, arguments)
        return graph

    @contextlib.contextmanager
    def _for_graph(self, built: CudaBuilt) -> Iterator[None]:
        pool = built.python.framework.pooled() if built.python else contextlib.nullcontext()
        with self._starting() if built.by_host else contextlib.nullcontext(), pool:
            yield

    def _graph(self, built: CudaBuilt, launch: Launch, arguments: Sequence[Argument], launches: int) -> Graph:
        key = launch, id(arguments), launches
        if (launch, id(arguments), 1) not in built.graphs:
            self.capture(built, launch, arguments)
        if key not in built.graphs:
            graph = self._captured(built, launch, arguments, launches)
            graph.check_is(built.graphs[launch, id(arguments), 1].nodes, launches)
            built.graphs[key] = graph
        return built.graphs[key]

    def _graphs(
        self, built: CudaBuilt, launch: Launch, arguments: Sequence[Argument], launches: int
    ) -> list[Graph]:
        """Return graphs of so many launches together, each of a power of two."""
        found = []
        while launches:
            most = min(MOST_GRAPH_LAUNCHES, 1 << (launches.bit_length() - 1))
            found.append(self._graph(built, launch, arguments, most))
            launches -= most
        return found

    def _replay(self, built: CudaBuilt, replayed: Sequence[Graph]) -> None:
        for graph in replayed:
            graph.replay(int(self.stream.handle))
            built.replayed = graph

    def launch(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        assert isinstance(built, CudaBuilt)
        self._begin(built, arguments)
        with driver.launching(launch):
            if launch.graph:
                self._replay(built, [self._graph(built, launch, arguments, 1)])
            else:
                # Before it is timed, a Python function is called here.
                with self._starting() if built.by_host else contextlib.nullcontext():
                    for each in sequence(built, launch, arguments):
                        self._run(*each)
            held_launch.deliver(_returned(built, arguments), self.stream)

    def _begin(self, built: CudaBuilt, arguments: Sequence[Argument]) -> None:
        """Enqueue what goes before a launch, outside of its time: copies of arrays to other cards."""
        if built.python is not None:
            evict_bytes = 3 * (self.info.l2_bytes or 0) if self._is_flushed else 0
            built.python.begin(arguments, evict_bytes)
            self._is_flushed = False

    def launch_held(self, built: Built, launch: Launch, arguments: Sequence[Argument], looks: Looks) -> bool:
        """Check a launch of a host function. Kernels and graphs always use the harness's own stream."""
        assert isinstance(built, CudaBuilt)
        if built.call is None or launch.graph:
            self.launch(built, launch, arguments)
            return False

        def call() -> list[ReturnedArray]:
            with driver.launching(launch):
                return self._call(built, launch, arguments)

        return held_launch.launch_held(self, self.stream, self._hold, call, built.filled, looks)

    def fill_results(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        assert isinstance(built, CudaBuilt)
        others = built.python.poison_others(arguments) if built.python else None
        if others is not None:
            built.filled = others
        elif launch.graph:
            graph = self._graph(built, launch, arguments, 1)
            with driver.translated("Filling results"):
                held_launch.fill(graph.returned, self.stream)
        elif built.python is not None and built.python.returns:
            call = functools.partial(self._call, built, launch, arguments)
            built.filled = held_launch.fill_results(call, self.stream, built.filled)

    def _call(self, built: CudaBuilt, launch: Launch, arguments: Sequence[Argument]) -> list[ReturnedArray]:
        """Enqueue a function's work, and return its results."""
        self._begin(built, arguments)
        self._run(built, launch, arguments)
        return _returned(built, arguments)

    def _run(self, built: Built, launch: Launch, arguments: Sequence[Argument]) -> None:
        assert isinstance(built, CudaBuilt)
        built.replayed = None
        if built.call is not None:
            built.call(arguments)
        elif built.origin is not None:
            self._run_parts(built, launch, arguments)
        else:
            check_parts(launch, in_parts=False)
            self._enqueue(built, launch, arguments)

    def _run_parts(self, built: CudaBuilt, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Enqueue each part after a copy of its origin in stream order, so that the host never waits."""
        key = launch.grid, launch.dispatch
        if key not in self._origins:
            origins = np.array([origin for origin, _ in launch.parts()], np.int32)
            self._origins[key] = self.allocate(origins.nbytes)
            self.write(self._origins[key], 0, origins)
        first = int(self._origins[key])
        for number, (_, extent) in enumerate(launch.parts()):
            driver.api().memcpy_dtod_async(built.origin, first + 12 * number, 12, self.stream)
            self._enqueue(built, dataclasses.replace(launch, grid=extent), arguments)

    def _enqueue(
        self, built: CudaBuilt, launch: Launch, arguments: Sequence[Any], stream: Any = None
    ) -> None:
        """Enqueue a kernel over a whole grid, by default on the harness's stream."""
        function, arguments = built.function, [as_bits(argument) for argument in arguments]
        if launch.has_attributes:
            self._enqueue_with_attributes(built, launch, arguments)
            return
        key = (id(function), launch.dynamic_shared_bytes)
        if key not in self._prepared:
            function.prepare(formats(built.name, arguments, built.parameters))
            if launch.dynamic_shared_bytes > 48 * 1024:
                attribute = driver.api().function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                function.set_attribute(attribute, launch.dynamic_shared_bytes)
            self._prepared[key] = function  # kept alive, so that its id stays unique
        function.prepared_async_call(
            launch.grid,
            launch.block,
            stream or self.stream,
            *arguments,
            shared_size=launch.dynamic_shared_bytes,
        )

    def _enqueue_with_attributes(self, built: CudaBuilt, launch: Launch, arguments: Sequence[Any]) -> None:
        """Enqueue a kernel by the driver's own call, as PyCUDA's has no attributes."""
        if built.with_attributes is None:
            assert built.image is not None
            formats(built.name, arguments, built.parameters)  # which checks their sizes
            built.with_attributes = libcuda.function(*built.image)
        given = [each if isinstance(each, bytes) else each.tobytes() for each in arguments]
        built.with_attributes.launch(launch, given, int(self.stream.handle))

    def timed(self, built: Built, launch: Launch, arguments: Sequence[Argument], launches: int) -> Timing:
        api = driver.api()
        start, end = api.Event(), api.Event()
        assert isinstance(built, CudaBuilt)
        parts = sequence(built, launch, arguments)
        self._begin(built, arguments)
        with driver.launching(launch):
            replayed = self._graphs(built, launch, arguments, launches) if launch.graph else []
            start.record(self.stream)
            self._replay(built, replayed)
            for _ in range(0 if replayed else launches):
                for each in parts:
                    self._run(*each)
            end.record(self.stream)
        return lambda: float(end.time_since(start)) * 1e6  # PyCUDA counts in ms

    def deliver(self, built: Built, arguments: Sequence[Argument]) -> None:
        with driver.translated("Copying what was returned"):
            held_launch.deliver(_returned(built, arguments), self.stream)

    def count(self, works: Sequence[Work]) -> list[dict[str, float]]:
        def alone(enqueue: Callable[[], object]) -> None:
            enqueue()
            self.synchronize()

        alone_each = [
            (functools.partial(alone, prepare), functools.partial(alone, run)) for prepare, run in works
        ]
        return cupti.counted(self.index, int(self.context.handle), counters.metrics_of, alone_each)

    def captured_launches(
        self, built: Built, launch: Launch, arguments: Sequence[Argument]
    ) -> list[KernelLaunch]:
        assert isinstance(built, CudaBuilt)
        return self._captured(built, launch, arguments, 1).launches()

    def launched(self, run: Callable[[], object]) -> list[tuple[KernelLaunch, float]]:
        def alone() -> None:
            run()
            self.synchronize()

        return cupti.launched(alone)

    @functools.cached_property
    def _helpers(self) -> Any:
        binary = self._binary(Program("harness.helpers", "", _HELPERS.read_text(encoding="utf-8")))
        return driver.load(binary)

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
        self._is_flushed = True
        with driver.translated("Flushing the L2 cache"):
            self._forget_persisting()
            self._helper("flush")  # loaded before memory is allocated
            if self._flush is None:
                size_bytes = 3 * self.info.l2_bytes // 16 * 16
                self._flush = (self.allocate(size_bytes), self.allocate(4), size_bytes // 16)
                self.fill(self._flush[0], 0, size_bytes, 0)
            data, sink, count = self._flush
            arguments = (np.uintp(int(data)), np.uintp(int(sink)), np.uint64(count))
            self._enqueue_helper("flush", 4 * self._sm_count, 512, *arguments)

    def _forget_persisting(self) -> None:
        """Reset persisting lines of the L2, once after each wait, because the host waits for the
        card here.
        """
        if self._idle:
            self._idle = False
            libcuda.forget_persisting(int(self.stream.handle))

    def occupy(self, duration_ns: int) -> None:
        with driver.translated("Occupying the card"):
            self._forget_persisting()
            self._enqueue_helper("occupy", 1, 1, np.uint64(duration_ns))

    def hold(self) -> Callable[[], None]:
        with driver.translated("Holding the card"):
            self._forget_persisting()
            return self._hold(MOST_HELD_NS, self.stream)

    def _hold(self, most_ns: int, stream: Any) -> Callable[[], None]:
        """Enqueue a wait that ends when the returned function, or a later hold's, is called, or after
        `most_ns`.
        """
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
        """Return a number in host memory that the card can read and wait for."""
        api = driver.api()
        released = api.pagelocked_zeros(1, np.uint32, mem_flags=api.host_alloc_flags.DEVICEMAP)
        return released, int(released.base.get_device_pointer())

    def stamp(self) -> Stamping:
        with driver.translated("Reading the card's counters"):
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
            self.fill(self._stamps, 0, 16 * _STAMPS, 0)  # if SM 0 misses a stamp, an older one must not show
        cycles, time_ns = self._stamps_read[index]
        return Stamp(float(cycles), float(time_ns)) if cycles else None

    def canary(self) -> Timing:
        launch = Launch(grid=(2 * self._sm_count, 1, 1), block=(256, 1, 1))
        arguments = (np.uintp(int(self._canary_sink)), np.int32(_CANARY_STEPS))
        return self.timed(self._helper("canary"), launch, arguments, launches=1)

    @functools.cached_property
    def _canary_sink(self) -> Memory:
        """Return the memory itself and not only its address: PyCUDA frees unreferenced memory."""
        return self.allocate(4)

    def tick_ns(self) -> float:
        api = driver.api()
        pairs = [(api.Event(), api.Event()) for _ in range(128)]
        for start, end in pairs:
            start.record(self.stream)
            end.record(self.stream)
        self.synchronize()
        return smallest_step(round(end.time_since(start) * 1e6) for start, end in pairs)

    def globaltimer_tick_ns(self) -> float:
        """Return the smallest difference between distinct readings in one thread."""
        count = 64
        with driver.translated("Reading the card's timer"):
            memory, readings = self.allocate(8 * count), np.empty(count, np.uint64)
            self._enqueue_helper("globaltimer", 1, 1, np.uintp(int(memory)), np.int32(count))
            self.read(memory, 0, readings)
            self.release(memory)
        return float(np.diff(readings).min())

    def context_limits(self) -> dict[str, str]:
        """Return the limits that a suite's code may have set with cuCtxSetLimit, and the cache
        preferences.
        """
        found = {}
        cuda = driver.api()
        for name in ("STACK_SIZE", "PRINTF_FIFO_SIZE", "MALLOC_HEAP_SIZE", "MAX_L2_FETCH_GRANULARITY"):
            with contextlib.suppress(AttributeError, cuda.Error):  # missing in an older PyCUDA or card
                found[f"CUDA limit {name}"] = str(cuda.Context.get_limit(getattr(cuda.limit, name)))
        with contextlib.suppress(AttributeError, cuda.Error):
            found["CUDA cache preference"] = str(cuda.Context.get_cache_config())
        return found

    def synchronize(self) -> None:
        with driver.translated("Waiting for the card"):
            self.stream.synchronize()
            self._idle = True

    def close(self) -> None:
        with contextlib.suppress(MeasureError), driver.translated("Closing the card"):
            self.context.pop()
            self.context.detach()


def _returned(built: Built, arguments: Sequence[Argument]) -> list[ReturnedArray]:
    assert isinstance(built, CudaBuilt)
    if built.replayed is not None:
        return built.replayed.returned
    return built.python.results(arguments) if built.python else []


def _resources(function: Any, binary: bytes) -> Resources:
    attribute = driver.api().function_attribute
    return Resources(
        registers=int(function.get_attribute(attribute.NUM_REGS)),
        static_shared_bytes=int(function.get_attribute(attribute.SHARED_SIZE_BYTES)),
        local_bytes=int(function.get_attribute(attribute.LOCAL_SIZE_BYTES)),
        max_threads_per_block=int(function.get_attribute(attribute.MAX_THREADS_PER_BLOCK)),
        arch=cubin.built_for(binary),
        binary_sha256=hashlib.sha256(binary).hexdigest(),
        code_sha256=cubin.code_sha256(binary),
    )
