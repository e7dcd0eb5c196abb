"""Processes forked from one that has imported what they need.

A worker of the null device lives for 50 ms, and tests start thousands of them; importing NumPy and the
harness takes three times that, and asv as long again. A forked process is a child of the process that asks,
as Linux makes a process beside another one (CLONE_PARENT). It has a session of its own, with the files, the
folder and the environment that it is given. It has no supervisor: one would double the cost. A program, which
is asv or a command of ours, can itself ask for more. Where the environment has something that Python reads
only when it starts, a process is started as users do.

    python -m tests.fork_server NUMBER MODULE...     # serves the open socket of this number
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.util
import inspect
import io
import json
import os
import resource
import runpy
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from harness.system import supervisor
from harness.system.template import CAN_FORK, fork_beside
from tests.forked_command import NO_BYTECODE, SEED, read_at_start

ROOT = Path(__file__).resolve().parents[1]
SUPERVISOR = supervisor.__file__
GARBAGE = 100_000
"""Objects that are made between two looks for garbage. Python looks every 700."""
WORKERS = ("harness.measure.worker", "harness.suite.suite_server")
PROGRAMS = (
    *WORKERS,
    *(f"harness.{name}" for name in ("cli", "cli.compare_command", "cli.run_command", "run.doctor.gather")),
    *(f"harness.{name}" for name in ("history.reading", "report.site.publishing", "integrations.asv.tracks")),
    *("asv.main", "asv_runner.discovery", "asv_runner.run", "asv_runner.server", "asv_runner.setup_cache"),
    *("asv_runner.timing", "numpy.ma"),
)
"""No plugin of asv: what one defines is in force once it is imported."""
_LATER = ("harness.device.backends.null", "numpy.random", "psutil")
"""Modules that most workers import later. Larger modules cost each fork more than they save."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""Variables with which what the server imports starts no thread: a fork has one alone."""
_SAFE_PATH = getattr(sys.flags, "safe_path", False)  # of Python 3.11
_DASKS_SEED = "6640"
"""Dask has it in the environment of its workers, so that they agree on hashes. Nothing of ours needs it."""
_MOST_BYTES = 2**18
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def _execution() -> inspect.Signature | None:
    """Return the signature of Popen's private execution; None if this Python lacks a private part that is
    used here. Python 3.10 to 3.14 have them. Without them processes are started, as for users.
    """
    used = [(subprocess.Popen, each) for each in ("_execute_child", "_close_pipe_fds", "_child_created")]
    if not all(hasattr(*each) for each in (*used, (threading, "_shutdown"), (atexit, "_run_exitfuncs"))):
        return None
    found = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
    closing = inspect.signature(subprocess.Popen._close_pipe_fds)  # type: ignore[attr-defined]
    known = {"args", "cwd", "env", *_PIPES} <= found.parameters.keys()
    return found if known and list(closing.parameters) == ["self", *_PIPES] else None


_EXECUTE = _execution()


