"""What a kernel author writes: a suite is one problem and the kernels that solve it.

Nothing here touches a device. The names exported from here are public: a suite.py written against them, at
any commit, keeps loading with every later harness.
"""

from __future__ import annotations

import builtins
import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from harness.errors import NotToldError, NotYetKnownError, SuiteError
from harness.spec.case_id import MAX_AXIS, CaseId, size_label
from harness.spec.device_facts import DeviceFacts
from harness.spec.layout import ML_DTYPES, Layout, Order, element_bits, fits, integer_limits, numpy_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Value = int | str
"""What a macro, or a parameter of a sweep, may be: an integer, or a word."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SCALAR_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)
_CAPABILITY = re.compile(r"sm_(\d+)(\d)\Z")
_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)\Z")
_IN_BRACES = re.compile(r"\{([A-Za-z_]\w*)\}")


def number(value: Any) -> Any:
    """NumPy's numbers as Python's; anything else as it is."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def _check_identifier(what: str, name: str) -> None:
    if not _IDENTIFIER.match(name):
        raise SuiteError(f"{what} name {name!r} is not an identifier (letters, digits and underscores).")


def is_for(arch: str, capability: tuple[int, int]) -> bool:
    """Whether code built for an architecture runs on cards of a compute capability: sm_86 on all of the same
    first number from 8.6 on, sm_100f likewise, sm_90a on 9.0 alone.
    """
    match = _ARCH.match(arch)
    if match is None:
        return False
    own = int(match[1]), int(match[2])
    return own == capability if match[3] == "a" else own[0] == capability[0] and own <= capability


def _twice(names: Sequence[str]) -> str | None:
    return min((name for name in names if names.count(name) > 1), default=None)


def check_folders(whose: str, folders: Any) -> None:
    """Raises SuiteError for what is no tuple of paths that stay inside of the project."""
    if isinstance(folders, str) or not all(isinstance(folder, str) and folder for folder in folders):
        raise SuiteError(f"{whose} has include {folders!r}; expected a tuple of folders, such as ('src',).")
    for folder in folders:
        if PurePosixPath(folder).is_absolute() or ".." in PurePosixPath(folder).parts:
            raise SuiteError(
                f"{whose} includes from {folder!r}; expected a path relative to the project, without '..': "
                "what lies outside of it is in no commit."
            )


