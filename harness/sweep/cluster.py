"""A sweep on several devices: those of one host, or those of a Dask cluster.

Who does which job, and what becomes of it when a worker is lost, is Dask's. A worker is one process with one
device, which announces the Dask resource GPU=1 and has one job at a time. Locally there is a process for
each device asked for. On a cluster every worker that announces the resource is used, and opens the device it
was left to see; what it needs of the suite is sent to it.
"""

from __future__ import annotations

__all__ = ["DaskExecutor"]

import contextlib
import dataclasses
import secrets
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import harness
from harness.bench import protocol
from harness.device.lock import Busy
from harness.errors import BusyError, HarnessError, UsageError, WorkerError
from harness.records import DeviceInfo, Toolchain
from harness.run.device_session import DeviceObserver
from harness.sweep import clients, posts
from harness.sweep.bench import Job, JobResult
from harness.sweep.clients import CONNECT_S, OPEN_S, RESOURCE, said
from harness.sweep.posts import OpenedDevice, WorkerSetup

if TYPE_CHECKING:
    from typing_extensions import Self

CHECK_S = 2.0
"""Between two looks whether any worker is left, while nothing is heard."""
RETURN_S = 20.0
"""How long a worker is waited for that is started again, where none is left."""
AHEAD = 2
"""Jobs sent for each device: the one it does, and the one it begins without having to ask. No more: Dask
holds the loss of a worker against every job that waits there.
"""


