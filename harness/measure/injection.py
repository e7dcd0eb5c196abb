"""Plants a slowdown of known size into a kernel, to prove that the harness would detect it.

The planted kernel has one more by-value parameter. Each thread starts with a chain of that many dependent
multiply-adds whose result is unused. With 0 steps it costs one branch more than the original, so one build
serves as both the slowed kernel and its baseline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from harness.errors import MeasureError, SuiteError
from harness.suite.sources import Program

_PARAMETER = "int harness_steps"
_CALL = " harness_planted(harness_steps);"

# x starts with a different value in each thread, so the card cannot compute it once for a warp. It stays
# between 0 and the size of a block, but no compiler can prove that, so it must compute x for the comparison.
# An empty asm statement with x would not keep it, because the assembler sees through it. After the comparison
# comes a profiler's mark: a trap or branch there would change the register allocation of the kernel. The
# chain precedes all other text, so that no macro of the kernel changes it.
_CUDA_CHAIN = """\
static __device__ __forceinline__ void harness_planted(int steps) {
    if (steps > 0) {
        float x = (float)threadIdx.x;
        #pragma unroll 1
        for (int i = 0; i < steps; ++i) x = __fmaf_rn(x, 0.5f, 1.0f);
        asm volatile("{ .reg .pred p; setp.eq.f32 p, %0, %1; @p pmevent 0; }" :: "f"(x), "f"(1e30f));
    }
}
"""
_OPENCL_CHAIN = """\
static void harness_planted(int steps) {
    if (steps > 0) {
        float x = (float)get_local_id(0);
        #pragma unroll 1
        for (int i = 0; i < steps; ++i) x = fma(x, 0.5f, 1.0f);
        if (x == 1e30f) { volatile int sink = steps; }
    }
}
"""


@dataclass(frozen=True)
class _Dialect:
    chain: str
    kernel: frozenset[str]
    """Qualifiers of a kernel function."""
    late: frozenset[str] = frozenset()
    """Qualifiers of a parameter that the launch itself sets, after all other arguments."""


_CUDA = _Dialect(_CUDA_CHAIN, frozenset({"__global__"}))
_OPENCL = _Dialect(_OPENCL_CHAIN, frozenset({"__kernel", "kernel"}), frozenset({"__local", "local"}))
_DIALECTS = {"cuda": _CUDA, "opencl": _OPENCL, "null": _CUDA}


def planted(program: Program, backend: str) -> Program:
    """Return the program with a slowdown. Its new last argument, an int32, is the number of steps.

    A shared-memory parameter that the launch sizes stays last. Raises SuiteError if the kernel's definition
    is not found, for example because a macro makes its name.
    """
    dialect = _DIALECTS.get(backend)
    if dialect is None:
        raise SuiteError(
            f"No slowdown can be planted in kernels for {backend!r}: no chain is written for it."
        )
    if program.kind != "kernel":
        raise SuiteError(f"No slowdown can be planted in {program.name}: it is no kernel's source.")
    tokens = list(_tokens(program.text))
    macros = _macros(tokens)
    code = [token for token in tokens if token.kind != "directive"]
    chosen = _chosen(list(_functions(code, program.function)), dialect, macros)
    if not chosen:
        raise SuiteError(
            f"{program.name} has no definition of {program.function!r} in its source, so no slowdown can be "
            "planted in it. Write the function's name out where it is defined, not by way of a macro."
        )
    # Find definitions by place: preprocessor alternatives may share a body.
    edits: dict[int, tuple[int, str]] = {}
    for function in chosen:
        edits |= _parameter(function, dialect, macros)
        if function.body is not None:
            edits[function.body] = (function.body, _CALL)
    text, emulate = program.text, program.emulate
    for start, (end, new) in sorted(edits.items(), reverse=True):
        text = text[:start] + new + text[end:]
    without_last = emulate and (lambda *arguments: emulate(*arguments[:-1]))
    return replace(program, text=f"{dialect.chain}#line 1\n{text}", emulate=without_last)


def steps_for(target: float, steps: int, effect: float) -> int:
    """Return the number of steps, at least 1, for a slowdown of `target`, if `steps` slowed by `effect`.

    The first steps may hide behind waits for memory. So measure the result, and correct it once. Raises
    MeasureError if there was no slowdown to scale.
    """
    if not effect > 0:
        message = f"{steps} planted steps changed the time by {effect:.2%}: no slowdown to scale from."
        raise MeasureError(message)
    return max(1, round(steps * target / effect))


_COMMENT = r"//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)"
_STRING = r'"(?:\\.|[^"\\\n])*"'
_TOKEN = re.compile(
    "|".join(
        f"(?P<{kind}>{pattern})"
        for kind, pattern in {
            "space": rf"\s+|\\\r?\n|{_COMMENT}",
            "directive": rf"\#(?:{_COMMENT}|{_STRING}|\\\r?\n|[^\n])*",
            "raw": r'(?:u8|[uUL])?R"(?P<fence>[^(\s]*)\(.*?\)(?P=fence)"',
            "string": _STRING,
            "character": r"'(?:\\.|[^'\\\n])*'",
            "number": r"\.?\d(?:[eEpP][+-]|'?[\w.])*",
            "word": r"[^\W\d]\w*",
            "mark": ".",
        }.items()
    ),
    re.DOTALL,
)


class _SourceToken(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def _tokens(text: str) -> Iterator[_SourceToken]:
    """Yield the text's tokens without spaces and comments. A whole directive is one token."""
    for match in _TOKEN.finditer(text):
        if (kind := match.lastgroup or "") != "space":
            yield _SourceToken(kind, match[0], match.start(), match.end())


