"""Reads one kernel: the types of its parameters, its template arguments, and the file to compile."""

from __future__ import annotations

import ast
import contextlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice, pairwise

from harness.init.bodies import Use, translate, uses
from harness.init.cpp import (
    CudaKernel,
    CudaLaunch,
    Expression,
    FunctionParameter,
    TemplateParameter,
    text_of,
    tokens,
)
from harness.init.elementwise import Elementwise, elementwise
from harness.init.guessed_suite import NotReadError
from harness.init.repository import Repository
from harness.init.structures import Member, Structure, structure_in
from harness.suite.grid_sync import grid_waiters, names_grid

DTYPES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "int32_t": "int32",
    "bool": "bool",
    **dict.fromkeys(("half", "__half", "nv_half", "at::Half", "c10::Half", "cutlass::half_t"), "float16"),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16", "at::BFloat16", "c10::BFloat16"), "bfloat16"),
    **dict.fromkeys(("unsigned", "unsigned int", "uint", "uint32_t"), "uint32"),
    **dict.fromkeys(("char", "signed char", "int8_t"), "int8"),
    **dict.fromkeys(("unsigned char", "uchar", "uint8_t"), "uint8"),
    **dict.fromkeys(("short", "int16_t"), "int16"),
    **dict.fromkeys(("unsigned short", "ushort", "uint16_t"), "uint16"),
    **dict.fromkeys(("long", "long int", "long long", "int64_t", "ptrdiff_t"), "int64"),
    **dict.fromkeys(("unsigned long", "ulong", "unsigned long long", "size_t", "uint64_t"), "uint64"),
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
}
"""Names of element types in NumPy or ml_dtypes, by C++ name."""
_OF_HEADERS = {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}
"""Types that need a header."""
_MACRO = re.compile(
    r"(?!(?:NULL|NAN|INFINITY|EOF|CHAR_BIT|SIZE_MAX|RAND_MAX)$|(?:M|FLT|DBL|INT|UINT|LONG|INT32|INT64|CUDART|CU)_)"
    r"[A-Z][A-Z0-9_]{3,}"
)
_OPEN_TYPES = {"T", "scalar_t", "Type", "DType", "data_t"}
"""Names of types that are usually template parameters, in a macro or class around a launch."""
_OF_INTEGERS = re.compile(r"(?i)ind(ex|ices)|idx|offset")
"""Names of integer template types."""
_MOST_CALLS = 3
"""Longest chain of calling functions that is followed from a launch."""
_MOST_INSTANCES = 16
"""Most calls and instantiations of a function that are examined."""
_VECTOR = re.compile(r"(u?(?:char|short|int|long|longlong)|float|double|half|__half|__nv_bfloat16)([234])")


@dataclass
class FoundKernel:
    """A kernel with the facts from its own file and body."""

    kernel: CudaKernel
    file: str
    launch: CudaLaunch | None
    launched_at: str
    """file:line of its launch; empty for none."""
    types: dict[str, str]
    """Element type by parameter name, in NumPy's terms."""
    template: dict[str, str]
    """Template arguments by parameter, in C++."""
    source: str
    include: tuple[str, ...]
    use: dict[str, Use]
    structures: tuple[Structure, ...] = ()
    """Parameters that are structures of plain numbers."""
    notes: dict[str, str] = field(default_factory=dict)
    elementwise: Elementwise | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.kernel.parameters)

    @property
    def pointers(self) -> list[str]:
        return [parameter.name for parameter in self.kernel.parameters if parameter.pointer]

    @property
    def integers(self) -> set[str]:
        """Return the parameters that may be lengths: integers, except of a template's element type."""
        lengths = {"int32", "uint32", "int64", "uint64"}
        parameters = self.kernel.parameters
        elements = {each.type for each in parameters if each.pointer} & self.template.keys()
        plain = {each.name for each in parameters if not each.pointer and each.type not in elements}
        return {name for name in plain if self.types[name] in lengths}


