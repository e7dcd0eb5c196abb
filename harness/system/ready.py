"""Ready processes: forks of a template that has imported everything they need.

`begin` starts the template while the command itself imports. Before it is ready, and if its forks would
differ from fresh processes, Python starts processes.
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

MODULES = ("harness.suite.suite_server", "numpy", "harness.measure.worker")
"""Modules to import in the order of need: those that processes run, and a large one between them."""
FRESH = "HARNESS_FRESH_PROCESSES"
"""Variable. If it is not empty, Python starts each process."""
_LATE = ("HARNESS_", "CUDA_")
"""Prefixes of variables that nothing reads before a process has been forked."""
_PATIENCE_S = 30.0
"""Time for a template to import and to fork, in seconds."""


@dataclass(slots=True)
class ForkedProcess:
    """A process forked by a template, with the needed methods of subprocess.Popen."""

    pid: int
    """Process id of its supervisor."""
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
    """A process that forks itself. It ends with this process."""

    def __init__(
        self,
        modules: Sequence[str],
        env: Mapping[str, str],
        packages: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> None:
        """Start the template, which imports the modules in order, then the packages. Raises OSError.

        It forks before it has imported all modules, but never before it has imported all packages. Packages
        read the environment when they are imported, so with packages all forks have the same environment.
        `names` are modules that the forks find in places that the template does not search.
        """
        self._env, self._names, self._lock = dict(env), tuple(names), threading.Lock()
        self._late = () if packages else _LATE
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST_BYTES)
        self._socket.settimeout(_PATIENCE_S)
        with theirs:
            words = ["-m", "harness.system.template", str(theirs.fileno())]
            words += [" ".join(modules), " ".join(packages)]
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
        self.reason = ""
        """Reason why it cannot fork; empty if it can."""

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def fork(
        self, module: str, folder: Path, env: Mapping[str, str], control: int, log: BinaryIO
    ) -> ForkedProcess | str:
        """Return a process that runs the module, or the reason why Python has to start it."""
        with self._lock:
            if not self.reason:
                differing = {name for name in {*env, *self._env} if env.get(name) != self._env.get(name)}
                if early := sorted(name for name in differing if not name.startswith(self._late)):
                    return f"{early[0]} is another variable than the process that is ready has read"
                try:
                    order = Order(module=module, folder=str(folder), env=env, names=self._names)
                    return self._ask(order, control, log)
                except _UnfitError as error:
                    self.reason = str(error)
                except UnicodeEncodeError:
                    return "its variables or its folder are no UTF-8"
                except (OSError, msgspec.MsgspecError) as error:
                    self.reason = f"the process that is ready does not answer: {error}"
                except BaseException:  # An interrupt: the next answer would belong to this order.
                    self.reason = "the process that is ready was interrupted"
                    raise
            return self.reason

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
    """A template that cannot fork, and the reason."""


_template: Template | None = None


def begin(modules: Sequence[str], env: Mapping[str, str]) -> None:
    """Start a template for the processes that this one will need; do nothing if that is impossible."""
    global _template  # noqa: PLW0603 - there is one for a process
    if _template is None and CAN_FORK and not os.environ.get(FRESH):
        with contextlib.suppress(OSError):  # Python starts processes then
            _template = Template(modules, env)


def end() -> None:
    """End the template, if there is one; its forks continue."""
    global _template  # noqa: PLW0603
    if _template is not None:
        _template.close()
        _template = None


def fork(
    module: str, folder: Path, env: Mapping[str, str], control: int, log: BinaryIO
) -> ForkedProcess | str:
    """Return a process that runs the module; otherwise the reason, which may be empty."""
    if _template is None or os.environ.get(FRESH):
        return ""
    return _template.fork(module, folder, env, control, log)
