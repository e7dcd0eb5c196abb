"""A kernel of a suite: its source, its launch, and the arguments of its function."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from harness.errors import NotYetKnownError, SuiteError
from harness.numbers import Value
from harness.suite.device_facts import DeviceFacts
from harness.suite.layout import ML_DTYPES, element_bits, numpy_dtype
from harness.suite.problem import IDENTIFIER, Case, Problem, check_identifier, computed
from harness.suite.tuning import Tuning

_CAPABILITY = re.compile(r"sm_(\d+)(\d)\Z")
_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)\Z")
_IN_BRACES = re.compile(r"\{([A-Za-z_]\w*)\}")


def is_for(arch: str, capability: tuple[int, int]) -> bool:
    """Tell whether cards of a capability run an architecture's code: sm_86 on 8.6 to 8.9, sm_90a
    only on 9.0.
    """
    match = _ARCH.match(arch)
    if match is None:
        return False
    own = int(match[1]), int(match[2])
    return own == capability if match[3] == "a" else own[0] == capability[0] and own <= capability


def check_folders(whose: str, folders: Any) -> None:
    """Raise SuiteError unless the value is a tuple of paths inside the project."""
    if isinstance(folders, str) or not all(isinstance(folder, str) and folder for folder in folders):
        raise SuiteError(f"{whose} has include {folders!r}; expected a tuple of folders, such as ('src',).")
    for folder in folders:
        if PurePosixPath(folder).is_absolute() or ".." in PurePosixPath(folder).parts:
            raise SuiteError(
                f"{whose} includes from {folder!r}; expected a path relative to the project, without '..': "
                "what lies outside of it is in no commit."
            )


Extent = int | tuple[int, ...]
"""Size of a block or grid: one to three numbers, x first, as CUDA counts them."""
Geometry = Extent | Callable[[Case], Extent]


@dataclass(frozen=True)
class Generated:
    """Source text that a function of the suite generates: ``function(case, arch)``, with arch such as
    ``sm_90``.

    It needs no device. Its text for a case and an arch is cached for the duration of a run.
    """

    function: Callable[[Case, str], str]
    needs: tuple[str, ...] = ()
    """Packages that the function imports, as pip names them: ``apache-tvm>=0.27``."""


@dataclass(frozen=True)
class HostFunction:
    """A host function that does the kernel's work itself: a library's call, or a loop on a CPU.

    ``function(case, stream)`` is called once. Its result is called with the kernel's arguments for each
    launch. On cuda, arrays are addresses, and work must go to the CUDA stream with the handle `stream`. On
    cpu, arrays are NumPy's, and stream is 0.
    """

    function: Callable[[Case, int], Callable[..., object]]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostLibrary:
    """A C++ file that nvcc compiles to a shared library, or a library (.so); relative to the suite's folder.

    Its function, ``extern "C" int name(void *stream, arguments...)``, puts its work on the stream. It returns
    0, or an error number that `errors` explains.
    """

    file: str
    needs: tuple[str, ...] = ()
    """Packages whose files it includes, as pip names them."""
    include: Callable[[], Sequence[str]] | None = None
    """Returns folders to search for headers. It is called after `needs` are checked."""
    errors: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PythonFunction:
    """A function of a Python file that gets tensors of its framework.

    The file is relative to the suite's folder. It is imported from the measured commit, once a device is
    there to run it. Its parameters are the problem's arrays, by name or in the kernel's order, and the axes
    and macros that it asks for by name. Outputs that are not parameters are its results.
    """

    file: str
    name: str = ""
    """Name of the function in the file; if empty, the kernel's name."""
    needs: tuple[str, ...] = ()
    """Further packages that it imports besides the framework, as pip names them."""

    framework: ClassVar[str] = ""
    """Module of the framework that a device imports."""
    packages: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Packages that provide the framework, as pip names them: one of each group is needed."""


class TritonFunction(PythonFunction):
    """A function that launches Triton kernels on PyTorch tensors."""

    framework = "triton"
    packages = (("triton", "triton-windows", "pytorch-triton"), ("torch",))


class TorchFunction(PythonFunction):
    """A function of PyTorch tensors: plain operations, or an extension's."""

    framework = "torch"
    packages = (("torch",),)


