"""Finds which arrays the body of a CUDA kernel writes, how it indexes them, and its expressions in Python."""

from __future__ import annotations

import ast
import contextlib
import keyword
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import harness
from harness.init.cpp import CudaKernel, Expression, Token, closing, text_at, text_of
from harness.init.guessed_suite import TOO_DEEP
from harness.suite.problem import OF_CASE, Problem

_ASSIGN = {"=", "+=", "-=", "*=", "/=", "|=", "&=", "^=", "<<=", ">>="}
_FUNCTIONS = {
    **dict.fromkeys(("fabsf", "fabs", "abs"), "abs"),
    **{f"{name}f": f"np.{name}" for name in ("exp", "log", "sqrt", "sin", "cos", "tanh")},
    **{name: f"np.{name}" for name in ("exp", "log", "sqrt", "sin", "cos", "tanh")},
    **dict.fromkeys(("fmaxf", "fmax", "max"), "np.maximum"),
    **dict.fromkeys(("fminf", "fmin", "min"), "np.minimum"),
}
"""CUDA's floating-point functions, with NumPy's equivalents."""
_CASTS = {
    *("float", "double", "int", "unsigned", "unsigned int", "size_t", "uint", "long", "long long", "int64_t")
}
_CEIL_DIV = re.compile(r"(?i)(ceil|div|round)_?(div|ceil|up)|i?divup|cdiv|ceil_?divide|blocks_?for")


_TAKEN = {*harness.__all__, *OF_CASE, "abs", "case", "np", "self"}
"""Names that a generated suite.py uses itself, and a case's own attributes."""


def python_name(name: str) -> str:
    """Return a parameter's name in suite.py: its own, unless Python or the suite interface uses it."""
    taken = keyword.iskeyword(name) or hasattr(Problem, name) or name in _TAKEN
    if name.startswith("__"):  # Python would add the class's name to it
        return f"p{name}"
    return f"{name}_" if taken else name


@dataclass(frozen=True)
class Use:
    """The use of one pointer in a body."""

    written: bool = False
    read: bool = False
    """True if the kernel reads it before it writes there, or in the same statement."""
    added: bool = False
    """True if an atomic operation adds to it, so that it needs an initial value."""
    strides: tuple[str, ...] = ()
    """Names that an index is multiplied by, with repetitions, and numbers: 3 for `x[i * 3]`."""
    indexed: bool = False
    """True unless every use is `*p`, `p[0]` or `atomicAdd(p, 1)`, which access only the first element."""


def uses(kernel: CudaKernel) -> dict[str, Use]:
    """Return the use of each pointer in a kernel's body."""
    names = {parameter.name for parameter in kernel.parameters if parameter.pointer}
    body, locals_ = kernel.body, assigned(kernel.body)
    lengths = {parameter.name for parameter in kernel.parameters if not parameter.pointer}
    compared = {
        token.text
        for at, token in enumerate(body)
        if text_at(body, at + 1) in {"<", ">="} and text_at(body, at + 2) in lengths
        if text_at(body, at + 3) not in {"*", "/"}
    }
    alias = _aliases(body, names)
    found: dict[str, Use] = dict.fromkeys(names, Use())
    for at, token in enumerate(body):
        name = alias.get(token.text, token.text)
        if name in names and token.kind == "word" and not (at and body[at - 1].text in {".", "->"}):
            found[name] = _with_use(found[name], body, at, name, alias, locals_)
            if text_at(body, at + 1) == "[":
                numbers = _factors(body[at + 2 : closing(body, at + 1)], locals_, compared)
                strides = (*found[name].strides, *sorted(numbers - {*found[name].strides}))
                found[name] = replace(found[name], strides=strides)
    return found


