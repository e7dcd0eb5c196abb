"""Tracks the files that Python code opens in this process, by audit events.

A suite's folder can be hashed before anything runs. Other files of its repository that a suite's function
opens are only known when it runs, so a worker watches.
"""

from __future__ import annotations

import contextlib
import functools
import os
import site
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.errors import SuiteError
from harness.system.cache import cache_dir, export_root
from harness.system.files import open_regular

_opened: set[str] = set()
_unchecked: set[str] = set()
"""Files opened since `check_committed` last found none of them in the working tree."""
_since: list[set[str]] = []
"""A set for each `committed` in progress, with the files opened since it began."""
_work_tree: list[Path] = []
"""The working tree of the repository of the measured commits; empty without one."""


def watch(work_tree: Path | None = None) -> None:
    """Track from now on, for the life of the process, which files are opened, loaded and run.

    A commit's suite should open nothing in `work_tree`.
    """
    _work_tree.extend([work_tree] if work_tree else [])
    _hook_once()


@functools.cache
def _hook_once() -> None:
    sys.addaudithook(_note)


_hearers: list[Callable[[str], object]] = []


@contextlib.contextmanager
def commands_told(hear: Callable[[str], object]) -> Iterator[None]:
    """Report the name of each command that Python code starts in this block, usually a compiler.

    A command that is only asked for its version is not reported.
    """
    _hearers.append(hear)
    try:
        yield
    finally:
        _hearers.remove(hear)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _SET:
        _variables.setdefault(os.fsdecode(arguments[0]), set()).add(_file_that_set())
        return
    # A suite did not open files that the harness hashes.
    if event not in _EVENTS or sys._getframe(1).f_code is open_regular.__code__:  # noqa: SLF001
        return
    if event in _LISTING and sys._getframe(1).f_globals.get("__name__", "").startswith(_LISTERS):  # noqa: SLF001
        return
    # An exception here would be raised by the audited call.
    with contextlib.suppress(Exception):
        for path in _named(event, arguments):
            name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - must not look at the disk
            for noted in (_opened, _unchecked, *_since):
                noted.add(name)
        if event == "subprocess.Popen" and "--version" not in arguments[1]:  # as Triton asks once a process
            for hear in _hearers:
                hear(os.path.basename(os.fsdecode(arguments[0])))  # noqa: PTH119


_SET = frozenset({"os.putenv", "os.unsetenv"})
_variables: dict[str, set[str]] = {}
"""Environment variables that were set or removed, with the files of the responsible code."""


def _file_that_set() -> str:
    frame = sys._getframe(2)  # noqa: SLF001
    while frame.f_back and frame.f_globals.get("__name__") in ("os", "_collections_abc"):
        frame = frame.f_back
    return frame.f_code.co_filename


def variables_set_by(folder: Path) -> set[str]:
    """Return the environment variables that code in or beside `folder` has set or removed."""
    return {
        name
        for name, files in tuple(_variables.items())
        if any(Path(file).is_relative_to(folder) or is_beside(file, folder) for file in files)
    }


_LISTING = frozenset({"os.listdir", "os.scandir"})
_LISTERS = ("harness.", "importlib.", "_frozen_importlib")
"""Modules that search folders for themselves. An import has an event of its own."""
_EVENTS = _LISTING | {"open", "import", "ctypes.dlopen", "subprocess.Popen", "os.system", "sqlite3.connect"}
"""Events of https://docs.python.org/3/library/audit_events.html that can reveal a file's content, or a
folder's names."""


