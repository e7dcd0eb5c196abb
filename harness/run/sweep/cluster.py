"""Runs sweeps through Dask, on a cluster of this host or an existing one, and checks its workers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import pkgutil
import secrets
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from harness.device.lock import Busy
from harness.errors import BusyError, HarnessError, MeasureError, UsageError, WorkerError
from harness.records.types import DeviceInfo, Toolchain
from harness.run.device_session import DeviceObserver
from harness.run.sweep import dask_worker
from harness.run.sweep.dask_worker import OpenedDevice, WorkerSetup, WorkerSpecs
from harness.run.sweep.executors import Job, JobResult, Silent
from harness.suite.loader import load
from harness.system.files import scratch_folder
from harness.system.process import Failed

if TYPE_CHECKING:
    from typing_extensions import Self

RESOURCE = "GPU"
"""Resource that a Dask worker announces if it offers a device: ``dask worker --resources GPU=1``."""
CONNECT_S = 10.0
OPEN_S = 180.0
"""Time in seconds for every worker to open its device: the slowest may be in use by another process."""
_DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""Code that our own workers run first. Ctrl-C reaches every process of a terminal, but only the client should
react."""


def _library() -> Any:
    """Return Dask's package. Raises UsageError if it is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise UsageError(
            f"Several devices at once need Dask, which cannot be imported ({error}). Install this project "
            "with its extra 'dask': pip install -e '.[dask]' in a clone."
        ) from None
    return distributed


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Dask's loggers: the harness reports the same in sentences."""
    _library()  # importing it creates its loggers
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in before:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


def local(stack: contextlib.ExitStack, specs: Sequence[str]) -> Any:
    """Return a client of our own cluster on this host, which no other host can reach."""
    distributed = _library()
    import dask

    if not specs:
        raise UsageError("Work on this host needs a device at least, such as cuda:0.")
    # Files of a killed worker are removed with the folder.
    scratch = stack.enter_context(scratch_folder())
    no_pages: dict[str, list[str]] = {f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker")}
    try:
        with dask.config.set(no_pages):
            cluster = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=len(specs),
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    # A free port for the unused dashboard: None would request Dask's default port.
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    resources={RESOURCE: 1},
                    memory_limit=None,
                    local_directory=str(scratch),
                    env={"TMPDIR": str(scratch)},
                    preload=[_DEAF],
                    silence_logs=logging.CRITICAL,
                )
            )
            client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
            client.wait_for_workers(len(specs), timeout=OPEN_S)
    except Exception as error:
        raise MeasureError(
            f"Dask could not start {len(specs)} workers on this host: {said(error)}.",
            log=traceback.format_exc(),
        ) from error
    return client


def connected(stack: contextlib.ExitStack, scheduler: str) -> Any:
    distributed = _library()
    try:
        asyncio.run(_knock(scheduler))
        with warnings.catch_warnings():
            # Dask only warns of different versions; check_cluster refuses them.
            warnings.simplefilter("ignore")
            return stack.enter_context(distributed.Client(scheduler, timeout=CONNECT_S, set_as_default=False))
    except Exception as error:
        raise MeasureError(
            f"No Dask scheduler answers at {scheduler} within {CONNECT_S:g} s ({said(error)}). Expected the "
            "address that `dask scheduler` says when it starts, such as tcp://host:8786."
        ) from error


async def _knock(scheduler: str) -> None:
    """Raise if nothing answers like Dask. A client would wait forever for a server that only listens."""
    distributed = _library()
    security = distributed.Security().get_connection_args("client")
    comm = await asyncio.wait_for(
        distributed.comm.connect(scheduler, timeout=CONNECT_S, **security), CONNECT_S
    )
    comm.abort()


