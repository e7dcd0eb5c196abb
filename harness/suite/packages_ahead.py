"""Finds the packages that functions of a suite import, and tells if they may be imported early.

A package reads the environment and searches the import path when it is imported. So nothing is imported ahead
if a file that could run before the import mentions either of them. Files are only read, never run.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from harness.suite.kernel import HostFunction, Kernel, PythonFunction
from harness.suite.suite import Suite
from harness.system.file_access import is_beside
from harness.system.files import read_regular

_EARLY = re.compile(
    rb"environ|putenv|setenv|(?<!\bos)\.path\b|from\s+sys\s+import|path_hooks|meta_path|\bsite\b|addsitedir"
    rb"|\.modules\b|__import__|import_module|exec_module|\.reload\b|runpy|\bexec\b|(?<![.\w])eval\b"
    rb"|CDLL(?!\([\"']libcuda\.so)|PyDLL|LoadLibrary|dlopen|affinity"
)
"""Words of code that may change what an import finds or reads, or that imports a module without naming it."""
_MODULES = {"triton": ("torch", "triton")}
"""Modules that a framework's functions import, if they are more than the framework's own."""


@dataclass(frozen=True, slots=True)
class PackagesAhead:
    """Packages that a process can import before it loads the suite, or the reason why it must not."""

    packages: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Modules and folders beside the suite's files, which hide installed modules of the same name."""
    why_not: str = ""


def packages_ahead(suite: Suite, kernels: Iterable[Kernel], backend: str) -> PackagesAhead:
    """Return the packages that functions of these kernels import."""
    sources = [kernel.source_for(backend) for kernel in kernels]
    functions = [source for source in sources if isinstance(source, PythonFunction)]
    files = [suite.root / function.file for function in functions]
    places = list(dict.fromkeys([suite.root, *map(_top_of, files)]))
    try:
        imported = _Imported(suite.root, places)
        for file in (suite.root / "suite.py", *files):
            imported.follow(file)
        names = sorted({path.stem for place in places for path in place.iterdir()})
    except (OSError, SyntaxError, ValueError, _EarlyError) as error:
        return PackagesAhead(why_not=str(error))
    found = {name for function in functions for name in _modules_of(function.framework, backend)}
    functions_of_host = (each for each in sources if isinstance(each, (HostFunction, PythonFunction)))
    needs = [need for each in functions_of_host for need in each.needs]
    if needs:
        from harness.system import packages

        given = packages.modules_of(needs)
        found |= {name for name in imported.elsewhere if name.partition(".")[0] in given}
    if own := sorted(name for name in found if name.partition(".")[0] in imported.own):
        return PackagesAhead(why_not=f"{own[0]} is in the suite's repository")
    return PackagesAhead(tuple(sorted(found)), tuple(names))


def _modules_of(framework: str, backend: str) -> Sequence[str]:
    if framework == "numba" and backend == "cuda":
        return ("numba.cuda",)
    return _MODULES.get(framework, (framework,))


def _top_of(file: Path) -> Path:
    """Return the folder from which a file is imported."""
    top = file.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    return top


class _EarlyError(Exception):
    """A file may change what a later import reads."""


class _Imported:
    """Modules that files import, directly and through other files of the suite's repository."""

    def __init__(self, root: Path, places: Sequence[Path]) -> None:
        self._root, self._places = root, [str(place) for place in places]
        self._followed: set[Path] = set()
        self.elsewhere: set[str] = set()
        """Modules outside of the repository, by their full names."""
        self.own: set[str] = set()
        """Top-level modules of the repository."""

    def follow(self, file: Path) -> None:
        """Read a file and everything in the repository that it imports.

        Raises OSError, SyntaxError, ValueError, _EarlyError.
        """
        if file in self._followed or not file.is_file():
            return
        self._followed.add(file)
        package = file.parents[file.name == "__init__.py"]
        self.follow(package / "__init__.py")
        content = read_regular(file)
        if early := _EARLY.search(content):
            raise _EarlyError(f"{file} mentions {early[0].decode()}, and may change what they find or read")
        for level, module, name in _imports(ast.parse(content)):
            if level:
                self._follow_in(file.parents[level - 1], f"{module}.{name}".strip(".").split("."))
            else:
                self._find(module, name)

    def _find(self, module: str, name: str) -> None:
        top, *inner = module.split(".")
        spec = PathFinder.find_spec(top, self._places) or importlib.util.find_spec(top)
        at = Path(next(iter((spec and spec.submodule_search_locations) or ()), (spec and spec.origin) or ""))
        if not (at.is_relative_to(self._root) or is_beside(at, self._root)):
            self.elsewhere.add(module)
            return
        self.own.add(top)
        if at.is_dir():
            self.follow(at / "__init__.py")
            self._follow_in(at, [*inner, name])
        else:
            self.follow(at)

    def _follow_in(self, folder: Path, names: Sequence[str]) -> None:
        for name in names:
            self.follow(folder / f"{name}.py")
            folder /= name
            self.follow(folder / "__init__.py")


def _imports(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield level, module and name of every import, also those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, node.module or "", alias.name) for alias in node.names)
