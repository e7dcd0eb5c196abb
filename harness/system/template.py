"""A process that imports modules for others, and forks itself: ``python -m harness.system.template``.

It runs no code of a suite and opens no device, though it may import a framework. So its forks are as fresh as
processes started by Python: each has its own context on a card, its own random numbers, and its own addresses
of later mappings. A fork is a child of the requesting process, and gets its own supervisor. Fork and template
are independent: each survives the end of the other.

Only the forking thread continues in a fork. So the template does not fork while it has a second thread, nor
with a device open. BLAS ends its threads when its process forks, and starts them again when they are needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import mmap
import os
import platform
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.system import supervisor
from harness.system.decoding import decode

CAN_FORK = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
MOST_BYTES = 2**20
"""Size of the largest message to a template, in bytes."""
FILES = 4
"""Number of open files sent with an order: for deadlines, input, output and errors."""
_CLONE = {"x86_64": 56, "aarch64": 220}
"""Number of the system call that starts a process, by machine."""
_CLONE_PARENT = 0x8000
_MAP_NORESERVE = 0x4000
_MOST_PLACES = 2**22
"""Number of possible start addresses of a fork's mappings, a page apart."""
_room: list[mmap.mmap] = []
"""Address space that a fork leaves free."""
_NOT_INITIALIZED = 3
"""Status of every call to CUDA's driver before its initialization."""
_PARENT_GLANCE_S = 1.0
"""Time in seconds between two checks that the requesting process still lives."""


class Order(msgspec.Struct, frozen=True):
    """An order to fork a process that runs a module."""

    module: str
    folder: str
    """Folder in which the process starts."""
    env: Mapping[str, str]
    names: tuple[str, ...] = ()
    """Names of modules that the process must find elsewhere, so that the template may not have them."""


class Forked(msgspec.Struct, frozen=True):
    """The answer to an order."""

    pid: int = 0
    """Process id of the fork's supervisor; 0 without a fork."""
    why: str = ""
    """Reason why there is no fork."""


@dataclass(frozen=True, slots=True)
class _Received:
    order: Order
    files: tuple[int, ...]


@dataclass(slots=True)
class _Imports:
    """Imports of the template."""

    modules: tuple[str, ...]
    packages: tuple[str, ...]
    """Modules without which it does not fork, imported after all others."""
    variables: Mapping[str, str]
    """Environment before the first import."""
    before: frozenset[str] = frozenset()
    """Modules that were loaded before the packages."""
    failed: str = ""
    """Reason why an import failed; empty if none did."""

    def run(self, name: str) -> None:
        """Import a module, and do the work that would be equal in all forks."""
        if name in self.packages and not self.before:
            self.before = frozenset(sys.modules)
        if name not in sys.modules and not self.failed:
            try:
                vars(importlib.import_module(name)).get("before_forks", lambda: None)()
            except BaseException as error:  # noqa: BLE001 - a package may raise anything
                self.failed = f"{name} could not be imported before: {type(error).__name__}: {error}"[:500]

    def run_all(self, module: str) -> None:
        for name in (module, *self.packages):
            self.run(name)

    def unfit(self, names: Collection[str]) -> str:
        """Return why a process that needs its own modules of these names cannot be a fork."""
        added = (
            {name.partition(".")[0] for name in sys.modules.keys() - self.before} if self.packages else set()
        )
        taken = sorted(added.intersection(names))
        return self.failed or (f"{taken[0]} is the name of a module of the suite too" if taken else "")

    def set_variables(self) -> dict[str, str | None]:
        """Return the variables that imports have set; None for a removed variable."""
        names = os.environ.keys() | self.variables.keys()
        now = {name: os.environ.get(name) for name in names}
        return {name: value for name, value in now.items() if value != self.variables.get(name)}


def serve(asked: socket.socket, imports: _Imports) -> _Received | None:
    """Import the modules and packages, and execute orders during and after that.

    Return the order in a fork, and None in the template once no requester is left. A signal of the system
    would tell of the end of the requesting thread, not of its process.
    """
    parent = os.getppid()
    waiting = [*imports.modules, *imports.packages]
    gc.disable()  # the imports stay
    while True:
        ready, _, _ = select.select([asked], [], [], 0 if waiting else _PARENT_GLANCE_S)
        if ready:
            if (received := _receive(asked)) is None:
                return None
            answer = _carry_out(received, asked, imports)
            if answer is None:
                return received
            for file in received.files:
                os.close(file)
            asked.send(msgspec.json.encode(answer))
        elif waiting:
            imports.run(waiting.pop(0))
        elif os.getppid() != parent:
            return None


