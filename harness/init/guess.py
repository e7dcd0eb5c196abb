"""From kernels to suites: which kernels solve one problem, what its arrays, axes and numbers are, how a kernel is
launched. Each guess says what it rests on; what cannot be guessed is left out, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from harness.init.bodies import Elementwise, Use, elementwise, extents, python_name, translate, uses
from harness.init.cpp import CudaKernel, Expression, Launch, Parameter, text_of, tokens
from harness.init.repository import Repository

DTYPES = {
    "float": "float32", "double": "float64", "int": "int32", "int32_t": "int32", "bool": "bool",
    **dict.fromkeys(("half", "__half", "nv_half", "at::Half", "c10::Half", "cutlass::half_t"), "float16"),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16", "at::BFloat16", "c10::BFloat16"), "bfloat16"),
    **dict.fromkeys(("unsigned", "unsigned int", "uint", "uint32_t"), "uint32"),
    **dict.fromkeys(("char", "signed char", "int8_t"), "int8"),
    **dict.fromkeys(("unsigned char", "uint8_t"), "uint8"),
    **dict.fromkeys(("short", "int16_t"), "int16"),
    **dict.fromkeys(("unsigned short", "uint16_t"), "uint16"),
    **dict.fromkeys(("long", "long int", "long long", "int64_t", "ptrdiff_t"), "int64"),
    **dict.fromkeys(("unsigned long", "unsigned long long", "size_t", "uint64_t"), "uint64"),
    "__nv_fp8_e4m3": "float8_e4m3fn", "__nv_fp8_e5m2": "float8_e5m2",
}
"""NumPy's name, or ml_dtypes', of an element by C++'s."""
_INTEGERS = {"int32", "uint32", "int64", "uint64"}
_UNIT = {"float16": "2.0**-11", "bfloat16": "2.0**-8", "float64": "2.0**-53", "float32": "2.0**-24"}
"""The unit roundoff of a dtype."""
_VECTOR = re.compile(r"(u?(?:char|short|int|long|longlong)|float|double|half|__half|__nv_bfloat16)([234])")
_OUTPUT = re.compile(r"(?i)(.*_)?(out|output|dst|dest|res|result|results|y|z|c|odata|ret)\d?(_.*)?|.*out")
_NO_AXIS = re.compile(
    r"(?i)(ld[a-z]|inc[xyz]|.*stride.*|.*offset.*|seed|.*flag.*|.*iter.*|.*step.*|start|.*mode.*)"
)
_SQUARE = {"m", "n", "k"}
_LADDER_WORDS = re.compile(
    r"(?i)(kernel|naive|basic|simple|base|shared|smem|global|mem|coalesc\w*|tiled?|tiling|block\w*|warp\w*|vector\w*|"
    r"unroll\w*|opt\w*|fast|float[24]|double|buffer\w*|v?\d+d?|launch|cuda|gpu|async|pipeline\w*|_)"
)


@dataclass(frozen=True)
class Array:
    name: str
    role: str
    """Input, Output or InOut."""
    shape: tuple[str, ...]
    dtype: str
    why: str
    init: bool = False
    """Whether it must begin at 0."""
    column_major: bool = False


@dataclass(frozen=True)
class Number:
    name: str
    value: str
    """In Python."""
    dtype: str
    why: str


@dataclass(frozen=True)
class Axes:
    """Axes that move together."""

    names: tuple[str, ...]
    default: tuple[int, ...]
    quick: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class KernelGuess:
    name: str
    file: str
    """Below the repository's top."""
    line: int
    source: str
    """What is compiled: the file, or one that includes it after what it needs."""
    instantiate: str
    entry: str
    block: str
    grid: str
    shared: str
    macros: Mapping[str, int]
    include: tuple[str, ...]
    notes: Mapping[str, str]
    """What was guessed, by the field that it is of; by the empty name, of the whole."""
    arch: str = ""
    function: str = ""
    """Of Python's world: TritonFunction and its like; `entry` is then the function's name."""


@dataclass(frozen=True)
class Reference:
    expression: str
    tolerance: str
    """What it returns, after lines of its own if need be; `{arrays}` stands for the arguments of the reference."""
    why: str
    flop: str = ""


