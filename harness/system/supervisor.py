"""Stands between a command and the process that asks for it: all that the command starts ends with it.

    python -I -S supervisor.py CONTROL COMMAND...

A process whose parent has ended becomes a child of the supervisor, also one that has left its session. When
the command ends, or the process that asked for it, or the writer of the pipe CONTROL, the supervisor ends
what is left and then itself as the command did.

CONTROL is the number of a pipe's reading end. Each line is a deadline, a moment of time.monotonic(); an empty
line takes it back. Whoever asked sees to its deadlines itself. While it is stopped, the supervisor does.

This file is run by itself, so it imports nothing of the harness, and little else: each import delays each
process.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # as type checkers know it without an import
    from collections.abc import Callable, Iterator
    from typing import NoReturn

PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PARENT_ENDED = signal.SIGUSR1
"""The signal of the parent's end. It also comes at the end of the thread that started this process."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HEARD = (signal.SIGCHLD, _PARENT_ENDED, *_ENDING)
_GRACE_S = 1.0
"""Time for whoever set a deadline to see to it first, and between two looks whether it is stopped."""
_PATIENCE_S = 5.0
"""Time in which what a command has left should have ended once it is killed."""
_STEP_S = 0.001
_NOT_STARTED = 127
"""The status of a shell for a command that cannot be started."""
_MOST_BYTES = 2**16


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, on Linux; nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def descendants(pid: int) -> Iterator[int]:
    """The processes below one, by the kernel's own lists; none where it is gone or there are no lists."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                listed = file.read().split()
            for child in map(int, listed):
                yield from descendants(child)
                yield child
    except OSError:
        return


def kill_descendants(pid: int) -> None:
    """Kill what descends from a process now."""
    for each in [*descendants(pid)]:
        _kill(os.kill, each)


def _kill(how: Callable[[int, int], None], pid: int) -> None:
    try:
        how(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def stands_in_for(pid: int) -> int | None:
    """The process that a supervisor or a relay has started, by the name that it gives itself."""
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
            word, _, number = file.read().strip().partition(" ")
    except OSError:
        return None
    return int(number) if word == "for" and number.isdecimal() else None


def _facts(pid: int) -> list[str]:
    """The words of /proc/PID/stat from the state on; none where the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _is_stopped(pid: int) -> bool:
    return _facts(pid)[:1] in (["T"], ["t"])


def supervise(control: int, begin: Callable[[], object]) -> NoReturn:
    """Have a new process `begin`, and end as it does once nothing that it started lives."""
    parent = os.getppid()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, _PARENT_ENDED)
    woken, waking = os.pipe()
    ready, starting = os.pipe()
    for pipe in (woken, waking, control):
        os.set_blocking(pipe, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for number in _HEARD:
        signal.signal(number, lambda *_: None)
    child = os.fork()
    if not child:
        signal.set_wakeup_fd(-1)
        for number in _HEARD:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for pipe in (woken, waking, control, starting):
            os.close(pipe)
        os.read(ready, 1)
        os.close(ready)
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        begin()
        os._exit(0)
    _leave_files_to_child()
    os.close(ready)
    _name_after(child)
    os.close(starting)
    status = _wait_for(child, parent, control, woken)
    _end_all(child)
    _end_with(status)


def _leave_files_to_child() -> None:
    """Keep none of the pipes open, so that their reader sees the end when the child ends."""
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
    """Wait for the child's end, and return how it ended as a return code, negative for a signal. A child that
    is to be ended before counts as ended by SIGKILL, or by SIGALRM where its time is up.
    """
    poll = select.poll()
    for pipe in (control, woken):
        poll.register(pipe, select.POLLIN)
    deadline: float | None = None
    while True:
        left_s = None if deadline is None else max(0.0, deadline + _GRACE_S - time.monotonic())
        ready = {number for number, _ in poll.poll(None if left_s is None else 1e3 * left_s)}
        signals = os.read(woken, _MOST_BYTES) if woken in ready else b""
        if (code := _reaped(child)) is not None:
            return code
        has_parent = os.getppid() == parent
        if not has_parent or any(number in signals for number in _ENDING):
            return -signal.SIGKILL
        if control in ready:
            said = os.read(control, _MOST_BYTES)
            if not said:
                return -signal.SIGKILL
            last = said.split(b"\n")[-2]
            deadline = float(last) if last else None
        elif deadline is not None and time.monotonic() >= deadline + _GRACE_S:
            if _is_stopped(parent):
                return -signal.SIGALRM
            deadline = time.monotonic()


def _end_all(child: int) -> None:
    """Return once the child has ended, and all that it left; what another user's process does not in time."""
    try:
        if not os.waitpid(child, os.WNOHANG)[0]:
            _kill(os.kill, child)
            _kill(os.killpg, child)
            os.waitpid(child, 0)
    except ChildProcessError:  # it had ended before
        pass
    deadline = time.monotonic() + _PATIENCE_S
    # Asked of the kernel: its lists of children miss a process that just now gets another parent.
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


def _reaped(child: int) -> int | None:
    """Reap whatever has ended; the child's return code, once it has."""
    code: int | None = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        pass
    return code


def _end_with(code: int) -> NoReturn:
    if code < 0:
        prctl(_PR_SET_DUMPABLE, 0)  # the child has left the core, if any
        number = -code
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(code if code >= 0 else 128 - code)


def main() -> NoReturn:
    control, *command = sys.argv[1:]

    def begin() -> None:
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # Python has settings of its own
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]} cannot be started: {error.strerror}.\n".encode())
            os._exit(_NOT_STARTED)

    supervise(int(control), begin)


if __name__ == "__main__":
    main()
