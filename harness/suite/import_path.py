"""The import path of a suite: its own folder first. Its modules are unloaded after each use."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from importlib import machinery
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.system.file_access import committed, is_beside


class _FromSource(machinery.SourceFileLoader):
    """Imports from source, never from a .pyc: Python trusts one with the right size and second,
    or unchecked.
    """

    def path_stats(self, path: str) -> Any:
        raise OSError(f"No bytecode of {path} is looked for.")


def _hook_for(folder: Path) -> Callable[[str], Any]:
    extensions = machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES
    finder = machinery.FileFinder.path_hook(extensions, (_FromSource, machinery.SOURCE_SUFFIXES))

    def find(place: str) -> Any:
        if not (Path(place).is_relative_to(folder) or is_beside(Path(place), folder)):
            raise ImportError(f"{place} is no place of {folder}.")
        return finder(place)

    return find


_own: dict[Path, tuple[list[str], dict[str, ModuleType]]] = {}
"""The import path of each loaded suite, and the modules that only it uses, by folder."""


def forget(folder: Path) -> None:
    """Forget a suite's imports, so that it is loaded anew."""
    _own.pop(folder, None)


def searched_by(folder: Path) -> list[str]:
    """Return the import path of a loaded suite."""
    return _own[folder][0]


@contextlib.contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Import from `folder` first, and unload its modules and those beside it in its repository afterwards.

    The next time the same modules and import path are restored. So a function of a suite imports what its
    suite.py did, and never another commit's modules.
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


def modules_of(folder: Path, before: AbstractSet[str]) -> list[str]:
    """Return the modules in a folder, or beside it in its repository, that were not loaded `before`."""
    found = []
    for name in sys.modules.keys() - before:
        module = sys.modules[name]
        try:  # its file; for a package without __init__.py, its first folder
            place = Path(getattr(module, "__file__", None) or next(iter(module.__path__)))
        except (AttributeError, TypeError, StopIteration):  # built in, or no module at all
            continue
        if place.is_relative_to(folder) or is_beside(place, folder):
            found.append(name)
    return found
