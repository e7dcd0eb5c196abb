"""Reads kernels from Python source.

They are functions that launch Triton, CuPy or PyTorch on tensors, numba kernels, and CUDA text in a
cupy.RawKernel.
"""

from __future__ import annotations

import ast
import keyword
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial

from harness.init.autograd import functions_at_top
from harness.init.bodies import python_name, translate
from harness.init.cpp import tokens
from harness.init.elementwise import Elementwise, guarded_statements, sure
from harness.init.guessed_suite import (
    INDICES,
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
from harness.init.launches import callable_of
from harness.init.readings import DTYPES
from harness.init.references import proposal_of, reference_of
from harness.init.repository import Repository
from harness.init.scalars import Values
from harness.init.triton_kernels import VIEWS, Launches, base_of, launches_in, named, stored_expression

_SEEN = re.compile(
    rb"triton\.jit|from triton import|RawKernel|RawModule|cuda\.jit|rawkernel|torch\.ops\.|load_inline"
    rb"|cpp_extension|ElementwiseKernel|ReductionKernel"
)
_DTYPE = re.compile(r"\b(?:torch|tl|cp|cupy|np)\.(float16|bfloat16|float32|float64|half)\b")
_HARMLESS = re.compile(r"(?:torch\.library|torch\.ops|sys|os|logging|warnings)\.|torch\.manual_seed")
"""Calls at a file's top level that only set something up."""
_LENGTH = re.compile(r"\w+\.(?:numel\(\)|(?:shape|size)[\[(]-?\d[\])])")
"""A length of a tensor, `x.shape[0]`."""
_LENGTHS = re.compile(r"^ *(.*,.*)(?= = \w+\.(?:shape|size\(\))$)", re.MULTILINE)
"""Names that receive all lengths of a tensor: `m, n` in `m, n = x.shape`."""
_NOT_LAUNCHED = "no function at the top of its file launches it on tensors: write one that does"
_SCALAR_TYPES = {"float": "float32", "int": "int32", "bool": "uint8", "float32": "float32"}
_KIND = {
    **dict.fromkeys(("p", "eps", "alpha", "beta", "scale", "sm_scale", "rate", "momentum", "lr"), "float"),
    **dict.fromkeys(("seed", "causal", "axis", "dim"), "int"),
}
"""Kinds of parameters without annotation, by name. A parameter with another name is a tensor."""
_REFERENCE_NAMES = ("{}_ref", "{}_reference", "ref_{}", "reference_{}", "{}_torch", "torch_{}", "{}_pytorch")
"""Forms of the names of functions that compute a kernel's result in plain operations."""
_TENSOR = re.compile(r"(?i)tensor|array")
"""Parts of tensor annotations, in any framework."""
_DTYPE_OF_TENSOR = {"Long": "int64", "Int": "int32", "Bool": "bool", "Half": "float16", "Double": "float64"}
"""The element type in an annotation such as `torch.LongTensor`."""
_ELEMENTS = {"half": "float16", "float": "float32", "double": "float64", "int": "int32", "long": "int64"}
"""NumPy's name of an element type by PyTorch's, if it differs."""
_NEW = re.compile(r".*\b(?:new_)?(?:empty|zeros|ones|full)(?:_like)?")
"""Names of functions that create an array."""
_CUPY_KERNELS = {"RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel"}
_JIT = {
    "triton.jit": "triton",
    **dict.fromkeys(("cuda.jit", "numba.cuda.jit"), "numba"),
    **dict.fromkeys(("jit.rawkernel", "cupyx.jit.rawkernel"), "cupy"),
}
"""The framework that compiles a function, by its decorator."""


@dataclass(frozen=True)
class _Module:
    file: str
    tree: ast.Module
    text: str
    jitted: Mapping[str, tuple[str, ast.FunctionDef]]
    """Kernels that are functions, each with its framework."""
    made: Mapping[str, str]
    """Names for a kernel or a module of kernels, by its creator: cupy, torch."""

    @property
    def works_when_imported(self) -> int:
        """Return the line of a top-level call that does more than define something; 0 for none."""
        for node in self.tree.body:
            call = node.value if isinstance(node, ast.Expr) else None
            if isinstance(call, ast.Call) and not _HARMLESS.match(ast.unparse(call.func)):
                return node.lineno
        return 0


def python_suites(repository: Repository) -> Iterator[SuiteGuess | LeftOut]:
    """Yield the suites of a repository's Python files. CUDA text in them is added to the repository."""
    for file in repository.files:
        if fnmatchcase(file, "*.py") and _SEEN.search(repository.bytes_of(file)):
            read = attempt(posixpath.basename(file), file, partial(_suites_of, repository, file))
            yield from [read] if isinstance(read, LeftOut) else read


def _suites_of(repository: Repository, file: str) -> list[SuiteGuess | LeftOut]:
    """Return the suites of one file. Raises NotReadError for a file that is not Python."""
    module = _module(repository, file)
    found = list(_suites_in(module))
    for name, line, text in _raw_kernels(module):
        repository.add(f"{file}::{name}", "\n" * (line - 1) + text)
    return found


def _module(repository: Repository, file: str) -> _Module:
    text = repository.text(file)
    try:
        tree = ast.parse(repository.bytes_of(file), file)
    except (SyntaxError, ValueError) as error:  # ValueError of a null byte, before Python 3.12
        raise NotReadError(f"it is not Python that can be read ({error})") from None
    from_triton = re.search(r"^from triton import [^\n]*\bjit\b", text, re.MULTILINE)
    known = {**_JIT, "jit": "triton"} if from_triton else _JIT
    jitted = {
        node.name: (framework, node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and (framework := _jit_of(node, known))
    }
    made: dict[str, str] = {}
    for name, value in named(ast.walk(tree)):
        called = _dotted(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
        if called in _CUPY_KERNELS | {"get_function"}:
            made[name] = "cupy"
        elif called in {"load_inline", "load"} and "cpp_extension" in text:
            made[name] = "torch"
    return _Module(file, tree, text, jitted, made)


def _jit_of(node: ast.FunctionDef, known: Mapping[str, str]) -> str:
    """Return the framework that compiles a function, by its decorators; empty for none."""
    called = (ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list)
    return next((known[name] for name in called if name in known), "")


def _dotted(node: ast.expr) -> str:
    """Return the name in an expression such as `torch.ops.mine.op`; empty for another."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _suites_in(module: _Module) -> Iterator[SuiteGuess | LeftOut]:
    launched: set[str] = set()
    for node in functions_at_top(module.tree):
        if node.name in module.jitted:
            continue  # methods depend on state, which a case cannot provide
        framework, kernels = _launches(node, module)
        if not framework:
            continue
        launched |= kernels
        if not node.name.startswith("_"):
            make = partial(_launcher, module, node, framework, kernels)
            made = attempt(node.name, f"{module.file}:{node.lineno}", make)
            yield from [made] if made else []
    for name, (framework, node) in module.jitted.items():
        if name in launched or _is_called(module, name):
            continue
        if framework == "numba":
            yield attempt(name, f"{module.file}:{node.lineno}", partial(_numba, module, node))
        else:
            yield LeftOut(name, f"{module.file}:{node.lineno}", _NOT_LAUNCHED)
    if "cupy" in module.made.values():
        yield from _uncalled(module)


def _uncalled(module: _Module) -> Iterator[LeftOut]:
    """Yield CuPy's kernels that no top-level function calls, and whose text is not read either."""
    read = {name for name, _, _ in _raw_kernels(module)}
    parts = (part for node in functions_at_top(module.tree) for part in ast.walk(node))
    called = {base_of(part.func) for part in parts if isinstance(part, ast.Call)}
    for name, value in named(ast.walk(module.tree)):
        is_kernel = isinstance(value, ast.Call) and _dotted(value.func).rpartition(".")[2] in _CUPY_KERNELS
        if is_kernel and name not in read | called:
            yield LeftOut(name, f"{module.file}:{value.lineno}", _NOT_LAUNCHED)


def _is_called(module: _Module, name: str) -> bool:
    """Return whether another kernel calls it as a device function."""
    return any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name
        for _, node in module.jitted.values()
        for call in ast.walk(node)
    )


def _launches(node: ast.FunctionDef, module: _Module) -> tuple[str, set[str]]:
    """Return the framework that a function launches with (empty for none), and its kernels in this file."""
    framework, kernels, launches = "", set(), False
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        function = call.func
        launches = launches or isinstance(function, ast.Subscript)
        name = _dotted(function.value if isinstance(function, ast.Subscript) else function)
        first = name.split(".")[0]
        # `compiled = kernel.warmup(...)`, then `compiled[grid](...)`: Triton's own tutorial of softmax
        kernel = first if name == f"{first}.warmup" else name if isinstance(function, ast.Subscript) else ""
        if kernel in module.jitted:
            framework = module.jitted[kernel][0]
            kernels.add(kernel)
        elif name.startswith("torch.ops.") or module.made.get(first) == "torch":
            framework = framework or "torch"
        elif first in module.made:
            framework = framework or module.made[first]
    return (framework if launches or framework != "triton" else "", kernels)


# --- launching functions ---------------------------------------------------------------------


def _launcher(module: _Module, node: ast.FunctionDef, framework: str, kernels: set[str]) -> SuiteGuess | None:
    """Return the suite of a function of tensors; None without tensors. Raises NotReadError."""
    check_name(node.name)
    launches = launches_in(node, {name: module.jitted[name][1] for name in sorted(kernels)})
    shapes = _shapes(node)
    axes = list(dict.fromkeys(axis for shape in shapes.values() for axis in shape)) or ["n"]
    tensors, numbers, others = _parameters(node, launches, axes)
    if not tensors or node.args.vararg:
        return None
    if others:
        raise NotReadError(f"what to pass for {', '.join(others)} cannot be guessed")
    rebound = {name for name, value in named(node.body) if name in tensors and _is_new(value)}
    in_place = {name: other for name, other in launches.views.items() if other in launches.stored}
    results = [in_place[name] if in_place.get(name) in tensors else name for name in _results(node)]
    results = [f"{name}_out" if name in rebound else name for name in results]
    shapes |= {f"{name}_out": shapes[name] for name in rebound if name in shapes}
    no_arrays = {*tensors, *launches.plain}
    returned = [name for name in results if name.isidentifier() and name not in no_arrays | {*keyword.kwlist}]
    if returned and (besides := [name for name in results if name not in returned]):
        alone = f"write a function that returns {', '.join(returned)} alone"
        raise NotReadError(f"it returns {', '.join(besides)} too: {alone}")
    written = [name for name in tensors if name in launches.stored and name not in rebound]
    if not returned and not written:
        written = [name for name in tensors if re.search(r"(?i)^out|out(put)?$|^dst|^result", name)]
    if not returned and not written:
        raise NotReadError("its outputs are unknown: it returns no new array")
    dtype = _dtype(module, node, kernels)
    lengths = _lengths(node) | {axis for name in tensors for axis in shapes.get(name, ())}
    roles = {
        name: "Input" if name not in written else "InOut" if name in launches.loaded else "Output"
        for name in tensors
    }
    sure = {shape for shape in shapes.values() if {*shape} <= lengths}
    usual = sure.pop() if len(sure) == 1 else (next((axis for axis in axes if axis in lengths), axes[0]),)
    roles |= dict.fromkeys(returned, "Output")
    made = {f"{name}_out" if name in rebound else name: found for name, found in _made_of(node)}
    said = _annotated(node) | made
    arrays = []
    for name, role in roles.items():
        shape, what = shapes.get(name, ()), "what it returns" if name in returned else "a parameter"
        why = f"{what}; {_doubts(shape, lengths)}"
        by_name = name in tensors and name not in said and INDICES.fullmatch(name) is not None
        why += "; integers, by its name" if by_name else ""
        type_ = "int64" if by_name else said.get(name, dtype or "float32")
        arrays.append(ArrayGuess(python_name(name), role, shape or usual, type_, why))
    body = stored_expression(node, launches, [*tensors, *returned])
    # Triton's quotient of float32 is not correctly rounded
    if body is not None and (numbers or body.divides):
        body = None
    matrices = [array.name for array in arrays] if _is_product(node.name, arrays) else None
    about = (ast.get_docstring(node) or "").partition("\n")[0]
    notes = {} if dtype else {"dtype": "float32 is a guess: nothing says a type"}
    if line := module.works_when_imported:
        notes[""] = f"importing the file runs line {line}: guard it with if __name__ == '__main__'"
    if framework == "torch":
        notes["source"] = (
            "each commit needs an extension of its own: write a file here that builds it by "
            "torch.utils.cpp_extension.load, and calls it"
        )
    return SuiteGuess(
        name=snake_case(node.name).strip("_"),
        arrays=tuple(arrays),
        numbers=tuple(numbers),
        axes=sizes_of(axes, product=matrices is not None, rank=max(len(array.shape) for array in arrays)),
        dtype=dtype or "float32",
        args=(),
        reference=reference_of(node.name, arrays, numbers, body),
        proposal=proposal_of(node.name, arrays, numbers, axes, matrices),
        reference_function=_reference_function(module, node, arrays),
        kernels=(_kernel(node, module.file, framework, notes),),
        about="" if about.endswith(":") else about.rstrip("."),
    )


def _reference_function(
    module: _Module, node: ast.FunctionDef, arrays: Sequence[ArrayGuess]
) -> tuple[str, str] | None:
    """Return file and name of `softmax_ref` beside `softmax`, if it takes the same inputs."""
    plain = re.sub(r"_(?:fwd|forward|triton|cuda)$", "", node.name)
    names = {form.format(name) for name in (plain, node.name) for form in _REFERENCE_NAMES}
    inputs = [array for array in arrays if array.role != "Output"]
    for each in module.tree.body if len(arrays) == len(inputs) + 1 else ():
        if isinstance(each, ast.FunctionDef) and each.name in names:
            plain_parameters = len(each.args.args) - len(each.args.defaults)
            if plain_parameters == len(inputs) and not (each.args.vararg or each.args.kwonlyargs):
                return module.file, each.name
    return None


def _kernel(node: ast.FunctionDef, file: str, framework: str, notes: Mapping[str, str]) -> KernelGuess:
    return KernelGuess(
        name=node.name,
        file=file,
        line=node.lineno,
        source=file,
        notes=notes,
        entry=node.name,
        function=f"{framework.title()}Function",
    )


def _parameters(
    node: ast.FunctionDef, launches: Launches, axes: Sequence[str]
) -> tuple[list[str], list[Number], list[str]]:
    """Return names of tensors, numbers, and other parameters without a default. Axes are passed by name."""
    passed = launches.loaded | launches.stored
    used = passed | {base_of(each) for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    no_tensors = launches.plain | {"self", "ctx", "provider"}
    given = [*node.args.posonlyargs, *node.args.args]
    plain = given[: len(given) - len(node.args.defaults)]
    optional = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    plain += [each for each, default in optional if default is None]
    tensors, numbers, others, values = [], [], [], Values()
    for parameter in plain:
        by_name = "" if parameter.arg in launches.loaded else _KIND.get(parameter.arg, "")
        kind = ast.unparse(parameter.annotation) if parameter.annotation else by_name
        of_annotation = bool(_TENSOR.search(kind)) or parameter.arg in passed
        is_tensor = of_annotation if kind else not launches.given or parameter.arg in used
        if parameter.arg in axes:
            continue
        if kind in _SCALAR_TYPES:
            dtype = _SCALAR_TYPES[kind]
            whole = ("1", "guessed: true") if dtype == "uint8" else values.integer(parameter.arg)
            value, why = values.floating(parameter.arg) if dtype == "float32" else whole
            numbers.append(Number(parameter.arg, value, dtype, why))
        elif parameter.arg in no_tensors or not is_tensor:
            others.append(parameter.arg)
        else:
            tensors.append(parameter.arg)
    return tensors, numbers, others


def _shapes(node: ast.FunctionDef) -> dict[str, tuple[str, ...]]:
    """Return axes of arrays, from `m, k = a.shape`, `n = x.numel()`, `c = torch.empty((m, n))`,
    `empty_like(x)`.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, axes in _unpacked(node):
        found.setdefault(name, axes)
    like: dict[str, str] = {}
    source, lengths = ast.unparse(node), _lengths(node)
    others = r"(?:shape\[-?[1-9]\]|size\(-?[1-9]\))"  # axes beside the first
    of_one_axis = re.compile(r"(\w+)\.(?:numel\(\)|size|shape\[0\]|size\(0\))")
    for target, value in named(ast.walk(node)):
        if not isinstance(value, (ast.Call, ast.Attribute, ast.Subscript)):
            continue
        text = ast.unparse(value)
        length = of_one_axis.fullmatch(text)
        if length and not re.search(others if text[-2] == "0" else rf"\b{length[1]}\.{others}", source):
            found.setdefault(length[1], (python_name(target),))
        elif other := re.match(r"\w+\.(?:empty|zeros|ones)_like\((\w+)", text):
            like[target] = other[1]
        elif sizes := _sizes(value, lengths):
            found[target] = sizes
    for name, other_name in like.items():  # n = y.numel() may follow y = empty_like(x)
        if known := found.get(name) or found.get(other_name):
            found[name] = found[other_name] = known
    return found


def _unpacked(node: ast.FunctionDef) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield arrays, and the axes that a function takes from their shapes, at once or one by one."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Tuple):
            names = [python_name(ast.unparse(item)) for item in each.targets[0].elts]
            shape = re.fullmatch(r"(\w+)\.(?:shape|size\(\))", ast.unparse(each.value))
            if shape and all(map(str.isidentifier, names)) and len({*names, "_"}) > len(names):
                yield shape[1], tuple(names)
    single: dict[str, dict[int, str]] = {}
    for name, value in named(ast.walk(node)):
        if one := re.fullmatch(r"(\w+)\.(?:shape\[(\d)\]|size\((\d)\))", ast.unparse(value)):
            single.setdefault(one[1], {})[int(one[2] or one[3])] = python_name(name)
    for array, axes in single.items():
        if len(axes) > 1 and {*axes} == {*range(len(axes))}:
            yield array, tuple(axes[index] for index in range(len(axes)))


def _lengths(node: ast.FunctionDef) -> set[str]:
    """Return names that certainly are a single length, and no whole shape."""
    names = {word for found in _LENGTHS.findall(ast.unparse(node)) for word in re.findall(r"\w+", found)}
    names |= {name for name, value in named(ast.walk(node)) if _LENGTH.fullmatch(ast.unparse(value))}
    return names | {each.arg for each in node.args.args if getattr(each.annotation, "id", "") == "int"}


def _sizes(node: ast.expr, lengths: set[str]) -> tuple[str, ...]:
    """Return the names in `torch.empty((m, n))` and, for `lengths`, in `torch.empty(n)`; none otherwise."""
    if not isinstance(node, ast.Call) or not node.args:
        return ()
    if ast.unparse(node.func).rpartition(".")[2] not in {"empty", "zeros", "new_empty", "new_zeros"}:
        return ()
    sizes = node.args[0].elts if isinstance(node.args[0], ast.Tuple) else node.args
    if sizes is node.args and len(sizes) == 1 and ast.unparse(sizes[0]) not in lengths:
        return ()
    named = all(isinstance(size, ast.Name) for size in sizes)
    return tuple(python_name(ast.unparse(size)) for size in sizes) if named else ()


def _results(node: ast.FunctionDef) -> list[str]:
    """Return the names of a function's results: a constant's text, `output` for an unnamed one."""
    for each in ast.walk(node):
        if isinstance(each, ast.Return) and each.value is not None:
            values = each.value.elts if isinstance(each.value, ast.Tuple) else [each.value]
            return [_result(value) or f"output{number or ''}" for number, value in enumerate(values)]
    return []


def _result(value: ast.expr) -> str:
    match value:
        case ast.Constant():
            return ast.unparse(value)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in VIEWS:
            return name
        case ast.Name(id=name):
            return name
    return ""


def _doubts(shape: tuple[str, ...], lengths: set[str]) -> str:
    """Return the comment on a shape: known, guessed, or doubtful if axes are not in `lengths`."""
    if not shape:
        return "its shape is guessed"
    others = ", ".join(axis for axis in dict.fromkeys(shape) if axis not in lengths)
    return "of its own shape" + (f"; guessed: {others} may follow from other lengths" if others else "")


def _is_new(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _NEW.fullmatch(ast.unparse(value.func)) is not None


def _is_product(name: str, arrays: Sequence[ArrayGuess]) -> bool:
    if len(arrays) != 3 or not re.search(r"(?i)gemm|matmul|mm$|dot", name):
        return False
    a, b, c = (array.shape for array in arrays)
    return len(a) == len(b) == len(c) == 2 and a[1] == b[0] and c == (a[0], b[1])


def _dtype(module: _Module, node: ast.FunctionDef, kernels: set[str]) -> str:
    """Return the element type that a function allocates, or its kernels convert to; empty if unknown."""
    for each in (node, *(module.jitted[name][1] for name in sorted(kernels))):
        for found in _DTYPE.findall(ast.unparse(each)):
            if found != "float32" or each is node:
                return "float16" if found == "half" else str(found)
    return ""


def _annotated(node: ast.FunctionDef) -> dict[str, str]:
    """Return the element types in parameter annotations."""
    found = {}
    for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        said = re.search(r"(\w+)Tensor\b", ast.unparse(parameter.annotation) if parameter.annotation else "")
        if said and said[1] in _DTYPE_OF_TENSOR:
            found[parameter.arg] = _DTYPE_OF_TENSOR[said[1]]
    return found


def _made_of(node: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield new arrays with an explicit element type, `torch.empty(n, dtype=torch.long)`, and the type."""
    for name, value in named(ast.walk(node)):
        said = re.search(r"dtype=(?:torch|cp|cupy|np)\.(\w+)", ast.unparse(value)) if _is_new(value) else None
        dtype = _ELEMENTS.get(said[1], said[1]) if said else ""
        if dtype in DTYPES.values():
            yield name, dtype


# --- numba ------------------------------------------------------------------------------------------


def _numba(module: _Module, node: ast.FunctionDef) -> SuiteGuess:
    """Return the suite of a cuda.jit kernel, whose arrays are those it indexes. Raises NotReadError."""
    check_name(node.name)
    names = [argument.arg for argument in node.args.args]
    indexed, stores = _accesses(node, names)
    if not stores:
        raise NotReadError("it writes no array that it is given")
    shapes = {
        name: tuple(axis.strip() for axis in indexed[name].split(",")) for name in names if name in indexed
    }
    if not all(axis.isidentifier() for shape in shapes.values() for axis in shape):
        raise NotReadError("how it indexes its arrays was not understood")
    index = shapes[stores[0][0]]
    used = {axis for shape in shapes.values() for axis in shape}
    axis_of = _axis_names(index, used)
    arrays = []
    for name, shape in shapes.items():
        own = [value for stored, value in stores if stored == name]
        reads = any(
            isinstance(each, ast.Name) and each.id == name for value in own for each in ast.walk(value)
        )
        role = "InOut" if reads else "Output" if own else "Input"
        axes_of = tuple(axis_of[axis] for axis in shape)
        arrays.append(ArrayGuess(python_name(name), role, axes_of, "float32", "as it is indexed"))
    values = Values()
    plain_names = [name for name in names if name not in shapes]
    numbers = [
        Number(python_name(name), value, "float32", why)
        for name, (value, why) in zip(plain_names, map(values.floating, plain_names), strict=True)
    ]
    axes = list(dict.fromkeys(axis_of.values()))
    product = (
        len(axes) == 3 and any(map(_is_sum_of_products, ast.walk(node))) and _is_product("matmul", arrays)
    )
    matrices = [array.name for array in arrays] if product else None
    body = _numba_body(node, stores, shapes)
    side = "16" if len(index) > 1 else "256"
    grid = [f"ceil_div(c.{axis_of[axis]}, {side})" for axis in index]
    order = tuple(python_name(name) for name in names)
    plain = [a.name for a in arrays if a.role == "Input"] + [a.name for a in arrays if a.role != "Input"]
    plain += [number.name for number in numbers]
    kernel = replace(
        _kernel(node, module.file, "numba", {"grid": "guessed: one thread for each element"}),
        block=callable_of([side] * len(index)),
        grid=callable_of(grid),
    )
    return SuiteGuess(
        name=node.name.lower(),
        arrays=tuple(arrays),
        numbers=tuple(numbers),
        axes=sizes_of(axes, product=product, rank=max(len(array.shape) for array in arrays)),
        dtype="float32",
        args=() if list(order) == plain else order,
        reference=reference_of(node.name, arrays, numbers, body),
        proposal=proposal_of(node.name, arrays, numbers, axes, matrices),
        kernels=(kernel,),
    )


def _accesses(
    node: ast.FunctionDef, names: Sequence[str]
) -> tuple[dict[str, str], list[tuple[str, ast.expr]]]:
    """Return the first index of each array as text, and the stored values with their arrays, in order."""
    indexed: dict[str, str] = {}
    stores: list[tuple[str, ast.expr]] = []
    for each in ast.walk(node):
        match each:
            case ast.Subscript(value=ast.Name(id=name), slice=place) if name in names:
                indexed.setdefault(name, ast.unparse(place).strip("()"))
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name)), *_]) if name in names:
                stores.append((name, each.value))
            case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name)) as target) if name in names:
                stores.append((name, ast.BinOp(target, each.op, each.value)))
    return indexed, stores


