"""A worker process seen from its parent: requests with a deadline, and the reason when no answer comes."""

from __future__ import annotations

__all__ = ["Child"]

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import harness
from harness import protocol
from harness.errors import WorkerError

if TYPE_CHECKING:
    from typing_extensions import Self

LOG_BYTES = 20_000
"""How much of a dead worker's last words a row keeps."""


def _absolute(*names: str) -> dict[str, str]:
    """Variables that name a path, which a worker in a folder of its own would look for there."""
    return {name: str(Path(value).absolute()) for name in names if (value := os.environ.get(name))}


class TimedOutError(WorkerError):
    reason = "timed-out"


def _side(stage: str) -> Literal["base", "head", ""]:
    """Whose turn it was: stages of one side of a pair end with its name."""
    word = stage.rpartition(" ")[2]
    return "base" if word == "base" else "head" if word == "head" else ""


def _doing(stage: str) -> str:
    what, _, side = stage.partition(" ")
    done = {
        "build": "building the kernel",
        "parts": "looking for the largest dispatch",
        "reference": "computing the reference",
        "verify": "verifying",
        "measure": "measuring",
        "library": "measuring the vendor's library",
        "solo": "running each side alone",
    }.get(what, what)
    return f"{done} {side}".strip()


class Child:
    """One worker process; a context manager that ends it.

    `ask` raises WorkerError where the process dies or does not answer in time; after that it must be closed.
    """

    def __init__(self, scratch: Path) -> None:
        source = str(Path(harness.__file__).parent.parent)
        inherited = os.environ.get("PYTHONPATH")
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            # A folder of our own: -m puts the current one first on the import path, whatever lies in it.
            cwd=scratch,
            env={
                **os.environ,
                **_absolute("HARNESS_CACHE_DIR", "HARNESS_NULL_SCRIPT"),
                "PYTHONPATH": f"{source}{os.pathsep}{inherited}" if inherited else source,
            },
            # Ctrl-C is for the session, which decides what becomes of its workers.
            start_new_session=True,
        )
        self._replies: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put(None)

    def ask(
        self,
        request: protocol.Request,
        timeout_s: float,
        on_progress: Callable[[str], None] = lambda _stage: None,
    ) -> protocol.Opened | protocol.Done | protocol.Failed:
        """Send a request and wait for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(protocol.encode(request))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died("starting") from None
        deadline = time.monotonic() + timeout_s
        stage = "starting" if isinstance(request, protocol.Open) else "build"
        while True:
            try:
                line = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.kill()
                late = TimedOutError(
                    f"No answer within {timeout_s:g} s while {_doing(stage)}: the worker process was ended. "
                    "If the kernel is only slow, raise --timeout.",
                    log=self._log(),
                )
                late.side = _side(stage)
                raise late from None
            if line is None:
                raise self._died(stage)
            reply = protocol.decode_reply(line)
            if not isinstance(reply, protocol.Progress):
                return reply
            stage = reply.stage
            on_progress(stage)

    def _died(self, stage: str) -> WorkerError:
        code = self._process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        died = WorkerError(f"The worker process {how} while {_doing(stage)}.", log=self._log())
        died.side = _side(stage)
        return died

    def _log(self) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - LOG_BYTES))
        return self._stderr.read().decode(errors="replace").strip()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Let the worker end by itself, and end it if it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(timeout=5)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.kill()
        self.close()
