"""Reads Triton kernels from source.

It finds which parameters a kernel loads and stores, which arguments the launching function passes, and the
stored value if that is one expression per element.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.init.bodies import python_name
from harness.init.elementwise import Elementwise, sure

VIEWS = {"view", "reshape", "contiguous", "flatten", "detach", "squeeze", "unsqueeze"}
"""Tensor methods whose result shares memory, or copies the same elements."""


@dataclass(frozen=True)
class Launches:
    """The arguments that a function passes to its Triton kernels, by the function's own names."""

    loaded: frozenset[str]
    stored: frozenset[str]
    plain: frozenset[str]
    """Names that are numbers, so that kernels do not access memory through them."""
    given: tuple[tuple[ast.FunctionDef, Mapping[str, ast.expr]], ...]
    """Pairs of a launched kernel and its arguments by parameter name."""
    views: Mapping[str, str]
    """Names that share another's memory, with the other name."""


def launches_in(node: ast.FunctionDef, kernels: Mapping[str, ast.FunctionDef]) -> Launches:
    """Return the launches of these kernels in a function."""
    views = dict(_views(node))
    given = tuple(_given(node, kernels))
    loaded: set[str] = set()
    stored: set[str] = set()
    plain: set[str] = set()
    for kernel, arguments in given:
        loads, stores, unclear = _accesses(kernel)
        for parameter, value in arguments.items():
            name = base_of(value)
            name = views.get(name, name)
            loaded |= {name} if parameter in loads else set()
            stored |= {name} if parameter in stores else set()
            if isinstance(value, ast.Name) and parameter not in loads | stores | unclear:
                plain.add(name)
    plain -= loaded | stored
    return Launches(frozenset(loaded), frozenset(stored), frozenset(plain), given, views)


