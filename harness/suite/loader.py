"""Loads suites from a folder or a commit, and remembers their names for shell completion.

Completion must be fast and must not run a project's code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from harness.errors import GitError, NoSuiteError, SuiteError
from harness.records.types import Source
from harness.suite.case_id import size_label
from harness.suite.exported_commit import export, why_missing, with_suite
from harness.suite.import_path import forget, importing_from, searched_by
from harness.suite.kernel import Kernel
from harness.suite.problem import Problem
from harness.suite.suite import Suite
from harness.suite.suite_data import Loading
from harness.suite.suite_files import files_outside, for_their_backends, tree_sha256
from harness.system import git
from harness.system.cache import cache_dir, export_root, write_atomically
from harness.system.decoding import decode
from harness.system.files import read_regular

WORKING_TREE = "."
"""Stands for the files of the working tree, instead of a commit."""


@dataclass(frozen=True, slots=True)
class KnownSuite:
    """A suite as of its last loading."""

    name: str
    kernels: Mapping[str, str]
    """Description of each kernel, by name."""
    tuned: tuple[str, ...]
    """Kernels with a tuning, for sweeps."""
    sizes: tuple[str, ...]
    """Labels of the suite's sizes, including the small ones."""
    ladders: tuple[str, ...]


def remember(folder: Path, suite: Suite) -> None:
    """Store the names of a suite in a folder of the working tree. An unwritable cache is no error."""
    points = [*suite.problem.points(), *suite.problem.points(quick=True)]
    seen = KnownSuite(
        name=suite.name,
        kernels={kernel.name: kernel.about for kernel in suite.kernels},
        tuned=tuple(kernel.name for kernel in suite.kernels if kernel.tune),
        sizes=tuple(dict.fromkeys(size_label(point) for point in points)),
        ladders=tuple(ladder.name for ladder in suite.ladders),
    )
    if [*known_suites([folder])] != [seen]:
        with contextlib.suppress(OSError):
            write_atomically(_file(folder), msgspec.json.encode(seen), durable=False)


def known_suites(folders: Iterable[Path]) -> Iterator[KnownSuite]:
    """Yield the stored suite of each folder that was ever loaded."""
    for folder in folders:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            yield decode(read_regular(_file(folder)), KnownSuite)


def _file(folder: Path) -> Path:
    return cache_dir() / "suites" / f"{hashlib.sha256(bytes(folder.resolve())).hexdigest()}.json"


def load_folder(folder: Path) -> Suite:
    """Return the suite whose suite.py is in `folder`. Raises SuiteError, whose log has the traceback."""
    folder = folder.resolve()
    file = _present(folder) / "suite.py"
    name = "_harness_suite_" + hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SuiteError(f"{file} cannot be loaded as a Python module.")
    module = importlib.util.module_from_spec(spec)
    try:
        # Output of a suite must not mix with a command's result.
        forget(folder)
        with importing_from(folder), contextlib.redirect_stdout(sys.stderr):
            # dataclasses and typing look up a class's module by name.
            sys.modules[name] = module
            # Compile it here: the import system would trust a stale .pyc of the same size and second.
            exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102
    except BaseException as error:
        what = error.msg if isinstance(error, SyntaxError) else error
        said, log = f"raised {type(error).__name__}: {what}", traceback.format_exc()
        if isinstance(error, ModuleNotFoundError) and error.name:
            said += (
                f". The Python of this harness is {sys.executable}: install there what has {error.name}, or "
                "import it in the function that needs it."
            )
        if isinstance(error, SuiteError):  # our own sentence, which needs no traceback
            said, log = f"is wrong: {error.message}", error.log
        raise SuiteError(f"{_place(error, file)} {said}", log=log) from error
    # Additions by suite.py stay, for functions that import when they are called.
    sys.path[:] = [entry for entry in searched_by(folder) if entry != str(folder)]
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
    """Return file:line of the last statement of suite.py, or of the text that does not parse."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((f"{f.filename}:{f.lineno}" for f in frames if f.filename == str(file)), str(file))


def imports_of(suite: Suite, kernel: Kernel, backend: str) -> contextlib.AbstractContextManager[None]:
    """Return a context for calling a function of the suite that makes a kernel."""
    return contextlib.nullcontext() if is_plain(kernel, backend) else importing_from(suite.root)


def is_plain(kernel: Kernel, backend: str) -> bool:
    """Tell whether a kernel is made from text alone, without a function of the suite."""
    return isinstance(kernel.source_for(backend), str | None) and kernel.setup is None


@dataclass(frozen=True)
class _SuiteAt:
    """A suite's location: its folder, and the commit or working tree of its files."""

    path: Path
    """The requested folder in the working tree."""
    repository: Path | None
    commit: str | None
    """Full hash; None for the working tree."""
    suite_from: str | None
    """Commit of suite.py, if it differs from `commit`; WORKING_TREE for the working tree."""

    def explained(self, message: str, log: str = "") -> str:
        """Return an error message with reasons for missing files, if the suite is of a commit."""
        if self.commit is None or self.repository is None:
            return message
        beside = next((each for each in (self.path.parent, *self.path.parents) if each.is_dir()), None)
        why = why_missing(self.repository, self.commit, beside, f"{message}\n{log}")
        return message if not why or why in message else f"{message} {why}"


