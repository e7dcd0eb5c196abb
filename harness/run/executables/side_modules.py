"""Makes the Python of a benchmark's command import its own side's files, and records its imports.

The harness copies this file, as sitecustomize.py, to the front of the command's PYTHONPATH. So it runs in
every Python (3.7 or newer) that the command starts. It imports only modules that each Python has loaded
anyway.

An installation by `pip install -e` points to the working tree, or to the other side's files. A module found
there is replaced by the file at the same place in this side. A package of the repository that is found
anywhere else is searched for in this side's import folders. Each module is recorded when it is found, in case
the process is killed; the rest is recorded when the process ends.
"""

from __future__ import annotations

import atexit
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

VARIABLE = "HARNESS_SIDE_MODULES"
"""Environment variable with the path of a file of SideFiles' fields, one `field=value` per line."""
CALLS = "HARNESS_CALLS"
"""Environment variable with the folder for recorded timing calls; unset if none are recorded."""
STARTED, FORKED, ENDED, MODULE = "started", "forked", "ended", "module"
"""First words of a report's lines; words are separated by tabs."""


class SideFiles:
    """Folders of one side of a comparison, and the names of the repository's packages."""

    def __init__(self, lines: Iterable[str]) -> None:
        fields: dict[str, list[str]] = {}
        for line in lines:
            name, _, value = line.rstrip("\n").partition("=")
            fields.setdefault(name, []).append(value)
        self.folder = fields["folder"][0]
        """Real path of the side's files."""
        self.reports = fields["reports"][0]
        """Folder with one report of each process."""
        self.others = fields.get("other", [])
        """Real paths of the working tree and of the other side's files."""
        self.roots = fields.get("root", [])
        """Folders of the side from which its packages are imported."""
        self.packages = frozenset(fields.get("package", []))
        """Names of the repository's packages and modules, such as `mine` or `namespace.mine`."""
        # Environments and temporary files in the working tree are not the repository's code.
        prefixes = {os.path.realpath(each) for each in (sys.prefix, sys.exec_prefix, sys.base_prefix)}
        parts = ("bin", "lib", "lib64")
        self._strange = [os.path.join(each, part) for each in prefixes for part in parts]
        self._strange += [*fields.get("temporary", []), os.path.dirname(self.reports)]
        self._owners: dict[str, str | None] = {}

    def has(self, path: str) -> bool:
        """Return whether a file is this side's. Links may lead anywhere except to another side's files."""
        owner = self._owner(path)
        return owner == self.folder or (owner is None and _below(os.path.abspath(path), self.folder))

    def part_of_another(self, path: str) -> str | None:
        """Return a file's relative path in the working tree or the other side; None for other files."""
        owner = self._owner(path)
        if owner is None or owner == self.folder:
            return None
        real = os.path.realpath(path)
        part = os.path.relpath(real, owner)
        if {"site-packages", "dist-packages"}.intersection(part.split(os.sep)):
            return None
        strange = [each for each in self._strange if each != owner and _below(each, owner)]
        return None if any(_below(real, each) for each in strange) else part

    def _owner(self, path: str) -> str | None:
        """Return the folder that contains a file, the side's or another's; the inner one if both do."""
        path = path if os.path.isabs(path) else os.path.abspath(path)
        if path not in self._owners:
            real = os.path.realpath(path)
            having = [each for each in (self.folder, *self.others) if _below(real, each)]
            self._owners[path] = max(having, key=len, default=None)
        return self._owners[path]

    def own_name(self, module: str) -> bool:
        """Return whether the repository has a package with a module's name.

        A package of the repository without __init__.py yields to an installed package that has one.
        """
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name in self.packages:
                return True
            if getattr(sys.modules.get(name), "__file__", None):
                return False
        return False

    def concerns(self, module: str, path: str) -> bool:
        """Tell whether a module is the repository's, by its name or by its path."""
        return self.own_name(module) or self.has(path) or self.part_of_another(path) is not None


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _places(spec: ModuleSpec | None) -> list[str]:
    """Return the file of a module, or the folders of a package without a file."""
    if spec is None:
        return []
    if spec.has_location and spec.origin:
        return [spec.origin]
    return [each for each in spec.submodule_search_locations or () if os.path.isabs(each)]


class Report:
    """Writes the imports of one process, line by line."""

    def __init__(self, side: SideFiles, first: str) -> None:
        self.side = side
        self._told: set[str] = set()
        self._path = os.path.join(side.reports, f"{os.getpid()}-{os.urandom(8).hex()}")
        self._write(first, sys.executable or "")

    def _write(self, *words: str) -> None:
        line = "\t".join(words).replace("\n", "?") + "\n"
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, line.encode("utf-8", "surrogateescape"))
            finally:
                os.close(file)
        except OSError:
            pass  # a report without an end is reported

    def note(self, module: str, places: Iterable[str]) -> None:
        for place in places:
            if place not in self._told and self.side.concerns(module, place):
                self._told.add(place)
                self._write(MODULE, module, os.path.abspath(place))

    def end(self) -> None:
        """Add modules that no finder saw: the program itself, and modules loaded from a file name."""
        for name, module in list(sys.modules.items()):
            try:
                # Bypass the module's own attribute access, which would load a lazy module.
                fields = object.__getattribute__(module, "__dict__")
            except AttributeError:
                continue
            spec = fields.get("__spec__")
            # A script's __file__ is gone by now.
            file = fields.get("__file__") or getattr(fields.get("__loader__"), "path", None)
            places = [file] if isinstance(file, str) and os.path.exists(file) else _places(spec)
            self.note(getattr(spec, "name", name) if name == "__main__" else name, places)
        self._write(ENDED)


