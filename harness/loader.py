"""Suites from folders, at the working tree or at any git commit.

A suite.py runs under a name of its own, and what it imports from its folder is forgotten afterwards, so that
the same suite at two commits never gets the other's modules.
"""

from __future__ import annotations

__all__ = ["LoadedSuite", "discover", "discover_at", "load", "load_folder", "loaded_elsewhere"]

import contextlib
import dataclasses
import glob
import hashlib
import importlib.util
import os
import site
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import harness
from harness import git
from harness.cache import cache_dir
from harness.errors import GitError, NoSuiteError, SuiteError
from harness.records import Source
from harness.sources import files_outside, tree_sha256
from harness.suite import Problem, Suite

_elsewhere: dict[Path, frozenset[Path]] = {}
_INSTALLED = tuple(
    Path(place).resolve()
    for place in (sys.prefix, sys.base_prefix, site.getusersitepackages(), Path(harness.__file__).parent)
)


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
        return LoadedSuite(load_folder(exported), path, repository, commit)
    except SuiteError as error:
        raise SuiteError(f"At commit {commit[:12]}: {error.message}", log=error.log) from error


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


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let modules be imported from `folder`, and from nowhere else if it has one of that name; forget them
    afterwards.
    """
    place = str(folder)
    own = {path.stem for path in folder.glob("*.py")}
    own |= {path.name for path in folder.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in own}
    before = set(sys.modules)
    wrote_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    for name in hidden:
        del sys.modules[name]
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = wrote_bytecode
        with contextlib.suppress(ValueError):  # a suite.py may have removed it
            sys.path.remove(place)
        elsewhere = set()
        for name in set(sys.modules) - (before - hidden.keys()):
            file = Path(getattr(sys.modules[name], "__file__", None) or os.devnull).resolve()
            if file.is_relative_to(folder):
                del sys.modules[name]
            elif file.is_relative_to(folder.parent) and not any(map(file.is_relative_to, _INSTALLED)):
                # Such as ../shared/data.py: another commit has another.
                del sys.modules[name]
                elsewhere.add(file)
        _elsewhere[folder] = frozenset(elsewhere)
        sys.modules.update(hidden)


def loaded_elsewhere(folder: Path) -> frozenset[Path]:
    """The Python files beside `folder` that its suite loaded, when it was loaded last."""
    return _elsewhere.get(folder.resolve(), frozenset())


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