class CupyFunction(PythonFunction):
    """A function of CuPy arrays, or a RawKernel, which is launched over the kernel's grid and block."""

    framework = "cupy"
    packages = (("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),)


class NumbaFunction(PythonFunction):
    """A function of numba device arrays, or a cuda.jit kernel, launched over the grid and block."""

    framework = "numba"
    packages = (("numba",),)


KernelSource = str | Generated | HostFunction | HostLibrary | PythonFunction
"""Path of a source file relative to the suite's folder, or one of the other kinds of source."""
IMAGES = (".cubin", ".fatbin")
"""Extensions of binaries that CUDA's driver loads directly."""
_BY_SUFFIX = {
    **dict.fromkeys((".glsl", ".comp"), ("opengl",)),
    **dict.fromkeys((".ptx", *IMAGES), ("cuda",)),
    ".cl": ("opencl",),
}
_PORTABLE = ("cuda", "opencl")
_SPANNING = ("torch", "triton")
"""Frameworks whose functions can span cards."""


@dataclass(frozen=True)
class Step:
    """A further function of a kernel's source, which runs after it in each launch and is included in its
    time.
    """

    entry: str
    block: Geometry
    grid: Geometry
    args: tuple[str, ...] = ()
    """Names of the arguments in the order of the parameters; if empty, the kernel's `args`."""
    dynamic_shared_bytes: int | Callable[[Case], int] = 0
    programmatic: bool = False
    """True for programmatic dependent launch: it may begin before the function before it has ended, and waits
    for that one itself, by `cudaGridDependencySynchronize()`. From sm_90."""


@dataclass(frozen=True)
class PlacedArray:
    """An array of a case on the device, as a kernel's setup sees it."""

    address: int | None
    """Address of its start; None on a device without addresses, such as OpenCL."""
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    """Bytes from one index to the next, in each dimension."""
    size_bytes: int
    """Size in bytes, including padding between its lines."""


Setup = Callable[[Case, Mapping[str, PlacedArray]], Mapping[str, Any]]
Room = int | tuple[int, ...]
"""The size of a workspace: bytes, or the extents of an array of the kernel's dtype."""


@dataclass(frozen=True)
class Kernel:
    """A stage of a ladder: a source and its launch."""

    name: str
    source: KernelSource | Mapping[str, KernelSource]
    """A source, for the backends of its extension, or a source for each backend.

    .cu is for cuda and opencl, .cl for opencl, .glsl for opengl.
    """
    block: Geometry | None = None
    grid: Geometry | None = None
    """Grid and block. Both are required for source text; host code launches by itself."""
    macros: Mapping[str, Value | Callable[[Case], Value]] = field(default_factory=dict)
    """Values compiled in with -D. A callable gets the case, for macros that depend on the size."""
    entry: str = ""
    """Name of the kernel function; if empty, the kernel's name."""
    instantiate: str = ""
    """Instance of a C++ template, as the source would name it: ``"sgemm<{BM}, {BN}>"``. CUDA only.

    Names in braces are macros and axes, which are replaced by their values.
    """
    dtype: str = "float32"
    requires: str | None = None
    """Lowest CUDA compute capability, such as "sm_70". Such a kernel is CUDA only."""
    arch: str = ""
    """Architecture to build for, such as "sm_90a"; CUDA only.

    If empty, it is the card's own, with an "a" if the source needs architecture-specific features.
    """
    dynamic_shared_bytes: int | Callable[[Case], int] = 0
    args: tuple[str, ...] = ()
    """Arrays, scalars, axes and names from `workspace` and `setup`, in the order of the function's
    parameters.

    If empty, the problem's order.
    """
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    include: tuple[str, ...] = ()
    """Folders in which the compiler looks for headers, before the suite's own `include`.

    They are relative to the project: the folder of its settings, else the repository's.
    """
    dispatch: tuple[int, ...] = ()
    """Most blocks of one dispatch, x first.

    A larger grid is launched in parts, so that no part runs so long that the system resets the card. The
    source must find its block by BLOCK_X, BLOCK_Y and BLOCK_Z, or be GLSL with uniforms x0 and y0.
    """
    tune: Tuning | None = None
    library: bool = False
    """True for a vendor's kernel, with which the others are compared."""
    about: str = ""
    steps: Sequence[Step] = ()
    """Functions that run after it, in order, within its time, such as the reduction after a
    split-K product."""
    workspace: Mapping[str, Room | Callable[[Case], Room]] = field(default_factory=dict)
    """Scratch memory by name, for `args`. It is not verified, and poisoned like outputs."""
    setup: Setup | None = None
    """``setup(case, arrays)``, called once for a set of arrays before anything is launched on it. It returns
    further arguments by name, for `args`: bytes (a tensor map), NumPy scalars; for a function of the host,
    anything."""
    cooperative: bool = False
    """True for a cooperative launch, in which blocks can wait for their whole grid, `this_grid().sync()`. The
    grid must fit the card at once. Such a kernel is CUDA only."""
    cluster: Geometry | None = None
    """Blocks of a cluster, x first, that the launch names; from sm_90. None also for a kernel that names its
    own by `__cluster_dims__`. Such a kernel is CUDA only."""
    graph: bool = False
    """True to capture its launches in a CUDA graph and time replays of the graph. Other devices skip it."""
    cards: int = 1
    """Cards of one host that its function spans, in one process: the measured one, and those after it. The
    first axis of every array is the card. The function gets a list of tensors for each array, one on each
    card, and writes the outputs."""

    def __post_init__(self) -> None:
        check_identifier("Kernel", self.name)
        if self.dtype in ML_DTYPES:
            numpy_dtype(self.dtype)
        if self.requires is not None and not _CAPABILITY.match(self.requires):
            raise self.error(f"requires {self.requires!r}; expected the form 'sm_70'.")
        if self.arch and not _ARCH.match(self.arch):
            raise self.error(f"has arch {self.arch!r}; expected the form 'sm_90a'.")
        self._check_instance()
        check_folders(f"Kernel {self.name!r}", self.include)
        if libraries := [s for s in self.sources.values() if isinstance(s, str) and s.endswith(".so")]:
            raise self.error(
                f"has the library {libraries[0]} for a source; expected HostLibrary({libraries[0]!r}), "
                "whose function puts its work on a stream."
            )
        text = any(isinstance(source, (str, Generated)) for source in self.sources.values())
        if text and (self.block is None or self.grid is None):
            raise self.error("needs a block and a grid: its source is launched.")
        self._check_steps()
        self._check_attributes()
        self._check_cards()
        if unknown := self.sources.keys() - {"cuda", "opencl", "opengl", "cpu"}:
            raise self.error(f"has a source for {min(unknown)!r}; expected cuda, opencl, opengl or cpu.")

    def error(self, problem: str) -> SuiteError:
        """Return an error about this kernel, such as ``has no source for cuda.``"""
        return SuiteError(f"Kernel {self.name!r} {problem}")

    def _check_steps(self) -> None:
        made = [source for source in self.sources.values() if not isinstance(source, (str, Generated))]
        if self.steps and (made or self.dispatch or not self.sources.keys() <= {"cuda", "opencl"}):
            raise self.error("has steps; expected sources that cuda or opencl compiles, and no dispatch.")
        named = {*self.args, *(name for step in self.steps for name in step.args)}
        for name in self.workspace:
            check_identifier("Workspace", name)
            if name not in named:
                raise self.error(f"has the workspace {name!r}, which is in no args: say where it goes.")
        if self.setup is not None and not named:
            raise self.error("has a setup and no args: say where what it returns goes.")

    def _check_attributes(self) -> None:
        made = [source for source in self.sources.values() if not isinstance(source, (str, Generated))]
        if self.has_attributes and (made or self.dispatch or self.sources.keys() != {"cuda"}):
            raise self.error(
                "has cooperative or cluster; expected a source that cuda compiles, no other source, and no "
                "dispatch."
            )
        if self.graph and "cuda" not in self.sources:
            raise self.error("has graph=True; expected a source for cuda.")

    def _check_cards(self) -> None:
        if type(self.cards) is not int or self.cards < 1:
            raise self.error(f"has cards {self.cards!r}; expected an integer from 1.")
        if self.cards == 1:
            return
        if self.tune is not None:
            raise self.error("spans cards and has tune; a sweep measures on one card, so leave out tune.")
        for backend, source in self.sources.items():
            if not isinstance(source, PythonFunction):
                raise self.error("spans cards; expected a function of a framework, such as TorchFunction.")
            if backend == "cuda" and source.framework not in _SPANNING:
                raise self.error(
                    f"spans cards by {type(source).__name__}; expected TorchFunction or TritonFunction, as "
                    "PyTorch opens the other cards in the same process."
                )

    def _check_instance(self) -> None:
        if not self.instantiate:
            return
        if self.entry:
            raise self.error("has an entry and a template to instantiate; give one.")
        if compiled := [file for file in self.files if file.endswith((".ptx", ".so", *IMAGES))]:
            raise self.error(
                f"instantiates a template of {compiled[0]}, which is compiled already: name the function by "
                "entry."
            )
        if "\n" in self.instantiate or not IDENTIFIER.match(_function_of(self.instantiate)):
            raise self.error(
                f"instantiates {self.instantiate!r}; expected a function's name and template arguments, as "
                "in 'sgemm<{BM}, {BN}>'."
            )

    @cached_property
    def sources(self) -> dict[str, KernelSource]:
        """Return the sources by backend. The null device takes any."""
        if isinstance(self.source, Mapping):
            return dict(self.source)
        if isinstance(self.source, str):
            backends = _BY_SUFFIX.get(Path(self.source).suffix, _PORTABLE)
            cuda_only = self.requires or self.instantiate or self.arch or self.has_attributes
            return dict.fromkeys(("cuda",) if cuda_only else backends, self.source)
        return {"cuda": self.source}

    def source_for(self, backend: str) -> KernelSource | None:
        """Return the source for a backend; None if the kernel does not run there."""
        if backend == "null":
            return next(iter(self.sources.values()))
        return self.sources.get(backend)

    @property
    def has_attributes(self) -> bool:
        """True where its launch has an attribute: cooperative or cluster."""
        return self.cooperative or self.cluster is not None

    def runs_on_host(self, backend: str) -> bool:
        """Return whether the suite's own code runs in the host's process when the kernel is launched.

        Such code shares the process's state: a library's settings, its modules, the environment. A kernel
        compiled from text does not, even if a function of the suite generates the text.
        """
        return self.setup is not None or self.hides_launches(backend)

    def hides_launches(self, backend: str) -> bool:
        """Return whether code of the suite or a library launches the kernels, not the harness."""
        return isinstance(self.source_for(backend), (HostFunction, HostLibrary, PythonFunction))

    @property
    def files(self) -> tuple[str, ...]:
        found = (s if isinstance(s, str) else getattr(s, "file", "") for s in self.sources.values())
        return tuple(dict.fromkeys(filter(None, found)))

    @property
    def function(self) -> str:
        """Return the function's name, without namespaces and template arguments."""
        return self.entry or _function_of(self.instantiate) or self.name

    @property
    def instance_names(self) -> frozenset[str]:
        """Return the macros and axes whose values are template arguments."""
        return frozenset(_IN_BRACES.findall(self.instantiate))

    def instance(self, case: Case) -> str:
        """Return the instance at a case; empty without a template. Raises SuiteError for unknown names."""
        values: dict[str, Value] = {**case.sizes, **case.macros}
        if unknown := sorted(self.instance_names - values.keys()):
            raise self.error(
                f"instantiates {self.instantiate!r}, but {unknown[0]!r} is no macro of it and no axis; "
                f"there are {', '.join(values)}."
            )
        return _IN_BRACES.sub(lambda found: _cpp(values[found[1]]), self.instantiate)

    @property
    def capability(self) -> tuple[int, int] | None:
        """Return the lowest compute capability as (major, minor), or None for any device."""
        match = _ARCH.match(self.requires or self.arch)
        return (int(match[1]), int(match[2])) if match else None


def _function_of(instance: str) -> str:
    """Return the function's name: ``sgemm`` of ``fast::sgemm<{BM}>``."""
    return instance.partition("<")[0].rpartition("::")[2].strip()


def _cpp(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def on_device(kernel: Kernel, case: Case, device: DeviceFacts) -> Case:
    """Return a case that was planned without a device, with the facts of this device added."""
    plain = replace(case, macros={}, device_facts=device)
    return with_macros(kernel, plain, {**kernel.macros, **case.macros})


def with_macros(kernel: Kernel, plain: Case, macros: Mapping[str, Value | Callable[[Case], Value]]) -> Case:
    found: dict[str, Value] = {}
    for name, value in macros.items():
        try:
            found[name] = computed(kernel.name, f"macro {name}", value, plain)
        except NotYetKnownError:
            if plain.device_facts is not None:
                raise
            continue
        if not isinstance(found[name], int) and not IDENTIFIER.match(str(found[name])):
            raise kernel.error(f"has macro {name} = {found[name]!r}; expected an integer or a word.")
    return replace(plain, macros=found)


def argument_names(problem: Problem, kernel: Kernel | None = None) -> tuple[str, ...]:
    """Return the names of the arguments in order, with those of steps first; without a kernel,
    the problem's.
    """
    read = (name for name in problem.inputs if name not in problem.outputs)
    own = (*read, *problem.outputs, *problem.scalars, *problem.axes)
    if kernel is None:
        return own
    steps = (name for step in kernel.steps for name in step_names(problem, kernel, step))
    return (*steps, *(kernel.args or own))


def step_names(problem: Problem, kernel: Kernel, step: Step) -> tuple[str, ...]:
    """Return the names of a step's arguments, in order."""
    return step.args or argument_names(problem, replace(kernel, steps=()))


def workspaces(kernel: Kernel, case: Case) -> dict[str, int]:
    """Return the bytes of a kernel's scratch memory by name. Raises SuiteError for an invalid size."""
    found = {}
    for name, room in kernel.workspace.items():
        value = computed(kernel.name, f"workspace {name}", room, case)
        shaped = isinstance(value, (tuple, list))
        extents = tuple(value) if shaped else (value,)
        if not extents or not all(type(extent) is int and extent > 0 for extent in extents):
            raise kernel.error(
                f"has workspace {name} = {value!r} at {case.size_label}; expected a number of bytes from 1, "
                "or a tuple of extents."
            )
        found[name] = math.prod(extents) * (element_bits(case.dtype) if shaped else 8) // 8
    return found