def _with_use(
    use: Use,
    body: Sequence[Token],
    at: int,
    name: str,
    alias: Mapping[str, str],
    locals_: Mapping[str, Expression],
) -> Use:
    """Return a use extended by another occurrence of the array."""
    before = [token.text for token in body[max(0, at - 4) : at]]
    if before[-2:] == ["&", "("]:  # atomicAdd(&(y[i]), 1)
        before.pop()
    before = before[-3:]
    after = at + 1
    if text_at(body, after) == "[":
        after = closing(body, after)
        index = body[at + 2 : after]
        indexed = use.indexed or text_of(index) != "0"
        use = replace(use, indexed=indexed, strides=_joined(use.strides, _strides(index, locals_)))
        after += 1
    elif before[-1:] == ["*"] and _is_dereference(body, at - 1):
        pass
    elif before[-1:] == ["("] and before[-2:-1] and before[-2].startswith("atomic"):
        return replace(use, written=True, added=True, indexed=use.indexed or text_at(body, after) == "+")
    else:  # A += row * K
        more = _strides(_statement(body, at), locals_) if before[-1:] != ["("] else Counter()
        return replace(use, indexed=True, strides=_joined(use.strides, more))
    if before[-1:] == ["&"] and len(before) > 2 and before[0].startswith("atomic"):
        return replace(use, written=True, added=True)
    while text_at(body, after) in {")", "[", "]", ".", "x", "y", "z", "w", "0"}:
        after += 1  # reinterpret_cast<float4 *>(&C[i])[0] = ..., C[i].x = ...
    sign = text_at(body, after)
    if sign in _ASSIGN:
        right = {alias.get(token.text, token.text) for token in _statement(body, after)}
        reads = not use.written and (sign != "=" or name in right)
        return replace(use, written=True, read=use.read or reads)
    return use if use.written or sign in {"++", "--"} else replace(use, read=True)


def _joined(one: tuple[str, ...], other: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted((Counter(one) | other).elements()))


def assigned(body: Sequence[Token]) -> dict[str, Expression]:
    """Return the names that a body declares with a value, `int i = ...`, and these values."""
    found: dict[str, Expression] = {}
    for at in range(1, len(body) - 1):
        if body[at].text == "=" and body[at - 1].kind == "word" and at > 1 and body[at - 2].kind == "word":
            found.setdefault(body[at - 1].text, tuple(_statement(body, at + 1)))
    return found


def _aliases(body: Sequence[Token], names: set[str]) -> dict[str, str]:
    """Return the pointers that the body derives from a parameter: `float4 *p = (float4 *)x`, by name."""
    found: dict[str, str] = {}
    for at in range(2, len(body) - 1):
        if body[at].text == "=" and body[at - 1].kind == "word" and body[at - 2].text in {"*", "auto"}:
            for token in _statement(body, at + 1):
                if token.text in names and body[at - 1].text not in names:
                    found.setdefault(body[at - 1].text, token.text)
    return found


def _statement(body: Sequence[Token], at: int) -> Sequence[Token]:
    depth = 0
    for end in range(at, len(body)):
        depth += (body[end].text in "([") - (body[end].text in ")]")
        if body[end].text in {";", "{", "}"} or depth < 0 or (depth == 0 and body[end].text == ","):
            return body[at:end]
    return body[at:]


def _is_dereference(body: Sequence[Token], at: int) -> bool:
    """Tell whether a `*` dereferences, which is true if no value precedes it."""
    return at == 0 or body[at - 1].text in {";", "{", "}", "=", "(", ",", "+", "-"}


def _strides(index: Sequence[Token], locals_: Mapping[str, Expression], depth: int = 0) -> Counter[str]:
    """Return the names beside a `*` in an index, including those in the values of local names."""
    found: Counter[str] = Counter()
    for at, token in enumerate(index):
        if token.kind != "word":
            continue
        if token.text in locals_ and depth < 3:
            found |= _strides(locals_[token.text], locals_, depth + 1)
        if "*" in (text_at(index, at - 1), text_at(index, at + 1)):
            found[token.text] += 1
    return found