@dataclass(frozen=True)
class LoadedSuite(_SuiteAt):
    suite: Suite
    absent: bool = False
    """True if the commit lacks the suite, and `suite` is a substitute from another commit."""
    problem: SuiteError | None = None
    """Reason why an absent suite cannot be loaded, if the commit has it."""
    loading: Loading | None = None
    """The process that has loaded it and answers calls to its functions."""

    @cached_property
    def source(self) -> Source:
        """Return the provenance for a record. It is computed on demand, because asking git takes longer than
        loading.
        """
        repository, commit = self.repository, self.commit
        tree = "" if self.absent else tree_sha256(self.suite)
        if repository is None:
            return Source(suite=self.suite.name, path=self.path.as_posix(), tree_sha256=tree)
        if commit is None:
            with contextlib.suppress(GitError):  # a repository without a commit yet
                commit = git.resolve(repository, "HEAD")
        return Source(
            suite=self.suite.name,
            path=_inside(self.path, repository).as_posix(),
            commit=commit,
            committed_at=git.committed_at(repository, commit) if commit else None,
            dirty=self.commit is None and commit is not None and self._is_dirty(repository),
            tree_sha256=tree,
            suite_from=self.suite_from,
        )

    @cached_property
    def work_tree(self) -> Path | None:
        """Return the working tree's folder. Its files do not belong to a commit's suite."""
        if self.commit is None:
            return None
        return _repository_around(self.path)

    def _is_dirty(self, repository: Path) -> bool:
        suite = self.suite
        named = {Path(os.path.normpath(suite.root / name)) for each in suite.kernels for name in each.files}
        used = [path for path in files_outside(suite) | named if path.is_relative_to(repository)]
        return git.is_dirty(repository, self.path, *used)


@dataclass(frozen=True)
class PendingSuite(_SuiteAt):
    """A suite that is being loaded, in parallel with others."""

    loading: Loading

    def result(self) -> LoadedSuite:
        try:
            suite = for_their_backends(self.loading.suite())
            if self.commit is not None and self.repository is not None:
                _check_absolute(suite, self.repository)
            found = self.path, self.repository, self.commit, self.suite_from
            return LoadedSuite(*found, suite, loading=self.loading)
        except SuiteError as error:
            if self.commit is None:
                raise
            message = self.explained(f"At commit {self.commit[:12]}: {error.message}", error.log)
            raise SuiteError(message, log=error.log) from error


def load(path: Path, commit: str | None = None, repository: Path | None = None) -> LoadedSuite:
    """Return the suite in folder `path`, from the working tree or a commit. Raises SuiteError, GitError."""
    return begin(path, commit, repository).result()


