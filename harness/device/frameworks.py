"""Runs functions of Triton, PyTorch, CuPy and numba on the harness's arrays.

Tensors share the harness's memory, and its stream is the current one. Each framework reports its compiled
kernels as far as it can. A framework is imported only when a device has to run a function of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.device.backends.arguments import as_python
from harness.device.backends.base import Argument
from harness.device.spanning import OtherCards, RowCopy
from harness.errors import BuildError, HarnessError, KernelError, LaunchError, OutOfMemoryError
from harness.records.types import CompiledKernel, Resources
from harness.suite.layout import Layout, Order, Parameter, numpy_dtype
from harness.suite.python_functions import PythonCall
from harness.system.cache import cache_dir

_MOST_KEPT = 16
"""Sets of arguments whose tensors are kept, because making them takes the host longer than a launch."""


@dataclass(frozen=True)
class ExecutionContext:
    """The stream and device that a function runs on."""

    stream: int = 0
    """The CUDA stream; 0 on the host."""
    index: int | None = None
    """The card's number; None for the host."""
    cards: int = 1
    """Cards that the function spans, this one included."""
    digest: Callable[[bytes], str | None] = lambda _: None
    """Returns the hash of the code in a card's binary; None if it cannot be read."""


@dataclass(frozen=True)
class ReturnedArray:
    """A result in other memory than its output."""

    address: int
    size_bytes: int
    destination: int
    """Address of the output."""
    tensor: Any
    """Object that keeps the memory alive."""


class Framework:
    """A framework on the harness's memory and stream. This class is for NumPy on the host."""

    def __init__(self, context: ExecutionContext) -> None:
        self.context = context
        self.others: OtherCards | None = None
        """The other cards of a function that spans cards; None on the host, whose memory has all rows."""

    def tensor(self, argument: Argument, parameter: Parameter) -> Any:
        """Return a tensor of the argument's memory, without a copy."""
        return _layout(parameter).unpack(argument)

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Make the harness's stream the framework's current one in this block."""
        return contextlib.nullcontext()

    def pooled(self) -> contextlib.AbstractContextManager[object]:
        """Allocate in this block from memory that only graphs use, because replays write there again."""
        return contextlib.nullcontext()

    def found(self, result: Any, parameter: Parameter) -> tuple[int, tuple[int, ...], str]:
        """Return address, shape and dtype of a result. Raises LaunchError unless it is an array in the
        output's order.
        """
        if type(result) is not np.ndarray:
            raise LaunchError(_no_array(result, parameter, "numpy.ndarray"))
        _check_flags(result.flags, parameter, "numpy")
        return result.ctypes.data, result.shape, result.dtype.name

    @contextlib.contextmanager
    def loading(self, call: PythonCall) -> Iterator[None]:  # noqa: ARG002
        """Enclose the import of a function, or its first call."""
        yield

    def launcher(self, kernel: Any, call: PythonCall) -> Callable[..., object] | None:  # noqa: ARG002
        """Return a launcher for a kernel object; None for a host function."""
        return None

    def number(self, argument: Argument) -> Any:
        """Return a number in the form for launched kernels; functions get Python's."""
        return as_python(argument)

    def values(self) -> Mapping[str, Any]:
        """Return further values that a function can ask for by name."""
        return {}

    def kernels(self, function: Any) -> list[CompiledKernel]:  # noqa: ARG002
        """Return the kernels that a called function compiled, as far as the framework reports them."""
        return []

    @contextlib.contextmanager
    def watching(self, found: list[CompiledKernel]) -> Iterator[None]:  # noqa: ARG002
        """Collect the kernels launched in this block, as far as the framework reports them."""
        yield


