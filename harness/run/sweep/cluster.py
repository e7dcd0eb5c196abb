"""Dask's side of a sweep: a cluster of this host's own, or somebody's, and whether everybody there fits."""

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
from harness.system.files import scratch_folder
from harness.system.process import Failed

if TYPE_CHECKING:
    from typing_extensions import Self

RESOURCE = "GPU"
"""Resource that a Dask worker announces if it offers a device: ``dask worker --resources GPU=1``."""
CONNECT_S = 10.0
OPEN_S = 180.0
"""Time that every worker has to open its device: the slowest may be busy for somebody else."""
_DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""Code that our own workers run first. Ctrl-C reaches every process of a terminal; it is for the client."""


def _library() -> Any:
    """Dask's package. Raises UsageError where it is not installed."""
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
    """Dask's loggers say what is said here in sentences."""
    _library()  # with it come its loggers
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
    """Return a client of a cluster of our own, on this host and for this host only."""
    distributed = _library()
    import dask

    if not specs:
        raise UsageError("Work on this host needs a device at least, such as cuda:0.")
    # What a worker that was killed leaves behind goes with the folder.
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
                    # A port of its own for what serves nothing: None would ask for Dask's usual one.
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
            # Dask only warns of versions that differ; check_cluster refuses them.
            warnings.simplefilter("ignore")
            return stack.enter_context(distributed.Client(scheduler, timeout=CONNECT_S, set_as_default=False))
    except Exception as error:
        raise MeasureError(
            f"No Dask scheduler answers at {scheduler} within {CONNECT_S:g} s ({said(error)}). Expected the "
            "address that `dask scheduler` says when it starts, such as tcp://host:8786."
        ) from error


async def _knock(scheduler: str) -> None:
    """Raises where nothing answers as Dask does. A client would wait for ever for what only listens."""
    distributed = _library()
    security = distributed.Security().get_connection_args("client")
    comm = await asyncio.wait_for(
        distributed.comm.connect(scheduler, timeout=CONNECT_S, **security), CONNECT_S
    )
    comm.abort()


def check_cluster(client: Any, scheduler: str, announced: Mapping[str, Any]) -> None:
    """Raises MeasureError where nobody has a GPU, UsageError for several a worker or unlike versions."""
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
    # By its name, since whatever is sent of ours is found by importing the harness there.
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
"""Between two looks whether any worker is left, while nothing is heard."""
RETURN_S = 20.0
"""Longest wait for a lost worker to come back when no worker is left, in seconds."""
AHEAD = 2
"""Jobs sent for each device. No more: Dask holds a worker's loss against every job that waits there."""


class DaskDevices:
    """Several devices of one model, each with a worker process of Dask's; a context manager.

    Without `scheduler` there is a process for each device of `devices`, on this host, and they end with it.
    With one, the workers of that cluster are used that announce the resource GPU; `devices` may then name one
    spec, which each of them opens; otherwise each opens its own $HARNESS_DEVICE, or the first device that
    works.

    Entering raises UsageError where the devices are not of one model or one of them is there twice, or where
    Dask is missing or differs; DeviceError where a device does not open; MeasureError where nothing answers
    or nobody announces a GPU.
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
        """Have the workers open their devices, with what `stack` is to end."""
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
        """Have every worker open its device, all at once, and see that they are of one model."""
        announced = self._announced()
        if not announced:  # any more: they were there when versions were compared
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
            if one.device.backend != "null"  # of which a host has as many as it likes
        ]
        if twice := [name for name, count in Counter(named).items() if count > 1]:
            raise UsageError(
                f"Several workers opened one device: {'; '.join(twice)}. Expected one worker for each: ask "
                "for each device once, or start each worker with its own CUDA_VISIBLE_DEVICES."
            )
        if len({one.model for one in opened}) > 1:
            listed = "; ".join(
                f"worker {one.worker} on {one.host} has {', '.join(one.model)}" for one in opened
            )
            raise UsageError(f"{self.alike}: {listed}. Choose devices that are alike.")
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
    """Devices that carry out jobs; see harness.run.sweep.executors.Executor.

    Entering raises BusyError too, where a device is not to be had and nobody wants to wait.
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
        """The addresses of the workers that may have a task, where not all may, by its key."""

    def _begin(self, stack: contextlib.ExitStack) -> None:
        sent, suite = dask_worker.pack(self._suite) if self._scheduler else (b"", str(self._suite))
        setup = WorkerSetup(
            sweep=self._name,
            version=harness.__version__,
            suite=suite,
            specs=self._specs,
            busy=self._busy,
        )
        # A builtin, so that whichever worker holds the bytes needs nothing of ours.
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
                try:
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
                finally:
                    yield from results
        finally:
            if running:
                with contextlib.suppress(Exception):
                    self._client.cancel(list(running), force=True)
                # What runs is not stopped by that.
                self._tell(dask_worker.close_device)

    def _send(self, waiting: deque[Job], running: dict[Any, Job]) -> None:
        """Raises what the last worker said, where none has its device any more."""
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
                pass  # their results say so, one by one
            except distributed.TimeoutError:
                here = self._announced().keys()
                alone_s = 0.0 if here - self._lost.keys() else alone_s + CHECK_S
                if alone_s >= RETURN_S:
                    raise WorkerError(
                        f"No worker with a device is left, and none came back within {RETURN_S:g} s. Start "
                        "workers again; a sweep that is repeated continues where it ended."
                    ) from None
                # What was sent to workers that are gone nobody else may do: it is taken back.
                bound = [future for future in running if future.key in self._bound]
                stranded = [future for future in bound if here.isdisjoint(self._bound[future.key])]
                if stranded and here - self._lost.keys():
                    self._client.cancel(stranded)
            if over := [future for future in running if future.status != "pending"]:
                return over

    def _result(self, job: Job, future: Any) -> JobResult | None:
        """Return what came of a job; None where it is still to be done, elsewhere."""
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
        """Have every worker do something at once, beside its job. Nobody waits for a cluster that is gone."""
        with contextlib.suppress(Exception):
            if self._client.status == "running":
                self._client.run(what, self._name, workers=list(self._announced()), on_error="ignore")
