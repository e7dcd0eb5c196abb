"""Recognizes a kernel of one assignment per element, and refuses every body that may do more.

A body may only contain known statements: locals, one guard `i < n`, one grid-stride loop, and one store.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.init.bodies import python_name, translate
from harness.init.cpp import CudaKernel, Expression, Token, closing, text_at, text_of, tokens

_LOADS = {"__ldg", "__ldcs", "__ldcg", "__ldca", "__ldlu"}
_INTEGER_CASTS = re.compile(r"\((?:unsigned|unsignedint|int|size_t|long|longlong|u?int(?:32|64)_t)\)")
_CALLS = {"abs", "np.maximum", "np.minimum", "np.exp", "np.sin", "np.cos", "np.tanh"}
"""Functions defined for all arguments, with an error of at most four roundings for a plain argument."""
_TYPES = {
    *("float", "double", "half", "bool", "char", "short"),
    *("int", "unsigned", "long", "size_t", "uint", "int64_t"),
}
_STRIDES = {"blockDim.x*gridDim.x", "gridDim.x*blockDim.x"}


@dataclass(frozen=True)
class Elementwise:
    """`output[i] = expression` for all i, in NumPy."""

    output: str
    expression: str
    bound: tuple[str, ...] = ()
    """Lengths whose product bounds i; empty without a guard."""

    @property
    def tree(self) -> ast.expr:
        return ast.parse(self.expression, mode="eval").body

    @property
    def magnitude(self) -> str:
        """Return the sum of the absolute values of the expression's terms; empty if it calls a function."""
        return "" if self.calls else ast.unparse(_Absolute().visit(self.tree))

    @property
    def roundings(self) -> int:
        """Return the number of rounding operations, and of constants that need many bits."""
        return sum(isinstance(node, ast.BinOp) or _is_rounded(node) for node in ast.walk(self.tree))

    @property
    def calls(self) -> int:
        return sum(isinstance(node, ast.Call) for node in ast.walk(self.tree))

    @property
    def names(self) -> set[str]:
        return {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)} - {"np"}

    @property
    def divides(self) -> bool:
        return any(isinstance(node, ast.Div) for node in ast.walk(self.tree))

    @property
    def has_known_error(self) -> bool:
        """Return True if the terms' magnitudes bound the error: no sum contains a function or quotient."""
        return not (self.calls and _has_sum(self.tree)) and all(map(_is_bounded, ast.walk(self.tree)))


class _Absolute(ast.NodeTransformer):
    """An expression with sums instead of differences, and absolute values of names."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        operand: ast.AST = self.visit(node.operand)
        return operand

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return ast.BinOp(node.left, ast.Add() if isinstance(node.op, ast.Sub) else node.op, node.right)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Call(ast.Name("abs"), [node], [])


def _is_rounded(node: ast.AST) -> bool:
    """Return whether a constant has more bits than the smallest type can hold."""
    value = node.value if isinstance(node, ast.Constant) else 0
    return isinstance(value, (int, float)) and not (math.frexp(value)[0] * 2**8).is_integer()


def _has_sum(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.Add, ast.Sub)) for part in ast.walk(node))


def _is_bounded(node: ast.AST) -> bool:
    """Return whether the error of one operation follows from the magnitudes of its operands."""
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return not any(isinstance(part, (ast.Call, ast.Div)) for part in ast.walk(node))
        case ast.BinOp(op=ast.Div(), right=divisor):
            parts = list(ast.walk(node))
            whole = not any(
                isinstance(part, ast.Name) or isinstance(getattr(part, "value", None), float)
                for part in parts
            )
            return not whole and not _has_sum(divisor)
        case ast.BinOp(op=operation):
            return isinstance(operation, ast.Mult)
        case ast.UnaryOp(op=operation):
            return isinstance(operation, ast.USub)
        case ast.Call(func=function, args=arguments):
            plain = all(isinstance(each, (ast.Name, ast.Constant)) for each in arguments)
            return plain and ast.unparse(function) in _CALLS
    return True


# --- CUDA -----------------------------------------------------------------------------------------


@dataclass
class _Body:
    """The statements of a body, without the brackets and guards around them."""

    pointers: set[str]
    locals: dict[str, tuple[str, Expression]] = field(default_factory=dict)
    """Type and value of each local name."""
    guards: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of an index and the text of its bound."""
    strides: list[str] = field(default_factory=list)
    stores: list[Expression] = field(default_factory=list)