class Torch(Framework):
    def __init__(self, context: ExecutionContext) -> None:
        super().__init__(context)
        self.torch = importlib.import_module("torch")
        self.built = Path()
        """Folder of extensions built for the suite."""
        self.stream: Any = None
        self._pools: dict[int, Any] = {}
        """Memory that only graphs use, by card."""
        if context.index is not None:
            self.stream = self.torch.cuda.ExternalStream(context.stream, device=context.index)
            # Memory that it cached for earlier cases would be missing for this case's arrays.
            self.torch.cuda.empty_cache()
            if context.cards > 1:
                self.others = OtherCards(self.torch, self.stream, context.index, context.cards)

    def tensor(self, argument: Argument, parameter: Parameter) -> Any:
        # As bytes, because array interfaces do not know bfloat16 and types of 8 bits.
        if self.context.index is None:
            flat = self.torch.from_numpy(argument)
        else:
            flat = _CudaArray(argument, (_layout(parameter).size_bytes,), np.dtype(np.uint8))
            flat = self.torch.as_tensor(flat, device=f"cuda:{self.context.index}")
        layout = _layout(parameter)
        return flat.view(self._dtype(parameter)).as_strided(layout.shape, layout.strides)

    def _dtype(self, parameter: Parameter) -> Any:
        name = "float32" if parameter.dtype == "tf32" else numpy_dtype(parameter.dtype).name
        found = getattr(self.torch, name, None)
        if not isinstance(found, self.torch.dtype):
            raise BuildError(
                f"PyTorch {self.torch.__version__} has no type {name}, which {parameter.name} is of."
            )
        return found

    def current(self) -> contextlib.AbstractContextManager[object]:
        if self.stream is None:
            return contextlib.nullcontext()
        if self.others is not None:
            return self.others.current()
        return self.torch.cuda.stream(self.stream)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def pooled(self) -> Iterator[None]:
        cuda, first = self.torch.cuda, self.context.index
        with contextlib.ExitStack() as stack:
            if first is not None and hasattr(cuda, "use_mem_pool"):  # PyTorch has it from 2.5 on
                for index in range(first, first + self.context.cards):
                    if index not in self._pools:
                        with cuda.device(index):  # a pool belongs to the card on which it is made
                            self._pools[index] = cuda.MemPool()
                    stack.enter_context(cuda.use_mem_pool(self._pools[index], index))
            yield

    def found(self, result: Any, parameter: Parameter) -> tuple[int, tuple[int, ...], str]:
        torch = self.torch
        if type(result) not in (torch.Tensor, torch.nn.Parameter) or result.layout is not torch.strided:
            raise LaunchError(_no_array(result, parameter, "torch.Tensor"))
        wanted = (
            torch.device("cpu") if self.context.index is None else torch.device("cuda", self.context.index)
        )
        if result.device != wanted:
            raise LaunchError(f"The result for {parameter.name} is on {result.device}; expected {wanted}.")
        # A lazily transposed or negated tensor would be computed outside of the timed work.
        by_columns = _order(parameter) == "F"
        ordered = result.permute(*reversed(range(result.ndim))) if by_columns else result
        if not ordered.is_contiguous() or result.is_neg() or result.is_conj():
            hint = "result.mT.contiguous().mT" if by_columns else "result.contiguous()"
            raise LaunchError(_not_contiguous(parameter, hint))
        return result.data_ptr(), tuple(result.shape), str(result.dtype).removeprefix("torch.")

    @contextlib.contextmanager
    def watching(self, found: list[CompiledKernel]) -> Iterator[None]:
        """Collect the libraries of extensions. PyTorch does not report its own kernels."""
        yield
        for file in sorted(self.built.rglob("*.so")):
            with contextlib.suppress(OSError):
                sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
                found.append(CompiledKernel(name=file.name, code_sha256=sha256))

    @contextlib.contextmanager
    def loading(self, call: PythonCall) -> Iterator[None]:
        """Build extensions in a folder of the suite's own, because a folder has only one of each name."""
        kept = os.environ.get(_EXTENSIONS)
        folder = Path(kept) if kept else cache_dir() / "torch-extensions"
        self.built = folder / hashlib.sha256(bytes(call.root)).hexdigest()[:16]
        self.built.mkdir(parents=True, exist_ok=True)
        os.environ[_EXTENSIONS] = str(self.built)
        try:
            with _alone_in(self.built):
                yield
        finally:
            os.environ.pop(_EXTENSIONS)
            os.environ.update({_EXTENSIONS: kept} if kept else {})


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock a build folder, and remove locks of killed processes, for which PyTorch before 2.14 waits."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            for left_behind in folder.glob("*/lock"):
                left_behind.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


_EXTENSIONS = "TORCH_EXTENSIONS_DIR"