def check_cluster(client: Any, scheduler: str, announced: Mapping[str, Any]) -> None:
    """Raise MeasureError if no worker has a GPU, UsageError for several GPUs a worker or
    different versions.
    """
    if not announced:
        raise MeasureError(
            f"No worker of {scheduler} announces a GPU. Start one for each: "
            f"CUDA_VISIBLE_DEVICES=0 dask worker {scheduler} --nthreads 1 --resources {RESOURCE}=1."
        )
    if greedy := [worker for worker in announced.values() if worker["resources"][RESOURCE] != 1]:
        many = "; ".join(f"{worker['name']} {worker['resources'][RESOURCE]:g}" for worker in greedy)
        raise UsageError(
            f"Workers of {scheduler} announce another number of GPUs than 1 each ({many}). Start one worker "
            "for each GPU, which sees no other: CUDA_VISIBLE_DEVICES says which."
        )
    versions = client.get_versions()
    dask = {"the scheduler": versions["scheduler"]}
    dask |= {
        f"worker {worker['name']}": versions["workers"].get(address) for address, worker in announced.items()
    }
    ours, our_dask = f"harness {harness.__version__}", _dask_version(versions["client"])
    different = {who: found for who, of in dask.items() if (found := _dask_version(of)) != our_dask}
    different |= {who: found for who, found in _harness_versions(client, announced).items() if found != ours}
    if different:
        listed = "; ".join(f"{who}: {found}" for who, found in different.items())
        raise UsageError(
            f"Versions at {scheduler} do not fit: {listed}. Expected {ours} and {our_dask}, as here: "
            "install the same everywhere."
        )


def _harness_versions(client: Any, announced: Mapping[str, Any]) -> dict[str, str]:
    # By its name: unpickling any of our objects would import the harness there.
    asked = (pkgutil.resolve_name, "harness:__version__")
    found: dict[str, Any] = {}
    try:
        found["the scheduler"] = client.run_on_scheduler(*asked)
    except Exception as error:  # noqa: BLE001 - whatever importing it raises there
        found["the scheduler"] = error
    versions = client.run(*asked, workers=list(announced), on_error="return")
    found |= {f"worker {announced[address]['name']}": version for address, version in versions.items()}
    return {
        who: f"no harness ({said(version)})" if isinstance(version, BaseException) else f"harness {version}"
        for who, version in found.items()
    }


def _dask_version(versions: Any) -> str:
    if not versions:
        return "an unknown version of Dask"
    python = ".".join(str(versions["packages"]["python"]).split(".")[:2])
    return f"distributed {versions['packages']['distributed']} on Python {python}"


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().rstrip(".:")


CHECK_S = 2.0
"""Time between two checks for remaining workers while no message comes, in seconds."""
RETURN_S = 20.0
"""Longest wait for a lost worker to come back when no worker is left, in seconds."""
AHEAD = 2
"""Jobs sent for each device. With more, Dask would count a worker's loss against every waiting job."""


