"""Drafts suites from kernels: which kernels solve one problem, and its arrays, axes and numbers.

Each guess names its evidence. A kernel that cannot be guessed is left out, with the reason.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from harness.init import opencl_text
from harness.init.bodies import bounds, extents, python_name
from harness.init.cpp import CudaKernel, text_of
from harness.init.guessed_suite import (
    ArrayGuess,
    KernelGuess,
    LeftOut,
    NotReadError,
    Number,
    SuiteGuess,
    attempt,
    check_name,
    sizes_of,
    snake_case,
)
from harness.init.launches import Geometry
from harness.init.python_kernels import python_suites
from harness.init.readings import FoundKernel, Reading, integer
from harness.init.references import proposal_of, reference_of
from harness.init.repository import Repository
from harness.init.scalars import Values
from harness.init.written_files import suite_text
from harness.suite.problem import IDENTIFIER, twice_in

OUTPUT = re.compile(r"(?i)(.*_)?(out|output|dst|dest|res|result|results|y|z|c|odata|ret)\d?(_.*)?|.*out")
"""Names of output arrays."""
_NO_AXIS = re.compile(
    r"(?i)(ld[a-z]|inc[xyz]|.*stride.*|.*pitch.*|.*offset.*|seed|.*flag.*|.*iter.*|.*tile.*|.*block.*|.*step.*|start"
    r"|.*mode.*|.*type.*|.*reps?|.*repeat.*|((.*_)?is|has|use|enable|disable)_.*|.*_id|(?-i:[a-z]+Id|[ij]))"
)
"""Names of integers that are not lengths: strides, flags, counts of one thing."""
_STRIDE = re.compile(r"nb\d+|s[a-z]{0,2}\d+|d\d+")
"""Names of strides, if the kernel compares no index with them: `nb01` in ggml, `s1`."""
_SQUARE = {"m", "n", "k"}
_SIZE = re.compile(r"(?<![a-z])([bdhkmn])\d+(?=_|$|[bdhkmn]\d)")
"""A size in a kernel's name, `k6144`."""
_LADDER_WORDS = re.compile(
    r"(?i)(kernel|naive|basic|simple|base|shared|smem|global|mem|coalesc\w*|tiled?|tiling|block\w*|warp\w*|"
    r"vector\w*|unroll\w*|opt\w*|fast|float[24]|double|buffer\w*|v?\d+d?|launch|cuda|gpu|async|pipeline\w*|_)"
)


def suites_of(repository: Repository) -> tuple[list[SuiteGuess], list[LeftOut]]:
    """Return the suites from a repository's kernels, and the kernels that are left out."""
    python = list(python_suites(repository))  # first, because CUDA text in Python files is added to it
    left: list[LeftOut] = []
    suites: dict[str, SuiteGuess] = {}
    for guess in (*_cuda_suites(repository), *python):
        if isinstance(guess, LeftOut):
            left.append(guess)
            continue
        suite = replace(guess, name=_free_name(guess.name, suites))
        first = suite.kernels[0]
        made = attempt(first.name, f"{first.file}:{first.line}", partial(_checked, suite))
        if isinstance(made, LeftOut):
            left += [LeftOut(each.name, f"{each.file}:{each.line}", made.why) for each in suite.kernels]
        else:
            suites[suite.name] = made
    left += [LeftOut(posixpath.basename(file), file, why) for file, why in repository.unread.items()]
    return [*suites.values()], left


def _checked(suite: SuiteGuess) -> SuiteGuess:
    """Return a suite whose text is valid Python. Raises NotReadError for parameters that suite.py cannot
    name.
    """
    names = [array.name for array in suite.arrays]
    names += [number.name for number in suite.numbers]
    names += [name for axes in suite.axes for name in axes.names]
    if odd := next((name for name in names if not IDENTIFIER.match(name)), ""):
        raise NotReadError(f"its parameter {odd} has a name with other letters than a-z: rename it")
    if twice := twice_in(names):
        raise NotReadError(f"two of its parameters would both be called {twice} in suite.py: rename one")
    ast.parse(suite_text(suite, suite.name))
    return suite


