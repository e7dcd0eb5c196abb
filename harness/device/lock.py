"""A lock for each device, so that processes of this machine measure on it one after another.

A lock is a file with the device's name in a folder for the whole machine. The system releases it when its
holder ends for any reason. The file stays and names the holder: a removed file could be locked twice.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from harness.errors import BusyError
from harness.records.types import DeviceInfo
from harness.system import interrupts
from harness.system.decoding import decode
from harness.system.files import try_lock
from harness.system.texts import harmless

Busy = Literal["wait", "fail", "ignore"]
"""Ways to deal with another process on a device; `ignore` is for commands that time nothing."""

POLL_S = 0.5
_MOST_BYTES = 1000


class _Holder(msgspec.Struct, frozen=True):
    """The holder of a lock, as written in its file."""

    pid: int
    command: str
    since: str


@dataclass(slots=True)
class _Lock:
    file: int
    uses: int = 1


_ours: dict[Path, _Lock] = {}
"""The locks of this process."""
_changing = threading.Lock()


@contextlib.contextmanager
def held(device: DeviceInfo, command: str, busy: Busy, told: Callable[[str], None]) -> Iterator[None]:
    """Keep other processes from measuring on a device. Raises BusyError.

    `told` gets a sentence before a wait, and if the device cannot be locked, which is no error. A process
    that holds the device already gets it again.
    """
    if busy == "ignore" or not _can_be_busy(device):
        yield
        return
    path = _path(device)
    try:
        _acquire(path, device, busy, told)
    except OSError as error:
        told(
            f"{device.spec} ({device.name}) is measured without a lock, so another run may disturb it: "
            f"{path}: {error.strerror or error}. HARNESS_LOCK_DIR names another folder for locks."
        )
        yield
        return
    try:
        _tell_others(_ours[path].file, command)
        yield
    finally:
        _release(path)


def busy_with(device: DeviceInfo) -> str:
    """Return a sentence about another measurement on the device, without a full stop; "" for none."""
    with contextlib.suppress(OSError):
        if _can_be_busy(device) and (path := _path(device)) not in _ours:
            file = _opened(path)
            try:
                return "" if try_lock(file) else _sentence(device, file)
            finally:
                os.close(file)
    return ""


def _can_be_busy(device: DeviceInfo) -> bool:
    """Tell whether the device can be in use: a null device only if its script gives it an identity."""
    return device.backend != "null" or device.uuid is not None


def lock_folder() -> Path:
    """Return $HARNESS_LOCK_DIR, else the first folder that every user of this machine may write to."""
    if chosen := os.environ.get("HARNESS_LOCK_DIR"):
        return Path(chosen).absolute()
    for folder in (Path("/run/lock"), Path("/tmp")):  # noqa: S108 - files there are opened with care
        with contextlib.suppress(OSError):
            if folder.stat().st_mode & stat.S_IWOTH:
                return folder
    return Path(tempfile.gettempdir())


def identity_of(device: DeviceInfo) -> str:
    """Return the name of the hardware: backends share a card, and all CPU devices share the host."""
    if device.kind == "cpu":
        return "cpu"
    return device.uuid or device.pci_bus_id or f"{device.backend}-{device.name}"


def _path(device: DeviceInfo) -> Path:
    identity = re.sub(r"[^A-Za-z0-9.]+", "-", identity_of(device))
    return lock_folder() / f"harness-{identity[:100]}.lock"


def _acquire(path: Path, device: DeviceInfo, busy: Busy, told: Callable[[str], None]) -> None:
    """Lock the device. Raises BusyError, and OSError if it cannot be locked."""
    said = ""
    # Poll instead of blocking: a blocked call in a thread cannot be interrupted, and the file of that name
    # may be replaced.
    while True:
        file = _opened(path)
        try:
            if _took(path, file):
                return
            sentence = _sentence(device, file)
        finally:
            os.close(file)
        if busy == "fail":
            raise BusyError(f"{sentence}. Try again later, or wait for it: leave out --no-wait.")
        if sentence != said:
            told(f"{sentence}: waiting.")
        said = sentence
        time.sleep(POLL_S)
        interrupts.check()


def _took(path: Path, file: int) -> bool:
    with _changing:
        if path in _ours:
            _ours[path].uses += 1
        elif try_lock(file):
            _ours[path] = _Lock(os.dup(file))  # the lock lasts until the last copy is closed
        else:
            return False
        return True


def _release(path: Path) -> None:
    with _changing:
        lock = _ours[path]
        lock.uses -= 1
        if not lock.uses:
            with contextlib.suppress(OSError):
                os.ftruncate(lock.file, 0)
            os.close(lock.file)
            del _ours[path]


def _opened(path: Path) -> int:
    """Open or create a lock's file. Raises OSError, also for a link or anything else in its place."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        file = os.open(path, os.O_RDWR | flags)
    except FileNotFoundError:
        # Create it only if it is missing: in a folder such as /tmp, the system refuses O_CREAT of another
        # user's file.
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o600)
        except FileExistsError:  # created by another process at this moment
            file = os.open(path, os.O_RDWR | flags)
        else:
            os.fchmod(file, 0o666)  # regardless of the umask: locks are for all users
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS):
            raise
        file = os.open(path, os.O_RDONLY | flags)  # enough to lock it, though not to name the holder
    seen = os.fstat(file)
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1:
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file with one name", str(path))
    return file


def _tell_others(file: int, command: str) -> None:
    """Write the holder into the file, for waiting processes. The lock works without it."""
    now = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, msgspec.json.encode(_Holder(os.getpid(), command, now)), 0)


def _sentence(device: DeviceInfo, file: int) -> str:
    """Return a sentence on the holder of a lock. The words come from the holder, who is untrusted."""
    holder = "another process"
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        noted = decode(os.pread(file, _MOST_BYTES, 0), _Holder)
        holder = f"process {noted.pid} ({harmless(noted.command)[:80]}, since {harmless(noted.since)[:40]})"
    return f"{device.spec} ({device.name}) is being measured by {holder}"