def ceil_div(dividend: int, divisor: int) -> int:
    """The number of tiles of `divisor` elements that cover `dividend` elements."""
    return -(-dividend // divisor)


@dataclass(frozen=True)
class Axis:
    """The sizes that an axis takes: `default` on a GPU, `quick` on a CPU or where time is short.

    Axes of a problem that share one Axis object move together: ``m = n = k = Axis((1024, 2048))`` means
    square matrices of 1024 and of 2048.
    """

    default: tuple[int, ...]
    quick: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("default", "quick"):
            sizes = getattr(self, name)
            if not isinstance(sizes, (tuple, list)):
                raise SuiteError(f"Axis {name} is {sizes!r}; expected sizes, such as (1024, 2048).")
            object.__setattr__(self, name, tuple(sizes))
        object.__setattr__(self, "quick", self.quick or self.default[:1])
        for size in (*self.default, *self.quick):
            if type(size) is not int or not 1 <= size <= MAX_AXIS:
                raise SuiteError(f"Axis size {size!r} is not an integer from 1 to {MAX_AXIS}.")
        if not self.default:
            raise SuiteError("Axis() has no sizes: give at least one, as in Axis(default=(1024, 2048)).")


Pitch = int | Callable[["Case"], int] | None
"""Of an array's lines, in elements; None where they touch."""


class Array:
    """A named array of a problem; its shape is a list of axis names.

    With `order` F its columns lie side by side in memory, with C its rows. `ld` is how many elements there
    are from one to the next, a number or a function of the case: at least as many as it has, and what lies
    between is nobody's.
    """

    kind: ClassVar[Literal["input", "output", "inout"]]
    init: float | None = None
    """What every element holds before a launch, of an Output that kernels add to."""

    def __init__(self, *shape: str, dtype: str | None = None, order: Order = "C", ld: Pitch = None) -> None:
        if order not in ("C", "F"):
            raise SuiteError(f"{type(self).__name__} has order={order!r}; expected 'C' or 'F'.")
        if ld is not None and len(shape) < 2:
            raise SuiteError(
                f"{type(self).__name__} has ld={ld!r} and {len(shape)} axes; expected two or more."
            )
        if dtype in ML_DTYPES:
            numpy_dtype(dtype)  # after which data() may name it to NumPy
        self.shape = shape
        self.dtype = dtype
        self.order = order
        self.ld = ld

    def shape_at(self, case: Case) -> tuple[int, ...]:
        return tuple(case.sizes[axis] for axis in self.shape)

    def dtype_at(self, case: Case) -> str:
        return self.dtype or case.dtype


class Input(Array):
    """An array that kernels read. Without a dtype of its own it has the kernel's."""

    kind: ClassVar[Literal["input", "output", "inout"]] = "input"


class Output(Array):
    """An array that kernels write. Without a dtype of its own it has the kernel's.

    With `init` every element holds that number before each launch, as kernels that add to it need. Without,
    what it holds is NaN, so that an element that was never written shows.
    """

    kind: ClassVar[Literal["input", "output", "inout"]] = "output"

    def __init__(
        self,
        *shape: str,
        dtype: str | None = None,
        order: Order = "C",
        ld: Pitch = None,
        init: float | None = None,
    ) -> None:
        super().__init__(*shape, dtype=dtype, order=order, ld=ld)
        if init is not None and (isinstance(init, bool) or not isinstance(init, (int, float))):
            raise SuiteError(f"Output has init={init!r}; expected a number, such as 0.")
        self.init = init


class InOut(Input, Output):
    """An array that kernels read and write. Before each launch it is what data() gives; the reference gets
    that and returns what the array is to hold afterwards.
    """

    kind = "inout"

    def __init__(self, *shape: str, dtype: str | None = None, order: Order = "C", ld: Pitch = None) -> None:
        Output.__init__(self, *shape, dtype=dtype, order=order, ld=ld)


class Scalar:
    """A number that kernels are passed by value: one, or a function of the case. ``case.alpha`` is what the
    kernel gets, rounded to the dtype.
    """

    def __init__(self, value: float | Callable[[Case], float], dtype: str = "float32") -> None:
        if dtype not in _SCALAR_DTYPES:
            raise SuiteError(f"Scalar has dtype {dtype!r}; expected one of {', '.join(_SCALAR_DTYPES)}.")
        self.value = value
        self.dtype = dtype

    def passed(self, name: str, value: Any) -> float:
        """A value as a kernel gets it. Raises SuiteError for what the dtype cannot hold."""
        plain = number(value)
        wrong = f"Scalar {name!r} is {value!r}; expected"
        if isinstance(plain, bool) or not isinstance(plain, (int, float)):
            raise SuiteError(f"{wrong} a number for {self.dtype}.")
        if not fits(plain, self.dtype) or not math.isfinite(plain):
            raise SuiteError(f"{wrong} a finite number that {self.dtype} can hold.")
        if integer_limits(self.dtype):
            return int(plain)
        import numpy as np

        return float(np.array(plain).astype(numpy_dtype(self.dtype)))


@dataclass(frozen=True)
class Case:
    """A kernel at a point of its problem's axes. Sizes, macros and scalars are attributes: ``case.m``,
    ``case.BM``, ``case.alpha``.

    So are ``case.device``, the facts of the device that it runs on, and, for a kernel's grid alone,
    ``case.resident_blocks``: how many of its blocks one multiprocessor holds at once. An axis or a macro of
    one of these names comes first.
    """

    suite: str
    kernel: str
    sizes: Mapping[str, int]
    dtype: str = "float32"
    macros: Mapping[str, Value] = field(default_factory=dict)
    device_facts: DeviceFacts | None = None
    """None where a case is only named or planned."""
    scalars: Mapping[str, int | float] = field(default_factory=dict)

    if TYPE_CHECKING:

        @property
        def device(self) -> DeviceFacts: ...

        @property
        def resident_blocks(self) -> int: ...

    def __getattr__(self, name: str) -> int:  # a macro may be another Value, and hardly ever is
        for values in ("sizes", "macros", "scalars"):
            found = self.__dict__.get(values, {})
            if name in found:
                return found[name]  # type: ignore[no-any-return]
        if name not in ("device", "resident_blocks"):
            raise AttributeError(f"case has no axis, macro or scalar named {name!r}")
        device = self.__dict__.get("device_facts")
        if device is None:
            raise NotYetKnownError(f"case.{name}, and no device is known here.")
        return device if name == "device" else device.resident_blocks  # type: ignore[no-any-return]

    @property
    def size_label(self) -> str:
        return size_label(self.sizes)

    @property
    def id(self) -> str:
        """``matmul.naive[m=64,n=64,k=64]``: stable across machines and commits."""
        return str(CaseId.of(self.suite, self.kernel, self.sizes))

    @property
    def short_id(self) -> str:
        """``matmul.naive@64``: as tables and pages call it."""
        return CaseId.of(self.suite, self.kernel, self.sizes).short


Extent = int | tuple[int, ...]
"""One to three numbers, x first, as CUDA counts them."""
Geometry = Extent | Callable[[Case], Extent]


class Problem:
    """What is computed: axes, arrays, scalars, reference and work. Subclass it and declare axes, arrays and
    scalars as class attributes.

    Kernels receive the inputs, then the outputs and what is both, then the scalars, then the axes, each group
    in declaration order, unless a kernel gives its own `args`.
    """

    axes: ClassVar[dict[str, Axis]] = {}
    arrays: ClassVar[dict[str, Array]] = {}
    scalars: ClassVar[dict[str, Scalar]] = {}
    independent: ClassVar[str | None] = None
    """An axis along which each slice of the outputs depends only on the same slice of the inputs that have
    this axis. It lets large cases be verified slice by slice."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        members = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
        cls.axes = {name: value for name, value in members.items() if isinstance(value, Axis)}
        cls.arrays = {name: value for name, value in members.items() if isinstance(value, Array)}
        cls.scalars = {name: value for name, value in members.items() if isinstance(value, Scalar)}
        for name, scalar in cls.scalars.items():
            if not callable(scalar.value):
                scalar.passed(name, scalar.value)
        for name, array in cls.arrays.items():
            if unknown := [axis for axis in array.shape if axis not in cls.axes]:
                raise SuiteError(
                    f"Array {name!r} of {cls.__name__} has shape {array.shape}, "
                    f"but {unknown[0]!r} is no axis."
                )
        if cls.independent is not None and cls.independent not in cls.axes:
            raise SuiteError(f"{cls.__name__}.independent is {cls.independent!r}, which is no axis of it.")

    @property
    def inputs(self) -> dict[str, Array]:
        """What data() gives: an InOut too."""
        return {name: array for name, array in self.arrays.items() if isinstance(array, Input)}

    @property
    def outputs(self) -> dict[str, Array]:
        """What kernels write: an InOut too."""
        return {name: array for name, array in self.arrays.items() if isinstance(array, Output)}

    def data(self, case: Case, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """The inputs by name. Unless overridden: standard normal, as zeros and small integers run faster;
        integers of 8 bits or fewer evenly over all that they can be.
        """
        made = {}
        for name, array in self.inputs.items():
            shape, dtype = array.shape_at(case), array.dtype_at(case)
            limits = integer_limits(dtype)
            values: NDArray[Any]
            if limits and element_bits(dtype) <= 8:
                values = rng.integers(*limits, shape, endpoint=True)
            else:
                values = rng.standard_normal(shape, dtype="float32")
            made[name] = values.astype(numpy_dtype(dtype), copy=False)
        return made

    def layout(self, name: str, case: Case) -> Layout:
        """How an array lies in memory. Raises SuiteError where its leading dimension makes no sense."""
        array = self.arrays[name]
        ld = computed(case.kernel, f"ld of {name}", array.ld, case)
        found = Layout(array.shape_at(case), array.dtype_at(case), array.order)
        if ld is not None:
            if not isinstance(ld, int) or ld < found.inner:
                raise SuiteError(
                    f"Array {name!r} has ld={ld!r} at {case.size_label}; expected an integer of at least "
                    f"{found.inner}, the elements of a {'row' if array.order == 'C' else 'column'}."
                )
            found = replace(found, ld=ld)
        if element_bits(found.dtype) < 8 and (found.inner % 2 or (ld or 0) % 2):
            raise SuiteError(
                f"Array {name!r} is of {found.dtype}, two to a byte, with {found.inner} side by side"
                f"{'' if ld is None else f' and ld={ld}'} at {case.size_label}; expected even numbers."
            )
        return found

    @property
    def has_reference(self) -> bool:
        """Whether its author wrote one: without, nothing can be checked, and so nothing is measured."""
        return type(self).reference is not Problem.reference

    def reference(self, case: Case, *args: Any, **inputs: Any) -> Any:
        """The right answer in float64: the one output, or outputs by name."""
        raise NotImplementedError(
            f"{type(self).__name__} has no reference(): nothing unverified is ever timed."
        )

    def tolerance(self, case: Case, *args: Any, **inputs: Any) -> Any:  # noqa: ARG002
        """The largest absolute error allowed, broadcast to the output. Unless overridden: exact."""
        return 0.0

    def integer_bound(self, case: Case) -> int | None:  # noqa: ARG002
        """The largest r for which integers in [-r, r] keep every kernel's arithmetic exact; None if none."""
        return None

    def flop(self, case: Case) -> int | None:  # noqa: ARG002
        """Floating-point operations of one launch; None where the count has no meaning."""
        return None

    def moved_bytes(self, case: Case) -> int:
        """The fewest bytes one launch can move: each input read once, each output written once, an InOut
        both.
        """
        return self.size_bytes(case, self.inputs) + self.size_bytes(case, self.outputs)

    def size_bytes(self, case: Case, arrays: Mapping[str, Array]) -> int:
        return sum(
            element_bits(array.dtype_at(case)) * math.prod(array.shape_at(case)) // 8
            for array in arrays.values()
        )

    def points(self, *, quick: bool = False) -> Iterator[dict[str, int]]:
        """Every point of the axes; axes that share an Axis object move together."""
        groups: dict[int, list[str]] = {}
        for name, axis in self.axes.items():
            groups.setdefault(id(axis), []).append(name)
        together = list(groups.values())
        axes = [self.axes[names[0]] for names in together]
        for sizes in itertools.product(*(axis.quick if quick else axis.default for axis in axes)):
            point = {name: size for names, size in zip(together, sizes, strict=True) for name in names}
            yield {name: point[name] for name in self.axes}


@dataclass(frozen=True)
class Parameter:
    """What a kernel's function is called with at one place: an array, a scalar, or an axis as a 32-bit
    integer.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None = None
    """None for a scalar and an axis."""
    layout: Layout | None = None
    """How an array lies in memory."""


@dataclass(frozen=True)
class Generated:
    """Source text that a function of the suite writes: ``function(case, arch)``, where arch is such as
    ``sm_90``.

    It needs no device. What it wrote for a case and an arch is kept as long as a run lasts.
    """

    function: Callable[[Case, str], str]
    needs: tuple[str, ...] = ()
    """Packages that the function imports, as pip names them: ``apache-tvm>=0.27``."""


@dataclass(frozen=True)
class HostFunction:
    """A function of the host that does the kernel's work itself: a library's call, or a CPU's own loop.

    ``function(case, stream)`` is called once, after which what it returns is called with the kernel's
    arguments for each launch. On cuda arrays are addresses, and work must go to the CUDA stream whose handle
    is `stream`; on cpu arrays are NumPy's, and stream is 0.
    """

    function: Callable[[Case, int], Callable[..., object]]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostLibrary:
    """A C++ file that nvcc makes a shared library of, or a library (.so), relative to the suite's folder.

    Its function, ``extern "C" int name(void *stream, arguments...)``, puts its work on the stream and returns
    0, or a number that `errors` names.
    """

    file: str
    needs: tuple[str, ...] = ()
    """Packages whose files it includes, as pip names them."""
    include: Callable[[], Sequence[str]] | None = None
    """Folders to search for headers, asked once `needs` are there."""
    errors: Mapping[int, str] = field(default_factory=dict)


Source = str | Generated | HostFunction | HostLibrary
"""A source file's path relative to the suite's folder, or one of the others."""

IMAGES = (".cubin", ".fatbin")
"""Suffixes of what CUDA's driver loads as it is."""
_BY_SUFFIX = {
    **dict.fromkeys((".glsl", ".comp"), ("opengl",)),
    **dict.fromkeys((".ptx", *IMAGES), ("cuda",)),
}
_PORTABLE = ("cuda", "opencl")


@dataclass(frozen=True)
class Tuning:
    """What `harness sweep` tries: every combination of `parameters`, or the `configurations` as they stand.

    Parameters are macros of the kernel under other values. `rules` say which combinations make sense, in
    Kernel Tuner's form: expressions over parameters and axes, ``"block_size_x * block_size_y <= 1024"``, or
    functions of the case.
    """

    parameters: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    configurations: Sequence[Mapping[str, Value]] = ()
    rules: Sequence[str | Callable[[Case], bool]] = ()
    sizes: Sequence[int | Mapping[str, int]] = ()
    """Points of the axes, a number for all of them alike; the problem's own where empty."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Parameters that are one thing together, by what tables call it: ``{"block tile": ("BM", "BN")}``. A
    parameter in none is its own."""

    def __post_init__(self) -> None:
        if bool(self.parameters) == bool(self.configurations):
            raise SuiteError("Tuning() takes either parameters or configurations.")
        grouped = [name for group in self.groups.values() for name in group]
        if unknown := [name for name in grouped if name not in self.names]:
            names = ", ".join(self.names)
            raise SuiteError(f"Tuning() groups {unknown[0]!r}, which is no parameter; expected of {names}.")
        if twice := _twice(grouped):
            raise SuiteError(f"Tuning() has {twice!r} in its groups twice; expected once.")

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in their order."""
        return tuple(self.parameters) or tuple(dict.fromkeys(itertools.chain(*self.configurations)))

    @classmethod
    def from_kernel_tuner(
        cls,
        tune_params: Mapping[str, Iterable[Any]],
        restrictions: Any = None,
        *,
        sizes: Sequence[int | Mapping[str, int]] = (),
        groups: Mapping[str, Sequence[str]] | None = None,
    ) -> Tuning:
        """What Kernel Tuner's tune_kernel() takes as `tune_params` and `restrictions`, as it stands.

        A restriction is a string, a function of a dict of the parameters, a function of parameters by their
        names, or a pair of a function and the names of what it is given: what kernel_tuner 1.5.0 takes, but
        for python-constraint's objects. Booleans become 0 and 1. Raises SuiteError for what no macro can be.
        """
        parameters = {name: _brought_values(name, tune_params[name]) for name in tune_params}
        given = () if restrictions is None else restrictions
        if not isinstance(given, (list, tuple)) or _is_selective(given):
            given = (given,)
        rules = tuple(_brought_rule(each, tuple(parameters)) for each in given)
        return cls(parameters=parameters, rules=rules, sizes=sizes, groups=groups or {})


def _brought_values(name: str, values: Any) -> tuple[Value, ...]:
    """Values of one of Kernel Tuner's parameters as macros may have them."""
    if not _IDENTIFIER.match(name):
        raise SuiteError(f"Kernel Tuner's parameter {name!r} is no identifier, and a macro must be one.")
    if name.startswith("nvml_"):
        raise SuiteError(
            f"Kernel Tuner's parameter {name!r} sets the card's clocks or power limit, which the harness "
            "never does: leave it out, or set the card yourself and sweep once for each setting."
        )
    try:
        listed = [] if isinstance(values, str) else list(values)
    except TypeError:
        listed = []
    if not listed:
        raise SuiteError(f"Kernel Tuner's parameter {name!r} is {values!r}; expected values, as in [32, 64].")
    brought: list[Value] = []
    for value in listed:
        plain = value.item() if hasattr(value, "item") else value  # NumPy's numbers
        if not isinstance(plain, int) and not (isinstance(plain, str) and _IDENTIFIER.match(plain)):
            raise SuiteError(
                f"Kernel Tuner's parameter {name!r} has the value {plain!r} ({type(plain).__name__}), which "
                "no macro can have: expected an integer, a boolean or a word. Number what you choose "
                "between, and let the source say what each number means."
            )
        brought.append(plain if isinstance(plain, str) else int(plain))
    return tuple(brought)


def _is_selective(restriction: Any) -> bool:
    """Whether it is a function with the names of the parameters that it is given."""
    if not isinstance(restriction, tuple) or len(restriction) != 2:
        return False
    return callable(restriction[0]) and isinstance(restriction[1], (list, tuple))


def _brought_rule(restriction: Any, names: tuple[str, ...]) -> str | Callable[[Case], bool]:
    if isinstance(restriction, str):
        return _brought_expression(restriction.strip())
    if _is_selective(restriction):
        function, selected = restriction
        return _rule(function, lambda values: function(*(values[name] for name in selected)), names)
    if not callable(restriction):
        raise SuiteError(
            f"Kernel Tuner's restriction {restriction!r} is a {type(restriction).__name__}; expected a "
            "string or a function."
        )
    by_name = inspect.signature(restriction).parameters
    if all(name in names for name in by_name):
        return _rule(restriction, lambda values: restriction(*(values[name] for name in by_name)), names)
    if len(by_name) == 1:
        return _rule(restriction, restriction, names)
    raise SuiteError(
        f"Kernel Tuner's restriction {restriction!r} takes {', '.join(by_name)}; expected one dict of the "
        f"parameters, or of these by their names: {', '.join(names)}."
    )


def _brought_expression(text: str) -> str | Callable[[Case], bool]:
    """The expression, as a function where it calls something of Python's own, which rules do not know."""
    try:
        code = compile(text, "<restriction>", "eval")
    except (SyntaxError, ValueError) as error:
        raise SuiteError(f"Kernel Tuner's restriction {text!r} is no expression: {error}.") from None
    if not any(hasattr(builtins, name) for name in code.co_names):
        return text

    def rule(case: Case) -> bool:
        return bool(eval(code, {**case.sizes, **case.macros}))  # noqa: S307 - of suite.py's author

    rule.__name__ = text
    return rule


def _rule(
    restriction: Callable[..., Any], call: Callable[[dict[str, Value]], Any], names: tuple[str, ...]
) -> Callable[[Case], bool]:
    """A rule that is called what the restriction is called."""

    @wraps(restriction, updated=())
    def rule(case: Case) -> bool:
        return bool(call({name: case.macros[name] for name in names}))

    return rule


@dataclass(frozen=True)
class Step:
    """A further function of a kernel's source, which runs after it in each launch and is timed with it."""

    entry: str
    block: Geometry
    grid: Geometry
    args: tuple[str, ...] = ()
    """In the order of its parameters; empty for the kernel's own."""
    dynamic_shared_bytes: int | Callable[[Case], int] = 0


@dataclass(frozen=True)
class PlacedArray:
    """An array of a case on the device, as a kernel's setup sees it."""

    address: int | None
    """None where a device has no addresses, such as OpenCL's."""
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    """Bytes from one index to the next, in each direction."""
    size_bytes: int
    """Room between its lines included."""


Setup = Callable[[Case, Mapping[str, PlacedArray]], Mapping[str, Any]]
Room = int | tuple[int, ...]
"""Bytes, or extents of an array of the kernel's dtype."""


@dataclass(frozen=True)
class Kernel:
    """One stage of a ladder: a source and how to launch it."""

    name: str
    source: Source | Mapping[str, Source]
    """One source for every backend that its suffix stands for (.cu: cuda and opencl; .glsl: opengl), or a
    source by the backend's name: cuda, opencl, opengl, cpu."""
    block: Geometry | None = None
    grid: Geometry | None = None
    """Both must be given where the source is text; host code has its own way."""
    macros: Mapping[str, Value | Callable[[Case], Value]] = field(default_factory=dict)
    """Compiled in with -D; a callable is given the case, for macros that depend on the size."""
    entry: str = ""
    """Name of the kernel function; the kernel's own name when empty."""
    instantiate: str = ""
    """An instance of a C++ template, as the source would name it: ``"sgemm<{BM}, {BN}>"``. In braces are
    macros and axes, whose values go there. Such a kernel is CUDA only."""
    dtype: str = "float32"
    requires: str | None = None
    """Least CUDA compute capability, such as "sm_70"; such a kernel is CUDA only."""
    arch: str = ""
    """What it is built for, such as "sm_90a"; empty for the card's own, with an "a" where the source needs
    what only that has. Such a kernel is CUDA only."""
    dynamic_shared_bytes: int | Callable[[Case], int] = 0
    args: tuple[str, ...] = ()
    """Arrays, scalars and axes in the order of the function's parameters, and what `workspace` and `setup`
    say; empty for the problem's own order."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    include: tuple[str, ...] = ()
    """Folders in which the compiler looks for headers, before the suite's own `include`; relative to the
    project: the folder of its settings, else the repository's."""
    dispatch: tuple[int, ...] = ()
    """Most blocks of one dispatch, x first: a larger grid is launched in parts, so that none runs so long
    that the system takes the card for dead. Its source must find its block by BLOCK_X, BLOCK_Y and BLOCK_Z,
    or be GLSL with uniforms x0 and y0."""
    tune: Tuning | None = None
    library: bool = False
    """Whether it is a vendor's own, which the others are held against."""
    about: str = ""
    steps: Sequence[Step] = ()
    """What runs after it, in order, and is timed with it: the reduction after a split-K product."""
    workspace: Mapping[str, Room | Callable[[Case], Room]] = field(default_factory=dict)
    """Memory of its own by name, for `args`: not verified, poisoned as outputs are."""
    setup: Setup | None = None
    """``setup(case, arrays)``, called once for a set of arrays before anything is launched on it. It returns
    further arguments by name, for `args`: bytes (a tensor map), NumPy scalars; for a function of the host,
    anything."""

    def __post_init__(self) -> None:
        _check_identifier("Kernel", self.name)
        if self.dtype in ML_DTYPES:
            numpy_dtype(self.dtype)
        if self.requires is not None and not _CAPABILITY.match(self.requires):
            raise SuiteError(f"Kernel {self.name!r} requires {self.requires!r}; expected the form 'sm_70'.")
        if self.arch and not _ARCH.match(self.arch):
            raise SuiteError(f"Kernel {self.name!r} has arch {self.arch!r}; expected the form 'sm_90a'.")
        self._check_instance()
        check_folders(f"Kernel {self.name!r}", self.include)
        if libraries := [s for s in self.sources.values() if isinstance(s, str) and s.endswith(".so")]:
            raise SuiteError(
                f"Kernel {self.name!r} has the library {libraries[0]} for a source; expected "
                f"HostLibrary({libraries[0]!r}), whose function puts its work on a stream."
            )
        text = any(isinstance(source, (str, Generated)) for source in self.sources.values())
        if text and (self.block is None or self.grid is None):
            raise SuiteError(f"Kernel {self.name!r} needs a block and a grid: its source is launched.")
        self._check_steps()
        if unknown := self.sources.keys() - {"cuda", "opencl", "opengl", "cpu"}:
            raise SuiteError(
                f"Kernel {self.name!r} has a source for {min(unknown)!r}; "
                "expected cuda, opencl, opengl or cpu."
            )

    def _check_steps(self) -> None:
        made = [source for source in self.sources.values() if not isinstance(source, (str, Generated))]
        if self.steps and (made or self.dispatch or not self.sources.keys() <= {"cuda", "opencl"}):
            raise SuiteError(
                f"Kernel {self.name!r} has steps; expected sources that cuda or opencl compiles, and no "
                "dispatch."
            )
        named = {*self.args, *(name for step in self.steps for name in step.args)}
        for name in self.workspace:
            _check_identifier("Workspace", name)
            if name not in named:
                raise SuiteError(
                    f"Kernel {self.name!r} has the workspace {name!r}, which is in no args: say where it "
                    "goes."
                )
        if self.setup is not None and not named:
            raise SuiteError(f"Kernel {self.name!r} has a setup and no args: say where what it returns goes.")

    def _check_instance(self) -> None:
        if not self.instantiate:
            return
        if self.entry:
            raise SuiteError(f"Kernel {self.name!r} has an entry and a template to instantiate; give one.")
        if compiled := [file for file in self.files if file.endswith((".ptx", ".so", *IMAGES))]:
            raise SuiteError(
                f"Kernel {self.name!r} instantiates a template of {compiled[0]}, which is compiled already: "
                "name the function by entry."
            )
        if "\n" in self.instantiate or not _IDENTIFIER.match(_function_of(self.instantiate)):
            raise SuiteError(
                f"Kernel {self.name!r} instantiates {self.instantiate!r}; expected a function's name and "
                "template arguments, as in 'sgemm<{BM}, {BN}>'."
            )

    @cached_property
    def sources(self) -> dict[str, Source]:
        """What it is made of, by backend. The null device takes any."""
        if isinstance(self.source, Mapping):
            return dict(self.source)
        if isinstance(self.source, str):
            backends = _BY_SUFFIX.get(Path(self.source).suffix, _PORTABLE)
            cuda_only = self.requires or self.instantiate or self.arch
            return dict.fromkeys(("cuda",) if cuda_only else backends, self.source)
        return {"cuda": self.source}

    def source_for(self, backend: str) -> Source | None:
        """What it is made of on a backend; None where it does not run there."""
        if backend == "null":
            return next(iter(self.sources.values()))
        return self.sources.get(backend)

    @property
    def files(self) -> tuple[str, ...]:
        found = (s if isinstance(s, str) else getattr(s, "file", "") for s in self.sources.values())
        return tuple(dict.fromkeys(filter(None, found)))

    @property
    def function(self) -> str:
        """The function's name, without namespaces and template arguments."""
        return self.entry or _function_of(self.instantiate) or self.name

    @property
    def instance_names(self) -> frozenset[str]:
        """The macros and axes whose values are template arguments."""
        return frozenset(_IN_BRACES.findall(self.instantiate))

    def instance(self, case: Case) -> str:
        """What to instantiate at a case; empty where it is no template. Raises SuiteError for a name that is
        no macro and no axis.
        """
        values: dict[str, Value] = {**case.sizes, **case.macros}
        if unknown := sorted(self.instance_names - values.keys()):
            raise SuiteError(
                f"Kernel {self.name!r} instantiates {self.instantiate!r}, but {unknown[0]!r} is no macro of "
                f"it and no axis; there are {', '.join(values)}."
            )
        return _IN_BRACES.sub(lambda found: _cpp(values[found[1]]), self.instantiate)

    @property
    def capability(self) -> tuple[int, int] | None:
        """Least compute capability as (major, minor), or None where any device will do."""
        match = _CAPABILITY.match(self.requires or "") or _ARCH.match(self.arch)
        return (int(match[1]), int(match[2])) if match else None


def _function_of(instance: str) -> str:
    """``sgemm`` of ``fast::sgemm<{BM}>``."""
    return instance.partition("<")[0].rpartition("::")[2].strip()


def _cpp(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Rung:
    """One line of a ladder: what its author calls it, our kernel for it, and the author's figures.

    Rates are in the unit of the suite's headline. A figure that was not published is None.
    """

    label: str
    kernel: str
    rate: float | None = None
    average: float | None = None
    """The average of all configurations of a sweep that have these `macros`, where it stands for them; `rate`
    is then the best of them."""
    time_ms: float | None = None
    speed_up: float | None = None
    """As published; otherwise it is counted from the rates."""
    sizes: int | Mapping[str, int] | None = None
    """A point of the axes, a number for all of them alike; None for the ladder's own."""
    macros: Mapping[str, Value] = field(default_factory=dict)
    """The parameters of one configuration of a sweep, or of all configurations that have these values."""
    backend: str = ""
    """The backend that ours is measured on, such as cpu; whatever device is reported on where empty."""
    slow: bool = False
    """Whether it takes minutes, and so is measured only when asked for."""
    repaired: str = ""
    """A kernel with the same idea and without the author's mistakes, whose gain is shown beside it."""

    @property
    def swept(self) -> bool:
        """Whether it stands for many configurations, which only a sweep has."""
        return self.average is not None


@dataclass(frozen=True)
class Ladder:
    """What others published of kernels that the suite has too, in the order of their own table.

    Speed-ups are counted from the first rung, or, with `against`, from that kernel at the same sizes.
    """

    name: str
    title: str
    rungs: Sequence[Rung]
    source: str = ""
    """How the figures were taken, in a sentence."""
    publication: str = ""
    """The title under which they were published."""
    author: str = ""
    url: str = ""
    date: str = ""
    """Of the publication, as precisely as it is known."""
    card: str = ""
    """What the figures are of, such as RTX 3060."""
    peak: float | None = None
    """What that card can do, in the unit of the suite's headline."""
    decimals: int = 0
    """Digits after the point of the published rates: 46.60 stays 46.60."""
    sizes: int | Mapping[str, int] | None = None
    """The sizes of rungs that do not say their own."""
    against: str = ""
    """A kernel that the others are held against at every size: a line a size, not a line a rung."""
    note: str = ""

    def __post_init__(self) -> None:
        _check_identifier("Ladder", self.name)
        if not self.rungs:
            raise SuiteError(f"Ladder {self.name!r} has no rungs.")
        unsized = [rung.label for rung in self.rungs if rung.sizes is None and not rung.swept]
        if self.sizes is None and unsized:
            raise SuiteError(
                f"Ladder {self.name!r}: {unsized[0]!r} has no sizes, and neither has the ladder."
            )
        if self.against and self.against not in {rung.kernel for rung in self.rungs}:
            raise SuiteError(f"Ladder {self.name!r} is against {self.against!r}, which none of its rungs is.")


@dataclass(frozen=True)
class Suite:
    """A problem and its kernels, in ladder order: the first kernel is what speed-ups are counted from."""

    name: str
    problem: Problem
    kernels: Sequence[Kernel]
    headline: str = "GFLOP/s"
    """GFLOP/s or GB/s."""
    prelude: Mapping[str, str] = field(default_factory=dict)
    """A header per backend that goes before every kernel's source, relative to the suite's folder."""
    root: Path = Path()
    """The suite's folder; set by the loader."""
    ladders: Sequence[Ladder] = ()
    include: tuple[str, ...] = ()
    """Folders in which compilers look for headers, relative to the project, for every kernel."""

    def __post_init__(self) -> None:
        _check_identifier("Suite", self.name)
        check_folders(f"Suite {self.name!r}", self.include)
        if self.headline not in ("GFLOP/s", "GB/s"):
            raise SuiteError(
                f"Suite {self.name!r} has headline {self.headline!r}; expected 'GFLOP/s' or 'GB/s'."
            )
        if not isinstance(self.problem, Problem):
            wrong = f"The problem of suite {self.name!r} is {self.problem!r}"
            raise SuiteError(f"{wrong}; expected an instance, such as Matmul().")
        if not self.kernels:
            raise SuiteError(f"Suite {self.name!r} has no kernels.")
        if twice := _twice([kernel.name for kernel in self.kernels]):
            raise SuiteError(f"Suite {self.name!r} has two kernels named {twice!r}.")
        if not self.problem.outputs:
            raise SuiteError(
                f"The problem of suite {self.name!r} declares no Output: there is nothing to verify."
            )
        for kernel in self.kernels:
            for name in kernel.workspace:
                if name in (*self.problem.arrays, *self.problem.scalars, *self.problem.axes):
                    raise SuiteError(
                        f"Kernel {kernel.name!r} has the workspace {name!r}, which is also of its problem."
                    )
        self._check_ladders()

    def _check_ladders(self) -> None:
        if twice := _twice([ladder.name for ladder in self.ladders]):
            raise SuiteError(f"Suite {self.name!r} has two ladders named {twice!r}.")
        for ladder, rung in ((each, rung) for each in self.ladders for rung in each.rungs):
            for name in filter(None, (rung.kernel, rung.repaired)):
                if name not in self.by_name:
                    raise SuiteError(
                        f"Ladder {ladder.name!r}: {rung.label!r} names kernel {name!r}, "
                        f"which suite {self.name!r} does not have."
                    )
            if not rung.swept:
                self.rung_sizes(ladder, rung)

    def rung_sizes(self, ladder: Ladder, rung: Rung) -> dict[str, int]:
        """The point of the axes that a rung is at. Raises SuiteError where it is none."""
        given = ladder.sizes if rung.sizes is None else rung.sizes
        point = point_of(self.problem, given)
        if point is None:
            raise SuiteError(
                f"Ladder {ladder.name!r}: {rung.label!r} has sizes {given!r}; "
                f"expected a number, or one for each of {', '.join(self.problem.axes)}."
            )
        return point

    @cached_property
    def by_name(self) -> dict[str, Kernel]:
        return {kernel.name: kernel for kernel in self.kernels}

    def library_for(self, kernel: Kernel) -> Kernel | None:
        """The vendor's own kernel that a kernel is held against: the first one of the same dtype."""
        return next((each for each in self.kernels if each.library and each.dtype == kernel.dtype), None)

    def case(
        self,
        kernel: Kernel,
        sizes: Mapping[str, int],
        chosen: Mapping[str, Value] | None = None,
        device: DeviceFacts | None = None,
    ) -> Case:
        """A kernel at a point; `chosen` are macros under other values than the kernel's own. Without a
        device, macros and scalars that ask for it are left out: see `on_device`.
        """
        plain = Case(self.name, kernel.name, dict(sizes), kernel.dtype, dict(chosen or {}), device)
        return self.own(_with_macros(kernel, plain, {**kernel.macros, **(chosen or {})}))

    def own(self, case: Case) -> Case:
        """A case of this suite or of another, with this suite's name and scalars."""
        of_this = replace(case, suite=self.name, scalars={})
        scalars = {}
        for name, scalar in self.problem.scalars.items():
            try:
                value = computed(case.kernel, f"scalar {name}", scalar.value, of_this)
            except NotYetKnownError:
                if case.device_facts is not None:
                    raise
                continue
            scalars[name] = scalar.passed(name, value)
        return replace(of_this, scalars=scalars)

    def parameters(self, kernel: Kernel, case: Case) -> tuple[Parameter, ...]:
        """What the kernel's function is called with, in order.

        Raises SuiteError for a name that is no array, scalar or axis of the problem and no workspace, unless
        there is a setup that may give it.
        """
        problem, rooms = self.problem, workspaces(kernel, case)
        found = []
        for name in argument_names(problem, kernel):
            if name in problem.arrays:
                layout = problem.layout(name, case)
                found.append(Parameter(name, layout.dtype, layout.shape, layout))
            elif name in problem.scalars:
                found.append(Parameter(name, problem.scalars[name].dtype))
            elif name in problem.axes:
                found.append(Parameter(name, "int32"))
            elif name in rooms:
                shape = (rooms[name],)
                found.append(Parameter(name, "uint8", shape, Layout(shape, "uint8")))
            elif kernel.setup is not None:
                found.append(Parameter(name, "setup"))
            else:
                what = f"argument {name!r}, which is no array, scalar or axis of its problem"
                raise SuiteError(f"Kernel {kernel.name!r} has {what}.")
        return tuple(found)


def on_device(kernel: Kernel, case: Case, device: DeviceFacts) -> Case:
    """A case that was planned without a device, with what is known on one."""
    plain = replace(case, macros={}, device_facts=device)
    return _with_macros(kernel, plain, {**kernel.macros, **case.macros})


def _with_macros(kernel: Kernel, plain: Case, macros: Mapping[str, Value | Callable[[Case], Value]]) -> Case:
    found: dict[str, Value] = {}
    for name, value in macros.items():
        try:
            found[name] = computed(kernel.name, f"macro {name}", value, plain)
        except NotYetKnownError:
            if plain.device_facts is not None:
                raise
            continue
        if not isinstance(found[name], int) and not _IDENTIFIER.match(str(found[name])):
            raise SuiteError(
                f"Kernel {kernel.name!r} has macro {name} = {found[name]!r}; expected an integer or a word."
            )
    return replace(plain, macros=found)


def computed(kernel: str, what: str, spec: Any, case: Case) -> Any:
    """What a kernel's spec says at a case. Raises SuiteError for whatever a suite's own function raises."""
    if not callable(spec):
        return spec
    try:
        return spec(case)
    except (NotYetKnownError, NotToldError) as error:
        raise type(error)(
            f"Kernel {kernel!r}: {what} at {case.size_label} asks for {error.message}"
        ) from error
    except Exception as error:
        raise SuiteError(
            f"Kernel {kernel!r}: {what} at {case.size_label} raised {type(error).__name__}: {error}"
        ) from error


def point_of(problem: Problem, given: int | Mapping[str, int] | None) -> dict[str, int] | None:
    """A point of a problem's axes: a size for all of them, or sizes by name. None where it is none."""
    axes = problem.axes
    sizes = given if isinstance(given, Mapping) else dict.fromkeys(axes, given)
    if sizes.keys() != axes.keys():
        return None
    point = {axis: size for axis in axes if type(size := sizes[axis]) is int and 1 <= size <= MAX_AXIS}
    return point if point.keys() == axes.keys() else None


def argument_names(problem: Problem, kernel: Kernel | None = None) -> tuple[str, ...]:
    """What a kernel's function is called with, in order; without a kernel, what the problem says of all. What
    its steps are called with goes before.
    """
    read = (name for name in problem.inputs if name not in problem.outputs)
    own = (*read, *problem.outputs, *problem.scalars, *problem.axes)
    if kernel is None:
        return own
    steps = (name for step in kernel.steps for name in step_names(problem, kernel, step))
    return (*steps, *(kernel.args or own))


def step_names(problem: Problem, kernel: Kernel, step: Step) -> tuple[str, ...]:
    """What a step is called with, in order."""
    return step.args or argument_names(problem, replace(kernel, steps=()))


def workspaces(kernel: Kernel, case: Case) -> dict[str, int]:
    """Bytes of a kernel's own memory by name. Raises SuiteError for what is no size."""
    found = {}
    for name, room in kernel.workspace.items():
        value = computed(kernel.name, f"workspace {name}", room, case)
        extents = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if not extents or not all(type(extent) is int and extent > 0 for extent in extents):
            raise SuiteError(
                f"Kernel {kernel.name!r} has workspace {name} = {value!r} at {case.size_label}; expected a "
                "number of bytes from 1, or a tuple of extents."
            )
        shaped = isinstance(value, (tuple, list))
        found[name] = math.prod(extents) * (element_bits(case.dtype) if shaped else 8) // 8
    return found
