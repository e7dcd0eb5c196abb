"""A problem: axes, arrays, scalars and the computation on them; and a case, which is one point of it.

Nothing here touches a device. The public names are exported by `harness`: a suite.py that uses them keeps
loading with every later version of the harness.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from harness.errors import NotToldError, NotYetKnownError, SuiteError
from harness.numbers import Value
from harness.suite.case_id import MAX_AXIS, CaseId, size_label
from harness.suite.device_facts import DeviceFacts
from harness.suite.layout import ML_DTYPES, Layout, Order, element_bits, fits, integer_limits, numpy_dtype
from harness.suite.reference_function import ReferenceFunction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SCALAR_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)


_NUMBERS_OF_A_THREAD = 2**20
"""Numbers that a thread makes or converts at a time."""
_ROUNDED_BY_A_THREAD = 2**16
"""Numbers that a thread rounds at a time: their truth values fit into a cache."""


def number(value: Any) -> Any:
    """Return NumPy's numbers as Python's; other values unchanged."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def check_identifier(what: str, name: str) -> None:
    if not IDENTIFIER.match(name):
        raise SuiteError(f"{what} name {name!r} is not an identifier (letters, digits and underscores).")


def twice_in(names: Sequence[str]) -> str | None:
    return min((name for name in names if names.count(name) > 1), default=None)


