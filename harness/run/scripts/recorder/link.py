"""The link between a recorded script and the comparing process. Each side sends a line of JSON in turn."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SOCKET, CLAIM, SEVERAL, GO = "socket", "claim", "several", "go"
"""Files in a side's folder.

In order: the listening socket; a file locked by the recorded process; a file made by a second process that
timed at the same time; a file made once the script may use the device.
"""
ORIGINAL = "original"
"""File in a side's folder, locked by the process that forks a copy of itself for each run."""
FORK, KILL = b"f", b"k"
"""Orders to that process: fork a copy, or end it."""
TUNING = "tuning"
"""File beside both sides' folders, locked by the side whose autotuner is timing."""
_POLL_S = 0.005


class Link:
    """The link of a recorded process of a script. A forked child has its own link."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._socket: socket.socket | None = None
        self._lines: Any = None
        self._claim = -1
        self._is_copy = False
        self.lost = False
        """True if another process is recorded already, or the comparing process has ended."""
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        if self._claim >= 0:
            os.close(self._claim)
        if self._socket is not None:
            self._socket.close()
        self._socket, self._lines, self._claim = None, None, -1

    def wait_for_device(self) -> None:
        """Wait until the script may use the device. The imports so far disturb nobody."""
        go = os.path.join(self.folder, GO)
        while not self._is_copy and os.path.isdir(self.folder) and not os.path.exists(go):
            time.sleep(_POLL_S)

    def wait_as_original(self) -> None:
        """Wait for the device in forks of this process, one for each run that the comparing process requests.

        So everything that a script imports before it opens the device is imported once for all runs. A
        process that has opened the device already, or that has threads, makes no copies.
        """
        if self._is_copy or threading.active_count() > 1 or _cuda_is_open():
            self.wait_for_device()
            return
        try:
            held = os.open(os.path.join(self.folder, ORIGINAL), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            control = self._connected()
        except OSError:
            self.wait_for_device()
            return
        control.sendall(b'{"at": "ready"}\n')
        if self._copied(control):
            control.close()
            os.close(held)
            return
        os._exit(0)

    def _copied(self, control: socket.socket) -> bool:
        """Fork the requested copies. Return True in a copy, and False when no more are needed."""
        copy = 0
        while True:
            if copy and (ended := os.waitpid(copy, os.WNOHANG))[0]:
                copy = 0
                control.sendall(json.dumps({"at": "ended", "status": _status(ended[1])}).encode() + b"\n")
            if not select.select([control], [], [], _POLL_S if copy else 1.0)[0]:
                continue
            order = control.recv(1)
            if order == FORK:
                copy = os.fork()
                if not copy:
                    self._is_copy = True
                    return True
            elif copy:
                os.kill(copy, signal.SIGKILL)
            if not order:
                return False

    def _connected(self) -> socket.socket:
        """Connect to the comparing process. Raises OSError."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # The folder's own path may be longer than a socket's address.
            found.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            return found
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the other side's autotuner from timing in the meantime: both may be on their way to a call."""
        try:
            lock = os.open(os.path.join(self.folder, os.pardir, TUNING), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            yield
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def is_open(self) -> bool:
        """Open the link at the first timing call. Return False if another process of the script has it."""
        if self.lost or self._socket is not None:
            return not self.lost
        self.wait_for_device()
        try:
            self._claim = os.open(
                os.path.join(self.folder, CLAIM), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.lost = True
            os.close(os.open(os.path.join(self.folder, SEVERAL), os.O_WRONLY | os.O_CREAT, 0o600))
            return False
        except OSError:
            self.lost = True
            return False
        try:
            self._socket = self._connected()
        except OSError:
            self.lost = True
            return False
        self._lines = self._socket.makefile("r", encoding="utf-8")
        return True

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the order that answers it. If the comparing process has ended, go on."""
        if self._socket is None:
            return {"do": "go"}
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            line = self._lines.readline()
        except OSError:
            line = ""
        if not line:
            self.lost = True
            self._socket.close()
            self._socket = None
            return {"do": "go"}
        order: dict[str, Any] = json.loads(line)
        return order


def _cuda_is_open() -> bool:
    """Return whether CUDA's driver is initialised here. A fork of this process could not use it then."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0)


def _status(waited: int) -> int:
    """Return a status of waitpid in the form of a shell."""
    return 128 + os.WTERMSIG(waited) if os.WIFSIGNALED(waited) else os.WEXITSTATUS(waited)
