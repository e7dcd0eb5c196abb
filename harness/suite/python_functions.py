"""Functions in Python files: identified by their text, and imported from their commit when they run.

Parameters of a function are matched with the kernel's arguments.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import SuiteError
from harness.numbers import Value
from harness.records.types import Launch
from harness.suite.layout import Parameter


@dataclass(frozen=True)
class Binding:
    """The kernel's argument for each parameter of a function."""

    positional: tuple[str, ...]
    keywords: Mapping[str, str]
    returned: tuple[str, ...]
    """Outputs that are no parameters: the function returns them in this order."""


@dataclass(frozen=True)
class PythonCall:
    """A program that is a framework's function, before the framework is imported."""

    framework: str
    file: Path
    name: str
    parameters: tuple[Parameter, ...]
    """Arguments of the kernel, in its order."""
    outputs: tuple[str, ...]
    macros: Mapping[str, Value]
    root: Path
    """The suite's folder."""
    code_sha256: str
    """Hash of the whole suite, with Python files without comments, and of the function's parameters."""
    launch: Launch | None = None
    """Launch of a function that is itself a kernel; None without a grid."""
    cards: int = 1
    """Cards that the function spans."""
    written: tuple[str, ...] = ()
    """All outputs, with those that are inputs too."""

    def load(self) -> Callable[..., Any]:
        """Import the file and return its function. Raises SuiteError if the file lacks the function."""
        found = getattr(_module(self.file), self.name, None)
        if found is None:
            names = _names(ast.parse(self.file.read_bytes()))
            raise SuiteError(_nothing_named(self.name, self.file, names))
        return found  # type: ignore[no-any-return]

    def bind(self, function: Callable[..., Any], values: Collection[str] = ()) -> Binding:
        """Return the argument for each parameter: by the problem's names, else arrays in order. Raises
        SuiteError.

        A parameter may ask for axes, macros and `values` by name.
        """
        try:
            asked = inspect.signature(function).parameters
        except (TypeError, ValueError):
            raise SuiteError(
                f"{self._described} does not tell its parameters: write a def around it that names them."
            ) from None
        arrays = [parameter.name for parameter in self.parameters if parameter.layout]
        others = {parameter.name for parameter in self.parameters} - {*arrays} | {*self.macros, *values}
        wanted = self._wanted(asked, others, arrays)
        of_arrays = [name for name in wanted if name not in others]
        by_name = set(of_arrays) <= set(arrays)
        given = dict(zip(of_arrays, of_arrays if by_name else self._in_order(of_arrays, arrays), strict=True))
        returned = tuple(name for name in self.outputs if name not in given.values())
        if lacking := [name for name in returned if name not in arrays]:
            raise SuiteError(
                f"{self._described}: the kernel's args leave out the output {lacking[0]!r}; name it there."
            )
        if returned and self.cards > 1:
            raise SuiteError(
                f"{self._described} spans {self.cards} cards and returns {returned[0]}: let it take "
                f"{returned[0]} as a parameter, a list of tensors, and write there."
            )
        alone = [name for name in wanted if asked[name].kind is inspect.Parameter.POSITIONAL_ONLY]
        return Binding(
            tuple(given.get(name, name) for name in alone),
            {name: given.get(name, name) for name in wanted if name not in alone},
            returned,
        )

    def _wanted(
        self, asked: Mapping[str, inspect.Parameter], others: set[str], arrays: Sequence[str]
    ) -> list[str]:
        """Return the parameters that get an argument: those with known names, and those without a default."""
        found = []
        for name, parameter in asked.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                takes = f"{self._described} takes *{name}"
                raise SuiteError(f"{takes}: name the arrays that it takes, {', '.join(arrays)}.")
            optional = parameter.kind is parameter.VAR_KEYWORD or parameter.default is not parameter.empty
            if not optional or name in others or name in arrays:
                found.append(name)
        return found

    def _in_order(self, asked: Sequence[str], arrays: Sequence[str]) -> Sequence[str]:
        """Return the arrays for parameters with other names: all of them, or the inputs, in order."""
        takes = f"{self._described} takes {_listed(asked)}"
        inputs = [name for name in arrays if name not in self.outputs]
        given = next((names for names in (arrays, inputs) if len(names) == len(asked)), None)
        if given is None:
            raise SuiteError(
                f"{takes}; expected the arrays {_listed(arrays)}, or {_listed(inputs)} and a result. Name "
                "sizes and macros as suite.py does, and give whatever else it takes a default."
            )
        for name, array in zip(asked, given, strict=True):
            if name in arrays and name != array:
                raise SuiteError(
                    f"{takes}, of which {name!r} stands where the problem has {array!r}: name all arrays as "
                    "the problem does, or none."
                )
        return given

    @property
    def _described(self) -> str:
        return f"{self.name} of {self.file.name}"


def check_defined(file: Path, name: str, text: str) -> None:
    """Raise SuiteError if a Python file does not parse, or does not define this name at top level."""
    try:
        names = _names(ast.parse(text, str(file)))
    except SyntaxError as error:
        raise SuiteError(f"{file}:{error.lineno} is no Python: {error.msg}.") from None
    if names and name not in names:
        raise SuiteError(_nothing_named(name, file, names))


def _nothing_named(name: str, file: Path, names: Sequence[str]) -> str:
    has = ", ".join(names) if names else "nothing that the harness can name"
    return f"{file} has nothing named {name!r}; it has {has}. Check the function's name in suite.py."


def _names(tree: ast.Module) -> list[str]:
    """Return the names that a module defines, in order; empty if it imports *."""
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                return []
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                if node in tree.body or not isinstance(node, ast.ClassDef):
                    found[name] = None
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {alias.asname or alias.name.partition(".")[0]: None for alias in names}
            case ast.Name(id=name, ctx=ast.Store()):
                found[name] = None
    return list(found)


def _module(file: Path) -> Any:
    """Return the module of a file, by its name in the file's own package."""
    top = file.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    name = ".".join(file.relative_to(top).with_suffix("").parts)
    if str(top) not in sys.path:
        sys.path.insert(0, str(top))
    if not _is_taken(name, file):
        return importlib.import_module(name)
    name = "_harness_file_" + hashlib.sha256(bytes(file)).hexdigest()[:16]
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _is_taken(name: str, file: Path) -> bool:
    """Tell whether another module already has that name, such as an installed package's."""
    first = name.partition(".")[0]
    if first not in sys.modules:
        return False
    top = file if "." not in name else file.parents[name.count(".") - 1] / "__init__.py"
    try:
        return not top.samefile(getattr(sys.modules[first], "__file__", None) or "")
    except OSError:
        return True


def _listed(names: Sequence[str]) -> str:
    return f"({', '.join(names)})"
