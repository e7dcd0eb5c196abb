"""CUDA graphs: capture of a stream, comparison of two captures, and replay, by the driver's library."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.device.backends.cuda import libcuda
from harness.device.frameworks import ReturnedArray
from harness.errors import GraphRefusedError, HarnessError
from harness.records.types import MOST_SYMBOL, Extent3, KernelLaunch

_THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: calls of this thread that could break the capture fail."""
_KINDS = (
    *("kernel", "copy", "memset", "host function", "graph", "empty node", "wait for an event"),
    *("record of an event", "signal of a semaphore", "wait for a semaphore", "allocation", "release"),
    *("batch of memory operations", "condition"),
)
"""Names of CUgraphNodeType, in its order."""
_KERNEL, _CHILD = _KINDS.index("kernel"), _KINDS.index("graph")
_FORBIDDEN = (
    "While it is captured, it may not wait for the card, read a result on the host, use the default stream, "
    "leave work on a stream of its own, or allocate memory outside of its framework's pool."
)
_OR_EAGER = "or measure eager launches, without --graph or graph=True."

_Extent = ctypes.c_uint * 3


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2, of which the first version is the beginning."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", _Extent),
        ("block", _Extent),
        ("shared_bytes", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph. The other fields are of kernels."""

    kind: str
    function: str = ""
    """Its name; its handle where the driver is too old to name it."""
    grid: Extent3 = (0, 0, 0)
    block: Extent3 = (0, 0, 0)
    shared_bytes: int = 0

    def __str__(self) -> str:
        if not self.function:
            return self.kind
        grid, block = ("x".join(map(str, each)) for each in (self.grid, self.block))
        return f"{self.kind} {self.function} (grid {grid}, block {block}, {self.shared_bytes} bytes shared)"


class Graph(libcuda.Driver):
    """A captured graph, ready to be replayed. Raises GraphRefusedError for one that holds no kernel."""

    def __init__(self, library: Any, name: str, graph: ctypes.c_void_p, stream: int) -> None:
        super().__init__(library, name)
        self.nodes = Counter(self._nodes(graph))
        self.arguments: Sequence[Any] = ()
        """The arguments of its launches, which it keeps alive."""
        self.returned: list[ReturnedArray] = []
        """The results of its last launch in the function's own memory."""
        self._check()
        self._executable = ctypes.c_void_p()
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), graph, ctypes.c_ulonglong(0))
        self.close = weakref.finalize(self, library.cuGraphExecDestroy, self._executable)
        self.close.atexit = False
        self.call("cuGraphUpload", self._executable, ctypes.c_void_p(stream))

    def launches(self) -> list[KernelLaunch]:
        """Return its kernels, equal launches together."""
        return [
            KernelLaunch(
                symbol=node.function[:MOST_SYMBOL],
                grid=node.grid,
                block=node.block,
                dynamic_shared_bytes=node.shared_bytes,
            )
            for node in self.nodes.elements()
            if node.kind == "kernel"
        ]

    def replay(self, stream: int) -> None:
        self.call("cuGraphLaunch", self._executable, ctypes.c_void_p(stream))

    def check_is(self, nodes: Counter[Node], times: int = 1) -> None:
        """Raise GraphRefusedError unless the graph has these nodes, so many times."""
        expected = Counter({node: times * count for node, count in nodes.items()})
        if self.nodes != expected:
            more, less = (_listed(each) for each in (self.nodes - expected, expected - self.nodes))
            raise GraphRefusedError(
                f"{self.name} cannot be timed by CUDA graph: its launches differ from one another. A capture "
                f"of {times} has {more} where {less} was expected. Let it launch the same every time, "
                f"{_OR_EAGER}"
            )

    def _check(self) -> None:
        kinds = {node.kind for node in self.nodes}
        if "kernel" not in kinds:
            raise GraphRefusedError(
                f"{self.name} cannot be timed by CUDA graph: its capture holds no kernel, but "
                f"{_listed(self.nodes)}. Let it put its work on the stream that it is given."
            )
        if kinds & {"allocation", "release"}:
            raise GraphRefusedError(
                f"{self.name} cannot be timed by CUDA graph: it allocates memory in the capture. Let it "
                "allocate before, at its first call, or get a workspace."
            )

    def _nodes(self, graph: ctypes.c_void_p) -> list[Node]:
        count = ctypes.c_size_t()
        self.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
        if not count.value:
            return []
        handles = (ctypes.c_void_p * count.value)()
        self.call("cuGraphGetNodes", graph, handles, ctypes.byref(count))
        return [node for handle in handles for node in self._of(ctypes.c_void_p(handle))]

    def _of(self, handle: ctypes.c_void_p) -> list[Node]:
        """Return a node, or the nodes of the graph that it holds."""
        kind = ctypes.c_int()
        self.call("cuGraphNodeGetType", handle, ctypes.byref(kind))
        if kind.value == _KERNEL:
            return [self._kernel(handle)]
        if kind.value == _CHILD:
            child = ctypes.c_void_p()
            self.call("cuGraphChildGraphNodeGetGraph", handle, ctypes.byref(child))
            return self._nodes(child)
        return [Node(_KINDS[kind.value] if kind.value < len(_KINDS) else f"node of type {kind.value}")]

    def _kernel(self, handle: ctypes.c_void_p) -> Node:
        found = KernelNode()
        newer = hasattr(self.library, "cuGraphKernelNodeGetParams_v2")
        call = "cuGraphKernelNodeGetParams_v2" if newer else "cuGraphKernelNodeGetParams"
        self.call(call, handle, ctypes.byref(found))
        x, y, z = found.grid
        width, height, depth = found.block
        return Node("kernel", self._function(found), (x, y, z), (width, height, depth), found.shared_bytes)

    def _function(self, node: KernelNode) -> str:
        """Return the name of a node's kernel, or its handle."""
        handle = node.function or node.kernel
        call = "cuFuncGetName" if node.function else "cuKernelGetName"
        name = ctypes.c_char_p()
        if hasattr(self.library, call):
            getattr(self.library, call)(ctypes.byref(name), ctypes.c_void_p(handle))
        return name.value.decode(errors="replace") if name.value else f"{handle:#x}"


