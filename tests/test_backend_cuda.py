"""The CUDA backend without a card: its calls to the driver, and their order."""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import re
import shutil
import subprocess
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.device.backends import nvcc
from harness.device.backends.base import MOST_GRAPH_LAUNCHES, Stamp
from harness.device.backends.cuda import device as cuda_device
from harness.device.backends.cuda import driver, libcuda
from harness.device.backends.cuda.built import CudaBuilt
from harness.device.backends.cuda.device import CudaDevice
from harness.device.frameworks import ReturnedArray
from harness.errors import GraphRefusedError, KernelError, LaunchError, MeasureError, OutOfMemoryError
from harness.records.types import Launch
from harness.suite.sources import Program

LAUNCH = Launch(grid=(1, 1, 1), block=(1, 1, 1))


@pytest.fixture
def told(monkeypatch):
    """A device that enqueues nothing, and what it would have."""
    told: list[str] = []
    monkeypatch.setattr(libcuda, "forget_persisting", lambda stream: told.append("forget"))
    device: Any = object.__new__(CudaDevice)
    device.info = SimpleNamespace(l2_bytes=1, compute_units=1)
    device.stream = SimpleNamespace(handle=0, synchronize=lambda: told.append("wait"))
    device._idle, device._held, device._flush = True, 0, (0, 0, 1)
    device._loaded_helpers = {name: name for name in ("flush", "hold", "occupy")}
    device.__dict__ |= {"_gate": ([0], 0)}
    device._enqueue = lambda helper, launch, arguments, stream=None: told.append(helper)
    return device, told


@pytest.mark.parametrize("how", ["hold", "occupy"])
def test_what_waits_for_the_card_comes_before_what_keeps_it(monkeypatch, told, how):
    """Else the host would wait for a card that waits for the host."""
    monkeypatch.setattr(driver, "translated", lambda what: nullcontext())
    device, said = told
    for _ in range(2):
        device.hold() if how == "hold" else device.occupy(1)
        device.flush_l2()
        device.flush_l2()
        device.synchronize()
    assert said == ["forget", how, "flush", "flush", "wait"] * 2


def test_every_helper_that_is_enqueued_is_in_their_file():
    source = Path(str(cuda_device.__file__)).read_text(encoding="utf-8")
    names = set(re.findall(r"""helper\(["'](\w+)["']""", source))
    assert len(names) == 6
    helpers = cuda_device._HELPERS.read_text(encoding="utf-8")
    assert {f"harness_{name}" for name in names} == set(re.findall(r"__global__ void (\w+)\(", helpers))


class Stream:
    """Work in its order, each with the time from which it may begin: a hold's is when it ends by itself."""

    def __init__(self, card: Card) -> None:
        self.card, self.queue = card, list[tuple[Callable[[], float], Callable[[], object]]]()

    def add(self, work: Callable[[], object], ready_ns: Callable[[], float] = lambda: 0.0) -> None:
        self.queue.append((ready_ns, work))

    def synchronize(self) -> None:
        while self.queue:
            self.card.now_ns = max(self.card.now_ns, min(each.queue[0][0]() for each in self.card.busy))
            self.card.run()


class Event:
    def __init__(self, card: Card) -> None:
        self.card, self.at_ns = card, math.inf

    def record(self, stream: Stream) -> None:
        self.stream = stream
        stream.add(lambda: setattr(self, "at_ns", self.card.now_ns))

    def query(self) -> bool:
        return self.at_ns <= self.card.now_ns

    def synchronize(self) -> None:
        self.stream.synchronize()

    def time_till(self, later: Event) -> float:
        return (later.at_ns - self.at_ns) / 1e6

    def time_since(self, earlier: Event) -> float:
        return earlier.time_till(self)