def _named(event: str, arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the paths in an event. Files that a command reads without naming them are unknown."""
    match event, arguments:
        case "open", (path, _, flags):
            if not isinstance(path, int) and flags & os.O_ACCMODE != os.O_WRONLY:
                yield path
        case ("import", (_, path, *_)) | ("os.listdir" | "os.scandir" | "sqlite3.connect", (path,)):
            if path:
                yield path
        case "ctypes.dlopen", (name,):
            if name and os.sep in os.fsdecode(name):
                yield name
        case "subprocess.Popen", (executable, command, folder, _):
            yield from _paths_in([command] if isinstance(command, (str, bytes)) else command)
            yield executable
            if folder:
                yield folder
        case "os.system", (command,):
            yield from _paths_in([command])


def _paths_in(texts: Iterable[Any]) -> Iterator[str]:
    yield from (word for text in texts for word in os.fsdecode(text).split() if os.sep in word)


def opened_files() -> set[Path]:
    """Return the files that Python code other than the harness's has opened, with links resolved."""
    return {_real(name) for name in tuple(_opened)}


def opened_beside(folder: Path) -> list[Path]:
    """Return the files opened in the repository of `folder`, outside of `folder` itself."""
    return sorted(Path(name) for name in tuple(_opened) if is_beside(name, folder))


def reaches_beside(folder: Path) -> bool:
    """Return whether code of `folder` has read, or may import, other files of its repository."""
    # The harness's own parent folder is on the path for the harness, wherever the suite is.
    searched = {Path(entry).resolve() for entry in sys.path if entry} - {_HARNESS.parent}
    return bool(opened_beside(folder)) or any(
        is_beside(entry, folder) or _is_stray(entry) for entry in searched
    )


_SYSTEM = tuple(
    map(Path, ("/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sys", "/usr"))
)
"""Folders of the system, whose files are installed."""


def opened_elsewhere(folder: Path) -> bool:
    """Return whether Python code has opened a file that is neither in the repository of `folder` nor
    installed.

    The harness's own temporary folders and its cache are ignored.
    """
    repository, _ = _repository_of(_real(folder), cache_dir())
    known = (repository or _real(folder), *_installed(), *_SYSTEM, _real(cache_dir()))
    temporary = _real(tempfile.gettempdir()) / "harness-"
    beginnings = (*(os.path.join(each, "") for each in known), str(temporary))  # noqa: PTH118 - ends in a slash
    opened = (path for path in opened_files() if not os.path.join(path, "").startswith(beginnings))  # noqa: PTH118
    return any(path.is_file() for path in opened)


@contextlib.contextmanager
def committed(folder: Path) -> Iterator[None]:
    """Raise SuiteError at the end if a commit's suite opened a file of the working tree in this block."""
    opened: set[str] = set()
    _since.append(opened)
    try:
        yield
    finally:
        _since.remove(opened)
    if _are_of_commits([folder]):
        _check(opened)


def check_committed(folders: Sequence[Path]) -> None:
    """Raise SuiteError if all suites are of commits and one has opened a file of the working tree."""
    if _are_of_commits(folders):
        names = set(_unchecked)
        _check(names)
        _unchecked.difference_update(names)


def _are_of_commits(folders: Sequence[Path]) -> bool:
    return bool(_work_tree) and all(export_root(folder) is not None for folder in folders)


def _check(opened: Iterable[str]) -> None:
    strays = sorted(name for name in opened if _is_stray(Path(name)) and Path(name).is_file())
    if strays:
        raise SuiteError(
            f"{strays[0]} lies in the working tree, and the suite of a commit opened it: it is not the "
            "commit's. An editable installation or an absolute path leads there. Let suite.py find it by its "
            "own place: sys.path.insert(0, str(Path(__file__).parents[2] / 'src'))."
        )


def _is_stray(path: Path) -> bool:
    """Return whether a path is in the working tree while commits are measured."""
    real = Path(os.path.realpath(path))
    if not _work_tree or not real.is_relative_to(_work_tree[0]) or ".git" in real.parts:
        return False
    apart = (*_installed(), Path(os.path.realpath(cache_dir())))
    return not any(real.is_relative_to(place) for place in apart if not _work_tree[0].is_relative_to(place))


@functools.lru_cache(maxsize=2**16)
def _real(path: str | Path) -> Path:
    """Return a path without links. Its folders are resolved once and cached, because that is slow."""
    return Path(os.path.realpath(path))


@functools.lru_cache(maxsize=2**16)
def is_beside(path: str | Path, folder: Path) -> bool:
    """Return whether a path is in the repository of `folder` and outside of `folder` itself.

    Installed packages do not count, because their version identifies them. Answers are cached: a large
    package has thousands of files, each checked for every case.
    """
    folder, path = _real(folder), _real(path)
    repository, apart = _repository_of(folder, cache_dir())
    if repository is None or not path.is_relative_to(repository) or path.is_relative_to(folder):
        return False
    return ".git" not in path.parts and not any(map(path.is_relative_to, apart))


@functools.lru_cache(maxsize=64)
def _repository_of(folder: Path, cache: Path) -> tuple[Path | None, tuple[Path, ...]]:
    """Return the export or the nearest repository of a folder, and the folders that do not belong to it."""
    upwards = (above for above in (folder, *folder.parents) if (above / ".git").exists())
    repository = export_root(folder) or next(upwards, None)
    apart = (*_installed(), _real(cache))
    return repository, tuple(place for place in apart if repository and not repository.is_relative_to(place))


_HARNESS = Path(__file__).resolve().parent.parent


def installed_at() -> tuple[tuple[str, int], ...]:
    """Return the folders of packages, each with the time of its last installation or removal."""
    return tuple((str(place), place.stat().st_mtime_ns) for place in _installed() if place.is_dir())


@functools.cache
def _installed() -> tuple[Path, ...]:
    """Return the folders of packages, of the interpreter and of the harness itself."""
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, site.getusersitepackages()}
    found.update(site.getsitepackages())
    return (_HARNESS, *(Path(os.path.realpath(place)) for place in sorted(found)))
