"""Running a suite.py in this process: that of a worker, or of the process that describes the suite.

It runs under a name of its own, and what it imports from its folder is put away afterwards, so that the same
suite at two commits never gets the other's modules.
"""

from __future__ import annotations

__all__ = ["imports_of", "load_folder", "modules_of"]

import contextlib
import dataclasses
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.errors import SuiteError
from harness.spec.suite import Kernel, Problem, Suite
from harness.system.file_access import committed, is_beside


def load_folder(folder: Path) -> Suite:
    """The suite whose suite.py lies in `folder`.

    Raises SuiteError, with the traceback as its log, where suite.py is missing, raises, or defines no
    `suite`.
    """
    folder = folder.resolve()
    file = folder / "suite.py"
    if not file.is_file():
        raise SuiteError(f"No suite.py in {folder}: a suite is a folder with a suite.py and its sources.")
    name = "_harness_suite_" + hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SuiteError(f"{file} cannot be loaded as a Python module.")
    module = importlib.util.module_from_spec(spec)
    try:
        # What a suite prints is no result of a command's.
        _own.pop(folder, None)
        with _importing_from(folder), contextlib.redirect_stdout(sys.stderr):
            # dataclasses and typing look a class's module up by its name.
            sys.modules[name] = module
            # Compiled here rather than by the import system, which would trust a stale .pyc of the same size
            # and second.
            exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102
    except SuiteError as error:
        raise SuiteError(
            f"{_place(error, file)} is wrong: {error.message}", log=traceback.format_exc()
        ) from error
    except BaseException as error:
        what = error.msg if isinstance(error, SyntaxError) else error
        raise SuiteError(
            f"{_place(error, file)} raised {type(error).__name__}: {what}", log=traceback.format_exc()
        ) from error
    # What suite.py added stays, for functions that import when they are called.
    sys.path[:] = [entry for entry in _own[folder][0] if entry != str(folder)]
    suite = getattr(module, "suite", None)
    if not isinstance(suite, Suite):
        raise SuiteError(f"{file} defines no `suite`: expected suite = Suite(...), found {suite!r}.")
    if suite.headline == "GFLOP/s" and type(suite.problem).flop is Problem.flop:
        raise SuiteError(
            f"{file}: suite {suite.name!r} has headline GFLOP/s, but its problem does not define flop(): "
            "define it, or choose headline='GB/s'."
        )
    return dataclasses.replace(suite, root=folder)


def _place(error: BaseException, file: Path) -> str:
    """file:line of what suite.py did last, or of the text that does not parse."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((f"{f.filename}:{f.lineno}" for f in frames if f.filename == str(file)), str(file))


class _FromSource(SourceFileLoader):
    """Never from a .pyc: one is believed where the source has its size and its second, or without a look."""

    def path_stats(self, path: str) -> Any:
        raise OSError(f"No bytecode of {path} is looked for.")


def _hook_for(folder: Path) -> Callable[[str], Any]:
    """What finds modules in a suite's folder and beside it in its repository."""
    finder = FileFinder.path_hook((ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES))

    def find(place: str) -> Any:
        if not (Path(place).is_relative_to(folder) or is_beside(Path(place), folder)):
            raise ImportError(f"{place} is no place of {folder}.")
        return finder(place)

    return find


_own: dict[Path, tuple[list[str], dict[str, ModuleType]]] = {}
"""The import path of each suite that was loaded, and the modules that are its alone, by its folder."""


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let modules be imported from `folder`, and from nowhere else if it has one of that name. Put them away
    afterwards, with those that lie beside it in its repository.

    The next time they are there again, with the import path as it was, so that a function of a suite imports
    what its suite.py did, and never another commit's.
    """
    names = {path.stem for path in folder.glob("*.py")}
    names |= {path.name for path in folder.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    searched, modules = _own.get(folder, ([str(folder), *sys.path], {}))
    hidden = {
        name: module
        for name, module in sys.modules.items()
        if name.partition(".")[0] in names or name in modules
    }
    before = sys.modules.keys() - hidden.keys()
    path, sys.path[:] = list(sys.path), searched
    wrote_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    for name in hidden:
        del sys.modules[name]
    sys.modules.update(modules)
    hook = _hook_for(folder)
    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()
    try:
        with committed(folder):
            yield
    finally:
        sys.path_hooks.remove(hook)
        sys.path_importer_cache.clear()
        sys.dont_write_bytecode = wrote_bytecode
        _own[folder] = list(sys.path), {name: sys.modules[name] for name in modules_of(folder, before)}
        sys.path[:] = path
        for name in _own[folder][1]:
            del sys.modules[name]
        sys.modules.update(hidden)


def imports_of(suite: Suite, kernel: Kernel, backend: str) -> contextlib.AbstractContextManager[None]:
    """What calls a function of the suite's own to make a kernel belongs in here."""
    plain = isinstance(kernel.source_for(backend), str | None)
    return contextlib.nullcontext() if plain else _importing_from(suite.root)


def modules_of(folder: Path, before: AbstractSet[str]) -> list[str]:
    """The modules that were not there `before` and lie in a folder, or beside it in its repository."""
    places = {name: _place_of(sys.modules[name]) for name in sys.modules.keys() - before}
    return [
        name
        for name, place in places.items()
        if place is not None and (place.is_relative_to(folder) or is_beside(place, folder))
    ]


def _place_of(module: ModuleType) -> Path | None:
    """A module's file; of a package without an __init__.py, its first folder."""
    try:
        return Path(getattr(module, "__file__", None) or next(iter(module.__path__)))
    except (AttributeError, TypeError, StopIteration):  # built in, or no module at all
        return None
