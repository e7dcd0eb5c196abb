"""The link between a recorded script and the process that compares: a line of JSON each way, in turns."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SOCKET, CLAIM, SEVERAL, GO = "socket", "claim", "several", "go"
"""Files of a side's folder: the listening socket; locked by the process that is recorded; made by a second
process that timed at the same time; made once the script may use the device."""
TUNING = "tuning"
"""File beside both sides' folders, locked by the side whose autotuner times."""
_POLL_S = 0.005


class Link:
    """One process of a script that is recorded. A child of it by fork has a link of its own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._socket: socket.socket | None = None
        self._lines: Any = None
        self._claim = -1
        self.lost = False
        """True where another process is recorded already, or the one that compares has ended."""
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        if self._claim >= 0:
            os.close(self._claim)
        if self._socket is not None:
            self._socket.close()
        self._socket, self._lines, self._claim = None, None, -1

    def wait_for_device(self) -> None:
        """Wait until the script may use the device: what it has imported by now disturbs nobody."""
        go = os.path.join(self.folder, GO)
        while os.path.isdir(self.folder) and not os.path.exists(go):
            time.sleep(_POLL_S)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the other side's autotuner from timing meanwhile: both may be on their way to a call."""
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
        """Open the link at the first timing call. False where another process of the script has it."""
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
        folder = os.open(self.folder, os.O_RDONLY)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The folder's own path may be longer than the address of a socket.
            self._socket.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        except OSError:
            self.lost = True
            return False
        finally:
            os.close(folder)
        self._lines = self._socket.makefile("r", encoding="utf-8")
        return True

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message; returns the order that answers it. After the end of the other process: go on."""
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