def _factors(
    index: Sequence[Token], locals_: Mapping[str, Expression], compared: set[str], depth: int = 0
) -> set[str]:
    """Return the factors of a length-checked name in an index: 3 for `x[i * 3]`."""
    found: set[str] = set()
    for at, token in enumerate(index):
        if token.text in locals_ and depth < 3:
            found |= _factors(locals_[token.text], locals_, compared, depth + 1)
        if token.kind != "number" or not token.text.isdecimal() or int(token.text) < 2:
            continue
        operand: Sequence[Token] = ()
        if text_at(index, at + 1) == "*":
            operand = index[at + 2 : max(closing(index, at + 2), at + 3)]
        elif text_at(index, at - 1) == "*":
            before = [number for number in range(at - 1) if closing(index, number) == at - 2]
            operand = index[min(before, default=at - 2) : at - 1]
        words = {word.text for word in _expanded(operand, locals_)}
        if "blockIdx" in words and words & compared:
            found.add(token.text)
    return found


def _expanded(index: Sequence[Token], locals_: Mapping[str, Expression], depth: int = 0) -> Sequence[Token]:
    """Return an index, followed by the values of its local names."""
    words = {token.text for token in index}
    values = [token for word in sorted(words & locals_.keys()) for token in locals_[word]]
    more = [token for token in values if token.text not in words]
    return _expanded([*index, *more], locals_, depth + 1) if more and depth < 4 else index


_COMPARED = {"<", "<=", ">", ">=", "==", "!=", "/", "%"}


def bounds(kernel: CudaKernel) -> set[str]:
    """Return the names that the body compares with something or divides by: lengths, and not strides."""
    body = kernel.body
    beside = ((text_at(body, at - 1), token, text_at(body, at + 1)) for at, token in enumerate(body))
    return {
        token.text
        for before, token, after in beside
        if before in _COMPARED or after in _COMPARED - {"/", "%"}
    }


def index_axes(kernel: CudaKernel, axes: Sequence[str]) -> dict[str, tuple[str, bool]]:
    """Return for each grid dimension `x` to `z` the axis whose length the kernel compares this index with.

    The flag is True for an index of threads, and False for one of blocks, `row = blockIdx.x`.
    """
    body, found = text_of(kernel.body), dict[str, tuple[str, bool]]()
    for name, value in assigned(kernel.body).items():
        words = {re.sub(r"[()]", "", part) for part in text_of(value).split("+")}
        compared = re.search(rf"\b{name}(?:<|>=)(\w+)(?![\w*/+])", body)
        for each in "xyz":
            block, size, thread = (f"{word}.{each}" for word in ("blockIdx", "blockDim", "threadIdx"))
            of_thread = words in ({f"{block}*{size}", thread}, {f"{size}*{block}", thread})
            if (of_thread or words == {block}) and compared and compared[1] in axes:
                found.setdefault(each, (compared[1], of_thread))
    return found


def extents(kernel: CudaKernel, axes: Sequence[str]) -> tuple[str, ...]:
    """Return the axes whose product the body compares an index with, `i < n * c`; none without
    such a test.
    """
    text = text_of(kernel.body)
    found = re.findall(r"(?:<|>=)\(?(\w+(?:\*\w+)+)", text)
    return next((tuple(f.split("*")) for f in found if set(f.split("*")) <= set(axes)), ())


# --- expressions in Python ---------------------------------------------------------------------