def _listed(nodes: Counter[Node]) -> str:
    return ", ".join(f"{count} x {node}" for node, count in nodes.items()) or "nothing"


def captured(name: str, stream: int, enqueue: Callable[[], object]) -> Graph:
    """Capture what `enqueue` puts on a stream. Raises GraphRefusedError."""
    driver = libcuda.Driver(libcuda.required(name, "a CUDA graph"), name)
    handle, graph, failed = ctypes.c_void_p(stream), ctypes.c_void_p(), None
    with _no_collection():
        driver.call("cuStreamBeginCapture_v2", handle, ctypes.c_int(_THREAD_LOCAL))
        try:
            enqueue()
        except HarnessError as error:
            failed = error
        finally:
            code = driver.library.cuStreamEndCapture(handle, ctypes.byref(graph))
    try:
        if failed or code:
            raise _refused(name, code, driver.meaning(code), failed)
        return Graph(driver.library, name, graph, stream)
    finally:
        if graph.value:
            driver.library.cuGraphDestroy(graph)


def _refused(name: str, code: int, meaning: str, failed: HarnessError | None) -> GraphRefusedError:
    reasons = [failed.message.partition("\n")[0].rstrip(".")] if failed else []
    reasons += [f"the capture ended with {code} ({meaning})"] if code else []
    return GraphRefusedError(
        f"{name} cannot be captured in a CUDA graph: {'; '.join(reasons)}. {_FORBIDDEN} Take that out of it, "
        f"{_OR_EAGER}",
        log=failed.log if failed else "",
    )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage in this block: freeing memory of the card breaks a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