def _macros(tokens: Sequence[_SourceToken]) -> dict[str, list[str]]:
    """Return the tokens that each macro can stand for, with all alternatives in one list."""
    macros: dict[str, list[str]] = {}
    for token in tokens:
        if token.kind != "directive":
            continue
        # otherwise the first # would begin a directive again
        words = list(_tokens(token.text.replace("#", " ")))
        if len(words) < 2 or words[0].text != "define":
            continue
        name, body = words[1], words[2:]
        if body and body[0].text == "(" and body[0].start == name.end:
            body = body[_closing(body, 0) + 1 :]
        macros.setdefault(name.text, []).extend(token.text for token in body)
    return macros


def _stands_for(word: str, wanted: frozenset[str], macros: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether a word is wanted or is a macro that leads to a wanted one."""
    waiting, seen = [word], set[str]()
    while waiting:
        word = waiting.pop()
        if word in wanted:
            return True
        if word not in seen:
            seen.add(word)
            waiting += macros.get(word, ())
    return False


class _FunctionText(NamedTuple):
    """A definition or a declaration."""

    head: Sequence[_SourceToken]
    """All tokens before the name."""
    opening: _SourceToken
    parameters: Sequence[_SourceToken]
    closing: _SourceToken
    body: int | None
    """Start of its body in the text; None for a declaration."""


def _functions(code: Sequence[_SourceToken], name: str) -> Iterator[_FunctionText]:
    """Yield possible definitions and declarations of a function. A call as a statement looks like a
    declaration.
    """
    begin = 0
    for at, token in enumerate(code):
        if token.text in (";", "{", "}"):
            begin = at + 1
        elif token.text == name and at + 1 < len(code) and code[at + 1].text == "(":
            close = _closing(code, at + 1)
            after = _after_attributes(code, close + 1)
            if after < len(code) and code[after].text in ("{", ";"):
                body = code[after].end if code[after].text == "{" else None
                yield _FunctionText(code[begin:at], code[at + 1], code[at + 2 : close], code[close], body)


def _chosen(
    found: Sequence[_FunctionText], dialect: _Dialect, macros: Mapping[str, Sequence[str]]
) -> list[_FunctionText]:
    """Return the kernel's definitions and prototypes, which all need the parameter; empty without a
    definition.
    """
    kernels = [
        each for each in found if any(_stands_for(word.text, dialect.kernel, macros) for word in each.head)
    ]
    if any(function.body is not None for function in kernels):
        return kernels
    # If no qualifier is found, take every definition.
    definitions = [function for function in found if function.body is not None]
    return definitions and kernels + definitions


def _after_attributes(code: Sequence[_SourceToken], at: int) -> int:
    while at < len(code) and (code[at].kind == "word" or code[at].text == "("):
        at = at + 1 if code[at].kind == "word" else _closing(code, at) + 1
    return at


def _closing(code: Sequence[_SourceToken], at: int) -> int:
    """Return the place of the parenthesis that closes the one at `at`; the end if there is none."""
    depth = 0
    for place in range(at, len(code)):
        depth += {"(": 1, ")": -1}.get(code[place].text, 0)
        if depth == 0:
            return place
    return len(code)


def _parameter(
    function: _FunctionText, dialect: _Dialect, macros: Mapping[str, Sequence[str]]
) -> dict[int, tuple[int, str]]:
    """Return the edit that adds the parameter: start, end and new text. An edit never adds a line."""
    begin = function.opening.end
    depth = 0
    for number, token in enumerate(function.parameters):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and token.text == ",":
            begin = token.end
        elif _stands_for(token.text, dialect.late, macros):
            if macros.get(token.text, ("",))[:1] == [","]:  # The macro expands to a leading comma.
                comma = ", " if number else ""
                return {token.start: (token.start, f"{comma}{_PARAMETER} ")}
            return {begin: (begin, f" {_PARAMETER},")}
    if [token.text for token in function.parameters] == ["void"]:
        void = function.parameters[0]
        return {void.start: (void.end, _PARAMETER)}
    comma = ", " if function.parameters else ""
    return {function.closing.start: (function.closing.start, comma + _PARAMETER)}