class DaskExecutor:
    """Several devices, each with a worker process of Dask's; see harness.sweep.bench.Executor.

    Without `scheduler` there is a process for each device of `devices`, on this host, and they end with the
    executor. With one, the workers of that cluster are used that announce the resource GPU; `devices` may
    then name one spec, which each of them opens; otherwise each opens its own $HARNESS_DEVICE, or the first
    device that works.

    Entering raises UsageError where the devices are not of one model or one of them is there twice, or where
    Dask is missing or differs; DeviceError where a device does not open; MeasureError where nothing answers
    or nobody announces a GPU.
    """

    def __init__(
        self,
        suite: Path,
        *,
        scheduler: str | None,
        devices: Sequence[str],
        observer: DeviceObserver | None = None,
        busy: Busy = "wait",
    ) -> None:
        self.devices: tuple[DeviceInfo, ...] = ()
        self.toolchain = Toolchain(compiler="")
        self._observer = observer
        self._busy = busy
        self._scheduler = scheduler
        self._specs = tuple(devices)
        self._suite = suite.resolve()
        self._name = f"harness-{secrets.token_hex(6)}"
        self._counter = 0
        self._lost: dict[str, HarnessError] = {}
        """By a worker's address: why it has no device any more."""
        self._bound: dict[str, list[str]] = {}
        """By a task's key: addresses of the workers that may have it, where not all may."""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(clients.quiet())
            if self._scheduler is None:
                self._client = clients.local(stack, self._specs)
                suite, sent = str(self._suite), b""
            else:
                self._client = clients.connected(stack, self._scheduler)
                clients.check_cluster(self._client, self._scheduler, self._announced())
                if len(set(self._specs)) > 1:
                    raise UsageError(
                        f"Workers of {self._scheduler} were told to open {', '.join(self._specs)}; expected "
                        "one device, which each of them opens: what it sees is said where it is started, "
                        "with CUDA_VISIBLE_DEVICES."
                    )
                sent, suite = posts.pack(self._suite)
            self._setup = WorkerSetup(
                sweep=self._name,
                version=harness.__version__,
                suite=suite,
                specs={} if self._scheduler else {str(at): spec for at, spec in enumerate(self._specs)},
                spec=self._specs[0] if self._scheduler and self._specs else None,
                busy=self._busy,
            )
            # A builtin, so that whichever worker holds the bytes needs nothing of ours.
            self._sent = self._client.submit(bytes, sent, key=f"{self._name}-suite", pure=False)
            stack.callback(self._tell, posts.end_sweep)
            self._open()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Carry out jobs; results come as they are ready, in any order.

        A worker that is lost costs nothing: its jobs are done by another, or by it when it is back. Raises
        DeviceError or WorkerError where none is left.
        """
        waiting = deque(jobs)
        running: dict[Any, Job] = {}
        try:
            self._send(waiting, running)
            while running:
                results = []
                for future in self._over(running):
                    job = running.pop(future)
                    result = self._result(job, future)
                    # What is still held would be done again where the worker that has it is lost.
                    future.release()
                    if result is None:
                        waiting.appendleft(job)
                    else:
                        results.append(result)
                # The next are under way before anybody looks at these.
                self._send(waiting, running)
                yield from results
        finally:
            if running:
                with contextlib.suppress(Exception):
                    self._client.cancel(list(running), force=True)
                # What runs is not stopped by that.
                self._tell(posts.close_device)

    def _send(self, waiting: deque[Job], running: dict[Any, Job]) -> None:
        while waiting and len(running) < AHEAD * len(self.devices):
            job = waiting.popleft()
            running[self._submit(job)] = job

    def _announced(self) -> dict[str, Any]:
        """The workers that announce the resource, by address."""
        try:
            told = self._client.sync(self._client.scheduler.identity, callback_timeout=CONNECT_S)["workers"]
        except Exception as error:
            raise self._scheduler_lost(error) from error
        return {
            address: worker for address, worker in told.items() if worker["resources"].get(RESOURCE, 0) > 0
        }

    def _open(self) -> None:
        """Have every worker open its device, all at once, and see that they are of one model."""
        futures = [
            self._client.submit(
                posts.open_device,
                self._setup,
                self._sent,
                key=f"{self._name}-open-{number}",
                pure=False,
                workers=[address],
                resources={RESOURCE: 1},
            )
            for number, address in enumerate(self._announced())
        ]
        opened = []
        for found in [self._opened(future) for future in futures]:
            if isinstance(found, HarnessError):
                raise found
            opened.append(found)
        _check_apart(opened)
        _check_alike(opened)
        self._tell_busy(opened)
        self.devices = tuple(one.device for one in opened)
        self.toolchain = opened[0].toolchain
        self._setup = dataclasses.replace(self._setup, model=opened[0].model)
        if self._observer is not None:
            for device in self.devices:
                self._observer.opened(device)

    def _tell_busy(self, opened: Sequence[OpenedDevice]) -> None:
        """Raises BusyError where nobody wants to wait."""
        for one in opened:
            if one.busy_with and self._busy == "fail":
                raise BusyError(f"On {one.host}, {one.busy_with}. Without --no-wait its jobs wait.")
            if one.busy_with and self._observer is not None:
                self._observer.waiting(f"On {one.host}, {one.busy_with}: jobs there wait.")

    def _opened(self, future: Any) -> OpenedDevice | HarnessError:
        try:
            found: OpenedDevice | HarnessError = future.result(timeout=OPEN_S)
        except Exception as error:
            raise WorkerError(
                f"A Dask worker did not open its device within {OPEN_S:g} s, or was lost meanwhile "
                f"({said(error)}): see what it says itself, and whether it is busy with something else.",
                log=traceback.format_exc(),
            ) from error
        return found

    def _submit(self, job: Job) -> Any:
        self._counter += 1
        key = f"{self._name}-{self._counter}"
        if self._lost:
            self._bound[key] = self._fit()
        return self._client.submit(
            posts.run_job,
            self._setup,
            self._sent,
            job,
            key=key,
            pure=False,
            resources={RESOURCE: 1},
            workers=self._bound.get(key),
        )

    def _fit(self) -> list[str]:
        """Addresses of the workers that still have their device. Raises what the last one said."""
        fit = [address for address in self._announced() if address not in self._lost]
        if not fit:
            raise list(self._lost.values())[-1]
        return fit

    def _over(self, running: Mapping[Any, Job]) -> list[Any]:
        """Those that are done, or will not be where they were sent, once there are any."""
        import distributed

        alone_s = 0.0
        while True:
            try:
                with self._client.as_current():
                    distributed.wait(list(running), timeout=CHECK_S, return_when="FIRST_COMPLETED")
            except distributed.CancelledError:
                pass  # their results say so, one by one
            except distributed.TimeoutError:
                here = self._announced().keys()
                alone_s = 0.0 if here - self._lost.keys() else alone_s + CHECK_S
                if alone_s >= RETURN_S:
                    raise WorkerError(
                        f"No worker with a device is left, and none came back within {RETURN_S:g} s. Start "
                        "workers again; a sweep that is repeated continues where it ended."
                    ) from None
                self._unbind(running, here)
            if over := [future for future in running if future.status != "pending"]:
                return over

    def _unbind(self, running: Mapping[Any, Job], here: AbstractSet[str]) -> None:
        """Take back what was sent to workers that are gone: nobody else may do it."""
        stranded = [f for f in running if f.key in self._bound and here.isdisjoint(self._bound[f.key])]
        if stranded and here - self._lost.keys():
            self._client.cancel(stranded)

    def _scheduler_lost(self, error: BaseException) -> WorkerError:
        where = f" at {self._scheduler}" if self._scheduler else ""
        return WorkerError(
            f"The Dask scheduler{where} was lost ({said(error)}). A sweep that is repeated continues where "
            "it ended."
        )

    def _result(self, job: Job, future: Any) -> JobResult | None:
        """What came of a job; None where it is still to be done, elsewhere."""
        import distributed

        try:
            result: tuple[str, JobResult | HarnessError] = future.result()
        except distributed.scheduler.KilledWorker:
            failed = protocol.Failed(
                reason=WorkerError.reason,
                message="Every Dask worker that was given this job was lost at it, several in turn.",
            )
            return JobResult(key=job.key, reply=failed, device="", host_s=0.0)
        except distributed.CancelledError as error:
            if future.key in self._bound:
                return None
            raise self._scheduler_lost(error) from error
        except Exception as error:
            raise WorkerError(
                f"A Dask worker could not take a job ({said(error)}): every worker needs version "
                f"{harness.__version__} of the harness.",
                log=traceback.format_exc(),
            ) from error
        worker, found = result
        if isinstance(found, HarnessError):
            self._lost[worker] = found
            return None
        return found

    def _tell(self, what: Callable[[str], None]) -> None:
        """Have every worker do something at once, beside its job. Nobody waits for a cluster that is gone."""
        with contextlib.suppress(Exception):
            if self._client.status == "running":
                self._client.run(what, self._name, workers=list(self._announced()), on_error="ignore")


def _check_apart(opened: Sequence[OpenedDevice]) -> None:
    """Two workers on one device would measure each other. The null device is none."""
    named = [
        f"{one.device.name} ({one.device.uuid or one.device.spec}) on {one.host}"
        for one in opened
        if one.device.backend != "null"
    ]
    if twice := [name for name, count in Counter(named).items() if count > 1]:
        raise UsageError(
            f"Several workers opened one device: {'; '.join(twice)}. Expected one worker for each: ask for "
            "each device once, or start each worker with its own CUDA_VISIBLE_DEVICES."
        )


def _check_alike(opened: Sequence[OpenedDevice]) -> None:
    if len({one.model for one in opened}) > 1:
        told = "; ".join(f"worker {one.worker} on {one.host} has {', '.join(one.model)}" for one in opened)
        raise UsageError(
            "A sweep needs devices of one model, driver and compiler, or it would rank cards instead of "
            f"configurations: {told}. Choose devices that are alike."
        )