def _is_sum_of_products(node: ast.AST) -> bool:
    match node:
        case ast.AugAssign(op=ast.Add(), value=ast.BinOp(op=ast.Mult())):
            return True
    return False


def _axis_names(index: Sequence[str], used: set[str]) -> dict[str, str]:
    """Return axes by index: n for one, m and n for two, and k for a summed index."""
    names = {1: ("n",), 2: ("m", "n")}.get(len(index), tuple(f"n{i}" for i in range(len(index))))
    found = dict(zip(index, names, strict=True))
    for number, axis in enumerate(sorted(used - found.keys())):
        found[axis] = f"k{number or ''}"
    return found


def _numba_guards(index: Sequence[str], arrays: Iterable[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of a test and a loop that visit each element of an array once."""
    array = rf"(?:{'|'.join(map(re.escape, arrays))})"
    length = rf"(?:{array}\.size|{array}\.shape\[0\]|len\({array}\))"
    if len(index) == 1:
        i = re.escape(index[0])
        loop = rf"for {i} in range\({i}, {length}, cuda\.gridsize\(1\)\)"
        return re.compile(rf"{i} < {length}"), re.compile(loop)
    tests = (rf"{re.escape(each)} < {array}\.shape\[{axis}\]" for axis, each in enumerate(index))
    return re.compile(" and ".join(tests)), re.compile("(?!)")


def _numba_body(
    node: ast.FunctionDef, stores: Sequence[tuple[str, ast.expr]], shapes: Mapping[str, tuple[str, ...]]
) -> Elementwise | None:
    """Return the value of a kernel's only store, if it stores once for each element; else None."""
    output, value = stores[0]
    index = shapes[output]
    statements = list(guarded_statements(node.body, *_numba_guards(index, shapes)))
    fast = any("fastmath" in ast.unparse(each) for each in node.decorator_list)
    grid = rf"\(?{re.escape(', '.join(index))}\)? = (?:numba\.)?cuda\.grid\({len(index)}\)"
    if fast or len(statements) != 2 or None in statements:
        return None
    first, _ = (ast.unparse(each) for each in statements if each)
    if not re.fullmatch(grid, first):
        return None
    text = re.sub(rf"\b(\w+)\[\(?{re.escape(', '.join(index))}\)?\]", r"\1", ast.unparse(value))
    names = {argument.arg for argument in node.args.args}
    words = tuple(tokens(text))
    expression = translate(words, lambda word: python_name(word) if word in names else None, division="/")
    if expression is None:
        return None
    return sure(python_name(output), expression, {*map(python_name, names)})


# --- CUDA in a string -------------------------------------------------------------------------------


def _raw_kernels(module: _Module) -> Iterator[tuple[str, int, str]]:
    """Yield name, line and CUDA text of each top-level `name = cupy.RawKernel("text", "entry")`."""
    strings = {
        name: value.value for name, value in named(module.tree.body) if isinstance(value, ast.Constant)
    }
    for name, value in named(module.tree.body):
        if not (isinstance(value, ast.Call) and value.args and ast.unparse(value.func).endswith("RawKernel")):
            continue
        first = value.args[0]
        text = strings.get(first.id) if isinstance(first, ast.Name) else getattr(first, "value", None)
        if isinstance(text, str):
            yield name, value.lineno, text
