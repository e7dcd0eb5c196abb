"""Processes that are ready: forks of a template, which has imported what they need.

`begin` starts the template beside what the command itself imports. Before, and where the template cannot make
a process that is as a fresh one, processes are started by Python.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from harness.system import supervisor
from harness.system.decoding import decode
from harness.system.template import CAN_FORK, MOST_BYTES, Forked, Order

MODULES = ("harness.suite.suite_server", "harness.measure.worker")
"""The modules that processes of the harness run, the one that is needed first first."""
FRESH = "HARNESS_FRESH_PROCESSES"
"""A variable: not empty where each process is to be started by Python."""
_LATE = ("HARNESS_", "CUDA_")
"""Beginnings of the variables that nothing reads before a process has been forked."""
_PATIENCE_S = 30.0
"""Time that a template has to import and to fork, in seconds."""


@dataclass(slots=True)
class ForkedProcess:
    """A process that a template has forked, with the part of subprocess.Popen's methods that is needed."""

    pid: int
    """Number of its supervisor."""
    stdin: BinaryIO
    stdout: BinaryIO
    returncode: int | None = field(default=None, init=False)

    def wait(self) -> int:
        """Wait for the end, and return its code, negative for a signal."""
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Template:
    """A process that makes forks of itself. It ends with this process."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the template, which imports the modules, the first of them first. Raises OSError."""
        self._env, self._lock = dict(env), threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST_BYTES)
        self._socket.settimeout(_PATIENCE_S)
        with theirs:
            words = ["-m", "harness.system.template", str(theirs.fileno()), *modules]
            self._process = subprocess.Popen(
                [sys.executable, supervisor.__file__, supervisor.NOBODY, *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=self._env,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._reason = ""
        """Reason why it can make no forks; empty as long as it can."""

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def fork(
        self, module: str, folder: Path, env: Mapping[str, str], control: int, log: BinaryIO
    ) -> ForkedProcess | str:
        """Return a process that runs the module, or the reason why it has to be started by Python."""
        with self._lock:
            if not self._reason:
                differing = {name for name in {*env, *self._env} if env.get(name) != self._env.get(name)}
                if early := sorted(name for name in differing if not name.startswith(_LATE)):
                    return f"{early[0]} is another variable than the process that is ready has read"
                try:
                    return self._ask(Order(module=module, folder=str(folder), env=env), control, log)
                except _UnfitError as error:
                    self._reason = str(error)
                except UnicodeEncodeError:
                    return "its variables or its folder are no UTF-8"
                except (OSError, msgspec.MsgspecError) as error:
                    self._reason = f"the process that is ready does not answer: {error}"
                except BaseException:  # an interrupt: the next answer would be to this order
                    self._reason = "the process that is ready was interrupted"
                    raise
            return self._reason

    def _ask(self, order: Order, control: int, log: BinaryIO) -> ForkedProcess:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            theirs_in, stdin = os.pipe()
            theirs.callback(os.close, theirs_in)
            ours.callback(os.close, stdin)
            stdout, theirs_out = os.pipe()
            theirs.callback(os.close, theirs_out)
            ours.callback(os.close, stdout)
            socket.send_fds(
                self._socket, [msgspec.json.encode(order)], [control, theirs_in, theirs_out, log.fileno()]
            )
            if not (answer := self._socket.recv(MOST_BYTES)):
                raise OSError("it has ended")
            forked = decode(answer, Forked)
            if not forked.pid:
                raise _UnfitError(forked.why)
            ours.pop_all()
        return ForkedProcess(forked.pid, os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0))


class _UnfitError(Exception):
    """A template that can make no forks, and why."""


_template: Template | None = None


def begin(modules: Sequence[str], env: Mapping[str, str]) -> None:
    """Start a template for the processes that this one will need; nothing where there can be none."""
    global _template  # noqa: PLW0603 - there is one for a process
    if _template is None and CAN_FORK and not os.environ.get(FRESH):
        with contextlib.suppress(OSError):  # processes are started by Python then
            _template = Template(modules, env)


def end() -> None:
    """End the template, if there is one; its forks go on."""
    global _template  # noqa: PLW0603
    if _template is not None:
        _template.close()
        _template = None


def fork(
    module: str, folder: Path, env: Mapping[str, str], control: int, log: BinaryIO
) -> ForkedProcess | str:
    """Return a process that runs the module; where there is none, the reason, which may be empty."""
    if _template is None or os.environ.get(FRESH):
        return ""
    return _template.fork(module, folder, env, control, log)