def _cuda_suites(repository: Repository) -> Iterator[SuiteGuess | LeftOut]:
    groups: dict[object, list[FoundKernel]] = {}
    for file, source in repository.sources.items():
        for kernel in source.kernels:
            read = attempt(kernel.name, f"{file}:{kernel.line}", partial(_read, repository, file, kernel))
            if isinstance(read, LeftOut):
                yield read
            else:
                groups.setdefault(read[0], []).append(read[1])
    for group in groups.values():
        group.sort(key=lambda each: (_natural(each.file), each.kernel.line))
        yield from _suites_of_group(repository, group)


def _read(repository: Repository, file: str, kernel: CudaKernel) -> tuple[object, FoundKernel]:
    """Return a kernel with a key that is equal for kernels that solve the same problem."""
    check_name(kernel.name)
    found = Reading(repository, file, kernel).found()
    return _problem_key(found), found


def _suites_of_group(repository: Repository, group: Sequence[FoundKernel]) -> Iterator[SuiteGuess | LeftOut]:
    """Yield the suite of kernels that solve one problem; if that fails, a suite for each."""
    first = group[0]
    made = attempt(first.kernel.name, f"{first.file}:{first.kernel.line}", partial(_suite, repository, group))
    if isinstance(made, LeftOut) and len(group) > 1:
        for each in group:
            yield from _suites_of_group(repository, [each])
    else:
        yield made


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key to sort by, so that 10 comes after 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


# --- grouping kernels ------------------------------------------------------------


def _problem_key(each: FoundKernel) -> object:
    parameters = tuple(
        (p.name, p.pointer, "integer" if p.name in each.integers else each.types[p.name])
        for p in each.kernel.parameters
    )
    if _matrices(each) is not None:
        return (parameters, "matmul")
    if each.elementwise is not None:
        return (parameters, each.elementwise.expression, each.elementwise.bound)
    name = snake_case(each.kernel.name)
    letters = {parameter.lower() for parameter in each.names}
    sizes = [found[0] for found in _SIZE.finditer(name) if found[1] not in letters]
    # A single digit is probably a kernel's number. If a length is a parameter, the number is a tile's.
    return (parameters, _LADDER_WORDS.sub("", name), tuple(sizes) if len(sizes) > 1 else ())


def _matrices(each: FoundKernel) -> tuple[str, str, str] | None:
    """Return the arrays of C = A B, if a kernel's name and parameters suggest that."""
    axes = {name for name in each.integers if name.lower() in _SQUARE}
    pointers = each.pointers
    by_letter = {re.sub(r"^(d|dev|mat|p)_|_(ptr|d|dev|mat)$", "", name.lower()): name for name in pointers}
    says = re.search(r"(?i)gemm|mat(rix)?_?mul|mm\b", each.kernel.name) is not None
    lettered = {"a", "b", "c"} <= by_letter.keys()
    if len(pointers) != 3 or not lettered or each.elementwise is not None:
        return None
    if {axis.lower() for axis in axes} != _SQUARE and not (says and len(axes) == 1):
        return None
    if any(_is_vector(each, name) for name in pointers):
        return None
    return by_letter["a"], by_letter["b"], by_letter["c"]


def _is_vector(each: FoundKernel, name: str) -> bool:
    """Return whether the body indexes an array only by a name, `x[i]`, and never by a product."""
    body, is_multiplied = text_of(each.kernel.body), bool(each.use[name].strides)
    return not is_multiplied and re.search(rf"\b{name}\[[A-Za-z_]\w*\]", body) is not None


# --- a problem ----------------------------------------------------------------------------------

Shape = tuple[tuple[str, ...], str, bool]
"""Axes, the evidence for them, and whether columns are contiguous."""


