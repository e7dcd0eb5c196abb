"""Files that others can change: reading without hanging, and locks whose owner may be dead."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from harness.errors import StoreError

try:
    import fcntl
except ImportError:  # on Windows, which can only read and write files
    fcntl = None  # type: ignore[assignment]

MOST_BYTES = 2**30
"""Size of the largest file that is read whole: more than any record, and less than memory."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""msgspec's errors for bytes that are not JSON of the requested type."""
_KINDS = {stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device", stat.S_IFSOCK: "socket"}
_AT_ONCE = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
"""Flags for opening a file, as far as the system has them: never wait, and keep line ends."""
_OWNER = ".owner"
"""A file in each scratch folder, locked while the process lives that made the folder."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, or a link to one. Raises OSError for a pipe or device, which never end."""
    _check_regular(path.stat(), path)
    # A name may refer to something else by now. Without O_NONBLOCK, opening a pipe waits for a writer.
    file = os.fdopen(os.open(path, os.O_RDONLY | _AT_ONCE), "rb")
    try:
        _check_regular(os.fstat(file.fileno()), path)
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return all of a file. Raises OSError as open_regular does, and for one of more than `most_bytes`."""
    with open_regular(path) as file:
        # A read allocates the requested size, so do not request the maximum.
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, most_bytes) + 1)
        if len(content) > size:  # it has grown, or its system does not report the size
            content += file.read(most_bytes + 1 - len(content))
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", str(path))
    return content


def _check_regular(found: os.stat_result, path: Path) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if kind != stat.S_IFREG:
        what = f"a {_KINDS[kind]}" if kind in _KINDS else "no file"
        raise OSError(errno.EINVAL, f"it is {what}, not a regular file", str(path))


def write_all(files: Mapping[Path, bytes], folder: Path) -> None:
    """Write all files or none, replacing links instead of following them. Raises OSError, after undoing all.

    An existing file is moved into a temporary folder below `folder`, and back if a later file fails.
    """
    if not files:
        return
    beside = tempfile.TemporaryDirectory(prefix=".harness-", dir=folder, ignore_cleanup_errors=True)
    with beside as aside, contextlib.ExitStack() as undo:
        for number, (path, content) in enumerate(files.items()):
            for parent in reversed(path.parents):
                if not parent.is_dir():
                    parent.mkdir()
                    undo.callback(parent.rmdir)
            old = Path(aside, str(number)) if os.path.lexists(path) else None
            if old:
                path.rename(old)
                undo.callback(old.rename, path)
            undo.callback(path.unlink, missing_ok=True)
            path.write_bytes(content)
            if old and old.is_file():
                shutil.copymode(old, path)
        undo.pop_all()


def stat_of(entry: os.DirEntry[str]) -> os.stat_result:
    """Return the status of a listed file, or of a link's target, if there is one. Raises OSError."""
    try:
        return entry.stat()
    except OSError:
        return entry.stat(follow_symlinks=False)


def try_lock(file: int, *, wait: bool = False) -> bool:
    """Lock an open file or folder for this process, and return whether that was possible at once.

    With `wait` it waits for the lock, which ends with the process. Raises OSError if the file system has no
    locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOSYS, "no locks on this system")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder, and remove those of killed processes. Raises StoreError."""
    _remove_left_behind()
    with _owned_folder() as folder:
        _open_to_suites(folder)
        yield folder


@contextlib.contextmanager
def start_folder() -> Iterator[Path]:
    """Yield an empty folder for a process. Only this user can write around it. Raises StoreError."""
    with _owned_folder() as around:
        folder = around / "start"
        try:
            folder.mkdir()
            if os.environ.get("HARNESS_SUITE_SOCKET"):
                around.chmod(0o755)
            _open_to_suites(folder)
        except OSError as error:
            raise no_temporary_folder(error) from None
        yield folder


def _open_to_suites(folder: Path) -> None:
    """Let the user that runs workers write to a folder. Its contents are not trusted."""
    if os.environ.get("HARNESS_SUITE_SOCKET"):
        folder.chmod(0o777)


@contextlib.contextmanager
def _owned_folder() -> Iterator[Path]:
    try:
        folder = Path(tempfile.mkdtemp(prefix="harness-"))
        try:
            owner = _own(folder)
        except OSError:
            folder.rmdir()
            raise
    except OSError as error:
        raise no_temporary_folder(error) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def no_temporary_folder(error: OSError) -> StoreError:
    return StoreError(
        f"No temporary folder can be made ({error.strerror or error}): free some space, or point TMPDIR at a "
        "folder that has some."
    )


def _own(folder: Path) -> int:
    """Mark a folder as ours. The mark is renamed after it is locked, so nobody ever sees it unlocked."""
    unnamed = folder / f"{_OWNER}-new"
    owner = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with contextlib.suppress(OSError):  # on a file system without locks the folder is not marked
        try_lock(owner)
        unnamed.rename(folder / _OWNER)
    return owner


def _remove_left_behind() -> None:
    """Remove scratch folders of this user's dead processes. A folder without a mark may belong to anybody."""
    if fcntl is None:  # no folder has a mark
        return
    try:
        temporary = os.scandir(tempfile.gettempdir())
        found = [Path(entry.path) for entry in temporary if entry.name.startswith("harness-")]
    except OSError:
        return
    for folder in found:
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and _is_left_behind(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left_behind(folder: Path) -> bool:
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        owner = os.open(_OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inside)
    finally:
        os.close(inside)
    try:
        return stat.S_ISREG(os.fstat(owner).st_mode) and try_lock(owner)
    finally:
        os.close(owner)
