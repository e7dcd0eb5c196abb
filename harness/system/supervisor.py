"""Stands between a process and its requester, and kills everything that the process has started.

    python supervisor.py CONTROL -m MODULE          forks the process that runs a module of this Python
    python -I -S supervisor.py CONTROL COMMAND...   forks the process that becomes a command

The supervisor is a subreaper: a process whose parent has ended becomes its child, even if it has left its
session. When the process or the requester ends, the supervisor kills all remaining processes. Then it ends
with the status of the process. The command itself could be the subreaper, but if it were killed, it would end
nothing, and while it is stopped, it could not enforce a deadline.

CONTROL is the number of a pipe's reading end, or "-" for no supervisor. Each line is a deadline, a moment of
time.monotonic(). An empty line cancels the deadline. The requester ends the process at its deadline.
While the requester is stopped, the supervisor does.

This file runs by itself, so it imports nothing of the harness, and little else: each import delays each
process. A module runs in a fork, because a second start of Python would take ten times as long.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # type checkers know it without an import
    from collections.abc import Iterator
    from typing import NoReturn

NOBODY = "-"
"""CONTROL of a process without its own supervisor, because one of its ancestors is a supervisor."""
PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PARENT_ENDED = getattr(signal, "SIGUSR1", signal.SIGTERM)  # Windows has no SIGUSR1, and no supervisor
"""Signal for the parent's end. It also comes at the end of the thread that started this process."""
_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
_HEARD = (getattr(signal, "SIGCHLD", signal.SIGTERM), _PARENT_ENDED, *_ENDING)
_GRACE_S = 1.0
"""Time in seconds for the requester to enforce its deadline first, and between two checks if it
is stopped."""
PATIENCE_S = 5.0
"""Time in seconds in which killed processes should have ended."""
_STEP_S = 0.001
_NOT_STARTED = 127
"""A shell's status for a command that cannot be started."""
_MOST_BYTES = 2**16


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, on Linux; do nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below a process, parents first, so that no shell reports a killed child."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                listed = file.read().split()
            for child in map(int, listed):
                yield child
                yield from descendants(child)
    except OSError:
        return


def kill_descendants(pid: int) -> None:
    """Kill all descendants of a process now."""
    for each in [*descendants(pid)]:
        try:
            os.kill(each, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def stands_in_for(pid: int) -> int | None:
    """Return the process that a supervisor or a relay has started, by the name that it sets for itself."""
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
            word, _, number = file.read().strip().partition(" ")
    except OSError:
        return None
    return int(number) if word == "for" and number.isdecimal() else None


def supervise(control: int) -> None:
    """Fork. Return only in the new process, which leads a session; this process ends when that one does."""
    parent = os.getppid()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, _PARENT_ENDED)
    waiting, starting = os.pipe()
    child = os.fork()
    if not child:
        os.close(control)
        os.close(starting)
        _wait_to_start(waiting)
        return
    os.close(waiting)
    woken = _woken_by_signals()
    _leave_files_to_child()
    _name_after(child)
    os.write(starting, b"\n")
    os.close(starting)
    status = _wait_for(child, parent, control, woken)
    _end_all()
    _end_with(status)


def _wait_to_start(waiting: int) -> None:
    """Begin in a new session once the supervisor is ready; exit if there is none."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if not os.read(waiting, 1):
        os._exit(_NOT_STARTED)
    os.close(waiting)


def _woken_by_signals() -> int:
    """Return a pipe that becomes readable after each handled signal."""
    woken, waking = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for number in _HEARD:
        signal.signal(number, lambda *_: None)
    return woken


def _leave_files_to_child() -> None:
    """Close the pipes, so that their reader sees the end when the child ends."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)


def _name_after(child: int) -> None:
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write(f"for {child}")
    except OSError:
        pass


def _wait_for(child: int, parent: int, control: int, woken: int) -> int:
    """Wait for the child, and return its return code, negative for a signal.

    A child to be ended counts as ended by SIGKILL, or by SIGALRM after its deadline.
    """
    poll = select.poll()
    for pipe in (control, woken):
        poll.register(pipe, select.POLLIN)
    deadline: float | None = None
    while (code := _reaped(child)) is None:
        left_s = None if deadline is None else max(0.0, deadline + _GRACE_S - time.monotonic())
        ready = {number for number, _ in poll.poll(None if left_s is None else 1e3 * left_s)}
        signals = os.read(woken, _MOST_BYTES) if woken in ready else b""
        if os.getppid() != parent or any(number in signals for number in _ENDING):
            return -signal.SIGKILL
        if control in ready:
            lines = os.read(control, _MOST_BYTES)
            if not lines:
                return -signal.SIGKILL
            last = lines.split(b"\n")[-2]
            deadline = float(last) if last else None
        elif deadline is not None and time.monotonic() >= deadline + _GRACE_S:
            if _is_stopped(parent):
                return -signal.SIGALRM
            deadline = time.monotonic()
    return code


def _reaped(child: int) -> int | None:
    """Reap every ended process, and return the child's return code once the child has ended."""
    code: int | None = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        pass
    return code


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def _end_all() -> None:
    """Return once all descendants of this process have ended, except those that cannot be killed."""
    deadline = time.monotonic() + PATIENCE_S
    # Ask the kernel: its lists of children miss a process that is just getting another parent.
    while _has_children() and time.monotonic() < deadline:
        kill_descendants(os.getpid())
        time.sleep(_STEP_S)


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _end_with(code: int) -> NoReturn:
    if code < 0:
        prctl(_PR_SET_DUMPABLE, 0)  # the child has written the core, if any
        number = -code
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(code if code >= 0 else 128 - code)


def _become(command: list[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}.\n".encode())
        os._exit(_NOT_STARTED)


def _run_module(module: str, *arguments: str) -> None:
    """Run a module like ``python -m``, without the folder of this script on the import path."""
    import runpy

    if not getattr(sys.flags, "safe_path", False):  # of Python 3.11
        del sys.path[0]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    control, *command = sys.argv[1:]
    if control != NOBODY:
        supervise(int(control))
    if command[0] == "-m":
        _run_module(*command[1:])
    else:
        _become(command)


if __name__ == "__main__":
    main()
