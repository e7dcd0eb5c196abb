"""Child processes that can be ended as a whole.

One kind answers typed requests, a line of JSON each, before deadlines. The other runs a shell command.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, Literal, TypeVar, cast, get_args

import msgspec

from harness.errors import HarnessError, MeasureError, Side
from harness.system import interrupts, ready, supervisor
from harness.system.decoding import decoder
from harness.system.files import UNREADABLE, no_temporary_folder, start_folder
from harness.system.supervisor import kill_descendants, stands_in_for
from harness.system.template import CAN_FORK

CAN_START = hasattr(os, "killpg")
"""False on Windows, where only reading stored measurements works."""
NOT_HERE = "Suites and kernels run on Linux and macOS, not on this system: WSL 2 is a Linux on Windows."
LOG_BYTES = 20_000
"""Bytes kept from the end of a process's output."""
MOST_LOG_BYTES = 2**26
"""Largest output of a process on the disk, in bytes. More is dropped while it runs."""
MOST_LINE_BYTES = 2**28
"""Longest valid answer, in bytes."""

_GLANCE_S = 0.1
"""Time in seconds between two checks that the process lives. Its pipe does not show it while a child holds
the pipe."""
_STEP_S = 0.01
"""Time in seconds between two checks that a process has ended."""
_BRIEFLY_S = 0.001
"""Time in seconds between two checks that a killed process has ended."""
_PATIENCE_S = supervisor.PATIENCE_S + 1
"""Time in which a supervisor must end after a request, in seconds."""
_READ_BYTES = 2**20
_SUPERVISOR = str(Path(supervisor.__file__))

R = TypeVar("R")


class Request(msgspec.Struct, Generic[R], frozen=True, kw_only=True, tag=True):
    """A request to a process, which answers with an R or Failed, after any number of Progress."""


class Reply(msgspec.Struct, Generic[R], frozen=True, tag=True):
    """The answer to a successful request."""

    value: R


class Progress(msgspec.Struct, frozen=True, tag=True):
    """The next stage of the process, and the side of a pair that it concerns."""

    stage: str
    side: Side = ""
    waits: bool = False
    """True if the process begins the stage only when its requester has taken note."""