class DaskDevices:
    """Several devices of one model, each with a Dask worker process; a context manager.

    Without `scheduler`, a worker process is started on this host for each device of `devices`, and ends with
    the context. With a scheduler, the workers of that cluster that announce the resource GPU are used. Then
    `devices` may name one spec, which each of them opens; otherwise each opens its own $HARNESS_DEVICE, or
    the first device that works.

    Entering raises UsageError if the devices are not of one model, if a device is named twice, or if Dask is
    missing or differs; DeviceError if a device does not open; MeasureError if nothing answers or no worker
    announces a GPU.
    """

    alike = (
        "A sweep needs devices of one model, driver and compiler, or it would rank cards, not configurations"
    )
    goes_on = "A sweep that is repeated continues where it ended."

    def __init__(self, devices: Sequence[str], scheduler: str | None, observer: DeviceObserver) -> None:
        if scheduler is not None and len(set(devices)) > 1:
            raise UsageError(
                f"Workers of {scheduler} were told to open {', '.join(devices)}; expected one device, which "
                "each of them opens: what it sees is said where it is started, with CUDA_VISIBLE_DEVICES."
            )
        self.devices: tuple[DeviceInfo, ...] = ()
        self.toolchain = Toolchain(compiler="")
        self._scheduler, self._observer = scheduler, observer
        self._specs = WorkerSpecs(
            specs=() if scheduler else tuple(devices), spec=devices[0] if scheduler and devices else None
        )
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(quiet())
            if self._scheduler is None:
                self._client = local(stack, self._specs.specs)
            else:
                self._client = connected(stack, self._scheduler)
                check_cluster(self._client, self._scheduler, self._announced())
            self._begin(stack)
            for device in self.devices:
                self._observer.opened(device)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def _begin(self, stack: contextlib.ExitStack) -> None:
        """Let the workers open their devices, and register cleanup in `stack`."""
        raise NotImplementedError

    def _submit(self, what: Callable[..., Any], *given: Any, **how: Any) -> Any:
        return self._client.submit(what, *given, pure=False, resources={RESOURCE: 1}, **how)

    def _announced(self) -> dict[str, Any]:
        try:
            workers = self._client.sync(self._client.scheduler.identity, callback_timeout=CONNECT_S)[
                "workers"
            ]
        except Exception as error:
            raise self._scheduler_lost(error) from error
        return {
            address: worker for address, worker in workers.items() if worker["resources"].get(RESOURCE, 0) > 0
        }

    def _open(self, what: Callable[..., OpenedDevice | HarnessError], *given: Any) -> list[OpenedDevice]:
        """Let every worker open its device, and check that they are of one model."""
        opened = self._opened_by_all(what, *given)
        if len({one.model for one in opened}) > 1:
            listed = "; ".join(
                f"worker {one.worker} on {one.host} has {', '.join(one.model)}" for one in opened
            )
            raise UsageError(f"{self.alike}: {listed}. Choose devices that are alike.")
        return opened

    def _opened_by_all(
        self, what: Callable[..., OpenedDevice | HarnessError], *given: Any
    ) -> list[OpenedDevice]:
        """Let every worker open its device, all at once, and check that no two opened the same."""
        announced = self._announced()
        if not announced:  # they were there when versions were compared
            raise WorkerError("No Dask worker with a device is left. Start them again.")
        futures = [self._submit(what, *given, workers=[address]) for address in announced]
        found = [_opened(future) for future in futures]
        for one in found:
            if isinstance(one, HarnessError):
                raise one
        opened = [one for one in found if isinstance(one, OpenedDevice)]
        named = [
            f"{one.device.name} ({one.device.uuid or one.device.spec}) on {one.host}"
            for one in opened
            if one.device.backend != "null"  # a host has any number of them
        ]
        if twice := [name for name, count in Counter(named).items() if count > 1]:
            raise UsageError(
                f"Several workers opened one device: {'; '.join(twice)}. Expected one worker for each: ask "
                "for each device once, or start each worker with its own CUDA_VISIBLE_DEVICES."
            )
        self.devices = tuple(one.device for one in opened)
        self.toolchain = opened[0].toolchain
        return opened

    def _scheduler_lost(self, error: BaseException) -> WorkerError:
        where = f" at {self._scheduler}" if self._scheduler else ""
        return WorkerError(f"The Dask scheduler{where} was lost ({said(error)}). {self.goes_on}")


def _opened(future: Any) -> OpenedDevice | HarnessError:
    try:
        found: OpenedDevice | HarnessError = future.result(timeout=OPEN_S)
    except Exception as error:
        raise WorkerError(
            f"A Dask worker did not open its device within {OPEN_S:g} s, or was lost meanwhile "
            f"({said(error)}): see what it says itself, and whether it is busy with something else.",
            log=traceback.format_exc(),
        ) from error
    return found