@dataclass(frozen=True)
class SuiteGuess:
    name: str
    arrays: tuple[Array, ...]
    numbers: tuple[Number, ...]
    axes: tuple[Axes, ...]
    dtype: str
    args: tuple[str, ...]
    """Names in the kernels' own order; empty where it is the problem's."""
    reference: Reference | None
    kernels: tuple[KernelGuess, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    kernel: str
    where: str
    """file:line"""
    why: str


@dataclass
class _Found:
    """A kernel with what its own file and body say."""

    kernel: CudaKernel
    file: str
    launch: Launch | None
    types: dict[str, str]
    """Element type by parameter's name, as NumPy calls it."""
    template: dict[str, str]
    """What stands for each parameter of its template, in C++."""
    source: str
    include: tuple[str, ...]
    use: dict[str, Use]
    notes: dict[str, str] = field(default_factory=dict)
    elementwise: Elementwise | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.kernel.parameters)


def suites_of(repository: Repository) -> tuple[list[SuiteGuess], list[LeftOut]]:
    """The suites that a repository's CUDA kernels make, and the kernels that are left out."""
    found: list[_Found] = []
    left: list[LeftOut] = []
    for file, source in repository.sources.items():
        names = [kernel.qualified for kernel in source.kernels]
        for kernel in source.kernels:
            each = _Reading(repository, file, kernel).found()
            twice = names.count(kernel.qualified) > 1
            if isinstance(each, str) or twice:
                why = each if isinstance(each, str) else "its file defines more than one kernel of this name"
                left.append(LeftOut(kernel.name, f"{file}:{kernel.line}", why))
            else:
                found.append(each)
    groups: dict[object, list[_Found]] = {}
    for each in found:
        groups.setdefault(_problem_key(each), []).append(each)
    suites: list[SuiteGuess] = []
    for group in groups.values():
        group.sort(key=lambda each: (_natural(each.file), each.kernel.line))
        made = _suite(repository, group, {suite.name for suite in suites})
        if isinstance(made, str):
            left += [LeftOut(each.kernel.name, f"{each.file}:{each.kernel.line}", made) for each in group]
        else:
            suites.append(made)
    return suites, left


def _natural(text: str) -> list[tuple[int, str]]:
    """What to sort by, so that 10 comes after 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


class _Reading:
    """What one kernel's file says of it."""

    def __init__(self, repository: Repository, file: str, kernel: CudaKernel) -> None:
        self.repository, self.file, self.kernel = repository, file, kernel
        self.source = file
        self.notes: dict[str, str] = {}

    def found(self) -> _Found | str:
        """The kernel, or why it is left out."""
        parameters = self.kernel.parameters
        if problem := next((p.problem for p in parameters if p.problem), ""):
            return f"its signature cannot be guessed: {problem}"
        launches = [each for each in self.repository.launches if self._is_mine(each)]
        launch = next((each for each in launches if each.geometry), None)
        types = {}
        template = self._template(launches)
        for parameter in parameters:
            dtype = self._dtype(parameter, {} if isinstance(template, str) else template)
            if dtype not in DTYPES.values() and not (
                isinstance(template, str) and self._is_template(parameter)
            ):
                return dtype
            types[parameter.name] = dtype
        if isinstance(template, str):
            return template
        if not any(p.pointer and not p.const for p in parameters):
            return "it writes no array: no parameter is a pointer to non-const"
        source, include, missing = self.repository.includes_of(self.source)
        if missing:
            self.notes["source"] = (
                f"it includes {', '.join(missing)}, which the repository does not have: a file that its build "
                "makes, perhaps. Write it, or name its folder in include"
            )
        if self.kernel.condition:
            self.notes[""] = f"it stands under {self.kernel.condition}, which was not evaluated"
        return _Found(
            self.kernel, self.file, launch, types, template, source, include,
            uses(self.kernel), self.notes, elementwise(self.kernel),
        )  # fmt: skip

    def _is_template(self, parameter: Parameter) -> bool:
        return any(parameter.type == each.name for each in self.kernel.template)

    def _is_mine(self, launch: Launch) -> bool:
        return launch.name == self.kernel.name and (
            not launch.arguments or len(launch.arguments) <= len(self.kernel.parameters)
        )

    def _template(self, launches: Sequence[Launch]) -> dict[str, str] | str:
        """What stands for each parameter of the template; or why it cannot be told."""
        parameters = self.kernel.template
        if not parameters:
            return {}
        found: dict[str, str] = {}
        for launch in launches:
            found = {}
            for number, parameter in enumerate(parameters):
                text = launch.template[number] if number < len(launch.template) else parameter.default
                if not parameter.is_type:
                    value = self._integer(text, launch)
                    text = "" if value is None else str(value)
                elif text in {"T", "scalar_t", "Type", "DType", "data_t"}:
                    text = ""
                found[parameter.name] = text
            if all(found.values()):
                return found
        for parameter in parameters:
            text = found.get(parameter.name, "") or parameter.default
            if not text and not parameter.is_type:
                return (
                    f"no launch was found that says a number for its template's parameter {parameter.name}: "
                    "write instantiate= yourself"
                )
            found[parameter.name] = text or "float"
        guessed = [p.name for p in parameters if p.is_type and found[p.name] == "float"]
        self.notes["instantiate"] = f"{', '.join(guessed)} = float is a guess: no launch says a type"
        return found

    def _integer(self, text: str, launch: Launch | None) -> int | None:
        names = {**self.repository.names_of(self.file), **(launch.names if launch else {})}
        return integer(tuple(tokens(text)), names)

    def _dtype(self, parameter: Parameter, template: Mapping[str, str]) -> str:
        """NumPy's name of a parameter's type; or why there is none."""
        text = template.get(parameter.type, parameter.type)
        for _ in range(4):
            if text in DTYPES:
                return DTYPES[text]
            if vector := _VECTOR.fullmatch(text):
                return (
                    f"parameter {parameter.name} is of type {text}: {vector[2]} elements of {vector[1]} an index, "
                    "which an array's shape cannot say"
                )
            known = self.repository.names_of(self.source).get(text)
            if known is None and (other := self.repository.defining(text, self.source)):
                self.source = other
                known = self.repository.names_of(other).get(text)
                self.notes["source"] = f"it is not {self.file} alone: {text} is defined before it is included"
            if known is None:
                break
            text = text_of([token for token in known if token.text not in {"const", "struct"}])
        hint = (
            " Kernel(setup=...) makes such values on the host"
            if "ensorMap" in text or "Texture" in text
            else ""
        )
        return (
            f"parameter {parameter.name} is of type {text}, which is no number and no array of numbers.{hint}"
        )


