"""Suites from folders, at the working tree or at any git commit; each suite.py runs in its own process."""

from __future__ import annotations

__all__ = ["Begun", "LoadedSuite", "begin", "discover", "discover_at", "load"]

import contextlib
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.errors import GitError, NoSuiteError, SuiteError
from harness.records import Source
from harness.spec.export import export, why_missing
from harness.spec.sources import files_outside, tree_sha256
from harness.spec.suite import Suite
from harness.spec.suite_client import Loading
from harness.system import git
from harness.system.cache import export_root


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
    """Why an absent suite cannot be loaded, where the commit does have it."""

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

    @cached_property
    def work_tree(self) -> Path | None:
        """The folder where the repository is worked on: nothing in it belongs to a commit's suite."""
        if self.commit is None:
            return None
        top = git.repository_of(self.path if self.path.exists() else _existing_parent(self.path))
        return top and top.resolve()

    def explained(self, message: str, log: str = "") -> str:
        """The message of an error that this suite led to; at a commit, with why something may be missing."""
        if self.commit is None or self.repository is None:
            return message
        return _explained(message, log, self.path, self.repository, self.commit)

    def _is_dirty(self, repository: Path) -> bool:
        named = {self.suite.root / name for kernel in self.suite.kernels for name in kernel.files}
        used = files_outside(self.suite) | {Path(os.path.normpath(path)) for path in named}
        inside = [path for path in used if path.is_relative_to(repository)]
        return git.is_dirty(repository, self.path, *inside)


@dataclass(frozen=True)
class Begun:
    """A suite that is being loaded, beside others."""

    path: Path
    repository: Path | None
    commit: str | None
    loading: Loading

    def result(self) -> LoadedSuite:
        """Raises SuiteError where the suite is broken."""
        try:
            suite = self.loading.suite()
            if self.commit is not None and self.repository is not None:
                _check_absolute(suite, self.repository)
            return LoadedSuite(suite, self.path, self.repository, self.commit)
        except SuiteError as error:
            if self.commit is None or self.repository is None:
                raise
            told = f"At commit {self.commit[:12]}: {error.message}"
            told = _explained(told, error.log, self.path, self.repository, self.commit)
            raise SuiteError(told, log=error.log) from error


def load(
    path: Path, commit: str | None = None, repository: Path | None = None, *, timeout_s: float | None = None
) -> LoadedSuite:
    """The suite in folder `path`: in the working tree, or as it was at `commit` of the repository around it.

    Raises SuiteError where there is no such suite, it is broken or takes longer than `timeout_s`, GitError
    where there is no such commit.
    """
    return begin(path, commit, repository, timeout_s=timeout_s).result()


def begin(
    path: Path, commit: str | None = None, repository: Path | None = None, *, timeout_s: float | None = None
) -> Begun:
    """The same, begun: several are loaded side by side. Raises SuiteError where there is no such suite."""
    path = path.resolve()
    repository = repository or git.repository_of(path if path.exists() else _existing_parent(path))
    repository = repository and repository.resolve()
    if commit is None:
        return Begun(path, repository, None, Loading(_present(path), timeout_s))
    if repository is None:
        raise SuiteError(f"{path} is in no git repository, so it cannot be loaded at commit {commit!r}.")
    commit = git.resolve(repository, commit)
    try:
        exported = _exported(repository, commit, _inside(path, repository))
    except NoSuiteError as error:
        lacks = f"No such file: {_inside(path, repository).as_posix()}/suite.py"
        raise NoSuiteError(_explained(error.message, lacks, path, repository, commit)) from None
    return Begun(path, repository, commit, Loading(exported, timeout_s))


def _present(folder: Path) -> Path:
    if not (folder / "suite.py").is_file():
        raise SuiteError(f"No suite.py in {folder}: a suite is a folder with a suite.py and its sources.")
    return folder


def _check_absolute(suite: Suite, repository: Path) -> None:
    """Raises SuiteError where a source of a commit includes a file of the working tree, by its whole path."""
    for file in sorted(files_outside(suite)):
        if file.is_relative_to(repository) and export_root(file) is None:
            raise SuiteError(
                f"{file} lies in the working tree, and a source includes it by its whole path: it is not the "
                "commit's. Include it by a path relative to the file that names it."
            )


def _explained(message: str, log: str, path: Path, repository: Path, commit: str) -> str:
    """The message of an error at a commit, and why something may be missing there."""
    beside = next((folder for folder in (path.parent, *path.parents) if folder.is_dir()), None)
    why = why_missing(repository, commit, beside, f"{message}\n{log}")
    return message if not why or why in message else f"{message} {why}"


def _inside(path: Path, repository: Path) -> Path:
    """The suite's path within a repository, which may be a mirror, elsewhere, of the one around it."""
    if path.is_relative_to(repository):
        return path.relative_to(repository)
    around = git.repository_of(path if path.exists() else _existing_parent(path))
    if around is None:
        raise SuiteError(f"{path} is neither in {repository} nor in a repository of its own.")
    return path.relative_to(around.resolve())


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.exists())


def _exported(repository: Path, commit: str, inside: Path) -> Path:
    """The suite's folder at a commit, in all that the commit has around it."""
    exported = export(repository, commit) / inside
    if not (exported / "suite.py").is_file():
        raise NoSuiteError(f"Commit {commit[:12]} has no suite {inside.as_posix()}.")
    return exported


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