def _suite(repository: Repository, group: Sequence[FoundKernel]) -> SuiteGuess:
    """Return one suite of kernels with the same parameters. Raises NotReadError."""
    first = group[0]
    axes = _axes(group)
    roles = _roles(group)
    if not any(role != "Input" for role, _ in roles.values()):
        raise NotReadError("no array is recognizably an output")
    no_length = not axes
    members = [] if axes else _lengths_in_structures(group)
    axes = axes or members or [_free_name("n", {*first.names})]
    matrices = _matrices(first)
    shapes = _matrix_shapes(group, matrices, axes) if matrices else _shapes(group, axes, roles)
    arrays = [_array(first, name, roles[name], shapes[name]) for name in roles]
    values = Values()
    numbers = _numbers(first, axes, shapes, values)
    axes_here = [python_name(axis) for axis in axes]
    product = [python_name(name) for name in matrices or ()]
    body = first.elementwise
    # OpenCL rounds quotients and functions less precisely than CUDA.
    rough = any(
        each.file.endswith(opencl_text.SUFFIX) or "--use_fast_math" in repository.options_of(each.file)[0]
        for each in group
    )
    if body is not None and rough and (body.calls or body.divides):
        body = None
    by_parameter = {number.name.removesuffix("_wide"): number.name for number in numbers}
    order = tuple(by_parameter.get(name, name) for name in map(python_name, first.names))
    inputs = [a.name for a in arrays if a.role == "Input"]
    others = [a.name for a in arrays if a.role != "Input"]
    plain = (*inputs, *others, *(n.name for n in numbers), *axes_here)
    dtype = next(array.dtype for array in arrays if array.role != "Input")
    kernels: list[KernelGuess] = []
    covered = [shapes[matrices[2]]] if matrices else shapes.values()
    largest = max((shape[0] for shape in covered), key=len) or (axes[0],)
    for each in group:
        geometry = Geometry(repository, each, axes, largest)
        kernels.append(_kernel(repository, each, geometry, {kernel.name for kernel in kernels}))
    return SuiteGuess(
        name=_suite_name(group, matrices),
        arrays=tuple(arrays),
        numbers=tuple(numbers),
        axes=sizes_of(
            axes_here,
            product=matrices is not None,
            rank=max(len(array.shape) for array in arrays),
            why=(
                "its sizes are guessed; a structure's member, with which an index is compared"
                if members
                else "guessed, as no parameter is a length"
                if no_length
                else ""
            ),
        ),
        dtype=dtype,
        args=() if order == plain else order,
        reference=reference_of(first.kernel.name, arrays, numbers, body),
        proposal=proposal_of(first.kernel.name, arrays, numbers, axes_here, product),
        kernels=tuple(kernels),
        structures=tuple(
            (each, each.values(values, lambda name: python_name(name) if name in axes else ""))
            for each in first.structures
        ),
    )


def _lengths_in_structures(group: Sequence[FoundKernel]) -> list[str]:
    """Return the members of structures that a kernel's body compares an index with."""
    found = (each.lengths(kernel.kernel.body) for kernel in group for each in kernel.structures)
    return [*dict.fromkeys(name for names in found for name in names)]


def _axes(group: Sequence[FoundKernel]) -> list[str]:
    """Return the integer parameters that are lengths."""
    first = group[0]
    axes = [name for name in first.names if name in first.integers and not _NO_AXIS.fullmatch(name)]
    lengths = {name for each in group for name in bounds(each.kernel)} & {*axes}
    return [name for name in axes if not lengths or name in lengths or not _STRIDE.fullmatch(name)]


def _roles(group: Sequence[FoundKernel]) -> dict[str, tuple[str, str]]:
    """Return the role of each array with its evidence: Input, Output, Output+0 (initially 0) or InOut."""
    pointers = group[0].pointers
    numbers = {name.lower() for name in group[0].names if name not in pointers}
    found = {name: role for name in pointers if (role := _role(group, name))}
    for name in pointers:
        if name in found:
            continue
        if OUTPUT.fullmatch(name):
            found[name] = "Output", "guessed: a pointer to non-const, by its name"
        elif any(role != "Input" for role, _ in found.values()):
            found[name] = "Input", "guessed: another array is the output"
        else:
            found[name] = "Output", "guessed: a pointer to non-const"
    if "beta" in numbers:
        beta = "InOut", "guessed: there is a beta, which scales the old content"
        found = {name: beta if found[name][0] == "Output" else found[name] for name in found}
    return {name: found[name] for name in pointers}


def _role(group: Sequence[FoundKernel], name: str) -> tuple[str, str] | None:
    """Return the role of an array by the kernels' own text, and the evidence; None without one."""
    use = [each.use[name] for each in group]
    if any(p.const for each in group for p in each.kernel.parameters if p.name == name):
        return "Input", "a pointer to const"
    if any(u.written and u.read for u in use):
        return "InOut", "a kernel reads it before it writes there"
    if any(u.added for u in use):
        return "Output+0", "a kernel adds to it atomically, so it begins at 0"
    if any(u.written for u in use):
        return "Output", "a kernel writes there"
    if any(u.read for u in use):
        return "Input", "no kernel writes there, although it is no pointer to const"
    return None