class Card:
    """A card's memory and its streams: what may begin has happened when the host has looked or slept."""

    def __init__(self) -> None:
        self.memory, self.taken = np.zeros(96, np.uint8), 64
        self.streams: list[Stream] = []
        self.now_ns, self.tickets, self.released = 0.0, 0, 0
        self.own = self.Stream()

    @property
    def busy(self) -> list[Stream]:
        return [stream for stream in self.streams if stream.queue]

    def run(self) -> None:
        while ready := [each for each in self.busy if each.queue[0][0]() <= self.now_ns]:
            ready[-1].queue.pop(0)[1]()

    def sleep(self, seconds: float) -> None:
        self.now_ns += seconds * 1e9
        self.run()

    def hold(self, most_ns: int, stream: Stream) -> Callable[[], None]:
        self.tickets += 1
        ticket, ends_ns = self.tickets, self.now_ns + most_ns
        stream.add(lambda: None, lambda: 0.0 if self.released >= ticket else ends_ns)

        def release() -> None:
            self.now_ns += 1
            self.released = max(self.released, ticket)
            self.run()

        return release

    def allocate(self, size_bytes: int) -> int:
        self.taken += size_bytes
        return self.taken - size_bytes

    def memset_d8_async(self, address: int, byte: int, size: int, stream: Stream) -> None:
        stream.add(partial(self.memory.__setitem__, slice(address, address + size), byte))

    def memcpy_dtod_async(self, destination: int, source: int, size: int, stream: Stream) -> None:
        def copy() -> None:
            self.memory[destination : destination + size] = self.memory[source : source + size]

        stream.add(copy)

    def memcpy_htod(self, address: int, data: np.ndarray[Any, Any]) -> None:
        self.memory[address : address + data.nbytes] = data.reshape(-1).view(np.uint8)

    def memcpy_dtoh_async(self, out: np.ndarray[Any, Any], address: int, stream: Stream) -> None:
        stream.add(lambda: self.memcpy_dtoh(out, address))

    def memcpy_dtoh(self, out: np.ndarray[Any, Any], address: int) -> None:
        out[:] = self.memory[address : address + out.size]

    def Stream(self, flags: int = 0) -> Stream:  # noqa: N802 - PyCUDA's name
        self.streams.append(Stream(self))
        return self.streams[-1]

    def Event(self) -> Event:  # noqa: N802
        return Event(self)

    def device(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """The harness's device on this card."""
        monkeypatch.setattr(driver, "translated", lambda what: nullcontext())
        monkeypatch.setattr(driver, "api", lambda: self)
        monkeypatch.setattr("time.sleep", self.sleep)
        device: Any = object.__new__(CudaDevice)
        calls = {"release": lambda memory: None, "allocate": self.allocate, "_hold": self.hold}
        device.__dict__ |= {"stream": self.own, "synchronize": self.own.synchronize, **calls}
        return device


def test_a_slot_is_timed_in_ns_from_its_first_launch_to_its_last(monkeypatch):
    card = Card()
    device = card.device(monkeypatch)

    def work(arguments: Sequence[Any]) -> None:
        card.own.add(lambda: setattr(card, "now_ns", card.now_ns + 1500.0))

    timing = device.timed(CudaBuilt(call=work), LAUNCH, [], 3)
    device.synchronize()
    assert timing() == pytest.approx(4500.0)


def test_bytes_are_moved_from_and_to_their_places(monkeypatch):
    card = Card()
    device = card.device(monkeypatch)
    device.write(8, 4, np.array([1, 2, 3, 4], np.uint8))
    device.fill(8, 8, 2, 9)
    device.copy(12, 32, 2, 6)
    out = np.zeros(7, np.uint8)
    device.read(32, 1, out)
    assert out.tolist() == [0, 1, 2, 3, 4, 9, 9]
    assert int(device.view(32, 2, 6)) == 34


def test_a_part_of_a_grid_is_launched_behind_a_copy_of_where_it_begins(monkeypatch):
    card = Card()
    card.memory = np.zeros(256, np.uint8)
    device = card.device(monkeypatch)
    launched: list[tuple[Any, list[int]]] = []

    def enqueue(built: CudaBuilt, launch: Launch, arguments: Sequence[Any]) -> None:
        card.own.add(lambda: launched.append((launch.grid, card.memory[:12].view(np.int32).tolist())))

    device.__dict__ |= {"_origins": {}, "_enqueue": enqueue}
    for _ in range(2):  # the second time with the origins that are there
        device._run(CudaBuilt(origin=0), Launch(grid=(3, 2, 1), block=(1, 1, 1), dispatch=(2, 2, 1)), [])
        card.own.synchronize()
    assert launched == [((2, 2, 1), [0, 0, 0]), ((1, 2, 1), [2, 0, 0])] * 2


def test_stamps_are_read_at_once_and_a_place_is_used_anew(monkeypatch):
    """A stamp that the card has not written has no value, not the value of an earlier stamp."""
    monkeypatch.setattr(driver, "translated", lambda what: nullcontext())
    monkeypatch.setattr(cuda_device, "_STAMPS", 2)
    memory = np.zeros((2, 2), np.uint64)
    written: Any = iter([(5, 50), (6, 60), (0, 0)])

    def stamp(name: str, blocks: int, threads: int, address: np.uintp) -> None:
        if (counted := next(written))[0]:
            memory[(int(address) - 64) // 16] = counted

    def read(_memory: int, _offset: int, out: np.ndarray[Any, Any]) -> None:
        out[:] = memory

    device: Any = object.__new__(CudaDevice)
    device.info = SimpleNamespace(compute_units=1)
    device.__dict__ |= {"_stamps": 64, "_stamps_taken": 0, "_enqueue_helper": stamp, "read": read}
    device.__dict__ |= {"fill": lambda *_: memory.fill(0)}
    before = [device.stamp(), device.stamp()]
    assert [stamping() for stamping in before] == [Stamp(5.0, 50.0), Stamp(6.0, 60.0)]
    assert device.stamp()() is None


class Errors:
    """PyCUDA's classes of errors."""

    class Error(Exception):
        pass

    class MemoryError(Error):  # noqa: A001 - PyCUDA's own name
        pass

    class LogicError(Error):
        pass

    class LaunchError(Error):
        pass


@pytest.mark.parametrize(
    ("raised", "translated"),
    [
        (Errors.MemoryError("cuMemAlloc failed: out of memory"), OutOfMemoryError),
        (Errors.LaunchError("cuStreamSynchronize failed: unspecified launch failure"), KernelError),
        (Errors.LogicError("an illegal memory access was encountered"), KernelError),
        (Errors.LogicError("cuLaunchKernel failed: invalid argument"), LaunchError),
        (Errors.Error("cuInit failed"), MeasureError),
    ],
)
def test_what_a_kernel_did_is_told_from_what_a_call_asked_for(monkeypatch, raised, translated):
    monkeypatch.setattr(driver, "api", lambda: Errors)
    with pytest.raises(MeasureError, match="Launching: ") as caught, driver.translated("Launching"):
        raise raised
    assert type(caught.value) is translated
    assert str(raised) in caught.value.message


class Contexts:
    """PyCUDA's stack of contexts, whose own one is of the second card, and what is current on it."""

    def __init__(self) -> None:
        self.current = "second card"

    def push(self) -> None:
        self.current = "second card"

    def pop(self) -> None:
        """Keep the current context: the context below is the same."""


def test_a_function_that_starts_a_framework_at_its_first_call_leaves_the_card_current(monkeypatch):
    contexts = Contexts()
    monkeypatch.setattr(driver, "translated", lambda what: nullcontext())
    device: Any = object.__new__(CudaDevice)
    device.__dict__ |= {"context": contexts, "info": SimpleNamespace(arch="sm_90")}
    device.stream = SimpleNamespace(handle=0)

    def starts(array: object) -> None:
        contexts.current = "first card"

    program = Program("starts", "", "", kind="host", host=lambda stream: starts)
    device.launch(device.build(program), LAUNCH, [8])
    assert contexts.current == "second card"


class Tensor:
    """An object that keeps a result's memory."""


class Returning:
    """A function that returns its result of four bytes at the first of the free addresses; on a stream of its
    own where `foreign`. What is let go is free again, the next to be given where `reused`.
    """

    returns = True

    def __init__(self, card: Card, free: list[int], *, foreign: bool = False, reused: bool = True) -> None:
        self.card, self.free, self.reused = card, free, reused
        self.stream = card.Stream() if foreign else card.own
        self.address = 0

    def __call__(self, arguments: Sequence[Any]) -> None:
        self.address = self.free.pop(0)
        self.stream.add(partial(self.work, self.address))

    def work(self, address: int) -> None:
        self.card.memory[address : address + 4] = 7

    def begin(self, arguments: Sequence[Any], evict_bytes: int) -> None:
        """It spans no other card."""

    def poison_others(self, arguments: Sequence[Any]) -> None:
        """Likewise."""

    def results(self, arguments: Sequence[Any]) -> list[ReturnedArray]:
        tensor = Tensor()
        weakref.finalize(tensor, self.free.insert, 0 if self.reused else len(self.free), self.address)
        return [ReturnedArray(self.address, 4, int(arguments[0]), tensor)]


@pytest.mark.parametrize(("foreign", "seen"), [(False, 255), (True, 7)])
def test_a_returned_result_is_looked_at_where_the_function_put_it(monkeypatch, foreign, seen):
    """And what the last call left there, the right answer, is no sign of work that did not wait."""
    card = Card()
    device = card.device(monkeypatch)
    call: Any = Returning(card, [32, 40], foreign=foreign)
    built = CudaBuilt(call=call, python=call)
    device.launch(built, LAUNCH, [8])
    card.sleep(0)
    assert list(card.memory[8:12]) == [7] * 4
    card.memory[8:12] = 255
    look = np.full(2, 255, np.uint8)
    device.fill_results(built, LAUNCH, [8])
    assert device.launch_held(built, LAUNCH, [8], [(8, 2, look)])
    assert list(look) == [seen] * 2
    card.sleep(0)
    assert list(card.memory[8:12]) == [7] * 4


@pytest.mark.parametrize("delay_s", [0.0, 0.2])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("foreign", "seen"), [(False, 255), (True, 7)])
def test_work_aside_is_seen_however_long_the_function_takes(monkeypatch, foreign, seen, waits, delay_s):
    """A function that waits for the card returns when the stream is released, after its outputs were read."""
    card = Card()
    device = card.device(monkeypatch)
    stream = card.Stream() if foreign else card.own

    def call(arguments: Sequence[Any]) -> None:
        card.sleep(delay_s)
        stream.add(lambda: card.memory.__setitem__(slice(8, 12), 7))
        if waits:
            stream.synchronize()
            card.own.synchronize()

    card.memory[8:12] = 255
    look = np.full(2, 255, np.uint8)
    assert device.launch_held(CudaBuilt(call=call), LAUNCH, [8], [(8, 2, look)])
    assert list(look) == [seen] * 2
    card.sleep(0)
    assert list(card.memory[8:12]) == [7] * 4


def test_a_result_in_other_memory_at_each_call_is_refused(monkeypatch):
    card = Card()
    device = card.device(monkeypatch)
    call: Any = Returning(card, [32, 40, 48], reused=False)
    with pytest.raises(LaunchError, match="in other memory at each call"):
        device.launch_held(CudaBuilt(call=call, python=call), LAUNCH, [8], [(8, 0, np.zeros(2, np.uint8))])


class Library:
    """The driver's library as far as it tells how many blocks stay resident."""

    def __init__(self, failing: str = "", code: int = 218) -> None:
        self.failing, self.code, self.asked = failing, code, dict[str, list[Any]]()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.asked[name] = [getattr(each, "value", each) for each in arguments]
            if name.startswith("cuOccupancyMaxActive"):
                arguments[0]._obj.value = 6
            return self.code if name == self.failing else 0

        return call


def resident(monkeypatch, library, *, shared=0, image=(b"cubin", "wave")):
    monkeypatch.setattr(libcuda, "driver_library", lambda: library)
    device: Any = object.__new__(CudaDevice)
    launch = Launch(grid=(1, 1, 1), block=(32, 4, 2), dynamic_shared_bytes=shared)
    return device.resident_blocks(CudaBuilt(image=image), launch)


@pytest.mark.parametrize(("shared", "raised"), [(48 * 1024, False), (48 * 1024 + 4, True)])
def test_the_driver_is_asked_how_many_blocks_stay_resident(monkeypatch, shared, raised):
    """Beyond 48 KiB of dynamic shared memory it says 0 unless the function was allowed it."""
    library = Library()
    assert resident(monkeypatch, library, shared=shared) == 6
    assert library.asked["cuModuleLoadData"][1] == b"cubin"
    assert library.asked["cuModuleGetFunction"][2] == b"wave"
    assert library.asked["cuOccupancyMaxActiveBlocksPerMultiprocessor"][2:] == [256, shared]
    assert library.asked.get("cuFuncSetAttribute", [0, 8, shared])[1:] == [8, shared]
    assert ("cuFuncSetAttribute" in library.asked) == raised
    assert "cuModuleUnload" in library.asked


def test_a_driver_that_does_not_answer_is_an_error_with_its_number(monkeypatch):
    library = Library(failing="cuModuleGetFunction")
    with pytest.raises(LaunchError, match=r"wave: cuModuleGetFunction gave 218"):
        resident(monkeypatch, library)
    assert "cuModuleUnload" in library.asked


def test_of_host_code_nobody_knows_how_many_blocks_stay_resident(monkeypatch):
    assert resident(monkeypatch, Library(), image=None) is None
    assert resident(monkeypatch, None) is None


ATTRIBUTES = replace(LAUNCH, grid=(8, 4, 1), cooperative=True, cluster=(8, 2, 1), programmatic=True)


DRIVER = """
#include <cuda.h>

static int allowed;

CUresult cuModuleLoadData(CUmodule *module, const void *image) { return !(module && image); }
CUresult cuModuleUnload(CUmodule module) { return 0; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    *function = (CUfunction)(1ull << 40);
    return name[0] != 'w';
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    allowed += attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED && value == 1;
    allowed += attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value == 50000;
    return 0;
}
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "of the test"; return 0; }
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    const CUlaunchAttribute *cooperative = config->attrs, *cluster = config->attrs + 1, *last = cluster + 1;
    if (last->id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) return 10;
    if (last->value.programmaticStreamSerializationAllowed != 1) return 11;
    if (function != (CUfunction)(1ull << 40)) return 9;
    if (config->gridDimX != 8 || config->gridDimY != 4 || config->gridDimZ != 1) return 1;
    if (config->blockDimX != 32 || config->blockDimY != 2 || config->blockDimZ != 3) return 2;
    if (config->sharedMemBytes != 50000 || config->hStream != (CUstream)7 || config->numAttrs != 3) return 3;
    if (cooperative->id != CU_LAUNCH_ATTRIBUTE_COOPERATIVE || cooperative->value.cooperative != 1) return 4;
    if (cluster->id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION || cluster->value.clusterDim.x != 8) return 5;
    if (cluster->value.clusterDim.y != 2 || cluster->value.clusterDim.z != 1) return 6;
    if (*(unsigned long long *)parameters[0] != (1ull << 40) + 5 || *(int *)parameters[1] != -3) return 7;
    return extra || allowed != 2 ? 8 : ((char *)parameters[2])[2] - 'c';
}

/* Graphs: `add` is work on a stream that is captured. */
static struct { CUgraphNodeType type; unsigned grid; } nodes[2048];
static int count, capturing, broken;
int graphs, executables, replayed;

CUresult add(CUgraphNodeType type, unsigned grid)
{
    if (capturing) nodes[count].type = type, nodes[count++].grid = grid;
    broken |= capturing && type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    return capturing && broken ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0;
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    if (capturing++) return 1;
    return count = broken = 0, stream != (CUstream)7 || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    capturing = 0;
    if (broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return graphs++, *graph = (CUgraph)(1ull << 41), stream != (CUstream)7;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *found, size_t *many)
{
    for (int i = 0; found && i < *many; ++i) found[i] = (CUgraphNode)((1ull << 42) + i);
    if (graph == (CUgraph)(1ull << 43) && found) found[0] = (CUgraphNode)(1ull << 44);
    if (graph == (CUgraph)(1ull << 43)) return *many = 1, 0;
    if (found && !*many) return CUDA_ERROR_INVALID_VALUE; /* as a card does */
    return *many = count, graph != (CUgraph)(1ull << 41);
}
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    if (node == (CUgraphNode)(1ull << 44)) return *type = CU_GRAPH_NODE_TYPE_KERNEL, 0;
    return *type = nodes[(size_t)node - (1ull << 42)].type, 0;
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
    return *child = (CUgraph)(1ull << 43), 0;
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *found)
{
    const unsigned grid = node == (CUgraphNode)(1ull << 44) ? 9 : nodes[(size_t)node - (1ull << 42)].grid;
    *found = (CUDA_KERNEL_NODE_PARAMS){(CUfunction)(1ull << 40), grid, 2, 3, 32, 4, 1, 512, 0, 0, 0, 0};
    return 0;
}
CUresult cuFuncGetName(const char **name, CUfunction function)
{
    return *name = "wave", function != (CUfunction)(1ull << 40);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    return executables++, *made = (CUgraphExec)(1ull << 45), graph != (CUgraph)(1ull << 41) || flags;
}
CUresult cuGraphUpload(CUgraphExec made, CUstream stream) { return stream != (CUstream)7; }
CUresult cuGraphLaunch(CUgraphExec made, CUstream stream)
{
    return replayed++, made != (CUgraphExec)(1ull << 45) || stream != (CUstream)7;
}
CUresult cuGraphDestroy(CUgraph graph) { return graphs--, 0; }
CUresult cuGraphExecDestroy(CUgraphExec made) { return executables--, 0; }
int names(void)
{
    return CU_GRAPH_NODE_TYPE_MEMSET == 2 && CU_GRAPH_NODE_TYPE_GRAPH == 4
        && CU_GRAPH_NODE_TYPE_MEM_ALLOC == 10 && CU_GRAPH_NODE_TYPE_CONDITIONAL == 13;
}
"""
"""A driver's library, compiled with the driver's own header: each check has a code of its own."""


@pytest.fixture(scope="module")
def compiled_driver(tmp_path_factory):
    headers = (Path(each).resolve().parents[1] / "include" for each in nvcc.paths())
    include = next((each for each in headers if (each / "cuda.h").is_file()), None)
    if include is None or not (compiler := shutil.which("cc")):
        pytest.skip("there is no C compiler, or no cuda.h")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    options = ["-shared", "-fPIC", f"-I{include}", "-o", "driver.so", "driver.c"]
    subprocess.run([compiler, *options], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "driver.so"))