class DaskExecutor(DaskDevices):
    """Devices that execute jobs; see harness.run.sweep.executors.Executor.

    Entering also raises BusyError if a device is in use and may not be waited for.
    """

    def __init__(
        self,
        suite: Path,
        *,
        scheduler: str | None,
        devices: Sequence[str],
        observer: DeviceObserver = Silent(),  # noqa: B008 - it has no state
        busy: Busy = "wait",
    ) -> None:
        super().__init__(devices, scheduler, observer)
        self._busy = busy
        self._suite = suite.resolve()
        self._name = f"harness-{secrets.token_hex(6)}"
        self._counter = 0
        self._lost: dict[str, HarnessError] = {}
        """Error that cost a worker its device, by the worker's address."""
        self._bound: dict[str, list[str]] = {}
        """Addresses of the workers that may run a task, by its key, if not all may."""

    def _begin(self, stack: contextlib.ExitStack) -> None:
        sent, suite = b"", str(self._suite)
        if self._scheduler:
            sent, suite = dask_worker.pack(load(self._suite).suite)
        setup = WorkerSetup(
            sweep=self._name,
            version=harness.__version__,
            suite=suite,
            specs=self._specs,
            busy=self._busy,
        )
        # A builtin type, so that any worker can hold the bytes without importing the harness.
        self._sent = self._client.submit(bytes, sent, key=f"{self._name}-suite", pure=False)
        stack.callback(self._tell, dask_worker.end_sweep)
        opened = self._open(dask_worker.open_device, setup, self._sent)
        for one in opened:
            if one.busy_with and self._busy == "fail":
                raise BusyError(f"On {one.host}, {one.busy_with}. Without --no-wait its jobs wait.")
            if one.busy_with:
                self._observer.waiting(f"On {one.host}, {one.busy_with}: jobs there wait.")
        self._setup = dataclasses.replace(setup, model=opened[0].model)

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Execute jobs; results come as they are ready, in any order.

        If a worker is lost, another worker does its jobs, or the same one when it is back. Raises DeviceError
        or WorkerError if none is left.
        """
        waiting = deque(jobs)
        running: dict[Any, Job] = {}
        try:
            self._send(waiting, running)
            while running:
                results = []
                try:
                    for future in self._over(running):
                        job = running.pop(future)
                        result = self._result(job, future)
                        # Results still held would be computed again if their worker is lost.
                        future.release()
                        if result is None:
                            waiting.appendleft(job)
                        else:
                            results.append(result)
                    # Send the next jobs before these results are looked at.
                    self._send(waiting, running)
                finally:
                    yield from results
        finally:
            if running:
                with contextlib.suppress(Exception):
                    self._client.cancel(list(running), force=True)
                # This does not stop running jobs.
                self._tell(dask_worker.close_device)

    def _send(self, waiting: deque[Job], running: dict[Any, Job]) -> None:
        """Send jobs to the workers. If none has its device any more, raise the last worker's error."""
        while waiting and len(running) < AHEAD * len(self.devices):
            self._counter += 1
            key = f"{self._name}-{self._counter}"
            if self._lost:
                self._bound[key] = [each for each in self._announced() if each not in self._lost]
                if not self._bound[key]:
                    raise list(self._lost.values())[-1]
            job = waiting.popleft()
            setup, allowed = self._setup, self._bound.get(key)
            future = self._submit(dask_worker.run_job, setup, self._sent, job, key=key, workers=allowed)
            running[future] = job

    def _over(self, running: Mapping[Any, Job]) -> list[Any]:
        """Wait until a job has ended or has left its worker. Return all such jobs."""
        import distributed

        alone_s = 0.0
        while True:
            try:
                with self._client.as_current():
                    distributed.wait(list(running), timeout=CHECK_S, return_when="FIRST_COMPLETED")
            except distributed.CancelledError:
                pass  # their results show it, one by one
            except distributed.TimeoutError:
                here = self._announced().keys()
                alone_s = 0.0 if here - self._lost.keys() else alone_s + CHECK_S
                if alone_s >= RETURN_S:
                    raise WorkerError(
                        f"No worker with a device is left, and none came back within {RETURN_S:g} s. Start "
                        "workers again; a sweep that is repeated continues where it ended."
                    ) from None
                # Jobs sent to lost workers cannot be done by others: take them back.
                bound = [future for future in running if future.key in self._bound]
                stranded = [future for future in bound if here.isdisjoint(self._bound[future.key])]
                if stranded and here - self._lost.keys():
                    self._client.cancel(stranded)
            if over := [future for future in running if future.status != "pending"]:
                return over

    def _result(self, job: Job, future: Any) -> JobResult | None:
        """Return the result of a job; None if it is still to be done elsewhere."""
        import distributed

        try:
            result: tuple[str, JobResult | HarnessError] = future.result()
        except distributed.scheduler.KilledWorker:
            failed = Failed(
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
        """Make every worker run a function at once, beside its job. A cluster that is gone is not
        waited for.
        """
        with contextlib.suppress(Exception):
            if self._client.status == "running":
                self._client.run(what, self._name, workers=list(self._announced()), on_error="ignore")