class SideFinder:
    """First finder of a process: asks the other finders, and searches the side's files for their results."""

    def __init__(self, side: SideFiles, report: Callable[[], Report]) -> None:
        self._side, self._report = side, report
        self._path = list(sys.path)
        """The path before a script's own folder is put in front."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        side = self._side
        if path is not None and not (side.own_name(name) or any(map(side.has, path))):
            return None
        found = self._by_others(name, path, target)
        if not any(map(side.has, _places(found))):
            found = self._in_side(name, found) or found or self._in_installation(name)
        if found is not None:
            self._report().note(name, _places(found))
        return found

    def _by_others(self, name: str, path: Sequence[str] | None, target: Any) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                found = finder.find_spec(name, path, target)
                if found is not None:
                    return found
        return None

    def _in_side(self, name: str, found: ModuleSpec | None) -> ModuleSpec | None:
        """Search the side for a module found in the working tree, or for a package of this name."""
        parts = filter(None, map(self._side.part_of_another, _places(found)))
        folders = [os.path.dirname(os.path.join(self._side.folder, part)) for part in parts]
        if found is not None and found.submodule_search_locations is not None and found.has_location:
            folders = [os.path.dirname(each) for each in folders]
        if self._side.own_name(name):
            folders += [os.path.join(root, *name.split(".")[:-1]) for root in self._side.roots]
        return PathFinder.find_spec(name, folders) if folders else None

    def _in_installation(self, name: str) -> ModuleSpec | None:
        """Find a module that only the installed package has, such as an extension built in the working tree.

        Without it, the import would fail or the program would skip it. Reporting foreign code is better.
        """
        top, *middle = name.split(".")[:-1] or [""]
        if not top or not self._side.own_name(name):
            return None
        for place in self._installed(top):
            found = PathFinder.find_spec(name, [os.path.join(place, *middle)])
            if found is not None:
                return found
        return None

    def _installed(self, package: str) -> list[str]:
        """Return the folders of a package outside of the side's files."""
        asked = [each for each in sys.meta_path if each is not self and each is not PathFinder]
        specs = [each.find_spec(package, None, None) for each in asked if hasattr(each, "find_spec")]
        specs.append(PathFinder.find_spec(package, self._path))
        places = [each for spec in specs if spec for each in spec.submodule_search_locations or ()]
        return [place for place in places if not self._side.has(place)]


def _replace_path(side: SideFiles) -> None:
    """Replace folders of the working tree on the path by this side's."""
    for number, folder in enumerate(sys.path):
        part = side.part_of_another(folder) if folder else None
        own = os.path.normpath(os.path.join(side.folder, part or ""))
        if part is not None and os.path.isdir(own):
            sys.path[number] = own


class _Current:
    """The report of this process. After a fork it is another one."""

    def __init__(self, side: SideFiles) -> None:
        self.side = side
        self.report = Report(side, STARTED)

    def end(self) -> None:
        self.report.end()

    def forked(self) -> None:
        self.report = Report(self.side, FORKED)

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that ends the process without cleanup, with the report finished first."""

        def told(*arguments: Any, **named: Any) -> Any:
            self.end()
            return function(*arguments, **named)

        return told


def _begin(description: str) -> None:
    try:
        with open(description, encoding="utf-8", errors="surrogateescape") as file:
            side = SideFiles(file)
    except OSError:
        return  # A process that outlives the comparison starts another one.
    current = _Current(side)
    finder = SideFinder(side, lambda: current.report)
    _replace_path(side)
    sys.meta_path.insert(0, finder)
    atexit.register(current.end)
    os.register_at_fork(after_in_child=current.forked)
    for name in ("_exit", "execv", "execve"):
        setattr(os, name, current.before(getattr(os, name)))


def _next_sitecustomize(here: str) -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    sys.path[:] = [folder for folder in sys.path if os.path.realpath(folder or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _record_calls(here: str) -> None:
    """Record the timing calls of a script, with the recorder beside this file."""
    sys.path.insert(0, here)
    from harness_recorder import recording  # type: ignore[import-not-found]

    sys.path.remove(here)
    recording.begin(os.environ[CALLS])


if __name__ == "sitecustomize":
    if VARIABLE in os.environ:
        _begin(os.environ[VARIABLE])
    if CALLS in os.environ:
        _record_calls(os.path.dirname(os.path.realpath(__file__)))
    _next_sitecustomize(os.path.dirname(os.path.realpath(__file__)))
