"""Process of a benchmark script at one commit, which waits for orders at each of its timing calls."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.errors import HarnessError, MeasureError, WorkerError
from harness.run.executables.executable_build import Executable
from harness.run.executables.side_code import Imported, SideRecorder
from harness.run.executables.side_modules import CALLS
from harness.run.scripts import recorder
from harness.run.scripts.recorder.link import FORK, GO, KILL, SEVERAL, SOCKET
from harness.run.scripts.recorder.recording import SETTINGS
from harness.run.scripts.script_files import script_of
from harness.run.worker_process import TimedOutError
from harness.system.decoding import decoder
from harness.system.process import Ended, ShellProcess

_GLANCE_S = 0.05
_STEP_S = 0.005
_PATIENCE_S = 10.0
_MOST_LINE_BYTES = 2**26
_ENVIRONMENT = {"MPLBACKEND": "Agg", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Variables that keep plots from opening windows, and let PyTorch find cards without opening one."""
E = TypeVar("E", bound=HarnessError)


class SeveralProcessesError(MeasureError):
    reason = "several-processes"


class Call(msgspec.Struct, frozen=True, tag_field="at", tag="call"):
    """A timing call that the script has reached."""

    pid: int
    timer: str
    """The timer that was called."""
    clock: str
    l2: str
    functions: tuple[str, ...]
    """Functions around the call, innermost first."""
    calls: str
    """Name of the timed function; empty if it has none."""
    variables: tuple[dict[str, int | str], ...]
    """Variables that may distinguish the call from others, in groups, the most reliable first."""
    test: str = ""
    """Id of the pytest test that makes the call; empty outside of pytest."""
    params: dict[str, int | float | str] = {}
    """The test's parameters."""


class Done(msgspec.Struct, frozen=True, tag_field="at", tag="done"):
    """The answer to an order: the fields of a sample, or of outputs."""

    times_ns: tuple[float, ...] = ()
    launches: int = 1
    started_ns: int = 0
    ended_ns: int = 0
    inputs: dict[str, str] = {}
    outputs: dict[str, str] = {}
    written: bool = False


class RaisedError(msgspec.Struct, frozen=True, tag_field="at", tag="error"):
    """The exception that the timed function raised during an order."""

    error: str
    message: str


class _End(msgspec.Struct, frozen=True, tag_field="at", tag="end"):
    """The process ends by itself."""


class _Ready(msgspec.Struct, frozen=True, tag_field="at", tag="ready"):
    """From now on the process forks copies of itself."""


_DECODER = decoder(Call | Done | RaisedError | _End | _Ready)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Settings of a script's recording, equal for both sides."""

    timers: tuple[str, ...] = ()
    """The author's own timers, ``function`` or ``module:function``."""
    ignored: tuple[str, ...] = ()
    """Parts of paths whose calls are ignored, such as an autotuner's."""
    seed: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment of both sides, in addition to this process's."""


class ScriptServer:
    """Starts one side's script once, for one run or for many forks. `close` ends it.

    A script that opens a card through PyTorch stops right before that, with everything imported. Each run is
    a fork of it. Any other script has one run, which is the process itself.
    """

    def __init__(self, executable: Executable, folder: Path, what: Recorded) -> None:
        self.executable, self.folder = executable, folder
        folder.mkdir()
        folders = executable.folders
        assert folders is not None, "a script is run at commits"
        script = script_of(executable.command, executable.folder)
        self._recorder = SideRecorder(folders, folder / "python")
        shutil.copytree(Path(recorder.__file__).parent, folder / "python" / "harness_recorder")
        described = {
            "folders": [os.path.realpath(executable.files)],
            "script": os.path.realpath(script) if script else "",
            "ignored": what.ignored,
            "timers": what.timers,
            "seed": what.seed,
        }
        (folder / SETTINGS).write_text(json.dumps(described), encoding="utf-8")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        place = os.open(folder, os.O_RDONLY)
        try:
            self.listener.bind(f"/proc/self/fd/{place}/{SOCKET}")
        finally:
            os.close(place)
        self.listener.listen()
        variables = {**_ENVIRONMENT, **what.variables, **self._recorder.variables, CALLS: str(folder)}
        self.child = ShellProcess(self._recorder.recorded(executable.command), executable.folder, variables)
        self._control: socket.socket | None = None
        self._told = bytearray()
        self._runs = 0

    @property
    def makes_copies(self) -> bool:
        return self._control is not None

    @property
    def may_run(self) -> bool:
        """Return whether another run is possible."""
        return not self._runs or (self.makes_copies and not self.child.has_ended())

    def close(self) -> None:
        self.child.close()
        for each in (self._control, self.listener):
            if each is not None:
                each.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self) -> ScriptProcess:
        """Begin a run. Only if `may_run`."""
        self._runs += 1
        process = ScriptProcess(self)
        if self.makes_copies:
            self.fork()
        return process

    def take_control(self, control: socket.socket) -> None:
        """Keep the link that orders copies, and order the first."""
        self._control = control
        self.fork()

    def fork(self) -> None:
        self._order(FORK)

    def end_copy(self) -> None:
        """End the running copy."""
        self._order(KILL)
        deadline = time.monotonic() + _PATIENCE_S
        while self.copy_ended() is None and time.monotonic() < deadline and not self.child.has_ended():
            time.sleep(_STEP_S)

    def copy_ended(self) -> int | None:
        """Return the status of the ended copy; None while it runs."""
        assert self._control is not None
        if select.select([self._control], [], [], 0)[0]:
            self._told += self._control.recv(2**12)
        line, newline, rest = self._told.partition(b"\n")
        if not newline:
            return None
        self._told = rest
        return int(json.loads(line)["status"])

    def imported(self) -> Imported:
        """Return the repository's modules that it has imported so far. Raises OtherCodeError."""
        return self._recorder.imported()

    def _order(self, order: bytes) -> None:
        assert self._control is not None
        with contextlib.suppress(OSError):  # It has ended, which is noticed later.
            self._control.sendall(order)


