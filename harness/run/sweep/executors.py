"""Executors take a sweep's jobs and return results, on one device or on many; one for a local device.

A job is one request to a worker process, so an executor needs to know nothing of sweeps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.device.lock import Busy, held
from harness.errors import DeviceError, HarnessError
from harness.measure import protocol
from harness.records.types import DeviceInfo, Row, Toolchain
from harness.run.device_session import RECOVERY_S, DeviceObserver, DeviceSession
from harness.run.pair_session import Purpose
from harness.system.process import Failed, Request

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request for any free device. It contains everything that it compares."""

    key: str
    """Name of its result, unique within a sweep."""
    request: protocol.Prepare | protocol.Measure | protocol.Compare
    timeout_s: float
    fresh: bool = False
    """True if it needs a process in which nothing ran before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    key: str
    reply: tuple[protocol.SideFacts, ...] | Row | protocol.CompareReply | Failed
    device: str
    """UUID or spec of the device that did it."""
    host_s: float


class Executor(Protocol):
    """A device, or several of one model, ready to work. The context manager ends what it started.

    A job whose process crashes or does not answer in time comes back as Failed. Other jobs go on. A lost
    device costs no job while another device is left.
    """

    devices: tuple[DeviceInfo, ...]
    toolchain: Toolchain

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Carry out jobs; results come as they are ready, in any order."""


class Silent:
    """A DeviceObserver, and a CompareObserver, that reports nothing."""

    def opened(self, device: DeviceInfo) -> None: ...
    def waiting(self, sentence: str) -> None: ...
    def stage(self, stage: str) -> None: ...
    def process(self, number: int, cases: int, purpose: Purpose) -> None: ...
    def started(self, case: str) -> None: ...
    def measured(self, case: str) -> None: ...


class LocalExecutor:
    """Runs jobs on one device, in one worker process after another; see Executor.

    A worker process is reused until a job fails in it or needs a fresh one. With `hold_later`, the device is
    locked from the first job on and not from the start, because workers that opened the same device must be
    detected before.

    Raises UsageError for an invalid device, DeviceError if there is no such device, BusyError if it is in
    use.
    """

    def __init__(
        self,
        suite: Path,
        device: str | None = None,
        observer: DeviceObserver = Silent(),  # noqa: B008 - it has no state
        busy: Busy = "wait",
        *,
        hold_later: bool = False,
    ) -> None:
        self._session = DeviceSession(observer, suite, device=device, busy="ignore")
        self._busy = busy
        self._hold_later = hold_later
        self._lock = ExitStack()
        self._is_held = self._is_over = False
        self.devices: tuple[DeviceInfo, ...] = ()
        self.toolchain = Toolchain(compiler="")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._session.__enter__()
            stack.push(self)
            self.devices, self.toolchain = (self._session.device,), self._session.toolchain
            if not self._hold_later:
                self._hold()
            stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_over = True
        try:
            self._session.end()
        finally:
            self._lock.close()
            self._session.__exit__(None, None, None)

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        return map(self.run_one, jobs)

    def run_one(self, job: Job) -> JobResult:
        """Execute one job.

        A process that crashes or hangs gives a result, and the next job gets a new process. Raises
        DeviceError if the device cannot be opened any more, and BusyError if it is in use: then the job can
        still be done elsewhere or later.
        """
        self._hold()
        began = time.monotonic()
        if job.fresh:
            self._session.leave()
        self._start()
        request: Request[Any] = job.request
        reply = self._session.ask(request, job.timeout_s)
        device = self._session.device
        return JobResult(
            key=job.key, reply=reply, device=device.uuid or device.spec, host_s=time.monotonic() - began
        )

    def _hold(self) -> None:
        """Keep other processes from measuring on the device. Raises BusyError."""
        if self._is_held:
            return
        # The process that found the device has a context on it, which no timed work should share the card
        # with.
        self._session.builder.kill()
        waiting = self._session.observer.waiting
        self._lock.enter_context(held(self._session.device, "sweep", self._busy, waiting))
        self._is_held = True
        if self._is_over:  # another thread released it while this one waited
            self._lock.close()
            raise DeviceError(f"{self._session.device.spec} was released before it could be used.")

    def _start(self) -> None:
        try:
            self._session.start()
        except HarnessError:
            time.sleep(RECOVERY_S)
            try:
                self._session.start()
            except HarnessError as error:
                raise DeviceError(
                    f"{self._session.device.name} ({self._session.device.spec}) cannot be opened any more: "
                    f"{error.message}",
                    log=error.log,
                ) from error