class Query(msgspec.Struct, frozen=True, tag=True):
    """A question from a process to its requester, while it works on a request."""

    side: Side
    """The side of a pair whose suite can answer."""
    request: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An error instead of an answer. The process must not get another request."""

    reason: str
    message: str
    log: str = ""
    exit_code: int = 3
    side: Side = ""
    """The side of a pair at fault; empty if unknown."""


def failure(error: HarnessError) -> Failed:
    """Return the error as a reply."""
    return Failed(
        reason=error.reason, message=error.message, log=error.log, exit_code=error.exit_code, side=error.side
    )


class LostError(Exception):
    """A process gave no answer and has been ended, with the reason and its symptoms."""

    def __init__(self, why: Literal["timed-out", "garbled", "ended"], how: str = "") -> None:
        super().__init__(how)
        self.why, self.how = why, how


@functools.cache
def _decoder(kind: type[Request[Any]]) -> msgspec.json.Decoder[Any]:
    """Return a decoder for replies to a kind of request."""
    (base,) = kind.__orig_bases__  # type: ignore[attr-defined]
    (reply,) = get_args(base)
    return decoder(Reply[reply] | Progress | Query | Failed)  # type: ignore[valid-type]


def _message(answer: object) -> msgspec.Struct:
    return answer if isinstance(answer, Failed) else Reply(answer)


def _answer(message: Any) -> Any:
    return message.value if isinstance(message, Reply) else message


def module_command(module: str, control: int | None, python: str = "") -> list[str]:
    """Return the command that runs a module under a supervisor, which reads deadlines from
    `control`, if any.
    """
    reads = supervisor.NOBODY if control is None else str(control)
    return [python or sys.executable, _SUPERVISOR, reads, "-m", module]


def supervised(command: Sequence[str], control: int) -> list[str]:
    """Return the command that runs a command under a supervisor, which reads deadlines from `control`."""
    return [sys.executable, "-I", "-S", _SUPERVISOR, str(control), *command]


class _Child:
    """A process in its own session: Ctrl-C does not reach it, and it can be ended as a whole."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        *,
        cwd: Path,
        env: Mapping[str, str],
        piped: bool,
        module: str = "",
        template: ready.Template | None = None,
    ) -> None:
        """Start the process. `command` returns its words, given the number of the pipe for deadlines.

        Its output is kept, except standard output if `piped`, when its input is a pipe too. For a `module`,
        it is forked from a process that has imported the module, if there is one: from `template` if that is
        possible.
        """
        if not CAN_START:
            raise MeasureError(NOT_HERE)
        try:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        except OSError as error:
            raise no_temporary_folder(error) from None
        control, self._control = os.pipe()
        os.set_blocking(self._control, False)
        self._process: subprocess.Popen[bytes] | ready.ForkedProcess
        self.why_fresh = ""
        """Reason why the process is no fork of a ready one; empty if there is no reason."""
        try:
            forked: ready.ForkedProcess | str = ""
            if module and template is not None:
                forked = template.fork(module, cwd, env, control, self._log)
            if module and isinstance(forked, str):
                forked = ready.fork(module, cwd, env, control, self._log)
            if isinstance(forked, str):
                self.why_fresh = forked
                self._process = subprocess.Popen(
                    command(control),
                    pass_fds=[control],
                    stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else self._log,
                    stderr=self._log,
                    bufsize=0,
                    cwd=cwd,
                    env=env,
                    start_new_session=True,
                )
            else:
                self._process = forked
        except BaseException:
            self._log.close()
            os.close(self._control)
            raise
        finally:
            os.close(control)
        self._pid = self._process.pid
        """Process id of its supervisor."""

    def has_ended(self) -> bool:
        """Return whether it has ended, without reaping it, so that its id and group stay reserved."""
        return (
            self._process.returncode is not None
            or os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        )

    def wait(self, deadline: float, glance: Callable[[int], object] = lambda _pid: None) -> bool:
        """Wait for its end until a moment of time.monotonic(); return False if it has not ended by then.

        Meanwhile `glance` is called repeatedly with the id of the process that the supervisor has started.
        """
        while not (ended := self.has_ended()) and time.monotonic() < deadline:
            self.shorten_log()
            if (started := stands_in_for(self._pid)) is not None:
                glance(started)
            time.sleep(_STEP_S)
        return ended and not self.was_late(deadline)

    def limit(self, deadline: float | None) -> None:
        """Let the supervisor enforce a deadline while this process is stopped; None removes the deadline."""
        line = b"\n" if deadline is None else f"{deadline}\n".encode()
        with contextlib.suppress(OSError):  # it has ended, or is stopped itself
            os.write(self._control, line)

    def was_late(self, deadline: float) -> bool:
        """Return whether the supervisor has ended it at its deadline."""
        return time.monotonic() > deadline and self.has_ended() and self.kill() == -signal.SIGALRM

    def shorten_log(self) -> None:
        """Keep a process that prints endlessly from filling the disk."""
        if 512 * os.fstat(self._log.fileno()).st_blocks > MOST_LOG_BYTES:
            os.ftruncate(self._log.fileno(), 0)  # its length stays, because the process keeps its position

    def log(self) -> str:
        """Return the end of its output; empty after it is closed."""
        if self._log.closed:
            return ""
        # Without seeking: the process writes at the position where the file was last read.
        file = self._log.fileno()
        end = os.pread(file, LOG_BYTES, max(0, os.fstat(file).st_size - LOG_BYTES))
        return end.decode(errors="replace").strip("\0 \t\r\n")

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                try:
                    os.killpg(self._pid, number)
                except ProcessLookupError:  # a fork that does not lead its group yet
                    os.kill(self._pid, number)

    def kill_soon(self) -> None:
        """Start to kill it with everything that it started. Its last output may be lost."""
        if self._process.returncode is None:
            # A supervisor that has not begun has nothing to end yet.
            has_begun = stands_in_for(self._pid) is not None
            self._signal(signal.SIGTERM if has_begun else signal.SIGKILL)

    def kill(self) -> int:
        """Kill it as `kill_soon` does; return its return code, negative for a signal."""
        self.kill_soon()
        if self._process.returncode is None:
            deadline = time.monotonic() + _PATIENCE_S
            while not (ended := self.has_ended()) and time.monotonic() < deadline:
                time.sleep(_BRIEFLY_S)
            if not ended:  # the supervised process has stopped it
                kill_descendants(self._pid)
                self._signal(signal.SIGKILL)
            return self._process.wait()
        return self._process.returncode

    def close(self) -> None:
        self.kill()
        if not self._log.closed:
            os.close(self._control)
            self._control = -1  # another file may get the number
        for file in (self._process.stdin, self._process.stdout, self._log):
            if file is not None:
                file.close()