class ScriptProcess:
    """A run of a side's script. `close` ends it. Errors name the side and quote the end of the output."""

    def __init__(self, server: ScriptServer) -> None:
        self._server, self._child, self._listener = server, server.child, server.listener
        self.executable, self.side = server.executable, server.executable.side
        self._folder = server.folder
        self._is_copy = server.makes_copies
        self._status: int | None = None
        self._link: socket.socket | None = None
        self._received = bytearray()
        self.pid = 0
        self.at: Call | None = None
        """The call that it waits at."""
        self.calls = 0
        """Number of calls that it has reached."""

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        if not self._is_copy:
            self._server.close()
        elif self._status is None:
            self._server.end_copy()

    def let_go(self) -> None:
        """Let the script use the device. Before, it has at most imported its framework."""
        (self._folder / GO).touch()

    def reach(self, timeout_s: float) -> Call | None:
        """Let the script run to its next timing call; return None if it ended without another call or an
        error.

        Raises TimedOutError, WorkerError for a script that failed, SeveralProcessesError.
        """
        deadline = time.monotonic() + timeout_s
        self.let_go()
        if self.at is not None:
            self._send({"do": "go"})
            self.at = None
        found: Call | None = self._receive(deadline, Call)
        if (self._folder / SEVERAL).exists():
            raise self._error(
                SeveralProcessesError(
                    "Several processes of it called a timer at the same time, and only one at a time can be "
                    "recorded. Have it measure in a single process."
                )
            )
        if found is None:
            self._check_end(deadline)
            return None
        self.at, self.pid = found, found.pid
        self.calls += 1
        return found

    def order(self, timeout_s: float, **order: Any) -> Done | RaisedError:
        """Execute an order at the call that the script waits at. Raises as `reach` does."""
        deadline = time.monotonic() + timeout_s
        self._send(order)
        found: Done | RaisedError | None = self._receive(deadline, (Done, RaisedError))
        if found is None:
            self._check_end(deadline)
            raise self._error(WorkerError(f"{self.executable.command!r} ended while it was measured."))
        return found

    def imported(self) -> Imported:
        """Return the repository's modules that it imported, after it has ended. Raises OtherCodeError."""
        return self._server.imported()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._link is not None
        try:
            self._link.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._hang_up()

    def _receive(self, deadline: float, kind: Any) -> Any:
        """Return the next message; None if the script has ended."""
        while True:
            if (line := self._line()) is not None:
                found = self._decoded(line)
                if isinstance(found, kind):
                    return found
                if isinstance(found, _Ready):
                    assert self._link is not None
                    self._server.take_control(self._link)
                    self._link, self._is_copy = None, True
                    continue
                if not isinstance(found, _End):
                    raise self._error(WorkerError(f"The recorder answered {line[:200]!r} out of turn."))
                self._hang_up()
            elif time.monotonic() > deadline:
                raise self._error(
                    TimedOutError(
                        f"{self.executable.command!r} made no timing call in time and was stopped. Raise "
                        "--timeout, or have it measure less."
                    )
                )
            elif self._link is None and self._has_ended():
                return None
            else:
                self._read()

    def _has_ended(self) -> bool:
        if self._is_copy and self._status is None:
            self._status = self._server.copy_ended()
        return self._status is not None or self._child.has_ended()

    def _decoded(self, line: bytes) -> object:
        try:
            return _DECODER.decode(line)
        except msgspec.MsgspecError as error:
            raise self._error(WorkerError(f"The recorder's message cannot be read: {error}.")) from None

    def _line(self) -> bytes | None:
        end = self._received.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _read(self) -> None:
        self._child.shorten_log()
        source = self._link or self._listener
        if not select.select([source], [], [], _GLANCE_S)[0]:
            return
        if self._link is None:
            self._link, _ = self._listener.accept()
            return
        try:
            received = self._link.recv(2**16)
        except OSError:
            received = b""
        self._received += received
        if not received or len(self._received) > _MOST_LINE_BYTES:
            self._hang_up()

    def _hang_up(self) -> None:
        """Forget a process that has ended. A script that starts others may continue in the next process."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _check_end(self, deadline: float) -> None:
        if self._is_copy and self._status is not None:
            ended = Ended(self._status, self._child.log())
        else:
            in_time = self._child.wait(deadline)
            ended = self._child.ended(in_time=in_time)
        if ended.status != 0:
            raise self._error(WorkerError(f"{self.executable.command!r} {ended.how}."))

    def _error(self, error: E) -> E:
        error.side = self.side
        error.log = error.log or self._child.log()
        return error
