"""Functions of CUDA's C++ that wait for their whole grid, read out of text without a compiler.

Only a cooperative launch allows such a wait. What text alone cannot decide does not count: a wait under an
`if`, or under a condition of the preprocessor inside the function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

_SEEN = ("this_grid", "grid_group", "cudaCGSynchronize")
_TOKEN = re.compile(
    r"""(?P<directive>^[ \t]*\#(?:[^\n\\]|\\\r?\n|\\.)*)
    | //(?:[^\n\\]|\\\r?\n|\\.)* | /\*.*?\*/
    | R"(?P<fence>[^ ()\\\t\n]{0,16})\(.*?\)(?P=fence)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'
    | (?P<code>[^\W\d]\w* | \.?\d[\w.']* | :: | -> | \S)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)", re.DOTALL)
_GUARD = re.compile(r"#[ \t]*ifndef[ \t]+(\w+)[^\n]*\s+#[ \t]*define[ \t]+\1\b")
_WORD = re.compile(r"[^\W\d]\w*")
_AFTER_PARAMETERS = {"const", "noexcept", "override", "final"}
_STATEMENTS = {"for", "while", "catch"}
_OTHER = -1
"""Mark of the branch of a condition whose first branch is taken."""
_NAMESPACE = {"cg", "cooperative_groups", "::"}


class _Token(NamedTuple):
    text: str
    conditions: tuple[int, ...]
    """Places of the undecided conditions of the preprocessor around it."""


@dataclass
class _Function:
    name: str
    conditions: tuple[int, ...]
    grids: set[str] = field(default_factory=set)
    """Names of its variables of the type grid_group."""
    calls: set[str] = field(default_factory=set)
    """Names that it calls under no condition."""
    waits: bool = False
    asks: bool = False
    """True where it asks whether the launch is cooperative."""


def names_grid(text: str) -> bool:
    """Return whether a text may have a function that waits for its grid by itself."""
    return any(word in text for word in _SEEN)


@lru_cache(maxsize=64)
def grid_waiters(text: str) -> frozenset[str]:
    """Return the names of functions that wait for their whole grid, or call a function of the text that does.

    A name counts where every function that has it waits.
    """
    if not names_grid(text):
        return frozenset()
    functions = [*_functions([*_tokens(text)])]
    found, before = frozenset[str](), None
    while found != before:
        waiting = {each.name: True for each in functions}
        for each in functions:
            waiting[each.name] &= not each.asks and (each.waits or bool(found & each.calls))
        found, before = frozenset(name for name in waiting if waiting[name]), found
    return found


def _tokens(text: str) -> Iterator[_Token]:
    """Yield the code without comments, texts, directives, and the other branch of a condition that is met.

    A condition of the form `__CUDA_ARCH__ >= 900` counts as met.
    """
    guards = {*_GUARD.findall(text)}
    conditions: list[int] = []
    for match in _TOKEN.finditer(text):
        directive = _CONDITION.match(match["directive"] or "")
        if directive is None:
            if match["code"] and _OTHER not in conditions:
                yield _Token(match["code"], tuple(filter(None, conditions)))
            continue
        word, rest = directive[1], directive[2].strip()
        if word.startswith("if"):
            is_of_card = "__CUDA_ARCH__" in rest and "<" not in rest
            is_met = is_of_card or rest == "1" or (word == "ifndef" and rest in guards)
            conditions.append(0 if is_met else match.start() + 1)
        elif conditions and word == "endif":
            conditions.pop()
        elif conditions:
            conditions[-1] = match.start() + 1 if conditions[-1] > 0 else _OTHER


def _functions(tokens: Sequence[_Token]) -> Iterator[_Function]:
    """Yield the functions that have a body."""
    texts = [token.text for token in tokens]
    opened: list[int] = []
    opens: dict[int, int] = {}
    """The place of the bracket that each closing one belongs to."""
    scopes: list[str] = []
    """The kind of each open brace: function, if, or empty."""
    function: _Function | None = None
    for at, (text, conditions) in enumerate(tokens):
        if text == "(":
            opened.append(at)
        elif text == ")" and opened:
            opens[at] = opened.pop()
        elif text == "{":
            kind, head = _brace(texts, at, opens)
            if kind == "function" and function is None:
                function = _Function(head, conditions)
                _note_grids(function, texts[opens[_end_of_parameters(texts, at)] : at])
            elif kind == "function":
                kind = ""
            scopes.append(kind)
        elif text == "}" and scopes:
            if scopes.pop() == "function" and function is not None:
                yield function
                function = None
        elif function is not None:
            is_plain = "if" not in scopes and conditions == function.conditions
            _note(function, texts, at, opens, is_plain=is_plain)


def _end_of_parameters(texts: Sequence[str], brace: int) -> int:
    """Return the place of the last token before a brace that is no word such as const."""
    at = brace - 1
    while at > 0 and texts[at] in _AFTER_PARAMETERS:
        at -= 1
    return at


def _brace(texts: Sequence[str], at: int, opens: Mapping[int, int]) -> tuple[str, str]:
    """Return the kind of an opening brace, and the function's name."""
    end = _end_of_parameters(texts, at)
    if texts[end] == "else":
        return "if", ""
    begin = opens.get(end, 0)
    head = texts[begin - 1] if begin else ""
    if head in ("if", "switch") or texts[max(begin - 2, 0) : begin] == ["if", "constexpr"]:
        return "if", ""
    is_name = _WORD.fullmatch(head) and head not in _STATEMENTS
    return ("function", head) if is_name else ("", "")


def _is_under_condition(texts: Sequence[str], at: int, opens: Mapping[int, int]) -> bool:
    """Return whether the statement of a call runs under an `if` or an `else` without a brace, `?` or `&&`."""
    while at > 0 and (before := texts[at - 1]) not in (";", "{", "}"):
        if before in ("else", "?", ":", "&", "|"):
            return True
        at = opens.get(at - 1, at - 1) if before == ")" else at - 1
        if before == ")" and "if" in texts[max(at - 2, 0) : at]:
            return True
    return False


def _note_grids(function: _Function, texts: Sequence[str]) -> None:
    """Note the variables that the tokens declare: `grid_group g`, `grid_group &g`, `g = cg::this_grid`."""
    plain = [text for text in texts if text not in {*_NAMESPACE, "const", "&", "*"}]
    for before, after in pairwise(plain):
        if before == "grid_group" and _WORD.fullmatch(after):
            function.grids.add(after)
    if len(plain) > 2 and plain[-1] == "this_grid" and plain[-2] in ("=", "{"):
        function.grids.add(plain[-3])


def _note(
    function: _Function, texts: Sequence[str], at: int, opens: Mapping[int, int], *, is_plain: bool
) -> None:
    """Note a grid, a call of a method of one, of cg::sync, or of another function."""
    _note_grids(function, texts[max(at - 5, 0) : at + 1])
    if not _WORD.fullmatch(texts[at]) or texts[at + 1 : at + 2] not in (["("], ["<"]):
        return
    name, receiver = texts[at], texts[at - 2] if texts[at - 1] in (".", "->") else ""
    is_of_grid = receiver in function.grids or texts[max(at - 4, 0) : at - 1] == ["this_grid", "(", ")"]
    first = next((text for text in texts[at + 2 : at + 5] if text not in _NAMESPACE), "")
    if name == "is_valid" and is_of_grid:
        function.asks = True
    elif not is_plain or _is_under_condition(texts, at, opens):
        return
    elif receiver:
        function.waits |= is_of_grid and name in ("sync", "barrier_wait")
    elif name == "sync":
        function.waits |= first in {*function.grids, "this_grid"}
    elif name in ("cudaCGSynchronize", "cudaCGSynchronizeGrid"):
        function.waits = True
    else:
        function.calls.add(name)