class ShellProcess(_Child):
    """A running shell command without input. `env` adds to this process's variables."""

    def __init__(self, command: str, folder: Path, env: Mapping[str, str] | None = None) -> None:
        shell = functools.partial(supervised, ["/bin/sh", "-c", command])
        super().__init__(shell, cwd=folder, env={**os.environ, **(env or {})}, piped=False)

    def ended(self, *, in_time: bool = True) -> Ended:
        """End it if it still runs; return its status and the end of its output."""
        code = self.kill()
        return Ended((code if code >= 0 else 128 - code) if in_time else None, self.log())


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended or was ended."""

    status: int | None
    """Status in the form of a shell, 128 plus the signal for a signal; None after a timeout."""
    log: str
    """The end of its output."""

    @property
    def how(self) -> str:
        """Return its end in words."""
        if self.status is None:
            return "took too long, and was ended"
        number = self.status - 128
        return _status_in_words(-number if number in {*signal.Signals} else self.status)


def _status_in_words(code: int) -> str:
    """Return the end of a process in words, by its return code, which is negative for a signal."""
    if code >= 0:
        return f"exited with status {code}"
    # Only the first and the last real-time signals have names.
    return f"was ended by {signal.Signals(-code).name if -code in {*signal.Signals} else f'signal {-code}'}"


def run_shell(
    command: str,
    folder: Path,
    timeout_s: float,
    *,
    env: Mapping[str, str] | None = None,
    glance: Callable[[int], object] = lambda _pid: None,
) -> Ended:
    """Run a shell command in a folder, without input, and end everything that it leaves running.

    `env` adds to this process's variables. `glance` is called with the shell's process id while it runs.
    """
    child = ShellProcess(command, folder, env)
    deadline = time.monotonic() + timeout_s
    with contextlib.closing(child):
        child.limit(deadline)
        return child.ended(in_time=child.wait(deadline, glance))


def finished(
    command: Sequence[str], folder: Path | None = None, timeout_s: float | None = None
) -> tuple[int, str, str]:
    """Return status, output and errors of a command. Raises subprocess.TimeoutExpired.

    After a timeout everything that it started ends too, for example compilers started by a driver.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, errors="replace"
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            kill_descendants(process.pid)
            process.kill()
            raise
        return process.returncode, out, err


SUITE_SOCKET = "HARNESS_SUITE_SOCKET"
"""Variable with the socket of the server that runs processes as another user: harness/system/relay.py."""