def _array(first: FoundKernel, name: str, role: tuple[str, str], shape: Shape) -> ArrayGuess:
    kind, why = role
    return ArrayGuess(
        name=python_name(name),
        role=kind.removesuffix("+0"),
        shape=tuple(map(python_name, shape[0])),
        dtype=first.types[name],
        why=f"{why}; {shape[1]}" if shape[1] else why,
        init=kind == "Output+0",
        column_major=shape[2],
    )


def _matrix_shapes(
    group: Sequence[FoundKernel], matrices: tuple[str, str, str], axes: Sequence[str]
) -> dict[str, Shape]:
    by_letter = {axis.lower(): axis for axis in axes}
    only = axes[0]
    m, n, k = (by_letter.get(letter, only) for letter in "mnk")
    leading = {name.lower() for name in group[0].names}
    found: dict[str, Shape] = {}
    for name, shape in zip(matrices, ((m, k), (k, n), (m, n)), strict=True):
        strides = {stride for each in group for stride in each.use[name].strides}
        columns = shape[0] != shape[1] and shape[0] in strides and shape[1] not in strides
        columns = columns and f"ld{name.lower()[-1:]}" not in leading
        how = "by the names of a matrix product"
        if columns:
            how = f"its rows are {shape[0]} apart in memory: column-major"
        found[name] = shape, how, columns
    return found


def _shapes(
    group: Sequence[FoundKernel], axes: Sequence[str], roles: Mapping[str, tuple[str, str]]
) -> dict[str, Shape]:
    whole = next((found for each in group if (found := extents(each.kernel, axes))), ())
    first, inner = group[0], {name: _inner_axes(group, name, axes) for name in roles}
    matrix = next(filter(None, inner.values()), ())

    def shape(name: str, role: str) -> Shape:
        axes_of, why, columns = plain_shape(name, role)
        numbers = sorted(
            {number for each in group for number in each.use[name].strides if number.isdecimal()}
        )
        if numbers:
            doubt = f"guessed: it may have more, as its index is multiplied by {', '.join(numbers)} too"
            why = f"{why}; {doubt}" if why else doubt
        return axes_of, why, columns

    def plain_shape(name: str, role: str) -> Shape:
        if own := inner[name]:
            others = [axis for axis in axes if axis not in own]
            leading = (*others, own[-1])[0]
            doubt = f"guessed: its first length may not be {leading}; " if len(others) != 1 else ""
            return (leading, *own), f"{doubt}its index is multiplied by {', '.join(own)}", False
        use = [each.use[name] for each in group]
        if any(u.read or u.written for u in use) and not any(u.indexed for u in use):
            return (), "one element, because it has no index", False
        if whole:
            return whole, f"an index is compared with {' * '.join(whole)}", False
        strides = sorted({*first.integers} & {stride for u in use for stride in u.strides} - {*axes})
        if strides:
            why = f"guessed: every axis, as its index is multiplied by {', '.join(strides)}"
            return tuple(axes), why, False
        if len(axes) == 1:
            return (axes[0],), "", False
        axis = axes[0]
        if matrix and len(axes) == 2:  # and vectors: an input has its columns, an output its rows
            axis = matrix[-1] if role == "Input" else next(each for each in axes if each != matrix[-1])
        return (axis,), f"guessed: {axis} elements, as nothing says otherwise", False

    return {name: shape(name, role) for name, (role, _) in roles.items()}


def _inner_axes(group: Sequence[FoundKernel], name: str, axes: Sequence[str]) -> tuple[str, ...]:
    """Return the axes that an array's index is multiplied by, starting with the least multiplied one."""
    count = {axis: max(each.use[name].strides.count(axis) for each in group) for axis in axes}
    return tuple(sorted((axis for axis in axes if count[axis]), key=lambda axis: count[axis]))


def _numbers(
    first: FoundKernel, axes: Sequence[str], shapes: Mapping[str, Shape], values: Values
) -> list[Number]:
    structures = {each.parameter for each in first.structures}
    found = (
        _number(first, name, axes, shapes, values)
        for name in first.names
        if name not in {*first.pointers, *structures}
        and not (name in axes and first.types[name] in {"int32", "uint32"})
    )
    return [replace(number, name=python_name(number.name)) for number in found]