class ForkServer:
    """Starts processes. Begins when it is first asked for one, and has imported `modules` by then."""

    def __init__(
        self, modules: tuple[str, ...], *, before: tuple[str, ...] = (), begun: socket.socket | None = None
    ) -> None:
        """Folders `before` this checkout are where it imports from first."""
        self.modules, self.before = modules, before
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self.variables = {**os.environ, **_ONE_THREAD, SEED: "0"}
        self.variables.pop(NO_BYTECODE, None)  # conftest.py does the same, later
        if begun is not None:
            self._socket = begun
        else:
            found = (*before, str(ROOT), os.environ.get("PYTHONPATH", ""))
            self.variables["PYTHONPATH"] = os.pathsep.join(filter(None, found))
        self._begun = begun is not None
        server = self

        class Popen(subprocess.Popen):  # type: ignore[type-arg]
            """A Popen of subprocess whose process is forked if possible."""

            def __init__(self, args: Any, *given: Any, **named: Any) -> None:
                super().__init__(_command_alone(args), *given, **named)

            def _execute_child(self, *given: Any, **named: Any) -> None:
                asked = _EXECUTE.bind(self, *given, **named).arguments if _EXECUTE else {}
                env = os.environ if asked.get("env") is None else asked["env"]
                cwd = str(asked.get("cwd") or Path.cwd())
                if not asked or not server.can_fork(asked["args"], env, cwd):
                    super()._execute_child(*given, **named)  # type: ignore[misc]
                    return
                ends = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
                files = [number if end == -1 else end for number, end in enumerate(ends)]
                self.pid = server.fork(asked["args"], cwd, env, files)
                self._child_created = True
                self._close_pipe_fds(*(asked[name] for name in _PIPES))  # type: ignore[attr-defined]

        self.popen = Popen

    def can_fork(self, command: Any, env: Mapping[str, str], cwd: str) -> bool:
        """Return True if the command is a program or a worker of ours that this environment would start."""
        if not CAN_FORK or isinstance(command, str) or command[0] != sys.executable:
            return False
        command = _unsupervised(command)
        name = command[2] if command[1] == "-m" else command[1].removeprefix("-m")
        known = WORKERS if self.modules == WORKERS else (*WORKERS, "asv", "pytest", "-c", _asv_script())
        path = (env.get("PYTHONPATH") or env.get("ASV_PYTHONPATH") or "").split(os.pathsep)
        first = [*self.before, str(ROOT)]
        if path[0] == cwd != first[0]:  # as `-m` and `-c` have it
            del path[0]
        return (
            name in known
            and (path[:1] == [str(ROOT)] or path[: len(first)] == first)
            and read_at_start(env) == read_at_start(self.variables)
            and env.get(SEED, "0") in ("0", _DASKS_SEED)
        )

    @property
    def socket(self) -> int:
        """The number of the open file by which it is asked."""
        with self._lock:
            if not self._begun:
                self._begin()
        return self._socket.fileno()

    def close(self) -> None:
        if self._server is not None:
            self._socket.close()
            self._server.wait()

    def fork(self, command: list[str], cwd: str | Path, env: Mapping[str, str], files: list[int]) -> int:
        words = [str(word) for word in command[1:]]
        request = json.dumps([words, str(cwd), dict(env), True]).encode()
        with self._lock:
            if not self._begun:
                self._begin()
            socket.send_fds(self._socket, [request], files)
            return int(self._socket.recv(64))

    def _begin(self) -> None:
        self._socket, theirs = _ends()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno()), *self.modules],
                cwd=ROOT,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._begun = True


def _unsupervised(command: list[str]) -> list[str]:
    """Return the words after a supervisor's own."""
    return [command[0], *command[3:]] if command[1] == SUPERVISOR else command


def _command_alone(args: Any) -> Any:
    """Return the words of a command after its supervisor's own: another Python would double its cost."""
    return args[5:] if isinstance(args, list) and args[1:4] == ["-I", "-S", SUPERVISOR] else args


def _ends() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
    return ours, theirs


def _asv_script() -> str:
    """Return the path of the script that asv starts for a benchmark."""
    asv = importlib.util.find_spec("asv")
    return str(Path(asv.origin).with_name("benchmark.py")) if asv and asv.origin else ""


def serve(server: socket.socket, modules: tuple[str, ...], installed: list[str]) -> None:
    """Fork whoever is asked for, until nobody is left to ask."""
    while True:
        request, files, _flags, _address = socket.recv_fds(server, _MOST_BYTES, 3)
        if not request:
            return
        command, cwd, env, beside = json.loads(request)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not (pid := fork_beside() if beside else os.fork()):
            _become(cwd, env, files)
            if command[-1] in WORKERS:
                _forget_others()
            else:
                _serve_in_turn(modules, installed)
            _end(_status(command, installed))
        for file in files:
            os.close(file)
        server.send(str(pid).encode())