def ceil_div(dividend: int, divisor: int) -> int:
    """Return the number of tiles of `divisor` elements that cover `dividend` elements."""
    return -(-dividend // divisor)


@dataclass(frozen=True)
class Axis:
    """The sizes of an axis: `default` on a GPU, `quick` on a CPU or if time is short.

    Axes of a problem that share one Axis object change together: ``m = n = k = Axis((1024, 2048))`` means
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
"""Elements from the start of an array's line to the start of the next; None without padding."""


class Array:
    """A named array of a problem. Its shape is a list of axis names.

    Its rows are contiguous in memory; with `order` F its columns are. `ld`, a number or a function of the
    case, is the leading dimension: the elements from the start of one row to the start of the next. The
    elements between rows are padding.
    """

    kind: ClassVar[Literal["input", "output", "inout"]]
    init: float | None = None
    """Value of every element before a launch, for an Output that kernels add to."""

    def __init__(self, *shape: str, dtype: str | None = None, order: Order = "C", ld: Pitch = None) -> None:
        if order not in ("C", "F"):
            raise SuiteError(f"{type(self).__name__} has order={order!r}; expected 'C' or 'F'.")
        if ld is not None and len(shape) < 2:
            raise SuiteError(
                f"{type(self).__name__} has ld={ld!r} and {len(shape)} axes; expected two or more."
            )
        if dtype in ML_DTYPES:
            numpy_dtype(dtype)  # so that data() may pass it to NumPy
        self.shape = shape
        self.dtype = dtype
        self.order = order
        self.ld = ld

    def shape_at(self, case: Case) -> tuple[int, ...]:
        return tuple(case.sizes[axis] for axis in self.shape)

    def dtype_at(self, case: Case) -> str:
        return self.dtype or case.dtype


class Input(Array):
    """An array that kernels read. Its default dtype is the kernel's."""

    kind: ClassVar[Literal["input", "output", "inout"]] = "input"


class Output(Array):
    """An array that kernels write. Its default dtype is the kernel's.

    Before each launch every element is `init`, for kernels that add to the array. Without `init` it is NaN,
    so that an element that was never written is detected.
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
    """An array that kernels read and write.

    Before each launch it holds the values from data(). The reference gets these and returns the values
    expected afterwards.
    """

    kind = "inout"

    def __init__(self, *shape: str, dtype: str | None = None, order: Order = "C", ld: Pitch = None) -> None:
        Output.__init__(self, *shape, dtype=dtype, order=order, ld=ld)


class Scalar:
    """A number that kernels get by value: a constant, or a function of the case.

    ``case.alpha`` is the value that the kernel gets, rounded to the dtype.
    """

    def __init__(self, value: float | Callable[[Case], float], dtype: str = "float32") -> None:
        if dtype not in _SCALAR_DTYPES:
            raise SuiteError(f"Scalar has dtype {dtype!r}; expected one of {', '.join(_SCALAR_DTYPES)}.")
        self.value = value
        self.dtype = dtype

    def passed(self, name: str, value: Any) -> float:
        """Return a value rounded to the dtype. Raises SuiteError for a value that the dtype cannot hold."""
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
    """A kernel at a point of its problem's axes. Sizes, macros and scalars are attributes, such as
    ``case.m``.

    ``case.device`` holds facts of its device. For a kernel's grid only, ``case.resident_blocks`` is the
    number of its blocks that one multiprocessor holds at once. An axis or a macro of one of these names has
    priority.
    """

    suite: str
    kernel: str
    sizes: Mapping[str, int]
    dtype: str = "float32"
    macros: Mapping[str, Value] = field(default_factory=dict)
    device_facts: DeviceFacts | None = None
    """The device that it runs on; None for a case that is only named or planned."""
    scalars: Mapping[str, int | float] = field(default_factory=dict)
    by_graph: bool = False
    """True if its kernel is launched by a CUDA graph."""

    if TYPE_CHECKING:

        @property
        def device(self) -> DeviceFacts: ...

        @property
        def resident_blocks(self) -> int: ...

    def __getattr__(self, name: str) -> int:  # a macro may be another Value, but rarely is
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
        """Return the id, the same across machines and commits: ``matmul.naive[m=64,n=64,k=64]``."""
        return str(CaseId.of(self.suite, self.kernel, self.sizes))

    @property
    def short_id(self) -> str:
        """Return the id in tables and pages: ``matmul.naive@64``."""
        return CaseId.of(self.suite, self.kernel, self.sizes).short


OF_CASE = frozenset({*Case.__dataclass_fields__, *dir(Case)})
"""Names forbidden for axes and scalars, because a case has these attributes."""


class Problem:
    """The computation: axes, arrays, scalars, reference and work. A subclass declares the first three.

    They are class attributes. Kernels receive the inputs, then the outputs (including InOut), then the
    scalars, then the axes. Each group has declaration order, unless a kernel has its own `args`.
    """

    axes: ClassVar[dict[str, Axis]] = {}
    arrays: ClassVar[dict[str, Array]] = {}
    scalars: ClassVar[dict[str, Scalar]] = {}
    independent: ClassVar[str | None] = None
    """Axis along which each slice of the outputs depends only on the same slice of the inputs.

    Inputs without this axis are used whole. With it, large cases can be verified slice by slice.
    """
    reference_function: ClassVar[ReferenceFunction | None] = None
    """The repository's function that is the reference; None for a reference() in suite.py."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        members = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
        for name in ("flop", "moved_bytes"):
            if members[name] is not vars(Problem)[name]:
                setattr(cls, name, _whole(name, members[name]))
        cls.axes = {name: value for name, value in members.items() if isinstance(value, Axis)}
        cls.arrays = {name: value for name, value in members.items() if isinstance(value, Array)}
        cls.scalars = {name: value for name, value in members.items() if isinstance(value, Scalar)}
        for name in (*cls.axes, *cls.arrays, *cls.scalars):
            hides = name not in cls.arrays and name in OF_CASE
            if hides or hasattr(Problem, name):
                raise SuiteError(
                    f"{type(members[name]).__name__} {name!r} of {cls.__name__} has the name of an attribute "
                    f"that every {'Case' if hides else 'Problem'} has, and would hide it. Call it otherwise, "
                    f"such as {name}_."
                )
        for name, scalar in cls.scalars.items():
            if not callable(scalar.value):
                scalar.passed(name, scalar.value)
        for name, array in cls.arrays.items():
            if unknown := [axis for axis in array.shape if axis not in cls.axes]:
                raise SuiteError(
                    f"Array {name!r} of {cls.__name__} has shape {array.shape}, "
                    f"but {unknown[0]!r} is no axis."
                )
        cls._take_reference(members["reference"])
        if cls.independent is not None and cls.independent not in cls.axes:
            raise SuiteError(f"{cls.__name__}.independent is {cls.independent!r}, which is no axis of it.")

    @classmethod
    def _take_reference(cls, given: Any) -> None:
        """Store the reference from suite.py: a method, a function of the repository, or "base"."""
        if isinstance(given, ReferenceFunction):
            cls.reference_function = given.named_in(cls.__module__)
            cls.reference = _by_function
        elif isinstance(given, str) and given != "base":
            raise SuiteError(
                f"{cls.__name__}.reference is {given!r}; expected 'base', by which head's outputs are "
                "compared with base's, ReferenceFunction(file, name), or a method."
            )
        elif "reference" in vars(cls) and "reference_function" not in vars(cls):
            cls.reference_function = None

    @property
    def inputs(self) -> dict[str, Array]:
        """Return the arrays from data(), including InOut."""
        return {name: array for name, array in self.arrays.items() if isinstance(array, Input)}

    @property
    def outputs(self) -> dict[str, Array]:
        """Return the arrays that kernels write, including InOut."""
        return {name: array for name, array in self.arrays.items() if isinstance(array, Output)}

    def data(self, case: Case, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Return the inputs by name. The default is standard normal, because kernels run faster on small
        integers.

        Integers of 8 bits or fewer are uniform over their whole range.
        """
        made = {}
        for name, array in self.inputs.items():
            shape, dtype = array.shape_at(case), array.dtype_at(case)
            limits = integer_limits(dtype)
            values: NDArray[Any]
            if limits and element_bits(dtype) <= 8:
                values = rng.integers(*limits, shape, endpoint=True)
            else:
                values = _standard_normal(shape, rng)
            made[name] = values.astype(numpy_dtype(dtype), copy=False)
        return made

    def seeded(self, case: Case, seed: int) -> dict[str, NDArray[Any]]:
        """Return the inputs by name, from data() with a seed."""
        import numpy as np

        return self.data(case, np.random.default_rng(seed))

    def judged(
        self, case: Case, inputs: Mapping[str, NDArray[Any]], *, reference: bool
    ) -> tuple[dict[str, Any], Any]:
        """Return reference() by output, if requested, and tolerance(), each from its own copy of the float64
        inputs. The default tolerance needs no inputs.
        """

        def exact() -> dict[str, NDArray[Any]]:  # reference() may work in place
            return {name: _as_float64(array) for name, array in inputs.items()}

        found = self.reference(case, **exact()) if reference else {}
        named = found if isinstance(found, dict) else {next(iter(self.outputs)): found}
        return named, self.tolerance(case, **(exact() if self.has_tolerance else {}))

    def layout(self, name: str, case: Case) -> Layout:
        """Return an array's layout in memory. Raises SuiteError for a wrong leading dimension."""
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
        """Return True if the suite has a reference for its outputs. Cases without one are left out."""
        return type(self).reference is not Problem.reference

    @property
    def held_to(self) -> Literal["reference", "function", "base"]:
        """Return the kind of reference for the outputs."""
        by_base = type(self).reference == "base"
        return "base" if by_base else "function" if self.reference_function else "reference"

    @property
    def has_tolerance(self) -> bool:
        """Return True if the author wrote tolerance()."""
        return type(self).tolerance is not Problem.tolerance

    if TYPE_CHECKING:
        reference: Any  # a method, or another value in a subclass

    else:

        def reference(self, case: Case, *args: Any, **inputs: Any) -> Any:
            """Return the right result in float64: the only output, or outputs by name.

            A problem may use a function of the repository instead, ``reference = ReferenceFunction(file,
            name)``, or ``reference = "base"``: then head's outputs are compared with base's.
            """
            raise NotImplementedError(
                f"{type(self).__name__} has no reference(): write one, or say reference = 'base'."
            )

    def tolerance(self, case: Case, *args: Any, **inputs: Any) -> Any:  # noqa: ARG002
        """Return the largest absolute error allowed, broadcast to the output. The default is exact."""
        return 0.0

    def integer_bound(self, case: Case) -> int | None:  # noqa: ARG002
        """Return the largest r for which integers in [-r, r] keep all arithmetic exact; None if there is
        none.
        """
        return None

    def flop(self, case: Case) -> int | None:  # noqa: ARG002
        """Return the floating-point operations of one launch; None if the count has no meaning."""
        return None

    def moved_bytes(self, case: Case) -> int:
        """Return the fewest bytes of one launch: inputs read once, outputs written once, an InOut both."""
        return self.size_bytes(case, self.inputs) + self.size_bytes(case, self.outputs)

    def size_bytes(self, case: Case, arrays: Mapping[str, Array]) -> int:
        return sum(
            element_bits(array.dtype_at(case)) * math.prod(array.shape_at(case)) // 8
            for array in arrays.values()
        )

    def points(self, *, quick: bool = False) -> Iterator[dict[str, int]]:
        """Yield every point of the axes. Axes that share an Axis object change together."""
        groups: dict[int, list[str]] = {}
        for name, axis in self.axes.items():
            groups.setdefault(id(axis), []).append(name)
        together = list(groups.values())
        axes = [self.axes[names[0]] for names in together]
        for sizes in itertools.product(*(axis.quick if quick else axis.default for axis in axes)):
            point = {name: size for names, size in zip(together, sizes, strict=True) for name in names}
            yield {name: point[name] for name in self.axes}


def _by_function(problem: Problem, case: Case, **inputs: Any) -> dict[str, Any]:
    """Return the method `reference` of a problem whose reference is a function of the repository."""
    function = type(problem).reference_function
    assert function is not None, "it has the method by its function"
    return function(problem, case, inputs)


def _whole(name: str, count: Any) -> Callable[[Problem, Case], int | None]:
    """Return a suite's flop() or moved_bytes() with its result as a whole number, such as of 5 n log2(n)."""

    @wraps(count)
    def whole(self: Problem, case: Case) -> int | None:
        counted = count.__get__(self) if hasattr(count, "__get__") else count
        value = number(counted(case))
        if value is None and name == "flop":
            return None
        if isinstance(value, (int, float)) and -(2**63) <= value < 2**63:
            return int(value)
        raise SuiteError(
            f"{name}() of {type(self).__name__} is {value!r} at {case.size_label}; expected a number of at "
            "most 63 bits."
        )

    return whole


def computed(kernel: str, what: str, spec: Any, case: Case) -> Any:
    """Return a spec's value at a case. Raises SuiteError for any error of the suite's function."""
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


def _as_float64(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return a copy as `astype` does. Threads convert parts of a large array, as new memory takes long."""
    import numpy as np

    from harness.system.threads import side_by_side

    array = np.asarray(array)
    if array.size <= _NUMBERS_OF_A_THREAD or not array.flags.forc:
        return array.astype("float64")
    made = np.empty_like(array, dtype="float64")
    source, flat = array.ravel("K"), made.ravel("K")
    count = math.ceil(flat.size / _NUMBERS_OF_A_THREAD)
    parts = zip(np.array_split(flat, count), np.array_split(source, count), strict=True)
    side_by_side(lambda part: np.copyto(*part), list(parts))
    return made


def rounded(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return floats rounded to a type, in this type if NumPy has it. Those beyond its range stay."""
    import numpy as np

    from harness.system.threads import side_by_side

    own = numpy_dtype(dtype)
    if integer_limits(dtype) or dtype in ("bool", "float64") or values.dtype == own:
        return values
    if own.isbuiltin == 1 and values.flags.c_contiguous:
        made = np.empty(values.shape, own)
        flat, flat_made = values.reshape(-1), made.reshape(-1)

        def fits(start: int) -> bool:
            part = slice(start, start + _ROUNDED_BY_A_THREAD)
            with np.errstate(over="ignore"):
                flat_made[part] = flat[part]
            return bool((np.isfinite(flat_made[part]) | ~np.isfinite(flat[part])).all())

        if all(side_by_side(fits, range(0, flat.size, _ROUNDED_BY_A_THREAD))):
            return made
    with np.errstate(over="ignore"):
        wide = values.astype(own).astype(np.float64)
    # An infinity is never right: a message names the value that the type cannot hold.
    return np.where(np.isfinite(wide), wide, values)


def _standard_normal(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return random numbers. Each large part has its own generator, so that threads work in parallel."""
    import numpy as np

    from harness.system.threads import side_by_side

    if math.prod(shape) <= _NUMBERS_OF_A_THREAD:
        return rng.standard_normal(shape, dtype="float32")
    made = np.empty(math.prod(shape), np.float32)
    parts = np.array_split(made, math.ceil(made.size / _NUMBERS_OF_A_THREAD))
    generators = map(np.random.default_rng, rng.integers(2**63, size=len(parts)))
    side_by_side(
        lambda part: part[0].standard_normal(out=part[1], dtype="float32"),
        list(zip(generators, parts, strict=True)),
    )
    return made.reshape(shape)


def point_of(problem: Problem, given: int | Mapping[str, int] | None) -> dict[str, int] | None:
    """Return a point of a problem's axes: a size for all, or sizes by name. None if it is invalid."""
    axes = problem.axes
    sizes = given if isinstance(given, Mapping) else dict.fromkeys(axes, given)
    if sizes.keys() != axes.keys():
        return None
    point = {axis: size for axis in axes if type(size := sizes[axis]) is int and 1 <= size <= MAX_AXIS}
    return point if point.keys() == axes.keys() else None