class Reading:
    """Reads one kernel with the facts in its own file."""

    def __init__(self, repository: Repository, file: str, kernel: CudaKernel) -> None:
        self.repository, self.file, self.kernel = repository, file, kernel
        self.source = file
        self.notes: dict[str, str] = {}
        self.structures: list[Structure] = []

    def found(self) -> FoundKernel:
        """Return the kernel. Raises NotReadError."""
        self._refuse_what_is_no_number()
        parameters = self.kernel.parameters
        launched = self.repository.launches_of(self.kernel.name, self.file)
        fitting = [each for each in launched if len(each[1].arguments) <= len(parameters)]
        mine = [
            (file, each)
            for file, launch in fitting
            for each in islice(self._instances(file, launch), _MOST_INSTANCES)
        ]
        # Use the launch that determines most template arguments.
        mine.sort(key=lambda each: (list(self._said(each[1]).values()).count(""), not each[1].geometry))
        where, launch = next(((file, each) for file, each in mine if each.geometry), ("", None))
        template = self._template(mine[0][1] if mine else None)
        types = {parameter.name: self._dtype(parameter, template) for parameter in parameters}
        if not any(parameter.pointer and not parameter.const for parameter in parameters):
            raise NotReadError("it writes no array: no parameter is a pointer to non-const")
        if untold := [name for name, text in template.items() if not text]:
            raise NotReadError(
                f"no launch was found that says a number for its template parameter {untold[0]}: "
                "write instantiate= yourself"
            )
        of_headers = [name for name, dtype in types.items() if dtype in _OF_HEADERS]
        if of_headers and not self.repository.has_library(self.source):
            self._compile(f"the type of {of_headers[0]}", self.repository.has_library)
        if headers := self.repository.torch_headers(self.source):
            raise NotReadError(
                f"its file includes {headers[0]}, and kernels are compiled without PyTorch's headers: "
                "measure the operator that launches it, as a TorchFunction"
            )
        beside = [each.qualified for each in self.repository.source(self.file).kernels]
        if beside.count(self.kernel.qualified) > 1:
            raise NotReadError("its file defines more than one kernel of this name")
        source, include = self._to_compile()
        if odd := self.repository.undecodable(source):
            raise NotReadError(
                f"{source} is not in UTF-8, as sources of suites are ({odd}): save it in UTF-8"
            )
        if self.kernel.condition:
            self.notes[""] = f"it is inside {self.kernel.condition}, which was not evaluated"
        return FoundKernel(
            self.kernel, self.file, launch, f"{where}:{launch.line}" if launch else "", types, template,
            source, include, uses(self.kernel), tuple(self.structures), self.notes, elementwise(self.kernel),
        )  # fmt: skip

    def _refuse_what_is_no_number(self) -> None:
        """Raise NotReadError for a signature, a file or a template for which a suite has no numbers."""
        if problem := next((each.problem for each in self.kernel.parameters if each.problem), ""):
            raise NotReadError(f"its signature cannot be guessed: {problem}")
        if hip := self.repository.hip_of(self.file):
            raise NotReadError(
                f"not proposed: HIP ({hip}), which nvcc does not compile. Measure its CUDA version"
            )
        own = self.repository.text(self.file)
        others = (text for text in self.repository.texts(self.file) if text is not own and names_grid(text))
        if self.kernel.name in grid_waiters("\n".join((*others, own))):
            raise NotReadError(
                "it waits for its whole grid, which takes a cooperative launch: write a suite with "
                "cooperative=True, and a grid that fits the card"
            )
        if unsayable := next((each for each in self.kernel.template if each.problem), None):
            raise NotReadError(
                f"its template parameter {unsayable.name or 'without a name'} is {unsayable.problem}, for "
                "which no value can be guessed: write a suite with instantiate= yourself"
            )
        plain = {each.name for each in self.kernel.parameters if not each.pointer}
        of_template = {each.name for each in self.kernel.template}
        objects = {each.name for each in self.kernel.parameters if each.type in of_template}
        # `f` in `f(x[i])`, and in `f.template apply<4>(x[i])`. A structure has members too: see `_dtype`.
        used = (
            one.text
            for one, after in pairwise(self.kernel.body)
            if after.text == "(" or (after.text in {".", "->"} and one.text in objects)
        )
        if called := next((name for name in used if name in plain), ""):
            raise NotReadError(
                f"it calls its parameter {called} as a function, and no number can be called: write a kernel "
                "that names the function"
            )

    def _to_compile(self) -> tuple[str, tuple[str, ...]]:
        """Return the file to compile, and the folders for its includes. Missing parts become a note."""
        undefined = self._undefined()
        if undefined and self._compile_includer(undefined):
            undefined = self._undefined()
        include, missing = self.repository.includes_of(self.source)
        if missing:
            self.notes["source"] = (
                f"it includes {', '.join(missing)}, which the repository does not have: a library's, "
                "or a file that its build makes. Write it, or name its folder in include"
            )
        if undefined:
            what = "no file that it includes defines them. Write their values"
            self.notes["macros"] = f"{', '.join(undefined)}: {what}"
        return self.source, include

    def _compile_includer(self, words: Sequence[str]) -> bool:
        """Compile a file that includes this one and defines one of these words. Return whether
        there is one.
        """
        return any(self._compile(word, partial(self._means, word)) for word in words)

    def _compile(self, word: str, knows: Callable[[str], bool]) -> bool:
        """Compile a file that includes this one and defines a word. Return whether there is one."""
        other = self.repository.including(self.source, knows)
        if other:
            self.notes["source"] = f"it is not {self.file} alone: {word} is defined before it is included"
            self.source = other
        return bool(other)

    def _undefined(self) -> list[str]:
        """Return undefined names in capitals that the file's kernels use: macros from the build."""
        words: set[str] = set()
        for kernel in self.repository.source(self.file).kernels:
            own = {p.name for p in kernel.parameters} | {p.name for p in kernel.template}
            text = (*kernel.body, *kernel.bounds)
            # no macro contains these
            own |= {name.text for sign, name in pairwise(text) if sign.text == "::"}
            words |= {token.text for token in text if token.kind == "word"} - own
        return sorted(
            word
            for word in words
            if _MACRO.fullmatch(word)
            and not (self._means(word, self.source) or self.repository.declares(self.source, word))
        )

    def _means(self, word: str, file: str) -> bool:
        return self.repository.meaning(file, word) is not None

    def _instances(self, file: str, launch: CudaLaunch, depth: int = 0) -> Iterator[CudaLaunch]:
        """Yield a launch with the template arguments of each instantiation and call of the function around
        it.

        Finally yield the launch unchanged.
        """
        function = launch.within
        if function and function.template and depth < _MOST_CALLS:
            for where, call in self.repository.launches_of(function.name, file)[:_MOST_INSTANCES]:
                for outer in self._instances(where, call, depth + 1):
                    texts = self._arguments(function.template, function.parameters, outer)
                    names = {name: tuple(tokens(text)) for name, text in texts.items() if _is_known(text)}
                    at = outer.instance or f"{where}:{call.line}"
                    if names:
                        yield replace(launch, names={**launch.names, **names}, instance=at)
        yield launch

    def _arguments(
        self,
        template: Sequence[TemplateParameter],
        parameters: Sequence[FunctionParameter],
        launch: CudaLaunch | None,
    ) -> dict[str, str]:
        """Return template arguments from a launch or its types, or the defaults."""
        given = launch.template if launch else ()
        given = given[: next((at for at, each in enumerate(template) if each.is_pack), None)]
        deduced = {
            parameter.type: passed.type
            for parameter, passed in zip(parameters, launch.passed if launch else (), strict=False)
            if passed and passed.pointer == parameter.pointer
        }
        texts = (*given, *(deduced.get(each.name, each.default) for each in template[len(given) :]))
        pairs = zip(template, texts, strict=False)
        return {each.name: self._argument(each, text, launch) for each, text in pairs}

    def _said(self, launch: CudaLaunch | None) -> dict[str, str]:
        """Return the template arguments in a launch."""
        return self._arguments(self.kernel.template, self.kernel.parameters, launch)

    def _template(self, launch: CudaLaunch | None) -> dict[str, str]:
        """Return the kernel's template arguments; empty for an unknown number."""
        defaults = self._said(None)
        found = {name: text or defaults[name] for name, text in self._said(launch).items()}
        if found and launch and launch.instance:
            self.notes["instantiate"] = f"as instantiated at {launch.instance}"
        parameters = self.kernel.template
        untold = [each.name for each in parameters if each.is_type and not found[each.name]]
        guessed = {name: "int" if _OF_INTEGERS.search(name) else "float" for name in untold}
        if guessed:
            told = ", ".join(f"{name} = {text}" for name, text in guessed.items())
            self.notes["instantiate"] = f"{told} is a guess: no launch has a type"
        return found | guessed

    def _argument(self, parameter: TemplateParameter, text: str, launch: CudaLaunch | None) -> str:
        """Return the argument in a text; empty if it is neither a number nor a type."""
        names = launch.names if launch else {}
        if parameter.is_type:
            for _ in range(4):
                text = text_of(names[text]) if text in names and text not in DTYPES else text
            function = launch.within if launch else None
            around = {each.name for each in function.template} if function else set()
            return "" if text in {parameter.name, *around, *_OPEN_TYPES} else text
        value = integer(
            tuple(tokens(text)), lambda name: names.get(name) or self.repository.meaning(self.file, name)
        )
        return "" if value is None else str(value)

    def _dtype(self, parameter: FunctionParameter, template: Mapping[str, str]) -> str:
        """Return NumPy's name of a parameter's type. Raises NotReadError."""
        text = template.get(parameter.type, parameter.type)
        for _ in range(4):
            if _plain(text) in DTYPES:
                return DTYPES[_plain(text)]
            if vector := _VECTOR.fullmatch(text):
                raise NotReadError(
                    f"parameter {parameter.name} is of type {text}: {vector[2]} elements of {vector[1]} an "
                    "index, which an array's shape cannot say"
                )
            known = self.repository.meaning(self.source, text)
            if known is None and self._compile_includer([text]):
                known = self.repository.meaning(self.source, text)
            if known is None:
                break
            text = text_of([token for token in known if token.text not in {"const", "volatile", "struct"}])
        if not parameter.pointer and (members := self._members(text)):
            self.structures.append(Structure(parameter.name, text, members))
            return f"struct {text}"
        if parameter.type.startswith(("__local ", "local ")):
            raise NotReadError(
                f"the host decides the size of its __local parameter {parameter.name}: declare an array of a "
                "fixed size in the kernel"
            )
        by_setup = "Kernel(setup=...) makes such values on the host: docs/suites.md, 'A structure by value'"
        raise NotReadError(
            f"parameter {parameter.name} is of type {text}, which is no number and no array of numbers."
            f"{'' if parameter.pointer else f' {by_setup}'}"
        )

    def _members(self, name: str) -> tuple[Member, ...] | None:
        """Return the members of a structure of plain numbers; None for another type."""
        if not re.fullmatch(r"[\w:]+", name):
            return None
        last = name.rpartition("::")[2]
        texts = (text for text in self.repository.texts(self.source) if last in text)
        found = (structure_in(text, last, lambda word: DTYPES.get(_plain(word))) for text in texts)
        return next(filter(None, found), None)