def test_a_launch_with_attributes_is_the_drivers_own(compiled_driver, monkeypatch):
    monkeypatch.setattr(libcuda, "driver_library", lambda: compiled_driver)
    device: Any = object.__new__(CudaDevice)
    device.stream = SimpleNamespace(handle=7)
    parameters = ((0, 8), (8, 4), (12, 3))
    built = CudaBuilt(image=(b"cubin", "wave"), name="wave", parameters=parameters)
    launch = replace(ATTRIBUTES, block=(32, 2, 3), dynamic_shared_bytes=50_000)
    with pytest.raises(LaunchError, match="parameters of 8, 4, 3 bytes and is given arguments of 8 bytes"):
        device._enqueue(built, launch, [np.uintp(5)])
    for _ in range(2):
        device._enqueue(built, launch, [np.uintp(2**40 + 5), np.int32(-3), b"a\0c"])
        gc.collect()
    with pytest.raises(LaunchError, match=r"wave: cuLaunchKernelEx gave 7 \(of the test\)"):
        device._enqueue(built, launch, [np.uintp(2**40 + 5), np.int32(-4), b"a\0c"])


def test_a_kernel_is_unloaded_with_the_last_that_has_it(monkeypatch):
    library = Library()
    monkeypatch.setattr(libcuda, "driver_library", lambda: library)
    built = CudaBuilt(with_attributes=libcuda.function(b"cubin", "wave"))
    assert "cuModuleUnload" not in library.asked
    del built
    assert "cuModuleUnload" in library.asked