def begin(
    path: Path,
    commit: str | None = None,
    repository: Path | None = None,
    *,
    timeout_s: float | None = None,
    suite_from: str | None = None,
) -> PendingSuite:
    """Start loading a suite, so that several load in parallel. Raises SuiteError if there is no suite.

    With `suite_from`, a commit or WORKING_TREE, its suite.py describes the commit's kernels.
    """
    path = path.resolve()
    repository = repository.resolve() if repository else _repository_around(path)
    if commit is None:
        return PendingSuite(path, repository, None, None, Loading(_present(path), timeout_s))
    if repository is None:
        raise SuiteError(f"{path} is in no git repository, so it cannot be loaded at commit {commit!r}.")
    commit = git.resolve(repository, commit)
    inside = _inside(path, repository)
    if suite_from is not None and suite_from != WORKING_TREE:
        suite_from = git.resolve(repository, suite_from)
    tree = commit if suite_from is None else _with_suite_of(path, repository, commit, suite_from)
    exported = export(repository, tree) / inside
    if not (exported / "suite.py").is_file():
        lacks = f"Commit {commit[:12]} has no suite {inside.as_posix()}."
        log = f"No such file: {inside.as_posix()}/suite.py"
        raise NoSuiteError(_SuiteAt(path, repository, commit, suite_from).explained(lacks, log))
    loading = Loading(exported, timeout_s, work_tree=_repository_around(path))
    return PendingSuite(path, repository, commit, suite_from, loading)


def _with_suite_of(path: Path, repository: Path, commit: str, suite_from: str) -> str:
    """Return the tree of a commit with another's suite.py, and with the preludes that it names."""
    source = None if suite_from == WORKING_TREE else suite_from
    inside = _inside(path, repository)
    named = (os.path.normpath(inside / name) for name in _preludes(path, repository, source))
    others = [name for name in named if not name.startswith("..")]
    return with_suite(repository, commit, inside.as_posix(), others, source)


@functools.lru_cache(maxsize=64)
def _preludes(path: Path, repository: Path, commit: str | None) -> tuple[str, ...]:
    return tuple(load(path, commit, repository).suite.prelude.values())


def _present(folder: Path) -> Path:
    if not (folder / "suite.py").is_file():
        raise SuiteError(f"No suite.py in {folder}: a suite is a folder with a suite.py and its sources.")
    return folder


def _check_absolute(suite: Suite, repository: Path) -> None:
    """Raise SuiteError if a source of a commit includes a file of the working tree by an absolute path."""
    for file in sorted(files_outside(suite)):
        if file.is_relative_to(repository) and export_root(file) is None:
            raise SuiteError(
                f"{file} lies in the working tree, and a source includes it by its whole path: it is not the "
                "commit's. Include it by a path relative to the file that names it."
            )


def _inside(path: Path, repository: Path) -> Path:
    """Return the suite's path within a repository, which may be a mirror of the surrounding one."""
    if path.is_relative_to(repository):
        return path.relative_to(repository)
    around = _repository_around(path)
    if around is None:
        raise SuiteError(f"{path} is neither in {repository} nor in a repository of its own.")
    return path.relative_to(around)


def _repository_around(path: Path) -> Path | None:
    """Return the top folder of the repository around a folder, which need not exist; None outside of any."""
    around = git.repository_of(next(each for each in (path, *path.parents) if each.exists()))
    return around and around.resolve()


def discover(root: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the folders with a suite.py below `root` that match patterns such as kernels/*, by name."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        folders = sorted(root / match for match in glob.glob(pattern, root_dir=root))  # noqa: PTH207 - Path.glob takes no absolute pattern
        found |= {folder.resolve(): None for folder in folders if (folder / "suite.py").is_file()}
    return list(found)


def discover_at(root: Path, patterns: Sequence[str], commit: str) -> list[Path]:
    """Return the folders that `discover` would find at a commit, in the working tree. Raises GitError."""
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
        # Absolute, so that it matches from the top, and may lead out of `root`.
        whole = os.path.normpath(Path(glob.escape(str(root.resolve())), pattern))
        found |= dict.fromkeys(folder.resolve() for folder in sorted(folders) if folder.match(whole))
    return list(found)
