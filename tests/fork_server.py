"""Workers forked from a process that has imported what they need.

A worker of the null device lives for 50 ms, and tests start thousands of them; importing NumPy and the
harness takes three times that. A forked one is a child of the tests' process too, in a session of its own,
with the files, the folder and the environment that it is given. Where the environment has something that
Python reads only when it starts, a process is started as users do, with `python -m`.

    python -m tests.fork_server NUMBER     # serves the open socket of this number
"""

from __future__ import annotations

import array
import ctypes
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("harness.bench.worker", "harness.spec.suite_server")
_PR_SET_CHILD_SUBREAPER = 36
_MOST_BYTES = 2**18


class ForkServer:
    """Starts processes that run one of MODULES. Begins when it is first asked for one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._libc = ctypes.CDLL(None)
        found = (str(ROOT), os.environ.get("PYTHONPATH", ""))
        self._variables = _read_at_start({**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found))})

    def popen(self, command: list[str], *, env: Mapping[str, str], **given: Any) -> Any:
        """In the place of subprocess.Popen, with what harness.system.process gives it."""
        if command[-1] not in MODULES or _read_at_start(env) != self._variables:
            return subprocess.Popen(command, env=env, **given)
        return Forked(self._fork, command[-1], env=env, **given)

    def close(self) -> None:
        if self._server is not None:
            self._socket.close()
            self._server.wait()

    def _fork(self, module: str, cwd: Path, env: Mapping[str, str], files: list[int]) -> int:
        request = json.dumps([module, str(cwd), dict(env)]).encode()
        with self._lock:
            if self._server is None:
                self._begin()
            # The parent of whom it forks ends at once, and who is left without one is then adopted by us.
            self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
                self._socket.sendmsg([request], [rights])
                return int(self._socket.recv(64))
            finally:
                self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)

    def _begin(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, **self._variables},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )


class Forked:
    """As much of a Popen as harness.system.process uses."""

    def __init__(
        self, fork: Callable[..., int], module: str, *, cwd: Path, env: Any, stderr: Any, **_given: Any
    ) -> None:
        requests, write = os.pipe()
        read, replies = os.pipe()
        self.stdin, self.stdout = os.fdopen(write, "wb", 0), os.fdopen(read, "rb", 0)
        self.returncode: int | None = None
        try:
            self.pid = fork(module, cwd, env, [requests, replies, stderr.fileno()])
        finally:
            os.close(requests)
            os.close(replies)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """What Python reads of its environment only when it starts."""
    read = {name: value for name, value in env.items() if name.startswith("PYTHON")}
    return {**read, "PYTHONPATH": os.pathsep.join(dict.fromkeys(env["PYTHONPATH"].split(os.pathsep)))}


def serve(server: socket.socket) -> None:
    """Fork whoever is asked for, until nobody is left to ask."""
    modules = {name: importlib.import_module(name) for name in MODULES}
    while True:
        request, files, _flags, _address = socket.recv_fds(server, _MOST_BYTES, 3)
        if not request:
            return
        module, cwd, env = json.loads(request)
        read, write = os.pipe()
        if not (between := os.fork()):
            parent = os.getpid()
            if pid := os.fork():
                os.write(write, str(pid).encode())
                os._exit(0)
            while os.getppid() == parent:  # who dies with its parent is to be adopted first
                time.sleep(0.0005)
            _become(modules[module], cwd, env, files)
            sys.exit(modules[module].main())
        os.waitpid(between, 0)
        for file in (*files, write):
            os.close(file)
        server.send(os.read(read, 64))
        os.close(read)


def _become(module: Any, cwd: str, env: Mapping[str, str], files: list[int]) -> None:
    """As `python -m module` would have been started."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 1 + max(int(open_file.name) for open_file in Path("/proc/self/fd").iterdir()))
    os.chdir(cwd)
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd())
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module.__file__]


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