def test_a_card_is_asked_for_clusters(monkeypatch):
    monkeypatch.setattr(libcuda, "driver_library", Library)
    device: Any = object.__new__(CudaDevice)
    device.info = SimpleNamespace(compute_units=10)
    built = CudaBuilt(image=(b"cubin", "wave"))
    assert device.resident_grid(built, ATTRIBUTES) == 6 * 16
    assert device.resident_grid(built, replace(ATTRIBUTES, cluster=None)) == 6 * 10
    monkeypatch.setattr(libcuda, "driver_library", lambda: Library("cuOccupancyMaxActiveClusters", 912))
    with pytest.raises(
        LaunchError, match="wave: the driver does not allow a cluster of this size on this card"
    ):
        device.resident_grid(built, ATTRIBUTES)


@pytest.mark.parametrize(
    ("text", "error"),
    [(b"too many blocks in cooperative launch", LaunchError), (b"an illegal memory", KernelError)],
)
def test_a_refused_launch_says_what_the_driver_says(text, error):
    library: Any = Library(failing="cuLaunchKernelEx")

    def told(code: int, words: Any) -> int:
        words._obj.value = text
        return 0

    library.cuGetErrorString = told
    kernel = libcuda.DriverFunction(library, b"cubin", "wave")
    with pytest.raises(error, match=rf"wave: cuLaunchKernelEx gave 218 \({text.decode()}"):
        kernel.launch(ATTRIBUTES, [], 0)


