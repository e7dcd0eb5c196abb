"""The process that uses a device, as its session sees it. Importing this takes little time."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from harness.errors import DeviceError, ExitCode, HarnessError, UsageError, WorkerError
from harness.measure.early_worker import DEVICE
from harness.system.cache import ARRAYS, cache_dir
from harness.system.process import SUITE_SOCKET, Failed, LostError, Process, Progress, Query, Request

if TYPE_CHECKING:
    from harness.measure.protocol import OpenReply, SideName
    from harness.suite.suite_data import SuiteData
    from harness.system.ready import Template

R = TypeVar("R")
OPEN_TIMEOUT_S = 60.0
_NVIDIA = Path("/dev/nvidiactl")
"""Exists where NVIDIA's driver for Linux runs."""
_DOING = {
    "start": "starting",
    "build": "building the kernel",
    "parts": "looking for the largest dispatch",
    "inputs": "making inputs",
    "reference": "computing the reference",
    "verify": "verifying",
    "measure": "measuring",
    "library": "measuring the vendor's library",
    "solo": "running each side alone",
    "launches": "listing the kernels that a function launches",
    "sanitize": "running the kernel under a sanitizer",
    "end": "ending",
}


Pending = Callable[[Callable[[Progress], object]], R | Failed]
"""Function that waits for the answer to a request, and reports progress in the meantime."""


Answered = Callable[[Query, float], object]
"""Answers a question of a worker process. The second argument is the deadline, a moment of
time.monotonic()."""


class TimedOutError(WorkerError):
    reason = "timed-out"


def worker_variables() -> dict[str, str]:
    """Return the variables that every worker process gets."""
    # The worker gets its own folder, because it would resolve relative paths there.
    names = ("HARNESS_CACHE_DIR", "HARNESS_NULL_SCRIPT")
    paths = {name: str(Path(value).absolute()) for name in names if (value := os.environ.get(name))}
    # Use the driver's defaults. If the host waited for each launch, its time would be in every result. If
    # streams shared a connection to the card, they would wait for each other, and work on a wrong stream
    # would go unnoticed.
    return {"CUDA_LAUNCH_BLOCKING": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "8", **paths}