def _receive(asked: socket.socket) -> _Received | None:
    """Return the next order; None once no requester is left."""
    message, files, _flags, _address = socket.recv_fds(asked, MOST_BYTES, FILES)
    return _Received(decode(message, Order), tuple(files)) if message else None


def _carry_out(received: _Received, asked: socket.socket, imports: _Imports) -> Forked | None:
    """Fork, and return the answer in the template; return None in the fork."""
    imports.run_all(received.order.module)
    gc.freeze()  # a garbage collection in a fork would copy each page that it examines
    if reason := imports.unfit(received.order.names) or _unfit():
        return Forked(why=reason)
    pid = fork_beside()
    if pid < 0:
        return Forked(why="this system makes no process beside another")
    if pid:
        return Forked(pid=pid)
    asked.close()
    return None


def _unfit() -> str:
    """Return why a fork would differ from a fresh process; empty if it would not."""
    if _threads() > 1:
        if not (copy := os.fork()):  # which makes BLAS end its threads
            os._exit(0)
        os.waitpid(copy, 0)
    if (threads := _threads()) > 1:
        return f"the process that is ready has {threads} threads"
    opened = {os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")}  # noqa: PTH208
    if devices := sorted(each for each in opened - {os.devnull} if each.startswith("/dev/")):
        return f"the process that is ready has {devices[0]} open"
    return "the process that is ready has initialized CUDA's driver" if _has_driver() else ""


def _has_driver() -> bool:
    """Tell whether CUDA's driver is loaded and initialized, without loading or initializing it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return int(driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p()))) != _NOT_INITIALIZED


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names are all that is wanted


def fork_beside() -> int:
    """Fork like os.fork, but as a child of this process's parent; return -1 on failure.

    Python's own fork has no such option, and neither has the C library's.
    """
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    flags = _CLONE_PARENT | signal.SIGCHLD
    pid = int(ctypes.PyDLL(None).syscall(_CLONE[platform.machine()], flags, 0, 0, 0, 0))
    if pid:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    return pid


def become(received: _Received, changed: Mapping[str, str | None]) -> None:
    """Turn a fork into a process as Python would have started it; return in the process, under its
    supervisor.

    `changed` are the variables that imports have set or removed.
    """
    order = received.order
    os.setsid()
    # Above all their target numbers, so that none is overwritten before it is copied.
    control, *streams = (_moved(file) for file in received.files)
    for number, file in enumerate(streams):
        os.dup2(file, number)
    _close_all_but({0, 1, 2, control})
    os.chdir(order.folder)
    env = {name: value for name, value in {**order.env, **changed}.items() if value is not None}
    for name in os.environ.keys() - env.keys():
        del os.environ[name]
    os.environ.update(env)
    time.tzset()
    supervisor.supervise(control)  # a fork of the C library, which knows its own number
    gc.enable()
    _seed()
    _scatter()


def _moved(file: int) -> int:
    return os.dup(file) if file > 2 else _moved(os.dup(file))


def _close_all_but(kept: set[int]) -> None:
    for number in {*map(int, os.listdir("/proc/self/fd"))} - kept:  # noqa: PTH208
        with contextlib.suppress(OSError):  # the listing itself
            os.close(number)


def _seed() -> None:
    """Reseed NumPy's random numbers, as Python does for its own in each fork."""
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()


def _scatter() -> None:
    """Move later mappings to other addresses than in other forks: drivers, contexts and arrays."""
    size_bytes = secrets.randbelow(_MOST_PLACES) * mmap.PAGESIZE + mmap.PAGESIZE
    with contextlib.suppress(OSError):  # for example under a limit of address space
        _room.append(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | _MAP_NORESERVE, prot=0))


def main() -> int:
    number, modules, packages = sys.argv[1:]
    imports = _Imports(tuple(modules.split()), tuple(packages.split()), dict(os.environ))
    received = serve(socket.socket(fileno=int(number)), imports)
    if received is None:
        return 0
    become(received, imports.set_variables())
    module: Any = sys.modules[received.order.module]
    sys.argv = [str(module.__file__)]
    return int(module.main())


if __name__ == "__main__":
    sys.exit(main())