def _number(
    first: FoundKernel, name: str, axes: Sequence[str], shapes: Mapping[str, Shape], values: Values
) -> Number:
    by_letter = {array.lower()[-1:]: shape[0] for array, shape in shapes.items()}
    lower, dtype = name.lower(), first.types[name]
    if name in axes:
        value = f"lambda c: c.{python_name(name)}"
        return Number(f"{name}_wide", value, dtype, f"{name} is passed in 64 bits")
    if re.fullmatch("ld[a-z]", lower) and by_letter.get(lower[-1]):
        columns = python_name(by_letter[lower[-1]][-1])
        return Number(name, f"lambda c: c.{columns}", dtype, "guessed: rows are contiguous")
    if dtype == "bool":
        return Number(name, "1", "uint8", "guessed: true")
    if dtype.startswith(("int", "uint")):
        value, why = _launched_with(first, name, values)
        return Number(name, value, dtype, why)
    value, why = values.floating(name)
    return Number(name, value, dtype, why)


def _launched_with(first: FoundKernel, name: str, values: Values) -> tuple[str, str]:
    """Return a value for an integer that is not a length, and its evidence: the launch's, if that is
    constant.
    """
    at, launch = first.names.index(name), first.launch
    if launch is not None and at < len(launch.arguments):
        launched = integer(launch.arguments[at], launch.names.get)
        if launched is not None:
            return str(launched), f"as launched at {first.launched_at}"
    value, why = values.integer(name)
    return value, why if name in first.integers else "guessed: it is of the arrays' type"


def _kernel(repository: Repository, each: FoundKernel, geometry: Geometry, taken: set[str]) -> KernelGuess:
    kernel = each.kernel
    name = kernel.name
    if name in taken:
        name = f"{name}_{re.sub(r'[^A-Za-z0-9]+', '_', PurePosixPath(each.file).stem)}"
    if name in taken:
        name = _free_name(kernel.name, taken)
    numbers = {p.name: python_name(p.name) for p in kernel.template if not p.is_type}
    arguments = ", ".join(
        f"{{{numbers[p.name]}}}" if p.name in numbers else each.template[p.name] for p in kernel.template
    )
    whole = kernel.qualified + (f"<{arguments}>" if kernel.template else "")
    notes = {**each.notes, **geometry.notes}
    file, _, variable = each.file.partition("::")
    by_nvcc = not variable and not file.endswith(opencl_text.SUFFIX)
    arch, what = repository.arch_of(each.source) if by_nvcc else ("", "")
    notes |= {"arch": f"{what.rstrip('.')} needs it"} if arch else {}
    options, build = repository.options_of(each.file) if by_nvcc else ((), "")
    notes |= {"options": f"as {build} says"} if options else {}
    return KernelGuess(
        name=name,
        file=file,
        line=kernel.line,
        source=each.source.partition("::")[0],
        instantiate="" if kernel.extern_c or variable else whole,
        entry=variable or (kernel.name if kernel.extern_c and name != kernel.name else ""),
        function="CupyFunction" if variable else "",
        block=geometry.block,
        grid=geometry.grid,
        shared=geometry.shared,
        macros={called: int(each.template[name]) for name, called in numbers.items()},
        include=each.include,
        notes=notes,
        arch=arch,
        options=options,
    )


def _suite_name(group: Sequence[FoundKernel], matrices: object) -> str:
    """Return the common part of the kernels' names; else the name of the computation."""
    names = [each.kernel.name for each in group]
    common = names[0]
    while not all(name.startswith(common) for name in names):
        common = common[:-1]
    if len(names) > 1:
        common = re.sub(r"(?<![a-z])[a-z]{1,2}$", "", common)  # f16 and f32
    common = re.sub(r"(?i)^kernel_|_?kernel$", "", common)
    plain = re.sub(r"(?i)_v?\d*$|(?<=[a-z]{3})(?<!int)\d+$", "", common)
    if len(plain) < 3 or (len(names) > 1 and not re.search(r"[aeiouy]|mm$", plain.lower())):
        plain = "matmul" if matrices else re.sub(r"(?i)_?kernel\d*$", "", names[0]) or names[0]
    return snake_case(plain if plain.isidentifier() else names[0])


def _free_name(plain: str, taken: Collection[str]) -> str:
    number, found = 2, plain
    while found in taken:
        found, number = f"{plain}_{number}", number + 1
    return found