def _plain(text: str) -> str:
    """Return the name of a type without its namespaces."""
    return re.sub(r"^(?:::)?(?:cuda::)?(?:std::)?", "", text)


def _is_known(text: str) -> bool:
    """Return whether a template argument is a number, or a number type."""
    return text.isdecimal() or _plain(text) in DTYPES or _VECTOR.fullmatch(text) is not None


def integer(expression: Expression, meaning: Callable[[str], Expression | None]) -> int | None:
    """Return the value of an expression of integers and of names with a `meaning`; None for other names."""

    @cache  # names that expand to sums of other names could be expanded forever
    def value_of(name: str, depth: int) -> str | None:
        if name in {"true", "false"}:
            return str(int(name == "true"))
        inner = meaning(name) if depth <= 6 else None
        value = value_at(inner, depth + 1) if inner else None
        return None if value is None else str(value)

    def value_at(expression: Expression, depth: int) -> int | None:
        text = translate(expression, lambda name: value_of(name, depth))
        return None if text is None else _value(ast.parse(text, mode="eval").body)

    return value_at(expression, 0)


_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: lambda one, by: one << min(by, 64),
    ast.RShift: operator.rshift,
}


def _value(node: ast.expr) -> int | None:
    """Return the value of an expression of integers below 2**63; None for another."""
    found = None
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        found = int(node.value)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        one, other = _value(node.left), _value(node.right)
        with contextlib.suppress(ArithmeticError, ValueError):
            found = None if one is None or other is None else _OPERATIONS[type(node.op)](one, other)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "ceil_div" and len(node.args) == 2:
        one, other = map(_value, node.args)
        found = -(-one // other) if one is not None and other else None
    return found if found is not None and abs(found) < 2**63 else None