def translate(
    expression: Expression, name_of: Callable[[str], str | None], *, division: str = "//"
) -> str | None:
    """Return a C++ expression in Python; None if it is more than numbers, names, arithmetic and known
    functions.

    `name_of` returns a name's equivalent in Python, or None.
    """
    words: list[str] = []
    at = 0
    while at < len(expression):
        token = expression[at]
        following = text_at(expression, at + 1)
        cast = _cast_at(expression, at)
        if cast:
            at = cast
            continue
        if token.kind == "number":
            word: str | None = _number(token.text)
        elif token.kind != "word":
            word = {"/": division, "&&": "and", "||": "or"}.get(token.text, token.text)
        elif following == "(":
            word = "ceil_div" if _CEIL_DIV.fullmatch(token.text) else _FUNCTIONS.get(token.text)
            if division == "//" and token.text in {"ceil", "ceilf"}:
                word = "ceil" if _is_of_floats(expression[at + 2 : closing(expression, at + 1)]) else None
            if division == "//" and word is not None and word.startswith("np."):
                word = {"np.maximum": "max", "np.minimum": "min"}.get(word)
        elif following == "::":
            at += 2
            continue
        else:
            word = name_of(token.text)
        if word is None:
            return None
        words.append(word)
        at += 1
    return _checked(" ".join(words))


def _is_of_floats(expression: Expression) -> bool:
    """Return whether an expression has a floating-point type or number, so that divisions are not
    truncated.
    """
    return any(t.text in {"float", "double"} or (t.kind == "number" and "." in t.text) for t in expression)


def _cast_at(expression: Expression, at: int) -> int:
    """Return the position after a cast at `at`, `(float)` or `static_cast<int>`; 0 without one."""
    texts = [token.text for token in expression[at : at + 6]]
    for length in (1, 2):
        if texts[:1] == ["("] and texts[length + 1 : length + 2] == [")"]:
            inside = " ".join(texts[1 : length + 1])
            if inside in _CASTS and len(texts) > length + 2:
                return at + length + 2
        if texts[:2] == ["static_cast", "<"] and texts[2 + length : 3 + length] == [">"]:
            return at + length + 3
    return 0


def _number(text: str) -> str | None:
    plain = text.replace("'", "")
    if not plain.lower().startswith("0x"):
        plain = plain.rstrip("uUlLfF")
    try:
        ast.literal_eval(plain)
    except (ValueError, SyntaxError):
        return None
    return plain


_NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Attribute, ast.Constant, ast.Load)
_OPERATORS = (ast.operator, ast.unaryop)
_MOST_CHARACTERS = 4000


def _checked(text: str) -> str | None:
    """Return the expression in Python's spelling, or None.

    None if it is invalid, or has more than arithmetic and calls, or is excessively long: names may expand to
    many other names.
    """
    if len(text) > _MOST_CHARACTERS:
        return None
    with contextlib.suppress(SyntaxError, ValueError, *TOO_DEEP):
        tree = ast.parse(text.strip(), mode="eval")
        if all(isinstance(node, (*_NODES, *_OPERATORS)) for node in ast.walk(tree)):
            text = ast.unparse(_CeilDiv().visit(tree))
            return None if re.search(r"\bceil\(", text) else text
    return None


class _CeilDiv(ast.NodeTransformer):
    """Rewrites `(n + 255) // 256`, `(n + b - 1) // b` and `ceil(n / 256.0)` to ceil_div."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="ceil"), args=[ast.BinOp(left, ast.FloorDiv(), right)]):
                by = re.sub(r"\.0$", "", ast.unparse(right))
                divided = f"{ast.unparse(left)}, {by}"
                if by == "1":
                    return left
                if not re.search(r"\d\.\d", divided):
                    return ast.parse(f"ceil_div({divided})", mode="eval").body
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        left = node.left
        if not isinstance(node.op, ast.FloorDiv) or not isinstance(left, ast.BinOp):
            return node
        by = ast.unparse(node.right)
        for form in (rf"(.+) \+ {re.escape(by)} - 1", rf"(.+) \+ \({re.escape(by)} - 1\)"):
            if found := re.fullmatch(form, ast.unparse(left)):
                return ast.parse(f"ceil_div({found[1]}, {by})", mode="eval").body
        added = ast.unparse(left.right) if isinstance(left.op, ast.Add) else ""
        if by.isdigit() and added.isdigit() and int(added) == int(by) - 1:
            return ast.parse(f"ceil_div({ast.unparse(left.left)}, {by})", mode="eval").body
        return node
