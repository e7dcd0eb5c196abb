"""Suites from folders, at the working tree or at any git commit.

A suite.py runs under a name of its own, and what it imports from its folder is forgotten afterwards, so that
the same suite at two commits never gets the other's modules.
"""

from __future__ import annotations

__all__ = ["LoadedSuite", "discover", "discover_at", "imports_of", "load", "load_folder", "modules_of"]

import contextlib
import dataclasses
import glob
import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
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

from harness import git
from harness.cache import cache_dir
from harness.errors import GitError, NoSuiteError, SuiteError
from harness.file_access import is_beside
from harness.records import Source
from harness.sources import files_outside, tree_sha256
from harness.suite import Kernel, Problem, Suite


@dataclass(frozen=True)
class LoadedSuite:
    """A suite and where it came from."""

    suite: Suite
    path: Path
    """The folder that was asked for, in the working tree."""
    repository: Path | None
    commit: str | None
    """Full hash; None for the working tree."""
    absent: bool = False
    """True where the commit does not have the suite, and `suite` stands in, from another commit."""
    problem: SuiteError | None = None
    """Of an absent one: why it cannot be loaded, where the commit does have it."""

    @cached_property
    def source(self) -> Source:
        """Provenance for a record. Asking git takes longer than loading, so it waits until wanted."""
        repository, inside = self.repository, self.path
        tree = "" if self.absent else tree_sha256(self.suite)
        if repository is None:
            return Source(suite=self.suite.name, path=inside.as_posix(), tree_sha256=tree)
        inside = _inside(self.path, repository)
        commit = self.commit
        if commit is None:
            with contextlib.suppress(GitError):  # a repository without a commit yet
                commit = git.resolve(repository, "HEAD")
        return Source(
            suite=self.suite.name,
            path=inside.as_posix(),
            commit=commit,
            committed_at=git.committed_at(repository, commit) if commit else None,
            dirty=self.commit is None and commit is not None and self._is_dirty(repository),
            tree_sha256=tree,
        )

    def _is_dirty(self, repository: Path) -> bool:
        inside = [path for path in files_outside(self.suite) if path.is_relative_to(repository)]
        return git.is_dirty(repository, self.path, *inside)


def load(path: Path, commit: str | None = None, repository: Path | None = None) -> LoadedSuite:
    """The suite in folder `path`: in the working tree, or as it was at `commit` of the repository around it.

    Raises SuiteError where there is no such suite or it is broken, GitError where there is no such commit.
    """
    path = path.resolve()
    repository = repository or git.repository_of(path if path.exists() else _existing_parent(path))
    repository = repository and repository.resolve()
    if commit is None:
        return LoadedSuite(load_folder(path), path, repository, None)
    if repository is None:
        raise SuiteError(f"{path} is in no git repository, so it cannot be loaded at commit {commit!r}.")
    commit = git.resolve(repository, commit)
    exported = _exported(repository, commit, _inside(path, repository))
    try:
        suite = load_folder(exported)
        _check_absolute(suite, repository)
        return LoadedSuite(suite, path, repository, commit)
    except SuiteError as error:
        raise SuiteError(f"At commit {commit[:12]}: {error.message}", log=error.log) from error


def _check_absolute(suite: Suite, repository: Path) -> None:
    """Raises SuiteError where a source of a commit includes a file of the working tree, by its whole path."""
    for file in sorted(files_outside(suite)):
        if file.is_relative_to(repository) and not file.is_relative_to(cache_dir()):
            raise SuiteError(
                f"{file} lies in the working tree, and a source includes it by its whole path: it is not the "
                "commit's. Include it by a path relative to the file that names it."
            )


def _inside(path: Path, repository: Path) -> Path:
    """Where a suite lies in a repository, which may be a mirror, elsewhere, of the one around it."""
    if path.is_relative_to(repository):
        return path.relative_to(repository)
    around = git.repository_of(path if path.exists() else _existing_parent(path))
    if around is None:
        raise SuiteError(f"{path} is neither in {repository} nor in a repository of its own.")
    return path.relative_to(around.resolve())


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.exists())


def _exported(repository: Path, commit: str, inside: Path) -> Path:
    """The suite's folder at a commit, with its neighbours: preludes and shared headers lie beside it."""
    folder = inside.parent
    identity = hashlib.sha256(folder.as_posix().encode()).hexdigest()[:12]
    try:
        exported = git.export(
            repository, commit, folder.as_posix(), cache_dir() / "commits" / f"{commit}-{identity}"
        )
    except GitError as error:
        raise NoSuiteError(
            f"Commit {commit[:12]} has no suite {inside.as_posix()}: {error.message}"
        ) from None
    if not (exported / inside.name / "suite.py").is_file():
        raise NoSuiteError(f"Commit {commit[:12]} has no suite {inside.as_posix()}.")
    return exported / inside.name


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
    except KeyboardInterrupt:
        raise
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
"""Of each suite that was loaded, by its folder: its import path, and the modules that are its alone."""


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


def discover(root: Path, patterns: Sequence[str]) -> list[Path]:
    """The folders with a suite.py that match `patterns`, such as kernels/*, below `root`, in order of
    name.
    """
    found = {
        folder.resolve(): None
        for pattern in patterns
        for folder in sorted(root / match for match in glob.glob(pattern, root_dir=root))  # noqa: PTH207 - Path.glob takes no absolute pattern
        if (folder / "suite.py").is_file()
    }
    return list(found)


def discover_at(root: Path, patterns: Sequence[str], commit: str) -> list[Path]:
    """The folders that `discover` would find at a commit: where they lie, or lay, in the working tree.

    Raises GitError where there is no such commit or no repository.
    """
    repository = git.repository_of(root)
    if repository is None:
        raise GitError(f"{root} is in no git repository, so it has no commit {commit!r}.")
    found: dict[Path, None] = {}
    folders = [
        (repository / path).parent
        for path in git.files(repository, git.resolve(repository, commit))
        if Path(path).name == "suite.py"
    ]
    for pattern in patterns:
        # Absolute, so that it must match from the top, and may lead out of `root`.
        whole = os.path.normpath(Path(glob.escape(str(root.resolve())), pattern))
        found |= dict.fromkeys(folder.resolve() for folder in sorted(folders) if folder.match(whole))
    return list(found)
