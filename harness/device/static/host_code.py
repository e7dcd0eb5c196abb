"""Removes the host-only functions of a CUDA source, for a compiler that does not know launches."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECE = re.compile(
    r"""//[^\n]* | /\*.*?\*/
    | (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'
    | ^[ \t]*(?P<directive>\#)(?:\\\n|[^\n])* | (?P<mark>[{};])""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SCOPE = re.compile(r"""\bnamespace\b[^;{}()]*\Z|\bextern\s*"C"\s*\Z""")
"""Text before the brace of a scope whose functions are functions of the file."""
_FUNCTION = re.compile(r"\b(\w+)\s*\([^{};]*\)\s*(?:(?:const|noexcept)\s*)*\Z")
_ON_DEVICE = re.compile(r"__global__|__device__|\bconstexpr\b")
_OF_HOST = re.compile(r"<<<|\bcuda[A-Z]\w*\s*\(")
"""A launch, or a call of CUDA's runtime."""


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    begin: int
    end: int
    code: str
    """Its text without comments."""
    on_device: bool


def without_host_code(text: str) -> str:
    """Return CUDA C++ without main and without functions that launch kernels or call CUDA's runtime.

    Functions that call such a function are removed too. Lines keep their numbers. Classes stay unchanged.
    """
    host = [each for each in _functions(text) if not each.on_device]
    dropped = {each.name for each in host if each.name == "main" or _OF_HOST.search(each.code)}
    while more := {each.name for each in host if each.name not in dropped and _calls(each.code, dropped)}:
        dropped |= more
    for each in reversed([each for each in host if each.name in dropped]):
        text = text[: each.begin] + "\n" * text.count("\n", each.begin, each.end) + text[each.end :]
    return text


def _calls(code: str, names: set[str]) -> bool:
    return bool(names) and bool(re.search(rf"\b(?:{'|'.join(names)})\s*(?:<[^;{{}}]*>)?\s*\(", code))


def _functions(text: str) -> list[_Function]:
    """Return the functions of a file in order, including those in namespaces."""
    found: list[_Function] = []
    begin = opens = depth = 0
    for piece in _PIECE.finditer(text):
        mark = piece["mark"]
        is_scope = mark == "{" and _SCOPE.search(_COMMENT.sub(" ", text[begin : piece.start()]))
        if depth == 0 and (piece["directive"] or mark == ";" or is_scope):
            begin = piece.end()
        elif mark == "{":
            opens = piece.start() if depth == 0 else opens
            depth += 1
        elif mark == "}" and depth <= 1:
            head = _COMMENT.sub(" ", text[begin:opens]) if depth else ""
            if function := _FUNCTION.search(head):
                code = _COMMENT.sub(" ", text[opens : piece.end()])
                on_device = bool(_ON_DEVICE.search(head))
                found.append(_Function(function[1], begin, piece.end(), code, on_device))
            begin = piece.end() if function or not depth else begin
            depth = 0
        elif mark == "}":
            depth -= 1
    return found