@pytest.fixture
def capturing(compiled_driver, monkeypatch):
    """A device whose functions add nodes of a kind and a grid to the graph that is captured."""
    monkeypatch.setattr(libcuda, "driver_library", lambda: compiled_driver)
    monkeypatch.setattr(driver, "launching", lambda launch: nullcontext())
    monkeypatch.setattr(driver, "translated", lambda what: nullcontext())
    device: Any = object.__new__(CudaDevice)
    device.stream = SimpleNamespace(handle=7, synchronize=lambda: None)
    compiled_driver.replayed = ctypes.c_int.in_dll(compiled_driver, "replayed")
    compiled_driver.replayed.value = 0

    def enqueue(arguments: Sequence[Any]) -> None:
        for kind, grid in arguments[0]():
            if compiled_driver.add(kind, grid):
                raise LaunchError("wave returned 900: the stream is captured.\nMore of it.")

    return device, CudaBuilt(call=enqueue, name="wave"), compiled_driver


GRAPH = replace(LAUNCH, graph=True)
KERNEL, COPY, MEMSET, CHILD, WAIT, ALLOCATION = 0, 1, 2, 4, 6, 10


def test_launches_by_graph_are_replays_of_powers_of_two(capturing):
    device, built, library = capturing
    arguments = [lambda: [(MEMSET, 0), (KERNEL, 5), (CHILD, 0)]]
    device.capture(built, GRAPH, arguments)
    graph = device._graph(built, GRAPH, arguments, 1)
    assert sorted(map(str, graph.nodes)) == [
        "kernel wave (grid 5x2x3, block 32x4x1, 512 bytes shared)",
        "kernel wave (grid 9x2x3, block 32x4x1, 512 bytes shared)",
        "memset",
    ]
    assert library.names()
    for _ in range(2):
        device._replay(built, device._graphs(built, GRAPH, arguments, 2 * MOST_GRAPH_LAUNCHES + 13))
    assert library.replayed.value == 2 * 5
    assert {launches for _, _, launches in built.graphs} == {1, 4, 8, MOST_GRAPH_LAUNCHES}
    executables, graphs = (ctypes.c_int.in_dll(library, name) for name in ("executables", "graphs"))
    assert (executables.value, graphs.value) == (4, 0)
    built.graphs.clear()
    built.replayed = None
    del graph
    assert executables.value == 0


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [(KERNEL, 1), (WAIT, 0)],
            r"captured in a CUDA graph: wave returned 900: the stream is captured; the ",
        ),
        ([(KERNEL, 1), (WAIT, 0)], r"ended with 901 \(of the test\)\. While it is captured, it may not wait"),
        ([], "its capture holds no kernel, but nothing. Let it put its work on the stream"),
        ([(COPY, 0)], "its capture holds no kernel, but 1 x copy"),
        ([(KERNEL, 1), (ALLOCATION, 0)], "it allocates memory in the capture"),
    ],
)
def test_a_launch_that_cannot_be_captured_is_refused(capturing, nodes, message):
    device, built, _ = capturing
    with pytest.raises(GraphRefusedError, match=message) as caught:
        device.capture(built, GRAPH, [lambda: nodes])
    assert caught.value.reason == "graph-refused"
    device.capture(built, GRAPH, [lambda: [(KERNEL, 1)]])  # nothing of it is left


def test_captures_that_differ_are_refused(capturing):
    device, built, _ = capturing
    numbers = itertools.count()
    with pytest.raises(GraphRefusedError, match=r"of 1 has 1 x kernel wave \(grid 4.* kernel wave \(grid 2"):
        device.capture(built, GRAPH, [lambda: [(KERNEL, next(numbers))]])
    growing = itertools.chain([1] * 5, itertools.count(2))
    arguments = [lambda: [(KERNEL, next(growing))]]
    device.capture(built, GRAPH, arguments)
    with pytest.raises(GraphRefusedError, match=r"A capture of 4 has 1 x kernel wave \(grid 3"):
        device._graph(built, GRAPH, arguments, 4)