class Process(_Child):
    """A Python module that answers requests. It starts in its own empty folder."""

    def __init__(
        self,
        module: str,
        *,
        env: Mapping[str, str] | None = None,
        python: str = "",
        before: Sequence[str] = (),
        fresh: bool = False,
        template: ready.Template | None = None,
    ) -> None:
        """Start the process, with `python` instead of this interpreter, which then finds only this package.

        `before` is a command that runs the command after it, with the same input and output. A `fresh`
        process is not a fork of a ready one: its libraries have their own addresses. Another process is a
        fork of `template`, if that is possible.
        """
        address = os.environ.get(SUITE_SOCKET)
        self._relayed = bool(address)
        # Isolated: the suite's user can write to the folder, and this runs as us.
        relay = [sys.executable, "-I", str(Path(__file__).with_name("relay.py")), address] if address else []
        if outer := [*relay, *before]:
            inner = module_command(module, None, python)
            command = functools.partial(supervised, [*outer, *inner])
        else:
            command = functools.partial(module_command, module, python=python)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(start_folder())
            search = str(_alone(folder.parent)) if python else _import_path()
            super().__init__(
                command,
                cwd=folder,
                env={**os.environ, **(env or {}), "PYTHONPATH": search},
                piped=True,
                module="" if outer or python or fresh else module,
                template=template,
            )
            self._folder = stack.pop_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._requests, False)
        self._unread = bytearray()

    def ask(
        self,
        request: Request[R],
        timeout_s: float,
        heard: Callable[[Progress], object] = lambda _progress: None,
    ) -> R | Failed:
        """Send a request and wait for its answer. Raises LostError."""
        deadline = time.monotonic() + timeout_s
        self.send(request, deadline)
        return self.answer(request, deadline, heard)

    def close(self) -> None:
        super().close()
        self._folder.close()

    def send(self, message: msgspec.Struct, deadline: float) -> None:
        """Send a message before the deadline, a moment of time.monotonic(). Raises LostError."""
        left = memoryview(msgspec.json.encode(message) + b"\n")
        self.limit(deadline)
        while left:
            if not self._wait(self._requests, select.POLLOUT, deadline):
                raise self._lost(deadline)
            try:
                left = left[os.write(self._requests, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._lost(deadline) from None

    def answer(
        self,
        request: Request[R],
        deadline: float,
        heard: Callable[[Progress], object] = lambda _progress: None,
        answered: Callable[[Query, float], object] | None = None,
    ) -> R | Failed:
        """Return the answer to a sent request. Raises LostError.

        `answered` returns the answer to each question of the process; it gets the question and the deadline.
        """
        while True:
            line = self._line(deadline)
            try:
                reply = _decoder(type(request)).decode(line)
                if isinstance(reply, Query) and answered is None:
                    raise msgspec.ValidationError("it asked a question that nobody answers")
            except UNREADABLE as error:
                self.kill()
                raise LostError("garbled", str(error)) from None
            if isinstance(reply, Query):
                assert answered is not None
                self.send(_message(answered(reply, deadline)), deadline)
            elif isinstance(reply, Progress):
                heard(reply)
                if reply.waits:
                    self.send(_message(None), deadline)
            else:
                self.limit(None)
                return cast("R | Failed", _answer(reply))
            if time.monotonic() > deadline:  # a pipe that is never empty would never reach the check
                self.kill()
                raise LostError("timed-out")

    def _line(self, deadline: float) -> bytes:
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0:
            searched = len(self._unread)
            readable = searched <= MOST_LINE_BYTES and self._wait(self._replies, select.POLLIN, deadline)
            if not readable or not (read := os.read(self._replies, _READ_BYTES)):
                raise self._lost(deadline)
            self._unread += read
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _wait(self, pipe: int, event: int, deadline: float) -> bool:
        """Wait for a pipe; False if the process has ended. Raises LostError after the deadline."""
        if self._process.returncode is not None:
            return False
        poll = select.poll()
        poll.register(pipe, event)
        while True:
            interrupts.check()
            ended = self.has_ended()  # checked first, so that its last output is in the pipe
            self.shorten_log()
            left_s = deadline - time.monotonic()
            if poll.poll(0 if ended else 1e3 * max(0.0, min(_GLANCE_S, left_s))):
                return True
            if ended:
                return False
            if left_s <= 0:
                self.kill()
                raise LostError("timed-out")

    def _lost(self, deadline: float) -> LostError:
        """Return the error for a process that no longer answers."""
        how = self._how_it_ended()
        return LostError("timed-out") if self.was_late(deadline) else LostError("ended", how)

    def _how_it_ended(self) -> str:
        """Return in words how a process that no longer answers ended; end it if it still lives."""
        by_itself = self.wait(time.monotonic() + 1)
        code = self.kill()
        return _status_in_words(code) if by_itself else "closed its output, and was ended"

    def finish(self, timeout_s: float) -> None:
        """Let it end by itself, because there are no more requests. Raises LostError if it does
        not in time.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        deadline = time.monotonic() + timeout_s
        self.limit(deadline)
        if not self.wait(deadline):
            self.kill()
            raise LostError("timed-out")

    def rest(self) -> None:
        """Stop the process, including its threads, until it is woken."""
        self._tell(signal.SIGSTOP, signal.SIGUSR1)

    def wake(self) -> None:
        self._tell(signal.SIGCONT, signal.SIGUSR2)

    def pids(self) -> list[int]:
        """Return the ids of the supervisor and of the processes behind it; a card's driver lists the last."""
        found = [self._pid]
        for _ in range(1 + self._relayed):  # no further, because the process itself may have any name
            if (inner := stands_in_for(found[-1])) is not None:
                found.append(inner)
        return found

    def _tell(self, ours: signal.Signals, relayed: signal.Signals) -> None:
        begun = self.pids()[:2][-1]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._relayed:
                os.kill(begun, relayed)
            else:
                os.killpg(begun, ours)


def template_with(
    packages: Sequence[str], names: Sequence[str], env: Mapping[str, str]
) -> ready.Template | None:
    """Return a template that imports packages too, for processes with these additional variables.

    `names` are as in Template. None if no process can be forked here.
    """
    if not CAN_FORK or os.environ.get(ready.FRESH) or os.environ.get(SUITE_SOCKET):
        return None
    try:
        env = {**os.environ, **env, "PYTHONPATH": _import_path()}
        return ready.Template(ready.MODULES, env, packages, names)
    except OSError:
        return None


def begin_ready(modules: Sequence[str] = ready.MODULES) -> None:
    """Start the process whose forks will run these modules, unless another user runs them."""
    if not os.environ.get(SUITE_SOCKET):
        ready.begin(modules, {**os.environ, "PYTHONPATH": _import_path()})


def _import_path() -> str:
    """Return PYTHONPATH for a child: this package's folder, and this process's entries as absolute paths."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = [str(Path(__file__).parents[2]), *(str(Path(entry).absolute()) for entry in given if entry)]
    return os.pathsep.join(found)


def _alone(folder: Path) -> Path:
    """Return an import folder with only this package, and nothing that is installed beside it."""
    package = Path(__file__).parents[1]
    alone = folder / "import"
    alone.mkdir()
    (alone / package.name).symlink_to(package, target_is_directory=True)
    return alone


class Channel:
    """The connection to the requester of the current request, for progress and questions."""

    def __init__(self, lines: BinaryIO, replies: BinaryIO) -> None:
        self._lines, self._replies = lines, replies

    def send(self, reply: msgspec.Struct) -> None:
        try:
            encoded = msgspec.json.encode(reply)
        except UnicodeEncodeError as error:  # a file name may contain any bytes
            said = f"It answered with text that is no UTF-8: {error.object[:1000]!a}."
            encoded = msgspec.json.encode(Failed(reason="error", message=said))
        except ValueError as error:  # an integer with more digits than Python writes
            said = f"It answered with a value that cannot be sent: {error}."
            encoded = msgspec.json.encode(Failed(reason="error", message=said))
        left = memoryview(encoded + b"\n")
        while left:  # a raw pipe accepts only as much as it has room for
            left = left[self._replies.write(left) :]
        if isinstance(reply, Progress) and reply.waits:
            self._lines.readline()

    def ask(self, side: Side, request: Request[R]) -> R | Failed:
        """Return the answer of the suite of a side."""
        self.send(Query(side, msgspec.Raw(msgspec.json.encode(request))))
        return cast("R | Failed", _answer(_decoder(type(request)).decode(self._lines.readline())))


def serve(requests: Any, answer: Callable[[Any, Channel], object]) -> None:
    """Answer requests of these types, inside the process, until there are no more.

    `answer` may report progress and ask questions. Suites and libraries read no standard input, and their
    output goes to standard error.
    """
    # Also if a program stands between the supervisor and this process.
    supervisor.prctl(supervisor.PR_SET_PDEATHSIG, signal.SIGKILL)
    lines = os.fdopen(os.dup(0), "rb")
    replies: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    known = decoder(requests)
    channel = Channel(lines, replies)

    for line in lines:
        try:
            reply = _message(answer(known.decode(line), channel))
        except HarnessError as error:
            reply = failure(error)
        except BaseException as error:  # noqa: BLE001 - a suite's own code may raise anything
            said = f"{type(error).__name__}: {error}"
            reply = Failed(reason="error", message=said, log=traceback.format_exc())
        channel.send(reply)
