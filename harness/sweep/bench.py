"""One device and the worker processes on it, carrying out a sweep's jobs one after another."""

from __future__ import annotations

__all__ = ["Bench", "LocalCrew"]

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from harness.device.lock import Busy, held
from harness.errors import DeviceError, HarnessError
from harness.records import DeviceInfo, Toolchain
from harness.run.device_session import DeviceObserver, Workplace
from harness.sweep.crew import Answer, Job
from harness.system.process import Request

if TYPE_CHECKING:
    from typing_extensions import Self

RECOVERY_S = 2.0
"""Before a device that did not open is tried once more: a driver that has reset it needs a moment."""


class _Silent:
    def opened(self, device: DeviceInfo) -> None:
        pass

    def waiting(self, sentence: str) -> None:
        pass

    def stage(self, stage: str) -> None:
        pass


class Bench:
    """One device; a context manager. It is made of plain values, so that it can be made anywhere.

    A worker process is used for one job after another, until one fails in it or needs a fresh one.

    Raises UsageError for a device that makes no sense, DeviceError where there is no such device.
    """

    def __init__(
        self,
        suite: str | Path,
        device: str | None = None,
        observer: DeviceObserver | None = None,
        busy: Busy = "wait",
    ) -> None:
        self._place = Workplace(observer or _Silent(), Path(suite), device=device, busy="ignore")
        self._busy = busy
        self._turn = ExitStack()
        self._is_held = self._is_over = False

    @property
    def device(self) -> DeviceInfo:
        return self._place.device

    @property
    def toolchain(self) -> Toolchain:
        return self._place.toolchain

    @property
    def name(self) -> str:
        """UUID, or spec where it has none."""
        return self.device.uuid or self.device.spec

    def __enter__(self) -> Self:
        self._place.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        try:
            self._place.leave()
        finally:
            self._turn.close()
            self._place.__exit__(kind, error, trace)

    def hold(self) -> None:
        """Keep other processes from measuring on the device, from the first job on at the latest: workers of
        a cluster that opened the same one must be found out before. Raises BusyError.
        """
        if not self._is_held:
            # What found the device holds a context on it, which nothing that is timed should share it with.
            self._place.builder.kill()
            told = self._place.observer.waiting
            self._turn.enter_context(held(self.device, "sweep", self._busy, told))
            self._is_held = True
            if self._is_over:  # given up by another thread, while this one waited
                self._turn.close()
                raise DeviceError(f"{self.device.spec} was given free before it could be used.")

    def do(self, job: Job) -> Answer:
        """Carry out one job.

        A process that crashes or hangs is an answer, and the next job gets another. Raises DeviceError where
        the device cannot be opened any more, BusyError where it is not to be had: then the job can still be
        done, elsewhere or later.
        """
        self.hold()
        began = time.monotonic()
        if job.fresh:
            self._place.leave()
        self._start()
        request: Request[Any] = job.request
        reply = self._place.ask(request, job.timeout_s)
        return Answer(key=job.key, reply=reply, device=self.name, host_s=time.monotonic() - began)

    def _start(self) -> None:
        try:
            self._place.start()
        except HarnessError:
            time.sleep(RECOVERY_S)
            try:
                self._place.start()
            except HarnessError as error:
                raise DeviceError(
                    f"{self._place.device.name} ({self._place.device.spec}) cannot be opened any more: "
                    f"{error.message}",
                    log=error.log,
                ) from error


class LocalCrew:
    """One device, in this process; a context manager. See harness.sweep.crew."""

    def __init__(
        self,
        suite: Path,
        device: str | None = None,
        observer: DeviceObserver | None = None,
        busy: Busy = "wait",
    ) -> None:
        self._bench = Bench(suite, device, observer, busy)
        self.devices: tuple[DeviceInfo, ...] = ()
        self.toolchain = Toolchain(compiler="")

    def __enter__(self) -> Self:
        self._bench.__enter__()
        try:
            self._bench.hold()
        except BaseException:
            self._bench.__exit__(*sys.exc_info())
            raise
        self.devices, self.toolchain = (self._bench.device,), self._bench.toolchain
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bench.__exit__(kind, error, trace)

    def do(self, jobs: Sequence[Job]) -> Iterator[Answer]:
        """Carry out jobs, in their order. Raises DeviceError where the device is lost."""
        for job in jobs:
            yield self._bench.do(job)