def _become(cwd: str, env: Mapping[str, str], files: list[int]) -> None:
    """Make this process like a process that was started in the folder, with its environment and files."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, _opened(number, getattr(sys, name)))
        setattr(sys, f"__{name}__", getattr(sys, name))
    _close_above(2)
    os.chdir(cwd)
    for name in os.environ.keys() - env.keys():
        del os.environ[name]
    os.environ.update({name: env[name] for name in env if os.environ.get(name) != env[name]})
    sys.dont_write_bytecode = bool(env.get(NO_BYTECODE))
    time.tzset()


def _opened(number: int, before: io.TextIOWrapper) -> io.TextIOWrapper:
    """A stream anew, which knows of its file whether it can seek in it."""
    through = before.write_through
    file = open(number, "wb" if number else "rb", 0 if through else -1, closefd=False)  # noqa: SIM115
    how = {"errors": before.errors, "line_buffering": before.line_buffering, "write_through": through}
    return io.TextIOWrapper(file, before.encoding, **how)  # type: ignore[arg-type]


def _close_above(number: int) -> None:
    os.closerange(number + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


_of_others: list[str] = []
"""Modules of ours that no worker has. A fork that looked for them would copy the page of each name."""


def _forget_others() -> None:
    """A worker looks whether a suite has changed any module of ours, and has few of them."""
    for name in _of_others:
        del sys.modules[name]
        package, _, module = name.rpartition(".")
        if package in sys.modules:
            vars(sys.modules[package]).pop(module, None)


def _serve_in_turn(modules: tuple[str, ...], installed: list[str]) -> None:
    """Leave a fork of this process, as it is now, to serve what the program will ask for."""
    ours, theirs = _ends()
    if pid := os.fork():
        theirs.close()
        subprocess.Popen = ForkServer(modules, begun=ours).popen  # type: ignore[misc]

        def end() -> None:
            ours.close()
            with contextlib.suppress(ChildProcessError):  # a fork of the program ends
                os.waitpid(pid, 0)

        atexit.register(end)
        return
    os.setsid()
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123
        for number in range(3):
            os.dup2(nothing.fileno(), number)
    server = socket.socket(fileno=os.dup2(theirs.fileno(), 3))
    theirs.detach()
    ours.detach()
    _close_above(3)
    serve(server, modules, installed)
    os._exit(0)


def _status(command: list[str], installed: list[str]) -> int:
    """Return the exit status of the command. Its exceptions propagate and end this process."""
    # From Python 3.14 on, the tracker of a fork misses the semaphores that its template made.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    try:
        _run(command, installed)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """End as Python does, without clearing modules, because every changed page would be copied first."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _run(command: list[str], installed: list[str]) -> None:
    """Do what `python` does with these arguments."""
    first, *arguments = command
    if supervised := first == SUPERVISOR:
        first, *arguments = arguments[1:]
    if named := first.startswith("-m"):  # -m NAME, or -mNAME
        first, *arguments = filter(None, [first[2:], *arguments])
        begun_from = str(Path.cwd())
    else:
        begun_from = "" if first == "-c" else str(Path(first).parent)
    own = [] if _SAFE_PATH or supervised else [begun_from]
    sys.path[:] = dict.fromkeys([*own, *_searched(), *installed])
    sys.argv = [first, *arguments]
    sys.orig_argv[1:] = command
    _customize()
    if first in WORKERS:
        module = sys.modules[first]
        sys.argv[0] = str(module.__file__)
        sys.exit(module.main())
    if first == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        sys.argv = ["-c", *arguments[1:]]
        exec(compile(arguments[0], "<string>", "exec"), vars(main))
    elif named:
        runpy.run_module(first, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(first, run_name="__main__")


def _customize() -> None:
    """Run what a folder of the environment has for the start of every Python in it."""
    found = [path for each in _searched() if (path := Path(each) / "sitecustomize.py").is_file()]
    for path in found[:1]:  # Python imports the first
        runpy.run_path(str(path))


def _searched() -> list[str]:
    """Return the folders of PYTHONPATH, each once, as Python has them."""
    return [*dict.fromkeys(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))]


def main(number: str, *modules: str) -> None:
    installed = sys.path[len(_searched()) + (not _SAFE_PATH) :]
    gc.disable()  # what is imported stays
    for name in (*_LATER, *WORKERS):  # a worker looks at what is there by then
        importlib.import_module(name)
    sys.modules["harness.measure.worker"].before_forks()
    nvcc = sys.modules["harness.device.backends.nvcc"]
    for known in (nvcc.version, nvcc.packaged):  # a program of a test may have another PATH than this one
        known.cache_clear()
    of_workers = set(sys.modules)
    for name in modules:
        with contextlib.suppress(ImportError):  # asv is an extra
            importlib.import_module(name)
    _of_others.extend(name for name in sys.modules if name.startswith("harness.") and name not in of_workers)
    _find_out_about_messages()
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(GARBAGE)
    if len(threads := os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        sys.exit(f"The imported modules have {len(threads)} threads. A fork has one: leave a module out.")
    serve(socket.socket(fileno=int(number)), modules, installed)


def _find_out_about_messages() -> None:
    """Have msgspec look at the types of all messages. A fork needs 3 ms for that, and msgspec keeps them."""
    import msgspec

    from harness.system import process

    for kind in process.Request.__subclasses__():
        msgspec.json.Decoder(kind)
        process._decoder(kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