class Triton(Torch):
    """Triton with PyTorch's tensors and stream."""

    def __init__(self, context: ExecutionContext) -> None:
        if context.index is None and os.environ.get("TRITON_INTERPRET") != "1":
            raise BuildError("Without a card Triton runs only in its interpreter: set TRITON_INTERPRET=1.")
        super().__init__(context)
        if context.index is not None:
            _hash_compiler()

    @contextlib.contextmanager
    def watching(self, found: list[CompiledKernel]) -> Iterator[None]:
        """Collect the compiled kernel that each launch of a Triton kernel returns."""
        jit = importlib.import_module("triton.runtime.jit").JITFunction
        run = jit.run

        def watched(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            compiled = run(kernel, *args, **kwargs)
            if isinstance(getattr(compiled, "asm", None), Mapping):  # the interpreter compiles nothing
                found.append(self._compiled_kernel(compiled))
            return compiled

        jit.run = watched
        try:
            yield
        finally:
            jit.run = run

    def _compiled_kernel(self, compiled: Any) -> CompiledKernel:
        metadata, binary = compiled.metadata, compiled.asm.get("cubin")
        chosen = {
            name: getattr(metadata, name, None) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")
        }
        settings = {**_constexprs(compiled), **chosen}
        spills = getattr(compiled, "n_spills", None)
        return CompiledKernel(
            name=str(getattr(metadata, "name", compiled)),
            registers=getattr(compiled, "n_regs", None),
            spilled_bytes=None if spills is None else 4 * spills,  # counted in 32-bit words
            shared_bytes=getattr(metadata, "shared", None),
            code_sha256=binary and (self.context.digest(binary) or hashlib.sha256(binary).hexdigest()),
            settings={name: value for name, value in settings.items() if isinstance(value, (int, str))},
        )

    def launcher(self, kernel: Any, call: PythonCall) -> Callable[..., object] | None:
        """Return a launcher. Macros are its constexprs, including num_warps and num_stages."""
        jit = importlib.import_module("triton.runtime").KernelInterface
        if not isinstance(kernel, jit):
            return None
        launch = _grid_of(call)
        macros = dict(call.macros)
        return lambda *arguments: kernel[launch.grid](*arguments, **macros)


def _hash_compiler() -> None:
    """Make Triton hash its own files now, because the first launch would keep the card waiting for half a
    second.
    """
    for place in ("triton.runtime.cache", "triton.compiler.compiler"):  # from 3.4 on, and earlier
        with contextlib.suppress(Exception):
            importlib.import_module(place).triton_key()
            return


def _constexprs(compiled: Any) -> dict[str, Any]:
    """Return the constants that a Triton kernel was compiled for by name, including an autotuner's choice."""
    names = getattr(getattr(compiled.src, "fn", None), "arg_names", ())
    found = {}
    for place, value in getattr(compiled.src, "constants", {}).items():
        index = place[0] if isinstance(place, tuple) else place
        if isinstance(index, int) and index < len(names):
            found[names[index]] = value
    return found


class Cupy(Framework):
    def __init__(self, context: ExecutionContext) -> None:
        super().__init__(context)
        if context.index is None:
            raise BuildError("CuPy runs only on cards: name its function for cuda.")
        self.cupy = importlib.import_module("cupy")
        self.stream = self.cupy.cuda.ExternalStream(context.stream, context.index)
        self.cupy.get_default_memory_pool().free_all_blocks()
        self._pool: Any = None

    def tensor(self, argument: Argument, parameter: Parameter) -> Any:
        cuda, layout = self.cupy.cuda, _layout(parameter)
        memory = cuda.UnownedMemory(int(argument), layout.size_bytes, self, self.context.index)
        dtype = _plain_dtype(parameter)
        place = cuda.MemoryPointer(memory, 0)
        return self.cupy.ndarray(layout.shape, dtype, place, strides=_strides(layout, dtype))

    def current(self) -> contextlib.AbstractContextManager[object]:
        return self.stream  # type: ignore[no-any-return]

    def pooled(self) -> contextlib.AbstractContextManager[object]:
        self._pool = self._pool or self.cupy.cuda.MemoryPool()
        return self.cupy.cuda.using_allocator(self._pool.malloc)  # type: ignore[no-any-return]

    def found(self, result: Any, parameter: Parameter) -> tuple[int, tuple[int, ...], str]:
        if type(result) is not self.cupy.ndarray:
            raise LaunchError(_no_array(result, parameter, "cupy.ndarray"))
        _check_flags(result.flags, parameter, "cupy")
        return int(result.data.ptr), tuple(result.shape), result.dtype.name

    def launcher(self, kernel: Any, call: PythonCall) -> Callable[..., object] | None:
        if not isinstance(kernel, self.cupy.RawKernel):
            return None
        launch = _grid_of(call)
        shared = launch.dynamic_shared_bytes
        if shared > 48 * 1024:
            kernel.max_dynamic_shared_size_bytes = shared
        return lambda *given: kernel(launch.grid, launch.block, given, shared_mem=shared)

    def number(self, argument: Argument) -> Any:
        return _in_its_width(argument)

    def kernels(self, function: Any) -> list[CompiledKernel]:
        return [
            CompiledKernel(
                name=kernel.name,
                registers=kernel.num_regs,
                spilled_bytes=kernel.local_size_bytes,
                shared_bytes=kernel.shared_size_bytes,
            )
            for kernel in _candidates(function)
            if isinstance(kernel, self.cupy.RawKernel)
        ]


def _in_its_width(argument: Argument) -> Any:
    """Return a number in the kernel's own width, because CuPy and numba treat Python numbers as 64 bits."""
    if not isinstance(argument, np.generic) or argument.dtype.isbuiltin == 1:
        return argument
    return np.asarray(argument).view(f"u{argument.dtype.itemsize}")[()]


def _candidates(function: Any) -> list[Any]:
    """Return possible kernels: the object itself, or the globals of a function's module."""
    return [*getattr(function, "__globals__", {"": function}).values()]


class Numba(Framework):
    """Uses numba.cuda's arrays on a card, and NumPy's on the host."""

    def __init__(self, context: ExecutionContext) -> None:
        super().__init__(context)
        self.cuda: Any = None
        if context.index is not None:
            self.cuda = importlib.import_module("numba.cuda")
            self.cuda.select_device(context.index)
            self.stream = self.cuda.external_stream(context.stream)

    def tensor(self, argument: Argument, parameter: Parameter) -> Any:
        if self.cuda is None:
            return super().tensor(argument, parameter)
        dtype, layout = _plain_dtype(parameter), _layout(parameter)
        array = _CudaArray(argument, layout.shape, dtype, _strides(layout, dtype))
        return self.cuda.as_cuda_array(array, sync=False)

    def found(self, result: Any, parameter: Parameter) -> tuple[int, tuple[int, ...], str]:
        if self.cuda is None:
            return super().found(result, parameter)
        if not self.cuda.is_cuda_array(result):
            raise LaunchError(_no_array(result, parameter, "numba.cuda device array"))
        order = _order(parameter)
        if not (result.is_f_contiguous() if order == "F" else result.is_c_contiguous()):
            raise LaunchError(_not_contiguous(parameter, f"an array in {order} order"))
        return int(result.__cuda_array_interface__["data"][0]), tuple(result.shape), result.dtype.name

    def values(self) -> Mapping[str, Any]:
        """Return the stream. Numba has no current stream, so a function asks for it."""
        return {} if self.cuda is None else {"stream": self.stream}

    def launcher(self, kernel: Any, call: PythonCall) -> Callable[..., object] | None:
        # Code compiled for the host has no registers.
        of_kernels = ("inspect_asm", "overloads", "get_regs_per_thread")
        if self.cuda is None or not all(hasattr(kernel, name) for name in of_kernels):
            return None
        launch = _grid_of(call)
        configuration = launch.grid, launch.block, self.stream, launch.dynamic_shared_bytes
        return kernel[configuration]  # type: ignore[no-any-return]

    def number(self, argument: Argument) -> Any:
        return _in_its_width(argument)

    def kernels(self, function: Any) -> list[CompiledKernel]:
        return [
            CompiledKernel(
                name=kernel.py_func.__name__,
                registers=compiled.regs_per_thread,
                spilled_bytes=compiled.local_mem_per_thread,
                shared_bytes=compiled.shared_mem_per_block,
                code_sha256=hashlib.sha256(kernel.inspect_asm()[types].encode()).hexdigest(),
            )
            for kernel in _candidates(function)
            if hasattr(kernel, "get_regs_per_thread")
            for types, compiled in kernel.overloads.items()
        ]


_FRAMEWORKS: dict[str, type[Framework]] = {"torch": Torch, "triton": Triton, "cupy": Cupy, "numba": Numba}


class _CudaArray:
    """Card memory in the CUDA array interface. Strides are in bytes; None for contiguous rows."""

    def __init__(
        self,
        address: Argument,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": dtype.str,
            "data": (int(address), False),
            "strides": strides,
            "version": 3,
        }


def _layout(parameter: Parameter) -> Layout:
    assert parameter.layout is not None, "only arrays are asked for"
    return parameter.layout


def _strides(layout: Layout, dtype: np.dtype[Any]) -> tuple[int, ...] | None:
    """Return the strides in bytes; None for contiguous rows."""
    return None if layout.plain else tuple(step * dtype.itemsize for step in layout.strides)


def _plain_dtype(parameter: Parameter) -> np.dtype[Any]:
    """Return NumPy's type; for a type that it lacks, such as bfloat16, the unsigned integer of its width."""
    dtype = numpy_dtype(parameter.dtype)
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def _grid_of(call: PythonCall) -> Any:
    if call.launch is None:
        raise BuildError(
            f"{call.name} of {call.file.name} is a kernel, not a function that launches one: give its Kernel "
            "a grid and a block, or name the function."
        )
    return call.launch


def _no_array(result: Any, parameter: Parameter, wanted: str) -> str:
    found = f"{type(result).__module__}.{type(result).__qualname__}"
    return f"The result for {parameter.name} is a {found}; expected a {wanted}."


def _order(parameter: Parameter) -> Order:
    """Return the memory order of a result. Raises LaunchError for an output with padded lines."""
    layout = _layout(parameter)
    if layout.padded:
        raise LaunchError(
            f"{parameter.name} has padding between its rows, which no result has: ask for "
            f"{parameter.name} as a parameter, and write there."
        )
    return layout.order


def _check_flags(flags: Any, parameter: Parameter, package: str) -> None:
    """Raise LaunchError for a NumPy or CuPy array that is not in the output's order."""
    by_columns = _order(parameter) == "F"
    if not (flags.f_contiguous if by_columns else flags.c_contiguous):
        function = "asfortranarray" if by_columns else "ascontiguousarray"
        raise LaunchError(_not_contiguous(parameter, f"{package}.{function}(result)"))


def _not_contiguous(parameter: Parameter, hint: str) -> str:
    lines = "column" if _order(parameter) == "F" else "row"
    return (
        f"The result for {parameter.name} is not in {lines} order in memory; expected {hint}, so that "
        "putting it in order is in its time."
    )


@dataclass(frozen=True)
class _Converted:
    """Arguments in a function's form."""

    positional: list[Any]
    keywords: dict[str, Any]
    rows: list[RowCopy]
    """The rows of arrays on other cards."""


class FrameworkFunction:
    """A function of a framework, imported and bound to its arguments. Raises SuiteError and BuildError."""

    def __init__(self, call: PythonCall, context: ExecutionContext) -> None:
        self._call = call
        try:
            self.framework = _FRAMEWORKS[call.framework](context)
            with self.framework.loading(call):
                function = call.load()
            launcher = self.framework.launcher(function, call)
            self._named, self._function = function, launcher or function
            self._binding = None if launcher else call.bind(function, self.framework.values())
        except HarnessError:
            raise
        except Exception as error:
            raise BuildError(
                f"{call.file.name} could not be imported: {type(error).__name__}: {error}",
                log=traceback.format_exc(),
            ) from error
        self.returns = bool(self._binding and self._binding.returned)
        """True if results stay in the function's memory until they are delivered."""
        self._kept: dict[tuple[bytes | int, ...], _Converted] = {}
        self._result: Any = None

    def __call__(self, arguments: Sequence[Argument]) -> None:
        """Enqueue the work. Returned values are kept for `results`."""
        given = self._kept_or_converted(arguments)
        self._result = None
        with _raised(self._call), self.framework.current():
            result = self._function(*given.positional, **given.keywords)
        self._result = result if self.returns else None

    def first(self, arguments: Sequence[Argument], wait: Callable[[], object]) -> tuple[CompiledKernel, ...]:
        """Call it once to compile, and again to see its launches after tuning."""
        with self.framework.loading(self._call):
            self(arguments)
            self.results(arguments)
            wait()
        found: list[CompiledKernel] = []
        with self.framework.watching(found):
            self(arguments)
            self.results(arguments)
            wait()
        found += self.framework.kernels(self._named)
        return tuple(kernel for number, kernel in enumerate(found) if kernel not in found[:number])

    def results(self, arguments: Sequence[Argument]) -> list[ReturnedArray]:
        """Return and forget the last results, one for each output that was not an argument; for a function
        that spans cards, the outputs on the other cards. Raises LaunchError.
        """
        if not self.returns:
            return self._on_others(arguments)
        assert self._binding is not None
        result, self._result = self._result, None
        names = self._binding.returned
        outputs = {
            parameter.name: (parameter, argument)
            for parameter, argument in zip(self._call.parameters, arguments, strict=True)
        }
        returned = (
            self._returned(tensor, *outputs[name], arguments)
            for name, tensor in zip(names, self._in_order(result, names), strict=True)
        )
        return [array for array in returned if array is not None]

    def _in_order(self, result: Any, names: Sequence[str]) -> list[Any]:
        """Return the results in the order of their names. Raises LaunchError for another number
        of results.
        """
        if isinstance(result, Mapping) and result.keys() == set(names):
            return [result[name] for name in names]
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if result is None or len(results) != len(names):
            found = "nothing" if result is None else f"{len(results)} results"
            raise LaunchError(
                f"{self._name} returned {found}; expected {', '.join(names)}, which it does not ask for as "
                f"{'a parameter' if len(names) == 1 else 'parameters'} either."
            )
        return results

    def _returned(
        self, tensor: Any, parameter: Parameter, destination: Argument, arguments: Sequence[Argument]
    ) -> ReturnedArray | None:
        address, shape, dtype = self.framework.found(tensor, parameter)
        wanted = "float32" if parameter.dtype == "tf32" else numpy_dtype(parameter.dtype).name
        layout = _layout(parameter)
        if (shape, dtype) != (layout.shape, wanted):
            raise LaunchError(
                f"{self._name} returned {dtype} of shape {shape} for {parameter.name}; "
                f"expected {wanted} of shape {layout.shape}."
            )
        output, size_bytes = _address(destination), layout.size_bytes
        if address == output:
            return None
        for other, argument in zip(self._call.parameters, arguments, strict=True):
            if other.layout and _overlap(address, size_bytes, _address(argument), other.layout.size_bytes):
                raise LaunchError(
                    f"{self._name} returned memory of its argument {other.name} for {parameter.name}: "
                    "nothing was computed there."
                )
        return ReturnedArray(address, size_bytes, output, tensor)

    def begin(self, arguments: Sequence[Argument], evict_bytes: int = 0) -> None:
        """Enqueue copies of the arrays to other cards, before a launch; nothing for a function of one card.

        With `evict_bytes` the copies are evicted from the other cards' L2 by reading so many bytes.
        """
        if self.framework.others is not None:
            with _raised(self._call):
                self.framework.others.write(self._kept_or_converted(arguments).rows, evict_bytes)

    def poison_others(self, arguments: Sequence[Argument]) -> set[int] | None:
        """Enqueue a fill of the outputs on other cards, and return their addresses; None without cards."""
        if self.framework.others is None:
            return None
        self.framework.others.poison(self._kept_or_converted(arguments).rows)
        return {array.address for array in self._on_others(arguments)}

    def _on_others(self, arguments: Sequence[Argument]) -> list[ReturnedArray]:
        if self.framework.others is None:
            return []
        return [
            ReturnedArray(row.there.data_ptr(), row.there.nbytes, row.here.data_ptr(), row.there)
            for row in self._kept_or_converted(arguments).rows
            if row.is_written
        ]

    def _kept_or_converted(self, arguments: Sequence[Argument]) -> _Converted:
        key = tuple(map(_key, arguments))
        if key not in self._kept:
            if len(self._kept) == _MOST_KEPT:
                self._kept.clear()
            with self.framework.current():
                self._kept[key] = self._converted(arguments)
        return self._kept[key]

    def _converted(self, arguments: Sequence[Argument]) -> _Converted:
        """Return the arguments in the function's form, by position and by keyword."""
        number = self.framework.number if self._binding is None else as_python
        values: dict[str, Any] = {}
        rows: list[RowCopy] = []
        for parameter, argument in zip(self._call.parameters, arguments, strict=True):
            if not parameter.layout:
                values[parameter.name] = number(argument)
                continue
            whole = self.framework.tensor(argument, parameter)
            if self._call.cards == 1:
                values[parameter.name] = whole
            elif others := self.framework.others:
                there = others.rows(whole, is_written=parameter.name in self._call.written)
                values[parameter.name] = [whole[0], *(row.there for row in there)]
                rows += there
            else:
                values[parameter.name] = list(whole)
        if self._binding is None:
            return _Converted(list(values.values()), {}, rows)
        values = {**self.framework.values(), **self._call.macros, **values}
        positional = [values[name] for name in self._binding.positional]
        keywords = {parameter: values[name] for parameter, name in self._binding.keywords.items()}
        return _Converted(positional, keywords, rows)

    @property
    def _name(self) -> str:
        return f"{self._call.name} of {self._call.file.name}"


def _key(argument: Argument) -> bytes | int:
    """Return an argument's key: a number's bits, an address, or the id of an object that a setup keeps."""
    if isinstance(argument, np.generic):
        return argument.tobytes()
    return _address(argument) if isinstance(argument, np.ndarray) else id(argument)


def _address(argument: Argument) -> int:
    """Return the address of an array on a card or on the host."""
    return int(argument.ctypes.data) if isinstance(argument, np.ndarray) else int(argument)


def _overlap(one: int, one_bytes: int, other: int, other_bytes: int) -> bool:
    return one < other + other_bytes and other < one + one_bytes


def source_of(address: int, returned: Sequence[ReturnedArray]) -> int:
    """Return the address of an output within a returned result; without one, the address itself."""
    for result in returned:
        if result.destination <= address < result.destination + result.size_bytes:
            return result.address + address - result.destination
    return address


def with_kernels(resources: Resources, kernels: tuple[CompiledKernel, ...]) -> Resources:
    """Return the resources of a function with those of its kernels: the most that any kernel takes."""
    registers = [kernel.registers for kernel in kernels if kernel.registers is not None]
    spilled = [kernel.spilled_bytes for kernel in kernels if kernel.spilled_bytes is not None]
    return replace(
        resources,
        registers=max(registers, default=None),
        local_bytes=max(spilled, default=None),
        kernels=kernels,
    )


_COMPILERS = (
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompileException",
    "NumbaError",
    "PTXASError",
)
"""Names of errors of the frameworks' compilers."""


@contextlib.contextmanager
def _raised(call: PythonCall) -> Iterator[None]:
    """Turn errors of a framework or of the function itself into the harness's own."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        names = {base.__name__ for base in type(error).__mro__}
        said = f"{call.name} of {call.file.name} raised {type(error).__name__}: {error}"
        log = traceback.format_exc()
        if isinstance(error, ModuleNotFoundError):
            # Each commit's modules are unloaded after a function's first call.
            said += f". Import it at the top of {call.file.name}, not inside the function"
        if isinstance(error, AttributeError):
            said += _elsewhere(error, call.file)
        if names & set(_COMPILERS):
            raise BuildError(said, log=log) from error
        if names & {"OutOfMemoryError", "MemoryError"}:
            raise OutOfMemoryError(said, log=log) from error
        if names & {"AcceleratorError"} or "illegal memory access" in str(error):
            raise KernelError(said, log=log) from error
        raise LaunchError(said, log=log) from error


def _elsewhere(error: Exception, file: Path) -> str:
    """Return the module that raised an error, if it is another one: its version may not fit."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return "" if frame.f_code.co_filename == str(file) else f", in {frame.f_globals.get('__name__')}"