def base_of(value: ast.expr) -> str:
    """Return `x` for `x`, `x.view(-1)` and `x[0]`; empty for an expression of several names."""
    while isinstance(value, (ast.Attribute, ast.Call, ast.Subscript)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def named(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield assigned names with their values: two for `m, k = a.shape[0], a.shape[1]`."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, _unpacked(values, len(targets)), strict=False):
                    if isinstance(target, ast.Name):
                        yield target.id, value


def _unpacked(values: Sequence[ast.expr], count: int) -> Iterator[ast.expr]:
    """Yield `count` values, with `x.shape[0], x.shape[1]` for `*x.shape`."""
    for value in values:
        if isinstance(value, ast.Starred):
            for index in range(count - len(values) + 1):
                yield ast.Subscript(value.value, ast.Constant(index))
        else:
            yield value


def _views(node: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield names that share another's memory, `flat = x.view(-1)`, with the other name.

    Of `x if inplace else y` the parameter's default selects one.
    """
    plain = [*node.args.posonlyargs, *node.args.args]
    defaults = dict(zip(reversed(plain), reversed(node.args.defaults), strict=False))
    flags = {each.arg: value.value for each, value in defaults.items() if isinstance(value, ast.Constant)}
    for name, value in named(ast.walk(node)):
        match value:
            case ast.IfExp(test=ast.Name(id=flag), body=ast.Name(id=other)) if flags.get(flag):
                yield name, other
            case ast.IfExp(test=ast.Name(id=flag), orelse=ast.Name(id=other)) if flags.get(flag) is False:
                yield name, other
            case ast.Name(id=other):
                yield name, other
            case ast.Call(func=ast.Attribute(attr=method)) if method in VIEWS:
                yield name, base_of(value)


def _given(
    node: ast.FunctionDef, kernels: Mapping[str, ast.FunctionDef]
) -> Iterator[tuple[ast.FunctionDef, Mapping[str, ast.expr]]]:
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript)):
            continue
        name = base_of(call.func.value)
        if name not in kernels and len(kernels) == 1:  # `compiled = kernel.warmup(...)` has another name
            name = next(iter(kernels))
        if name not in kernels:
            continue
        kernel = kernels[name]
        names = [parameter.arg for parameter in (*kernel.args.posonlyargs, *kernel.args.args)]
        by_name = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        yield kernel, {**dict(zip(names, call.args, strict=False)), **by_name}


def _accesses(kernel: ast.FunctionDef) -> tuple[set[str], set[str], set[str]]:
    """Return the parameters that a kernel loads from, stores to, and passes on."""
    parameters = {parameter.arg for parameter in (*kernel.args.posonlyargs, *kernel.args.args)}
    values: dict[str, ast.expr] = {}
    for name, value in named(ast.walk(kernel)):
        values.setdefault(name, value)
    loads: set[str] = set()
    stores: set[str] = set()
    unclear: set[str] = set()
    for call in ast.walk(kernel):
        if not isinstance(call, ast.Call):
            continue
        function = ast.unparse(call.func)
        word = function.rpartition(".")[2]
        if word in {"load", "store"} or word.startswith("atomic_"):
            own = isinstance(call.func, ast.Attribute) and not function.startswith("tl.")  # of a descriptor
            name = _pointer(call.func if own else _first(call), parameters, values)
            loads |= {name} if word != "store" else set()
            stores |= {name} if word != "load" else set()
        elif not function.startswith("tl."):
            unclear |= {each.id for each in ast.walk(call) if isinstance(each, ast.Name)}
    return loads & parameters, stores & parameters, unclear & parameters


def _first(call: ast.Call) -> ast.expr | None:
    by_name = (keyword.value for keyword in call.keywords if keyword.arg in {"pointer", "base"})
    return call.args[0] if call.args else next(by_name, None)


def _pointer(
    node: ast.expr | None, parameters: set[str], values: Mapping[str, ast.expr], depth: int = 0
) -> str:
    """Return the parameter at the start of an address, `x` in `x + row * stride`; empty without one."""
    match node:
        case ast.Name(id=name) if name in parameters:
            return name
        case ast.Name(id=name) if name in values and depth < 8:
            return _pointer(values[name], parameters, values, depth + 1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            first = _pointer(left, parameters, values, depth)
            return first or _pointer(right, parameters, values, depth)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="tl"))):
            return _pointer(_first(node), parameters, values, depth)
        case ast.Call(func=ast.Attribute(value=value)) | ast.Attribute(value=value):
            return _pointer(value, parameters, values, depth)
    return ""


# --- a kernel's computation -------------------------------------------------------------------------


_HARMLESS = VIEWS | {"numel", "shape", "size", "device", "dtype", "is_cuda", "is_contiguous", "element_size"}
"""Attributes of a tensor that do not change its elements."""
_LENGTH = r"\w+\.(?:numel\(\)|shape\[0\]|size\(0\))"
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.With)


def stored_expression(
    function: ast.FunctionDef, launches: Launches, arrays: Sequence[str]
) -> Elementwise | None:
    """Return the value that a function's only Triton kernel stores, computed from loads at the same position.

    The function may only pass its arrays on, and return the stored one.
    """
    if len(launches.given) != 1:
        return None
    node, given = launches.given[0]
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    stores = [call for call in calls if ast.unparse(call.func) == "tl.store"]
    branches = any(isinstance(each, _BRANCHES) for each in (*ast.walk(node), *ast.walk(function)))
    if branches or [len(call.args) > 1 for call in stores] != [True]:  # nor are arguments passed by name
        return None
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    often = Counter(each.id for each in names if isinstance(each.ctx, ast.Store))
    values = {name: value for name, value in named(ast.walk(node)) if often[name] == 1}
    by_pointer = {
        parameter: python_name(value.id)
        for parameter, value in given.items()
        if isinstance(value, ast.Name) and value.id in arrays and not often[parameter]  # x += row * stride
    }
    place = _place(stores[0].args[0], by_pointer)
    if place is None or any(often[word] > 1 for word in re.findall(r"\w+", place[1])):
        return None
    lengths = {each for each, value in given.items() if _is_length(value, function)}
    accesses = [call for call in calls if ast.unparse(call.func) in {"tl.load", "tl.store"}]
    whole = _is_thread(place[1], values) and all(_is_whole(c, place[1], values, lengths) for c in accesses)
    expression = _stored(stores[0].args[1], values, by_pointer, place[1])
    output = by_pointer[place[0]]
    if not whole or expression is None or not _only_hands_over(function, {*by_pointer.values()}, output):
        return None
    return sure(output, ast.unparse(expression), {*map(python_name, arrays)})


def _value_of(text: str, values: Mapping[str, ast.expr]) -> str:
    return ast.unparse(values[text]) if text in values else text


def _is_thread(offset: str, values: Mapping[str, ast.expr]) -> bool:
    """Return whether offsets are `pid * BLOCK + tl.arange(0, BLOCK)`, so that programs cover the array."""
    found = re.fullmatch(r"(.+?) \+ tl\.arange\(0, (\w+)\)", _value_of(offset, values))
    first = found and re.fullmatch(rf"(\w+|tl\.program_id\(.*\)) \* {found[2]}", _value_of(found[1], values))
    return bool(first and re.fullmatch(r"tl\.program_id\((?:axis=)?0\)", _value_of(first[1], values)))


def _is_whole(access: ast.Call, offset: str, values: Mapping[str, ast.expr], lengths: set[str]) -> bool:
    """Return whether an access has no mask, or only one that excludes elements behind the array."""
    masks = [each.value for each in access.keywords if each.arg == "mask"]
    masks += access.args[2 if ast.unparse(access.func) == "tl.store" else 1 :][:1]
    tests = (_value_of(ast.unparse(mask), values) for mask in masks)
    return all(test in {f"{offset} < {length}" for length in lengths} for test in tests)


def _is_length(value: ast.expr, function: ast.FunctionDef) -> bool:
    """Return whether an argument of a launch is the number of an array's elements."""
    given = [
        each for name, each in named(ast.walk(function)) if isinstance(value, ast.Name) and name == value.id
    ]
    texts = [ast.unparse(each) for each in given] or [ast.unparse(value)]
    return len(texts) == 1 and re.fullmatch(_LENGTH, texts[0]) is not None


def _only_hands_over(function: ast.FunctionDef, arrays: set[str], output: str) -> bool:
    """Return whether a function only creates its output, launches, and returns the output."""
    parents = {child: each for each in ast.walk(function) for child in ast.iter_child_nodes(each)}
    for each in ast.walk(function):
        if isinstance(each, ast.Return) and each.value is not None and ast.unparse(each.value) != output:
            return False
        if not isinstance(each, ast.Name) or python_name(each.id) not in arrays:
            continue
        around = parents[each]
        match around:
            case ast.Attribute(attr=attribute) if attribute in _HARMLESS:
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call()) if python_name(name) == output:
                continue  # which makes it
            case ast.Call(func=ast.Subscript()) | ast.keyword() | ast.Return():
                continue
            case ast.Call(func=called) if ast.unparse(called).endswith("_like"):
                continue
        return False
    stored = Counter(
        each.id
        for each in ast.walk(function)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )
    made = [value for name, value in named(ast.walk(function)) if python_name(name) == output]
    new = all(re.match(r"(?:torch\.)(?:empty|zeros|ones)(?:_like)?\(", ast.unparse(value)) for value in made)
    return new and all(
        stored[name] <= (python_name(name) == output) for name in stored if python_name(name) in arrays
    )


def _place(node: ast.expr, pointers: Mapping[str, str]) -> tuple[str, str] | None:
    """Return pointer and offset of `x_ptr + offsets`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return None
    pointer = ast.unparse(node.left)
    return (pointer, ast.unparse(node.right)) if pointer in pointers else None


def _stored(
    node: ast.expr, values: Mapping[str, ast.expr], arrays: Mapping[str, str], offset: str, depth: int = 0
) -> ast.expr | None:
    if isinstance(node, ast.Constant):
        return node
    if isinstance(node, ast.Name) and node.id in values and depth < 8:
        return _stored(values[node.id], values, arrays, offset, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        left = _stored(node.left, values, arrays, offset, depth + 1)
        right = _stored(node.right, values, arrays, offset, depth + 1)
        return None if left is None or right is None else ast.BinOp(left, node.op, right)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.load":
        place = _place(node.args[0], arrays) if node.args else None
        return ast.Name(arrays[place[0]]) if place and place[1] == offset else None
    return None
