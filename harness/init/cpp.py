"""Reads CUDA kernels and their launches from C++ without a compiler.

It understands comments, strings, templates and attributes. Macros are not expanded, and of conditions only
`#if 0` is evaluated: a kernel under another condition is marked.

tree-sitter's grammar of CUDA (0.21) was tried on 716 files of nine repositories. It loses 148 of 1,620
launches after macros without a semicolon. If these were removed first, it would save 36 lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

_TOKEN = re.compile(
    r"""(?P<skip>(?:[ \t\r\f\v]+|//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/|\\\r?\n)+)
    |(?P<line>\n)
    |(?P<text>(?:u8|[uUL])?R"(?P<mark>[^ ()\\\t\n]{0,16})\(.*?\)(?P=mark)"
        |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    |(?P<hash>\#)
    |(?P<sign><<<|<<=|>>=|::|->|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=|<<|.)""",
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"[ \t]*(\w*)((?:[^\n\\/]|\\\r?\n|\\.|/\*.*?\*/|/(?![/*]))*)", re.DOTALL)
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {*_PAIRS.values()}
_CPP_CASTS = {"static_cast", "reinterpret_cast", "const_cast"}
_QUALIFIERS = {
    *("const", "volatile", "constexpr", "static", "register", "struct", "class", "enum", "typename"),
    *("restrict", "__restrict__", "__restrict", "__grid_constant__", "inline"),
}
_CHANGES = {"+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "|=", "&=", "^=", "++", "--"}
"""Operators that make a name's value unknown."""


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    line: int
    kind: str


@dataclass(frozen=True, slots=True)
class FunctionParameter:
    """A parameter of a kernel. For example, `const float *A` is of type `float`, a pointer, and const."""

    type: str
    name: str
    pointer: bool = False
    const: bool = False
    problem: str = ""
    """Reason why no argument can be passed for it; empty if one can."""


@dataclass(frozen=True, slots=True)
class TemplateParameter:
    name: str
    is_type: bool
    default: str = ""
    is_pack: bool = False
    """True if it takes any number of arguments, `int... Ns`."""
    problem: str = ""
    """Reason why no value can be written for it; empty if one can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaKernel:
    """A definition of a `__global__` function."""

    name: str
    scope: str
    """Namespaces around it, `a::b`; empty for none."""
    line: int
    template: tuple[TemplateParameter, ...]
    parameters: tuple[FunctionParameter, ...]
    bounds: tuple[Token, ...]
    """First argument of __launch_bounds__; empty without one."""
    extern_c: bool
    condition: str
    """The `#if` around it; empty for none."""
    body: Sequence[Token] = field(repr=False)

    @property
    def qualified(self) -> str:
        return f"{self.scope}::{self.name}" if self.scope else self.name


Expression = tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class CppFunction:
    """A function that contains launches."""

    name: str
    template: tuple[TemplateParameter, ...]
    parameters: tuple[FunctionParameter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaLaunch:
    """A launch: ``name<template><<<grid, block, shared>>>(arguments)``.

    Without a grid it is an explicit instantiation, or a call of a host function,
    ``name<template>(arguments)``.
    """

    name: str
    line: int
    template: tuple[str, ...] = ()
    geometry: tuple[Expression, ...] = ()
    arguments: tuple[Expression, ...] = ()
    passed: tuple[FunctionParameter | None, ...] = ()
    """Type of each argument, by its cast or its declaration; None if unknown."""
    within: CppFunction | None = None
    """Function around it; None at the top of a file."""
    instance: str = ""
    """file:line of an instantiation or call of that function, if its template arguments come from there."""
    names: Mapping[str, Expression] = field(default_factory=dict, repr=False)
    """Values of names before the launch: a dim3 as `dim3(x, y)`, its members as `grid.x`."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The kernels, launches and names of one file."""

    kernels: tuple[CudaKernel, ...]
    launches: tuple[CudaLaunch, ...]
    names: Mapping[str, Expression]
    """Macros without parameters, constants and type aliases at the top of the file."""


def text_of(tokens: Sequence[Token]) -> str:
    """Return tokens as a line of source."""
    words = "\0".join(token.text for token in tokens)
    words = re.sub(r"(?<=\w)\0(?=\w)", " ", words)
    return re.sub(r",\0", ", ", words).replace("\0", "")


def text_at(found: Sequence[Token], at: int) -> str:
    """Return the text of a token; empty outside of the range."""
    return found[at].text if 0 <= at < len(found) else ""


def closing(found: Sequence[Token], at: int) -> int:
    """Return the position of the bracket that closes the one at `at`; the end without one."""
    depth = 0
    for number in range(at, len(found)):
        depth += (found[number].text in _PAIRS) - (found[number].text in _CLOSING)
        if depth == 0:
            return number
    return len(found)


def read(text: str) -> SourceFile:
    """Return the contents of a file. It raises nothing: text that is not understood is left out."""
    return _CppReader(text).read()


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a file. A preprocessor line is one token of kind `hash`."""
    line, at = 1, 0
    start_of_line = True
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None, "any character is a sign"
        kind, value, first = found.lastgroup or "", found.group(), line
        at = found.end()
        if kind == "hash" and start_of_line and (directive := _DIRECTIVE.match(text, at)):
            at = directive.end()
            value = "".join(directive.groups())
            yield Token(f"{directive[1]} {directive[2].strip()}", first, "hash")
        elif kind not in {"skip", "line"}:
            yield Token(value, first, kind)
            start_of_line = False
        if kind == "line":
            start_of_line = True
        line += value.count("\n")


def split(found: Sequence[Token], separator: str = ",") -> list[tuple[Token, ...]]:
    """Return tokens split at each separator outside of brackets; none for no tokens."""
    parts: list[list[Token]] = [[]]
    depth = angles = 0
    for number, token in enumerate(found):
        if token.text in _PAIRS:
            depth += 1
        elif token.text in _CLOSING:
            depth -= 1
        elif token.text == "<" and number and found[number - 1].kind == "word" and _closes(found, number):
            angles += 1
        elif token.text == ">" and angles:
            angles -= 1
        if token.text == separator and depth == 0 and angles == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts] if len(found) else []


def _closes(found: Sequence[Token], at: int) -> bool:
    """Return whether a `<` begins template arguments: its `>` follows in the same statement."""
    depth = 0
    for token in found[at:]:
        if token.text in {";", "{", "&&", "||"}:
            return False
        depth += {"<": 1, ">": -1}.get(token.text, 0)
        if depth == 0:
            return True
    return False


class _CppReader:
    """Reads the tokens of a file once, and keeps track of open scopes."""

    def __init__(self, text: str) -> None:
        self.tokens = _without_attributes(_without_other_openings(_without_zero(tokens(text))))
        self.at = 0
        self.kernels: list[CudaKernel] = []
        self.launches: list[CudaLaunch] = []
        self.scopes: list[tuple[str, dict[str, Expression], CppFunction | None]] = [("", {}, None)]
        """Open scopes, each with its namespace (empty for a block), its names, and the function around it."""
        self.conditions: list[str] = []
        self.begin = 0
        """Start of the current statement."""
        self.of_namespaces: set[str] = set()
        """Names that a scope has from a closed namespace in it."""

    def read(self) -> SourceFile:
        parts = {"__global__": self._global, "<<<": self._launch, "(": self._call}
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.kind == "hash":
                self._directive(token.text)
                self.begin = self.at + 1
            elif token.text == "{" and self._is_in_dim3():
                self.at = closing(self.tokens, self.at)
            elif token.text == "{":
                function = self.scopes[-1][2] or self._function(self.tokens[self.begin : self.at])
                self.scopes.append((self._namespace(), {}, function))
                self.begin = self.at + 1
            elif token.text == "}":
                if len(self.scopes) > 1:
                    self._close(*self.scopes.pop())
                self.begin = self.at + 1
            elif token.text == ";":
                self._statement(self.tokens[self.begin : self.at])
                self.begin = self.at + 1
            elif token.text in parts:
                parts[token.text]()
            self.at += 1
        top = self.scopes[0][1]
        return SourceFile(tuple(self.kernels), tuple(self.launches), top)

    def _close(self, scope: str, names: Mapping[str, Expression], function: CppFunction | None) -> None:
        """Leave a scope. A namespace's names stay known after it, except those that two namespaces share."""
        outer = self.scopes[-1][1]
        for name, value in names.items() if scope and function is None else ():
            if name not in outer:
                outer[name] = value
                self.of_namespaces.add(name)
            elif name in self.of_namespaces and text_of(outer[name]) != text_of(value):
                outer[name] = ()

    def _directive(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if word in {"if", "ifdef", "ifndef"}:
            guard = word == "ifndef" and not self.kernels and not self.conditions
            self.conditions.append("" if guard else " ".join(f"#{text}".split()))
        elif word in {"else", "elif"} and self.conditions:
            self.conditions[-1] = f"#{word} of {self.conditions[-1]}"
        elif word == "endif" and self.conditions:
            self.conditions.pop()
        elif word == "define" and (found := re.match(r"([A-Za-z_]\w*)(?:[ \t]+(.+))?", rest, re.DOTALL)):
            # A macro is known in the whole file: it may be used in any scope. A macro with parameters or
            # without text has no value.
            self.scopes[0][1].setdefault(found[1], tuple(tokens(found[2] or "")))

    def _namespace(self) -> str:
        words = [token.text for token in self.tokens[self.begin : self.at]]
        if "namespace" in words:
            return "".join(words[words.index("namespace") + 1 :])
        return 'extern "C"' if words == ["extern", '"C"'] else ""

    def _statement(self, found: Sequence[Token]) -> None:
        """Store the values of names: `int BM = 64`, `dim3 grid(a, b)`, `grid.x = a`, `using t = half`."""
        words = [token.text for token in found]
        names = self.scopes[-1][1]
        if len(words) > 3 and words[0] == "using" and words[2] == "=":
            names[words[1]] = tuple(found[3:])
        elif len(words) > 2 and words[0] == "typedef" and found[-1].kind == "word":
            names[words[-1]] = tuple(found[1:-1])
        elif "dim3" in words[:3] and "=" not in words[: words.index("dim3")]:
            self._dim3s(found[words.index("dim3") + 1 :])
        elif "template" in words[:2] and "<" not in words[1:2] and "(" in words:  # explicit instantiation
            opens = self.begin + words.index("(")
            called, template = self._template_before(opens - 1)
            types = split(self.tokens[opens + 1 : closing(self.tokens, opens)])
            self._add(self.tokens[called], template, types=types)
        elif (at := self._instance(found)) and (template := self._template_before(self.at - 1)[1]):
            self._add(found[at], template)
            names[words[words.index("=") - 1]] = tuple(found[at:])
        elif len(words) > 1 and _CHANGES.intersection(words[:2]):
            changed = words[1] if words[0] in _CHANGES else words[0]
            of_blocks = [names for _, names, _ in self.scopes[1:]]
            next((each for each in reversed(of_blocks) if changed in each), {})[changed] = ()
        elif "=" in words[1:] and all(
            each.kind == "word" or each.text in {"::", "."} for each in found[: words.index("=")]
        ):
            at = words.index("=")
            name = "".join(words[at - 3 : at]) if at >= 3 and words[at - 2] == "." else words[at - 1]
            for number, part in enumerate(split(found[at - 1 :])):  # int a = 1, b = 2;
                if len(part) > 2 and part[1].text == "=":
                    names[name if number == 0 else part[0].text] = part[2:]

    @staticmethod
    def _instance(found: Sequence[Token]) -> int:
        """Return the position of the name in `auto kernel = name<BM, BN>`, or 0."""
        words = [token.text for token in found]
        if "=" not in words or words[-1] != ">":
            return 0
        at = words.index("=") + 1
        return at if words[at + 1 : at + 2] == ["<"] else 0

    def _is_in_dim3(self) -> bool:
        """Return whether the next brace holds a dim3's numbers, `dim3 grid{a, b}`, and starts no scope."""
        words = [token.text for token in self.tokens[self.begin : self.at]]
        return "dim3" in words[:4] and words[-1] != ")"

    def _dim3s(self, found: Sequence[Token]) -> None:
        for part in split([token for token in found if token.text not in _QUALIFIERS]):
            if len(part) > 2 and part[1].text in {"(", "{"}:
                self.scopes[-1][1][part[0].text] = (Token("dim3", part[0].line, "word"), *part[1:])
            elif len(part) > 2 and part[1].text == "=":
                of_braces = (Token("dim3", part[0].line, "word"),) if part[2].text == "{" else ()
                self.scopes[-1][1][part[0].text] = (*of_braces, *part[2:])

    def _known(self) -> dict[str, Expression]:
        return {name: value for _, names, _ in self.scopes for name, value in names.items()}

    @staticmethod
    def _function(head: Sequence[Token]) -> CppFunction | None:
        """Return the function whose body follows `head`; None for a namespace, a class or a block."""
        template, begin = _template_in(head)
        opens = next((at for at in range(begin, len(head)) if head[at].text == "("), 0)
        if opens <= begin or head[opens - 1].kind != "word":
            return None
        parameters = tuple(map(_parameter, split(head[opens + 1 : closing(head, opens)])))
        return CppFunction(head[opens - 1].text, template, parameters)

    def _passed(self, argument: Expression) -> FunctionParameter | None:
        """Return the type of `(half *)x`, of `reinterpret_cast<half *>(x)`, or of a function's parameter."""
        function = self.scopes[-1][2]
        if len(argument) == 1 and function:
            return next((each for each in function.parameters if each.name == argument[0].text), None)
        if text_at(argument, 0) == "(" and closing(argument, 0) < len(argument) - 1:
            return _parameter(argument[1 : closing(argument, 0)])
        if text_at(argument, 0) in _CPP_CASTS and ">" in (words := [token.text for token in argument]):
            return _parameter(argument[2 : words.index(">")])
        return None

    def _call(self) -> None:
        """Store the call of a template function, `name<template>(arguments)`, inside another function."""
        if self.scopes[-1][2] is None or text_at(self.tokens, self.at - 1) != ">":
            return
        name, template = self._template_before(self.at - 1)
        called = self.tokens[name]
        if called.kind == "word" and called.text not in _CPP_CASTS:
            arguments = split(self.tokens[self.at + 1 : closing(self.tokens, self.at)])
            self._add(called, template, arguments=arguments)

    def _add(
        self,
        name: Token,
        template: Sequence[str],
        geometry: Sequence[Expression] = (),
        arguments: Sequence[Expression] = (),
        types: Sequence[Expression] = (),
    ) -> None:
        """Store a launch, or an instantiation or call without a grid; for an instantiation with its argument
        types.
        """
        passed = map(_parameter, types) if types else map(self._passed, arguments)
        self.launches.append(
            CudaLaunch(
                name=name.text,
                line=name.line,
                template=tuple(template),
                geometry=tuple(geometry),
                arguments=tuple(arguments),
                passed=tuple(passed),
                within=self.scopes[-1][2],
                names=self._known(),
            )
        )

    def _global(self) -> None:
        head = [token for token in self.tokens[self.begin : self.at] if token.kind != "hash"]
        bounds: Expression = ()
        for number, token in enumerate(head):
            if token.text == "__launch_bounds__":
                at = self.begin + self.tokens[self.begin : self.at].index(token)
                bounds = (split(self.tokens[at + 2 : closing(self.tokens, at + 1)]) or [()])[0]
                head = head[:number]
                break
        at = self.at + 1
        while at < len(self.tokens) and self.tokens[at].text not in {";", "{", "}"}:
            if self.tokens[at].text != "(":
                at += 1
                continue
            close = closing(self.tokens, at)
            inside, name = self.tokens[at + 1 : close], self.tokens[at - 1]
            after = text_at(self.tokens, close + 1)
            if name.text in {"__launch_bounds__", "LAUNCH_BOUNDS"}:
                bounds = (split(inside) or [()])[0]
            elif after == "{" and name.kind == "word":
                self._kernel(head, name, inside, bounds, close + 1)
                return
            at = close + 1
        self.at = at - 1

    def _kernel(
        self, head: Sequence[Token], name: Token, inside: Sequence[Token], bounds: Expression, opens: int
    ) -> None:
        close = closing(self.tokens, opens)
        if close == len(self.tokens):  # the file ends first
            return
        words = [token.text for token in head]
        scope = [part for part, _, _ in self.scopes if part and part != 'extern "C"']
        parameters, template = tuple(map(_parameter, split(inside))), _template_in(head)[0]
        if any(token.kind == "hash" for token in inside):
            parameters = (
                FunctionParameter("", "", problem="its parameter list contains a preprocessor condition"),
            )
        elif len(parameters) == 1 and parameters[0].type == "void" and not parameters[0].pointer:
            parameters = ()
        self.kernels.append(
            CudaKernel(
                name=name.text,
                scope="::".join(scope),
                line=name.line,
                template=template,
                parameters=parameters,
                bounds=bounds,
                extern_c='"C"' in words or any(part == 'extern "C"' for part, _, _ in self.scopes),
                condition=next(filter(None, reversed(self.conditions)), ""),
                body=[token for token in self.tokens[opens + 1 : close] if token.kind != "hash"],
            )
        )
        self.scopes.append(("", {}, CppFunction(name.text, template, parameters)))  # kernels launch kernels
        self.at, self.begin = opens, opens + 1

    def _template_before(self, at: int) -> tuple[int, tuple[str, ...]]:
        """Return the position of a name whose template arguments end at `at`, and these; `at` without any."""
        if self.tokens[at].text != ">":
            return at, ()
        depth, begin = 0, at
        while begin > 0:
            depth += {">": 1, "<": -1}.get(self.tokens[begin].text, 0)
            if depth == 0:
                break
            if self.tokens[begin].text in {";", "{", "}"}:  # the > compares two values
                return at, ()
            begin -= 1
        return begin - 1, tuple(text_of(part) for part in split(self.tokens[begin + 1 : at]))

    def _launch(self) -> None:
        name, template = self._template_before(self.at - 1)
        end = self.at + 1
        while [each.text for each in self.tokens[end : end + 3]] != [">", ">", ">"]:
            if text_at(self.tokens, end) in {"", ";"}:
                return
            end = (closing(self.tokens, end) if self.tokens[end].text in _PAIRS else end) + 1
        opens = end + 3
        if text_at(self.tokens, opens) != "(" or self.tokens[name].kind != "word":
            return
        close = closing(self.tokens, opens)
        called = self.tokens[name]
        instance = self._known().get(called.text, ())
        if not template and len(instance) > 2 and instance[1].text == "<" and instance[-1].text == ">":
            called = replace(instance[0], line=called.line)
            template = tuple(map(text_of, split(instance[2:-1])))
        geometry, arguments = self.tokens[self.at + 1 : end], self.tokens[opens + 1 : close]
        self._add(called, template, split(geometry), split(arguments))
        self.at = close


def _without_zero(found: Iterator[Token]) -> Iterator[Token]:
    """Yield the tokens that `#if 0` does not remove."""
    depth = 0
    for token in found:
        word = token.text.split(" ")[0] if token.kind == "hash" else ""
        if depth == 0 and token.kind == "hash" and token.text.split() == ["if", "0"]:
            depth = 1
        elif depth == 0:
            yield token
        elif word in {"if", "ifdef", "ifndef"}:
            depth += 1
        elif word == "endif" or (word in {"else", "elif"} and depth == 1):
            depth -= 1
            if word != "endif":
                yield Token("if 1", token.line, "hash")


def _without_other_openings(found: Iterable[Token]) -> list[Token]:
    """Return the tokens without branches of an `#if` that repeat the first branch's unbalanced brackets.

    The file closes these brackets only once.
    """
    kept: list[Token] = []
    depth = 0
    branches: list[tuple[int, int, int | None]] = []
    """For each open `#if`: the branch's start and depth, and the open brackets of its first branch."""
    for token in found:
        word = token.text.split(" ")[0] if token.kind == "hash" else ""
        ends = bool(branches) and word in {"else", "elif", "endif"}
        if ends:
            begin, before, of_first = branches.pop()
            opened = depth - before
            if opened == of_first != 0:
                del kept[begin:]
                depth = before
        kept.append(token)
        depth += (token.text in _PAIRS) - (token.text in _CLOSING)
        if word in {"if", "ifdef", "ifndef"}:
            branches.append((len(kept), depth, None))
        elif ends and word != "endif":
            branches.append((len(kept), depth, opened if of_first is None else of_first))
    return kept


def _without_attributes(found: Sequence[Token]) -> list[Token]:
    """Return the tokens without attributes such as `[[nodiscard]]`."""
    kept, at = [], 0
    while at < len(found):
        if text_at(found, at) == text_at(found, at + 1) == "[":
            at = closing(found, at)
        else:
            kept.append(found[at])
        at += 1
    return kept


def _template_in(head: Sequence[Token]) -> tuple[tuple[TemplateParameter, ...], int]:
    """Return the template parameters at the start of a declaration, and their end; 0 for none."""
    words = [token.text for token in head]
    at = begin = words.index("template") + 1 if "template" in words else len(words)
    depth = 0
    while at < len(words):
        at = closing(head, at) if words[at] in _PAIRS else at
        depth += {"<": 1, ">": -1}.get(text_at(head, at), 0)
        if depth == 0:
            return tuple(map(_template_parameter, split(head[begin + 1 : at]))), at + 1
        at += 1
    return (), 0


def _template_parameter(found: Sequence[Token]) -> TemplateParameter:
    parts = split(found, "=")
    head = parts[0] if parts else ()
    texts = [token.text for token in head]
    words = [token.text for token in head if token.kind == "word"]
    is_type = texts[:1] in (["typename"], ["class"]) and "::" not in texts
    default = text_of(parts[1]) if len(parts) > 1 else ""
    name, problem = words[-1] if words else "", ""
    if "(" in texts:  # float (*OP)(float, int)
        inner = texts[texts.index("(") : texts.index(")") if ")" in texts else None]
        name, problem = next((text for text in reversed(inner) if text in words), ""), "a function"
    elif texts[:1] == ["template"]:
        problem = "a template"
    elif not is_type and {"*", "&"} & {*texts}:
        problem = "an address"
    elif not is_type and len(words) < 2:
        problem = "a number without a name"
    return TemplateParameter(name, is_type, default, "." in texts, problem)


def _parameter(found: Sequence[Token]) -> FunctionParameter:
    parts = split([token for token in found if token.kind != "hash"], "=")
    plain = list(parts[0]) if parts else []
    texts = [token.text for token in plain]
    if not plain or plain[-1].text == ")" or "(" in texts or "&" in texts or "." in texts:
        text = text_of(plain)
        return FunctionParameter(text, "", problem=f"no name and type are recognizable in '{text}'")
    array = "[" in texts
    plain = plain[: texts.index("[")] if array else plain
    told = [token for token in plain if token.text not in _QUALIFIERS]
    words = [token.text for token in told]
    stars = words.count("*")
    name = words[-1] if len(words) > 1 and told[-1].kind == "word" else ""
    kind = text_of([token for token in (told[:-1] if name else told) if token.text != "*"])
    problem = "" if name else f"no name and type are recognizable in '{text_of(found)}'"
    if stars + array > 1:
        problem = "it is a pointer to pointers"
    first_star = texts.index("*") if "*" in texts else len(texts)
    return FunctionParameter(kind, name, stars + array > 0, "const" in texts[:first_star], problem)