def elementwise(kernel: CudaKernel) -> Elementwise | None:
    """Return a kernel's computation, if its body stores one expression at each index; None for another."""
    pointers = {parameter.name for parameter in kernel.parameters if parameter.pointer}
    body = _Body(pointers)
    if not _read_into(body, kernel.body) or len(body.stores) != 1:
        return None
    store = body.stores[0]
    name, close = store[0].text, closing(store, 1)
    index, sign, right = text_of(store[2:close]), text_at(store, close + 1), store[close + 2 :]
    bound = _bound_of(body, index)
    if bound is None or sign not in {"=", "+=", "-=", "*="}:
        return None
    plain = {each.name for each in kernel.parameters} - pointers - {*bound}
    types = {each.type for each in kernel.parameters if each.name in pointers | plain}
    element = types.pop()
    if types:  # conversions round or truncate
        return None
    if sign != "=":
        right = (*store[: close + 1], *tokens(f"{sign[0]} ("), *right, *tokens(")"))
    known = pointers | plain
    text = _in_place(body, right, index, element)
    expression = text and translate(
        text, lambda word: python_name(word) if word in known else None, division="/"
    )
    if not expression:
        return None
    return sure(python_name(name), expression, map(python_name, known), tuple(map(python_name, bound)))


def _read_into(body: _Body, text: Sequence[Token]) -> bool:
    """Read every statement of a text into a body. Return False at the first one that is not understood."""
    at = 0
    while at < len(text):
        word = text[at].text
        if word in {"{", "}", ";"}:
            at += 1
        elif word in {"if", "for"} and text_at(text, at + 1) == "(":
            close = closing(text, at + 1)
            inside = text[at + 2 : close]
            after = _guarded(body, text, inside, close + 1) if word == "if" else close + 1
            if not after or (word == "for" and not _looped(body, inside)):
                return False
            at = after
        else:
            end = next((n for n in range(at, len(text)) if text[n].text in {";", "{", "}"}), len(text))
            if text_at(text, end) != ";" or not _simple(body, text[at:end]):
                return False
            at = end + 1
    return True


def _guarded(body: _Body, text: Sequence[Token], test: Sequence[Token], at: int) -> int:
    """Read the test of an `if` before a statement at `at`. Return where reading continues, 0 for
    a failure.
    """
    leaves = re.match(r"return;|\{return;\}", text_of(text[at : at + 4]))
    found = re.fullmatch(rf"(\w+){'>=' if leaves else '<'}(.+)", text_of(test))
    if not found:
        return 0
    body.guards.add((found[1], found[2]))
    return at + (leaves[0].count("{") * 2 + 2 if leaves else 0)


def _looped(body: _Body, header: Sequence[Token]) -> bool:
    """Read `int i = ...; i < n; i += stride`. Return False for another loop."""
    signs = [at for at, token in enumerate(header) if token.text == ";"]
    if len(signs) != 2 or body.strides:
        return False
    first, test, step = header[: signs[0]], header[signs[0] + 1 : signs[1]], header[signs[1] + 1 :]
    found, stride = re.fullmatch(r"(\w+)<(.+)", text_of(test)), re.fullmatch(r"(\w+)\+=(.+)", text_of(step))
    if not found or not stride or found[1] != stride[1] or (first and not _simple(body, first)):
        return False
    body.guards.add((found[1], found[2]))
    body.strides.append(stride[2])
    return True


def _simple(body: _Body, statement: Sequence[Token]) -> bool:
    """Read a local's declaration or a store. Return False for another statement."""
    if statement[0].text in body.pointers and text_at(statement, 1) == "[":
        body.stores.append(tuple(statement))
        return True
    equals = next((at for at, token in enumerate(statement) if token.text == "="), 0)
    words = [token.text for token in statement[:equals] if token.text not in {"const", "constexpr"}]
    name = words[-1] if len(words) > 1 else ""
    if not all(word.isidentifier() for word in words) or not name or name in {*body.locals, *body.pointers}:
        return False
    body.locals[name] = " ".join(words[:-1]), tuple(statement[equals + 1 :])
    return True