class WorkerProcess(Process):
    def __init__(
        self,
        scratch: Path,
        python: str = "",
        env: Mapping[str, str] = {},
        before: Sequence[str] = (),
        answered: Answered | None = None,
        *,
        fresh: bool = False,
        template: Template | None = None,
        module: str = "harness.measure.worker",
    ) -> None:
        """Start the process.

        `python` is an interpreter whose environment the process uses; it must have this harness and the
        packages. `before` are the words of a program that starts it. `answered` answers each question of the
        process. A `fresh` process is started by Python instead of a fork, of `template` if there is one.
        """
        self.scratch, self.answered = scratch, answered
        env = {**worker_variables(), **env}
        super().__init__(module, env=env, python=python, before=before, fresh=fresh, template=template)

    def begin_open(
        self,
        device: str | None,
        suite: Path | None = None,
        base: Path | None = None,
        *,
        told: Mapping[SideName, SuiteData] = {},
        work_tree: Path | None = None,
        peaks: Mapping[str, float] = {},
        compilers: Mapping[str, str] = {},
        cards: int = 1,
    ) -> Callable[[], OpenReply]:
        """Ask the worker to open a device, and suites if given. Return a function that waits for the answer.

        It does not load the suites in `told`. `cards` are the device and those after it. Both functions raise
        UsageError, DeviceError and WorkerError.
        """
        from harness.measure.protocol import Open

        request = Open(
            device=device,
            suite=str(suite) if suite else None,
            scratch=str(self.scratch),
            base=str(base) if base else None,
            told=told,
            work_tree=str(work_tree) if work_tree else None,
            peaks=peaks,
            compilers=compilers,
            cards=cards,
            # Another user's suites are untrusted code, which must not pass references to each other.
            arrays=None if os.environ.get(SUITE_SOCKET) else str(cache_dir() / ARRAYS),
        )
        pending = self.begin(request, OPEN_TIMEOUT_S, "start")

        def opened() -> OpenReply:
            reply = pending(lambda _progress: None)
            if isinstance(reply, Failed):
                kind = UsageError if reply.exit_code == ExitCode.USAGE else DeviceError
                raise kind(reply.message, log=reply.log)
            return reply

        return opened

    def ask(
        self,
        request: Request[R],
        timeout_s: float,
        heard: Callable[[Progress], object] = lambda _progress: None,
    ) -> R | Failed:
        """Return the answer to a request. Raises WorkerError if the process dies or times out,
        and ends it.
        """
        return self.begin(request, timeout_s)(heard)

    def begin(self, request: Request[R], timeout_s: float, doing: str = "build") -> Pending[R]:
        """Send a request and return a function that waits for its answer. Both raise the errors of `ask`.

        `doing` is the stage until the process reports another one.
        """
        last = Progress(doing)
        deadline = time.monotonic() + timeout_s

        def answer(heard: Callable[[Progress], object]) -> R | Failed:
            def hear(progress: Progress) -> None:
                nonlocal last
                last = progress
                heard(progress)

            try:
                return self.answer(request, deadline, hear, self.answered)
            except LostError as lost:
                # Not a variable of this frame: a traceback holds the frame, and the cycle would keep suites
                # alive.
                raise self._error(lost, last, timeout_s) from None

        try:
            self.send(request, deadline)
        except LostError as lost:
            raise self._error(lost, last, timeout_s) from None
        return answer

    def log(self) -> str:
        """Return the end of the process's output, and why Python had to start it, if there is a reason."""
        why = f"Started by Python: {self.why_fresh}." if self.why_fresh else ""
        return "\n".join(filter(None, (super().log(), why)))

    def finish(self, timeout_s: float) -> None:
        """Let the process end by itself. Raises WorkerError if it does not in time."""
        try:
            super().finish(timeout_s)
        except LostError as lost:
            raise self._error(lost, Progress("end"), timeout_s) from None

    def _error(self, lost: LostError, last: Progress, timeout_s: float) -> WorkerError:
        doing = f"{_DOING.get(last.stage, last.stage)} {last.side}".strip()
        messages = {
            "timed-out": f"No answer within {timeout_s:g} s while {doing}: the worker process was ended. "
            "If the kernel is only slow, raise --timeout.",
            "garbled": f"The worker process sent no valid answer while {doing} ({lost.how}): something "
            "in it wrote where only the harness does.",
            "ended": f"The worker process {lost.how} while {doing}.",
        }
        kind = TimedOutError if lost.why == "timed-out" else WorkerError
        error = kind(messages[lost.why], log=self.log())
        error.side = last.side
        return error


@dataclass(slots=True)
class Ahead:
    """A worker that opens the device before it is needed."""

    worker: WorkerProcess
    opened: Callable[[], object] | None = None
    """Waits until the device is open; None once it is."""

    def wait(self) -> None:
        """Wait until the device is open. Raises what opening does."""
        if self.opened is not None:
            self.opened()
            self.opened = None

    def is_open(self) -> bool:
        """Wait until the device is open, and return whether opening succeeded."""
        try:
            self.wait()
        except HarnessError:
            return False
        return True


@dataclass(slots=True)
class EarlyWorker(Ahead):
    """A worker that opens a device while a command still loads its suites."""

    spec: str | None = None
    is_taken: bool = False


early_worker: ContextVar[EarlyWorker | None] = ContextVar("early", default=None)


@contextlib.contextmanager
def opening(spec: str | None) -> Iterator[None]:
    """Open a device while this block imports and loads suites. The first session on it takes the worker.

    With an NVIDIA card the worker does not wait until its modules can be shared with later workers: the
    driver opens the card while they are imported once more.
    """
    begun = (
        WorkerProcess(Path(), env={DEVICE: spec or ""}, module="harness.measure.early_worker")
        if _NVIDIA.exists()
        else WorkerProcess(Path())
    )
    with closing(begun) as worker:
        try:
            early = EarlyWorker(worker, worker.begin_open(spec), spec)
        except WorkerError as error:  # the session that needs it reports the error
            early = EarlyWorker(worker, partial(fail, error), spec)
        before = early_worker.set(early)
        try:
            yield
        finally:
            early_worker.reset(before)


def import_beside(*modules: str) -> None:
    """Import modules in another thread, while this thread waits for processes.

    Name only modules whose imports have no cycles: two threads in one cycle see unfinished modules.
    """
    thread = threading.Thread(target=lambda: [*map(importlib.import_module, modules)], name="imports")
    thread.start()


def fail(error: WorkerError) -> NoReturn:
    raise error