def integer(expression: Expression, names: Mapping[str, Expression], depth: int = 0) -> int | None:
    """The value of an expression of integers and constants; None where it has another name in it."""

    def value_of(name: str) -> str | None:
        if name in {"true", "false"}:
            return str(int(name == "true"))
        if depth > 6 or name not in names:
            return None
        value = integer(names[name], names, depth + 1)
        return None if value is None else str(value)

    text = translate(expression, value_of)
    if text is None or re.search(r"[A-Za-z.]|\*\*|<<\s*\d{3}", text.replace("ceil_div", "")):
        return None
    try:
        return int(eval(text, {"__builtins__": {}, "ceil_div": lambda a, b: -(-a // b)}))  # noqa: S307 - numbers only
    except (ArithmeticError, ValueError, TypeError, MemoryError):
        return None


# --- which kernels solve one problem ------------------------------------------------------------


def _problem_key(each: _Found) -> object:
    parameters = tuple(
        (
            p.name.lower(),
            p.pointer,
            "integer" if not p.pointer and each.types[p.name] in _INTEGERS else each.types[p.name],
        )
        for p in each.kernel.parameters
    )
    if _matrices(each) is not None:
        return (parameters, "matmul")
    if each.elementwise is not None:
        return (parameters, each.elementwise.expression)
    return (parameters, _LADDER_WORDS.sub("", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each.kernel.name)).lower())


def _matrices(each: _Found) -> tuple[str, str, str] | None:
    """The arrays of C = A B, where that is what a kernel's name and parameters say."""
    axes = {name for name in each.names if name.lower() in _SQUARE and _is_integer(each, name)}
    pointers = [p.name for p in each.kernel.parameters if p.pointer]
    by_letter = {re.sub(r"^(d|dev|mat|p)_|_(ptr|d|dev|mat)$", "", name.lower()): name for name in pointers}
    says = re.search(r"(?i)gemm|matmul|mat_?mul|mm\b", each.kernel.name) is not None
    lettered = {"a", "b", "c"} <= by_letter.keys()
    if len(pointers) != 3 or not lettered or each.elementwise is not None:
        return None
    if {axis.lower() for axis in axes} != _SQUARE and not (says and len(axes) == 1):
        return None
    return by_letter["a"], by_letter["b"], by_letter["c"]


def _is_integer(each: _Found, name: str) -> bool:
    parameter = next(p for p in each.kernel.parameters if p.name == name)
    return not parameter.pointer and each.types[name] in _INTEGERS


# --- a problem ----------------------------------------------------------------------------------


def _suite(repository: Repository, group: Sequence[_Found], taken: set[str]) -> SuiteGuess | str:
    """One suite of kernels with the same parameters; or why none can be made."""
    first = group[0]
    axes = [name for name in first.names if _is_integer(first, name) and not _NO_AXIS.fullmatch(name)]
    roles = _roles(group)
    if not any(role != "Input" for role, _ in roles.values()):
        return "none of its arrays can be told to be an output"
    axes = axes or ["n"]
    matrices = _matrices(first)
    shapes = _matrix_shapes(group, matrices, axes) if matrices else _shapes(group, axes, roles)
    arrays = [_array(first, name, roles[name], shapes[name]) for name in roles]
    numbers = _numbers(first, axes, shapes)
    renamed = {name: python_name(name) for name in (*first.names, *axes)}
    arrays = [replace(a, name=renamed[a.name], shape=tuple(renamed[s] for s in a.shape)) for a in arrays]
    numbers = [replace(n, name=renamed.get(n.name, n.name)) for n in numbers]
    reference = _reference(group, matrices, arrays, numbers, axes)
    by_parameter = {number.name.removesuffix("_wide"): number.name for number in numbers}
    order = tuple(by_parameter.get(renamed[name], renamed[name]) for name in first.names)
    inputs = [a.name for a in arrays if a.role == "Input"]
    others = [a.name for a in arrays if a.role != "Input"]
    plain = (*inputs, *others, *(n.name for n in numbers), *(renamed[axis] for axis in axes))
    dtype = next(array.dtype for array in arrays if array.role != "Input")
    name = _suite_name(group, matrices, taken)
    kernels = []
    for each in group:
        kernels.append(_kernel(repository, each, axes, renamed, {kernel.name for kernel in kernels}))
    return SuiteGuess(
        name=name,
        arrays=tuple(arrays),
        numbers=tuple(numbers),
        axes=_axes(axes, renamed, matrices),
        dtype=dtype,
        args=() if order == plain else order,
        reference=reference,
        kernels=tuple(kernels),
    )


def _roles(group: Sequence[_Found]) -> dict[str, tuple[str, str]]:
    """Input, Output or InOut of each array, and what says so."""
    found: dict[str, tuple[str, str]] = {}
    pointers = [p.name for p in group[0].kernel.parameters if p.pointer]
    numbers = {p.name.lower() for p in group[0].kernel.parameters if not p.pointer}
    by_position = [[p for p in each.kernel.parameters if p.pointer] for each in group]
    for number, name in enumerate(pointers):
        same = [parameters[number] for parameters in by_position]
        use = [each.use[p.name] for each, p in zip(group, same, strict=True)]
        if any(parameter.const for parameter in same):
            found[name] = "Input", "a pointer to const"
        elif any(u.written and u.read for u in use):
            found[name] = "InOut", "a kernel reads it before it writes there"
        elif any(u.added for u in use):
            found[name] = "Output+0", "a kernel adds to it atomically, so it begins at 0"
        elif any(u.written for u in use):
            found[name] = "Output", "a kernel writes there"
        elif any(u.read for u in use):
            found[name] = "Input", "no kernel writes there, although it is no pointer to const"
    for name in pointers:
        if name not in found and (
            _OUTPUT.fullmatch(name) or not any(r != "Input" for r, _ in found.values())
        ):
            found[name] = (
                "Output",
                "guessed: a pointer to non-const" + (", by its name" if _OUTPUT.fullmatch(name) else ""),
            )
        elif name not in found:
            found[name] = "Input", "guessed: another array is the output"
    if "beta" in numbers:
        for name, (role, _) in list(found.items()):
            if role == "Output":
                found[name] = "InOut", "guessed: there is a beta, which multiplies what was there"
    return {name: found[name] for name in pointers}


def _array(
    first: _Found, name: str, role: tuple[str, str], shape: tuple[tuple[str, ...], str, bool]
) -> Array:
    kind, why = role
    return Array(
        name=name,
        role=kind.removesuffix("+0"),
        shape=shape[0],
        dtype=first.types[name],
        why=f"{why}; {shape[1]}" if shape[1] else why,
        init=kind == "Output+0",
        column_major=shape[2],
    )


Shape = tuple[tuple[str, ...], str, bool]
"""Axes, what says so, and whether columns are contiguous."""


def _matrix_shapes(
    group: Sequence[_Found], matrices: tuple[str, str, str], axes: Sequence[str]
) -> dict[str, Shape]:
    by_letter = {axis.lower(): axis for axis in axes}
    only = axes[0]
    m, n, k = (by_letter.get(letter, only) for letter in "mnk")
    leading = {name.lower() for name in group[0].names}
    found: dict[str, Shape] = {}
    for name, shape in zip(matrices, ((m, k), (k, n), (m, n)), strict=True):
        strides = {stride for each in group for stride in each.use[name].strides if name in each.use}
        columns = shape[0] != shape[1] and shape[0] in strides and shape[1] not in strides
        if f"ld{name.lower()[-1:]}" in leading:
            columns = False
        how = (
            f"its rows are {shape[0]} apart in memory: column-major"
            if columns
            else "by the names of a matrix product"
        )
        found[name] = shape, how, columns
    return found


def _shapes(
    group: Sequence[_Found], axes: Sequence[str], roles: Mapping[str, tuple[str, str]]
) -> dict[str, Shape]:
    whole = next((found for each in group if (found := extents(each.kernel, axes))), ())
    strided: dict[str, list[str]] = {}
    for name in roles:
        counts: dict[str, int] = {}
        for each in group:
            for axis in axes:
                use = each.use.get(name)
                counts[axis] = max(counts.get(axis, 0), use.strides.count(axis) if use else 0)
        strided[name] = sorted((axis for axis in axes if counts[axis]), key=lambda axis: counts[axis])
    matrix = next((s for s in strided.values() if s), None)
    found: dict[str, Shape] = {}
    for name, inner in strided.items():
        rest = [axis for axis in axes if axis not in inner]
        if inner:
            leading = rest[0] if rest else inner[-1]
            found[name] = (leading, *inner), f"its index is multiplied by {', '.join(inner)}", False
        elif whole:
            found[name] = whole, f"an index is compared with {' * '.join(whole)}", False
        elif len(axes) == 1:
            found[name] = (axes[0],), "", False
        elif matrix and len(axes) == 2:
            axis = matrix[-1] if roles[name][0] == "Input" else next(a for a in axes if a != matrix[-1])
            found[name] = (axis,), f"guessed: one {axis} long, as nothing says otherwise", False
        else:
            found[name] = (axes[0],), f"guessed: one {axes[0]} long, as nothing says otherwise", False
    return found


def _numbers(first: _Found, axes: Sequence[str], shapes: Mapping[str, Shape]) -> list[Number]:
    found = []
    by_letter = {name.lower()[-1:]: shape[0] for name, shape in shapes.items()}
    for parameter in first.kernel.parameters:
        name, dtype = parameter.name, first.types[parameter.name]
        if parameter.pointer or (name in axes and dtype in {"int32", "uint32"}):
            continue
        if name in axes:
            found.append(Number(f"{name}_wide", f"lambda c: c.{name}", dtype, f"{name} is passed in 64 bits"))
        elif re.fullmatch(r"(?i)ld[a-z]", name) and name.lower()[-1] in by_letter:
            shape = by_letter[name.lower()[-1]]
            why = f"guessed: rows of {name[-1]} are contiguous"
            found.append(Number(name, f"lambda c: c.{shape[-1]}", dtype, why))
        elif name.lower() in {"alpha", "beta"}:
            value = "2.0" if name.lower() == "alpha" else "3.0"
            found.append(
                Number(name, value, dtype, "neither 0 nor 1, so that a kernel that forgets it is wrong")
            )
        elif dtype == "bool":
            found.append(Number(name, "1", "uint8", "guessed: true"))
        elif dtype in _INTEGERS or dtype.startswith(("int", "uint")):
            found.append(Number(name, "1", dtype, "guessed: its name says that it is no length"))
        else:
            value = "1e-5" if "eps" in name.lower() else "0.5"
            found.append(Number(name, value, dtype, "guessed: say what is usual"))
    return found


def _axes(axes: Sequence[str], renamed: Mapping[str, str], matrices: object) -> tuple[Axes, ...]:
    names = tuple(renamed[axis] for axis in axes)
    if matrices:
        return (
            Axes(names, (1024, 2048, 4096), (256,), "sizes are guessed; square, and multiples of any tile"),
        )
    if len(names) == 1:
        return (Axes(names, (2**24, 2**26), (2**16,), "sizes are guessed"),)
    side = {2: 4096, 3: 256}.get(len(names), 64)
    return tuple(Axes((name,), (side,), (min(side, 256),), "its size is guessed") for name in names)


# --- its reference ------------------------------------------------------------------------------


def _reference(
    group: Sequence[_Found],
    matrices: tuple[str, str, str] | None,
    arrays: Sequence[Array],
    numbers: Sequence[Number],
    axes: Sequence[str],
) -> Reference | None:
    """What the kernels compute, where it is known for sure; None otherwise."""
    output = [array for array in arrays if array.role != "Input"]
    if matrices:
        return _product(matrices, output[0], {number.name.lower() for number in numbers}, axes, group[0])
    if len(output) != 1:
        return None
    out, inputs = output[0], [array for array in arrays if array.role == "Input"]
    unit = _UNIT.get(out.dtype)
    known = group[0].elementwise
    if known is not None:
        if known.output != out.name or any(array.shape != out.shape for array in inputs):
            return None
        scalars = {number.name for number in numbers}
        expression, magnitude = (_of_case(text, scalars) for text in (known.expression, known.magnitude))
        factor = f"{known.roundings} * " if known.roundings > 1 else ""
        rounded = "" if unit is None or not known.roundings else f"{factor}{unit} * ({magnitude})"
        if not magnitude:
            rounded = "" if unit is None else f"{known.roundings + 4} * {unit} * (1 + abs({expression}))"
        if group[0].types[out.name] not in _UNIT and "/" in known.expression:
            return None
        return Reference(expression, rounded, f"read from the body of {group[0].kernel.name}")
    name = group[0].kernel.name.lower()
    if len(inputs) != 1 or unit is None:
        return None
    (x,) = inputs
    if "transpose" in name and len(x.shape) == 2 and out.shape == x.shape[::-1]:
        return Reference(f"{x.name}.T", "", "by its name: a transposition")
    if "softmax" in name and len(x.shape) == 2 and out.shape == x.shape and "log" not in name:
        row = f"np.exp({x.name} - {x.name}.max(axis=1, keepdims=True))"
        return Reference(
            f"{row} / {row}.sum(axis=1, keepdims=True)", f"64 * {unit}", "by its name: a softmax of each row"
        )
    return None


def _of_case(text: str, scalars: set[str]) -> str:
    return re.sub(
        r"\b[A-Za-z_]\w*\b", lambda word: f"case.{word[0]}" if word[0] in scalars else word[0], text
    )


def _product(
    matrices: tuple[str, str, str], out: Array, numbers: set[str], axes: Sequence[str], first: _Found
) -> Reference:
    a, b, c = map(python_name, matrices)
    product, size = f"{a} @ {b}", "products"
    by_case = {name.lower(): python_name(name) for name in first.names}
    if "alpha" in numbers:
        product, size = f"case.{by_case['alpha']} * ({product})", f"abs(case.{by_case['alpha']}) * {size}"
    if out.role == "InOut":
        beta = f"case.{by_case['beta']} * {c}" if "beta" in numbers else c
        product, size = f"{product} + {beta}", f"({size} + abs({beta}))"
    letter = {axis.lower(): axis for axis in axes}
    m, n, k = (python_name(letter.get(each, axes[0])) for each in "mnk")
    bound = {
        "float64": f"8 * 2.0**-53 * {size}",
        "float16": f"2.0**-11 * abs(self.reference(case, {{arrays}})) + 8 * 2.0**-22 * {size}",
        "bfloat16": f"2.0**-8 * abs(self.reference(case, {{arrays}})) + 8 * 2.0**-22 * {size}",
        "float32": f"8 * 2.0**-24 * {size}",
    }.get(out.dtype, "")
    products = f"products = np.outer(np.linalg.norm({a}, axis=1), np.linalg.norm({b}, axis=0))\n"
    why = "by the names of its parameters: a matrix product"
    return Reference(product, products + bound if bound else "", why, f"2 * case.{m} * case.{n} * case.{k}")


# --- a kernel's launch --------------------------------------------------------------------------


def _kernel(
    repository: Repository,
    each: _Found,
    axes: Sequence[str],
    renamed: Mapping[str, str],
    taken: Iterable[str],
) -> KernelGuess:
    kernel = each.kernel
    name = kernel.name
    if name in taken:
        name = f"{name}_{re.sub(r'[^A-Za-z0-9]+', '_', PurePosixPath(each.file).stem)}"
    number = 2
    while name in taken:
        name, number = f"{kernel.name}_{number}", number + 1
    numbers = {p.name for p in kernel.template if not p.is_type}
    arguments = ", ".join(
        f"{{{p.name}}}" if p.name in numbers else each.template[p.name] for p in kernel.template
    )
    instantiate = kernel.qualified + (f"<{arguments}>" if kernel.template else "")
    geometry = _Geometry(repository, each, axes, renamed)
    notes = each.notes | geometry.notes
    return KernelGuess(
        name=name,
        file=each.file,
        line=kernel.line,
        source=each.source,
        instantiate="" if kernel.extern_c else instantiate,
        entry=kernel.name if kernel.extern_c and name != kernel.name else "",
        block=geometry.block,
        grid=geometry.grid,
        shared=geometry.shared,
        macros={name: int(each.template[name]) for name in each.template if name in numbers},
        include=each.include,
        notes=notes,
    )


class _Geometry:
    """Block, grid and dynamic shared memory of a kernel, in Python, and what they rest on."""

    def __init__(
        self, repository: Repository, each: _Found, axes: Sequence[str], renamed: Mapping[str, str]
    ) -> None:
        self.each, self.axes, self.renamed = each, axes, renamed
        self.launch = each.launch
        self.names = {**repository.names_of(each.file), **(each.launch.names if each.launch else {})}
        self.known = self._known()
        self.notes: dict[str, str] = {}
        where = repository.where(each.launch) if each.launch else ""
        block = self._said(1)
        bounds = self._python(each.kernel.bounds) if each.kernel.bounds else None
        threads = block or ((bounds,) if bounds else None)
        if block is None:
            self.notes["block"] = "of __launch_bounds__, its most" if bounds else "guessed: no launch says it"
        if threads is None:
            threads = ("16", "16") if self._is_flat_matrix() else ("256",)
        grid = self._said(0)
        if grid is None:
            text = text_of(self.launch.geometry[0]) if self.launch else ""
            self.notes["grid"] = (
                f"guessed: the launch at {where} says {text}, which was not understood" if text
                else "guessed: no launch was found"
            )  # fmt: skip
            grid = self._guessed_grid(threads)
        if where:
            self.notes["launch"] = where
        self.block, self.grid = _callable(threads), _callable(grid)
        shared = self._said(2)
        self.shared = "" if shared in {None, ("0",)} or shared is None else _callable(shared)
        words = {token.text for token in each.kernel.body}
        if not self.shared and {"extern", "__shared__"} <= words:
            self.notes["dynamic_shared_bytes"] = (
                "the kernel has extern __shared__: write how many bytes it takes"
            )

    def _known(self) -> dict[str, str]:
        """Names of the launch's surroundings that are an axis or a parameter of the template, in Python."""
        found = {axis: f"c.{self.renamed[axis]}" for axis in self.axes}
        found |= {
            parameter.name: f"c.{parameter.name}"
            for parameter in self.each.kernel.template
            if not parameter.is_type
        }
        if self.launch is not None:
            for parameter, argument in zip(self.each.kernel.parameters, self.launch.arguments, strict=False):
                if parameter.name in self.axes and len(argument) == 1 and argument[0].kind == "word":
                    found[argument[0].text] = f"c.{self.renamed[parameter.name]}"
            for parameter_, text in zip(self.each.kernel.template, self.launch.template, strict=False):
                if re.fullmatch(r"[A-Za-z_]\w*", text) and not parameter_.is_type:
                    found[text] = f"c.{parameter_.name}"
        return found

    def _python(self, expression: Expression, depth: int = 0) -> str | None:
        def name_of(name: str) -> str | None:
            if name in self.known:
                return self.known[name]
            if depth > 6 or name not in self.names or self.names[name][:1] == expression[:1] == ():
                return None
            inner = self._python(self.names[name], depth + 1)
            return f"({inner})" if inner else None

        return translate(_with_sizes(expression), name_of)

    def _said(self, number: int) -> tuple[str, ...] | None:
        """What the launch says for grid, block or shared bytes, x first; None where it is not understood."""
        if self.launch is None or len(self.launch.geometry) <= number:
            return None
        expression = self.launch.geometry[number]
        if len(expression) == 1 and expression[0].text in self.names and expression[0].text not in self.known:
            name = expression[0].text
            if (value := self.names[name])[:1] and value[0].text == "dim3":
                expression = value
        elif len(expression) == 1 and f"{expression[0].text}.x" in self.names:
            parts = [self.names.get(f"{expression[0].text}.{part}") for part in "xyz"]
            return self._all([part for part in parts if part is not None])
        if expression[:1] and expression[0].text == "dim3" and expression[1].text in {"(", "{"}:
            from harness.init.cpp import split

            return self._all(split(expression[2:-1]))
        return self._all([expression])

    def _all(self, parts: Sequence[Expression]) -> tuple[str, ...] | None:
        found = [self._python(part) for part in parts]
        if not found or None in found:
            return None
        while len(found) > 1 and found[-1] == "1":
            found.pop()
        return tuple(str(part) for part in found)

    def _is_flat_matrix(self) -> bool:
        text = text_of(self.each.kernel.body)
        return "threadIdx.y" in text and len(self.axes) > 1

    def _guessed_grid(self, threads: Sequence[str]) -> tuple[str, ...]:
        axes = [f"c.{self.renamed[axis]}" for axis in self.axes]
        text = text_of(self.each.kernel.body)
        macros = {p.name for p in self.each.kernel.template}
        lower = {axis.lower(): axis for axis in self.axes}
        if {"m", "n"} <= lower.keys() and "blockIdx.y" in text:
            m, n = f"c.{self.renamed[lower['m']]}", f"c.{self.renamed[lower['n']]}"
            if {"BM", "BN"} <= macros:
                return f"ceil_div({n}, c.BN)", f"ceil_div({m}, c.BM)"
            return f"ceil_div({n}, {threads[0]})", f"ceil_div({m}, {(*threads, threads[0])[1]})"
        if len(axes) > 1 and "blockIdx.y" in text:
            return f"ceil_div({axes[1]}, {threads[0]})", f"ceil_div({axes[0]}, {(*threads, '1')[1]})"
        return (f"ceil_div({' * '.join(axes)}, {' * '.join(threads)})",)


def _with_sizes(expression: Expression) -> Expression:
    """With the numbers of `sizeof(float)` and the like."""
    from harness.init.cpp import Token

    sizes = {"float": 4, "int": 4, "unsigned": 4, "double": 8, "half": 2, "__half": 2, "char": 1, "size_t": 8}
    found: list[Token] = []
    at = 0
    while at < len(expression):
        token = expression[at]
        texts = [each.text for each in expression[at : at + 4]]
        if token.text == "sizeof" and len(texts) == 4 and texts[2] in sizes and texts[3] == ")":
            found.append(Token(str(sizes[texts[2]]), token.line, "number"))
            at += 4
            continue
        found.append(token)
        at += 1
    return tuple(found)


def _callable(parts: Sequence[str]) -> str:
    """One to three numbers as `Kernel` takes them: numbers as they are, or a function of the case."""
    text = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    return f"lambda c: {text}" if "c." in text else text


def _suite_name(group: Sequence[_Found], matrices: object, taken: set[str]) -> str:
    """What the kernels' names have in common; what they compute, where that is nothing."""
    names = [each.kernel.name for each in group]
    common = names[0]
    for name in names[1:]:
        length = next(
            (n for n, pair in enumerate(zip(common, name, strict=False)) if pair[0] != pair[1]), None
        )
        common = common[: min(len(common), len(name)) if length is None else length]
    plain = re.sub(r"(?i)^kernel_|_?kernel$|[_\d]+$", "", common if len(names) > 1 else names[0])
    if len(plain) < 3 or (len(names) > 1 and not re.search(r"[aeiouy]|mm$", plain.lower())):
        plain = "matmul" if matrices else re.sub(r"(?i)_?kernel\d*$", "", names[0]) or names[0]
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", plain).lower()
    number, found = 2, plain
    while found in taken:
        found, number = f"{plain}_{number}", number + 1
    return found