def _bound_of(body: _Body, index: str) -> tuple[str, ...] | None:
    """Return the lengths whose product bounds an index over all threads; None for another index."""
    declared = body.locals.get(index)
    whole = _plain(text_of(declared[1]) if declared else index)
    if {*whole.split("+")} not in (
        {"blockIdx.x*blockDim.x", "threadIdx.x"},
        {"blockDim.x*blockIdx.x", "threadIdx.x"},
    ):
        return None
    steps = (_plain(text_of(body.locals[each][1]) if each in body.locals else each) for each in body.strides)
    if not {*steps} <= _STRIDES or len(body.guards) > 1:
        return None
    for name, bound in body.guards:
        if name != index or not re.fullmatch(r"\(?[A-Za-z_]\w*(\*[A-Za-z_]\w*)*\)?", bound):
            return None
        return tuple(bound.strip("()").split("*"))
    return ()


def _plain(text: str) -> str:
    """Return an index without casts and brackets."""
    return re.sub(r"static_cast<\w+>|[()]", "", _INTEGER_CASTS.sub("", text))


def _in_place(
    body: _Body, found: Sequence[Token], index: str, element: str, depth: int = 0
) -> Expression | None:
    """Return an expression with `x` for `x[index]` and values for local names.

    None if it reads another element, or converts to another type than the arrays' `element`.
    """
    words: list[Token] = []
    at = 0
    while at < len(found):
        token, following = found[at], text_at(found, at + 1)
        if token.text in body.pointers:
            close = closing(found, at + 1)
            if following != "[" or text_of(found[at + 2 : close]) != index:
                return None
            words.append(token)
            at = close
        elif token.text in _LOADS or (token.text == "&" and following in body.pointers):
            pass  # __ldg(&x[i]) is (x[i])
        elif token.text in body.locals and depth < 4:
            type_, value = body.locals[token.text]
            inner = _in_place(body, value, index, element, depth + 1) if type_ in {element, "auto"} else None
            if inner is None:
                return None
            words += [*tokens("("), *inner, *tokens(")")]
        elif token.text == "static_cast" or _is_cast_to_another(found, at, element):
            return None
        elif token.kind == "number" and token.text[-1] in "fF" and element == "double":
            return None  # a constant of fewer bits
        else:
            words.append(token)
        at += 1
    return tuple(words)


def _is_cast_to_another(found: Sequence[Token], at: int, element: str) -> bool:
    """Tell whether `(type)` casts there to another type than the arrays' elements."""
    inside = [token for token in found[at + 1 : closing(found, at)] if found[at].text == "("]
    words = [token.text for token in inside if token.kind == "word"]
    return len(words) == len(inside) and bool({*words} & _TYPES) and " ".join(words) != element


# --- Python ---------------------------------------------------------------------------------------


def guarded_statements(
    body: Sequence[ast.stmt], test: re.Pattern[str], loop: re.Pattern[str]
) -> Iterator[ast.stmt | None]:
    """Yield a kernel's statements without the guards and loops around them, and None for an unknown one."""
    for statement in body:
        match statement:
            case ast.If(orelse=[]) if test.fullmatch(ast.unparse(statement.test)):
                yield from guarded_statements(statement.body, test, loop)
            case ast.For(orelse=[]) if loop.fullmatch(ast.unparse(statement).partition(":\n")[0]):
                yield from guarded_statements(statement.body, test, loop)
            case ast.Assign() | ast.AugAssign():
                yield statement
            case ast.Expr(value=ast.Constant(value=str())):
                continue
            case _:
                yield None


def sure(
    output: str, expression: str, needed: Iterable[str], bound: tuple[str, ...] = ()
) -> Elementwise | None:
    """Return an expression that uses all `needed` names and has a bounded error; None for another."""
    found = Elementwise(output, expression, bound)
    return found if found.has_known_error and {*needed} - {output} <= found.names else None
