"""A sweep on several devices: those of one host, or those of a Dask cluster.

Who does which job, and what becomes of it when a worker is lost, is Dask's. This module says what a worker
is: one process with one device, which announces the Dask resource GPU=1 and has one job at a time. Locally
there is a process for each device asked for. On a cluster every worker that announces the resource is used,
and opens the device it was left to see; what it needs of the suite is sent to it.
"""

from __future__ import annotations

__all__ = ["DaskCrew"]

import asyncio
import contextlib
import dataclasses
import hashlib
import io
import logging
import os
import pkgutil
import platform
import secrets
import tempfile
import threading
import traceback
import warnings
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import harness
from harness import protocol
from harness.errors import DeviceError, HarnessError, MeasureError, StoreError, UsageError, WorkerError
from harness.loader import load_folder
from harness.records import DeviceInfo, Toolchain
from harness.sources import files_outside
from harness.sweep.bench import Bench
from harness.sweep.crew import Answer, Job
from harness.workplace import DeviceObserver

if TYPE_CHECKING:
    from typing_extensions import Self

RESOURCE = "GPU"
"""What a worker announces that has a device to give: ``dask worker --resources GPU=1``."""
CONNECT_S = 10.0
OPEN_S = 180.0
"""For every worker to open its device: the slowest takes its own time, and may be busy for somebody else."""
CHECK_S = 2.0
"""How often a crew that hears nothing looks whether anybody is left."""
RETURN_S = 20.0
"""How long a crew with nobody left waits for a worker to be started again."""
IDLE_S = 60.0
"""After so long without a job a worker gives its device free, and opens it again for the next one."""
AHEAD = 2
"""Jobs sent for each device: the one it does, and the one it begins without having to ask. No more: Dask
holds the loss of a worker against every job that waits there.
"""
_DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""What our own workers run first: Ctrl-C reaches every process of a terminal, and is for the crew."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""A date for files whose date does not matter; ZIP knows none before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Orders:
    """What every worker of a crew is told, with each job: a worker may be new, or new again."""

    run: str
    version: str
    suite: str
    """The suite's folder; where the suite is sent along, its place in what was sent."""
    sent_sha256: str = ""
    """Of the suite that is sent along; empty where its folder can be read."""
    specs: Mapping[str, str] = field(default_factory=dict)
    """By a worker's name: the device it is to open."""
    spec: str | None = None
    """For any other; None leaves it to the worker: its $HARNESS_DEVICE, or the first device that works."""
    model: tuple[str, ...] = ()
    """What its device must be; empty before that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manned:
    """A worker that opened its device, or could not."""

    worker: str
    host: str
    device: DeviceInfo | None = None
    toolchain: Toolchain | None = None
    problem: HarnessError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What came of a job: an answer, or why this worker can do no more of them."""

    worker: str
    answer: tuple[bytes, str, float] = (b"", "", 0.0)
    lost: HarnessError | None = None


class DaskCrew:
    """Several devices, each with a worker process of Dask's; a context manager. See harness.sweep.crew.

    Without `scheduler` there is a process for each device of `devices`, on this host, and they end with the
    crew. With one, the workers of that cluster are used that announce the resource GPU; `devices` may then
    name one spec, which each of them opens; otherwise each opens its own $HARNESS_DEVICE, or the first
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
    ) -> None:
        self.devices: tuple[DeviceInfo, ...] = ()
        self.toolchain = Toolchain(compiler="")
        self._observer = observer
        self._scheduler = scheduler
        self._specs = tuple(devices)
        self._suite = suite.resolve()
        self._run = f"harness-{secrets.token_hex(6)}"
        self._counter = 0
        self._lost: dict[str, HarnessError] = {}
        """By a worker's address: why it has no device any more."""
        self._bound: dict[str, list[str]] = {}
        """By a task's key: addresses of the workers that may have it, where not all may."""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            _distributed()
            stack.enter_context(_quiet())
            if self._scheduler is None:
                self._client = _local(stack, self._specs)
                self._orders, sent = self._told_locally()
            else:
                self._client = _connected(stack, self._scheduler)
                _check_versions(self._client, self._scheduler, self._announced())
                self._orders, sent = self._told_remotely(self._scheduler)
            # A builtin, so that whichever worker holds the bytes needs nothing of ours.
            self._sent = self._client.submit(bytes, sent, key=f"{self._run}-suite", pure=False)
            stack.callback(self._dismiss)
            self._open()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def do(self, jobs: Sequence[Job]) -> Iterator[Answer]:
        """Carry out jobs; answers come as they are ready, in any order.

        A worker that is lost costs nothing: its jobs are done by another, or by it when it is back. Raises
        DeviceError or WorkerError where none is left.
        """
        waiting = deque(jobs)
        running: dict[Any, Job] = {}
        try:
            self._send(waiting, running)
            while running:
                over = [(running.pop(future), future) for future in self._over(running)]
                answers = [self._answer(job, future) for job, future in over]
                for _, future in over:
                    # What is still held would be done again where the worker that has it is lost.
                    future.release()
                waiting.extendleft(
                    job for (job, _), answer in zip(over, answers, strict=True) if answer is None
                )
                # The next are under way before anybody looks at these.
                self._send(waiting, running)
                yield from (answer for answer in answers if answer is not None)
        finally:
            if running:
                self._cancel(list(running))

    def _send(self, waiting: deque[Job], running: dict[Any, Job]) -> None:
        while waiting and len(running) < AHEAD * len(self.devices):
            job = waiting.popleft()
            running[self._submit(job)] = job

    def _told_locally(self) -> tuple[_Orders, bytes]:
        specs = {str(number): spec for number, spec in enumerate(self._specs)}
        orders = _Orders(run=self._run, version=harness.__version__, suite=str(self._suite), specs=specs)
        return orders, b""

    def _told_remotely(self, scheduler: str) -> tuple[_Orders, bytes]:
        if len(set(self._specs)) > 1:
            raise UsageError(
                f"Workers of {scheduler} were told to open {', '.join(self._specs)}; expected one device, "
                "which each of them opens: what it sees is said where it is started, with "
                "CUDA_VISIBLE_DEVICES."
            )
        sent, place = _packed(self._suite)
        orders = _Orders(
            run=self._run,
            version=harness.__version__,
            suite=place,
            sent_sha256=hashlib.sha256(sent).hexdigest(),
            spec=next(iter(self._specs), None),
        )
        return orders, sent

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
                _man,
                self._orders,
                self._sent,
                key=f"{self._run}-open-{number}",
                pure=False,
                workers=[address],
                resources={RESOURCE: 1},
            )
            for number, address in enumerate(self._announced())
        ]
        manned = [self._opened(future) for future in futures]
        for one in manned:
            if one.problem is not None:
                raise one.problem
        known = [(one, one.device, one.toolchain) for one in manned if one.device and one.toolchain]
        _check_apart(known)
        _check_alike(known)
        self.devices = tuple(device for _, device, _ in known)
        self.toolchain = known[0][2]
        model = _model(self.devices[0], self.toolchain)
        self._orders = dataclasses.replace(self._orders, model=model)
        if self._observer is not None:
            for device in self.devices:
                self._observer.opened(device)

    def _opened(self, future: Any) -> _Manned:
        try:
            manned: _Manned = future.result(timeout=OPEN_S)
        except HarnessError:
            raise
        except Exception as error:
            raise WorkerError(
                f"A Dask worker did not open its device within {OPEN_S:g} s, or was lost meanwhile "
                f"({_said(error)}): see what it says itself, and whether it is busy with something else.",
                log=traceback.format_exc(),
            ) from error
        return manned

    def _submit(self, job: Job) -> Any:
        self._counter += 1
        key = f"{self._run}-{self._counter}"
        if self._lost:
            self._bound[key] = self._fit()
        return self._client.submit(
            _do,
            self._orders,
            self._sent,
            protocol.encode(job.request),
            (job.key, job.timeout_s, job.fresh),
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
        distributed = _distributed()
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
            f"The Dask scheduler{where} was lost ({_said(error)}). A sweep that is repeated continues where "
            "it ended."
        )

    def _answer(self, job: Job, future: Any) -> Answer | None:
        """What came of a job; None where it is still to be done, elsewhere."""
        distributed = _distributed()
        try:
            result: _Result = future.result()
        except distributed.scheduler.KilledWorker:
            failed = protocol.Failed(
                reason=WorkerError.reason,
                message="Every Dask worker that was given this job was lost at it, several in turn.",
            )
            return Answer(key=job.key, reply=failed, device="", host_s=0.0)
        except distributed.CancelledError as error:
            if future.key in self._bound:
                return None
            raise self._scheduler_lost(error) from error
        except Exception as error:
            raise WorkerError(
                f"A Dask worker could not take a job ({_said(error)}): every worker needs version "
                f"{harness.__version__} of the harness.",
                log=traceback.format_exc(),
            ) from error
        if result.lost is not None:
            self._lost[result.worker] = result.lost
            return None
        line, device, host_s = result.answer
        reply = protocol.decode_reply(line)
        assert isinstance(reply, (protocol.Done, protocol.Failed))
        return Answer(key=job.key, reply=reply, device=device, host_s=host_s)

    def _cancel(self, futures: list[Any]) -> None:
        with contextlib.suppress(Exception):
            self._client.cancel(futures, force=True)
            # What runs is not stopped by that.
            self._tell(_rest)

    def _dismiss(self) -> None:
        """Have every worker give its device free and forget this crew."""
        with contextlib.suppress(Exception):
            self._tell(_leave)

    def _tell(self, what: Callable[[str], None]) -> None:
        """Have every worker do something at once, beside its job. Nobody waits for a cluster that is gone."""
        if self._client.status == "running":
            self._client.run(what, self._run, workers=list(self._announced()), on_error="ignore")


class _Post:
    """The device of one worker, for one crew: opened for the first job, and given free where none comes."""

    def __init__(self, suite: str, spec: str | None, place: str) -> None:
        self._suite, self._spec, self._place = suite, spec, place
        self._lock = threading.Lock()
        """One job at a time, however many threads the worker has."""
        self._bench: Bench | None = None
        self._idle: threading.Timer | None = None
        self._left = False
        self._lost: HarnessError | None = None

    def man(self) -> tuple[DeviceInfo, Toolchain]:
        """Open the device. Raises HarnessError."""
        with self._lock, self._busy():
            bench = self._opened(())
            return bench.device, bench.toolchain

    def do(self, job: Job, model: tuple[str, ...]) -> Answer:
        """Raises HarnessError where there is no device any more, from then on."""
        with self._lock, self._busy():
            if self._lost is not None:
                raise self._lost
            try:
                return self._opened(model).do(job)
            except HarnessError as error:
                self._lost = error
                raise

    def rest(self) -> None:
        """Give the device free, whatever it is doing: a job that runs fails."""
        bench, self._bench = self._bench, None
        if bench is not None:
            bench.__exit__(None, None, None)

    def leave(self) -> None:
        self._left = True
        if self._idle is not None:
            self._idle.cancel()
        self.rest()

    def _opened(self, model: tuple[str, ...]) -> Bench:
        if self._bench is None:
            bench = Bench(self._suite, self._spec)
            bench.__enter__()
            self._bench = bench
            found = _model(bench.device, bench.toolchain)
            if model and found != model:
                self.rest()
                raise DeviceError(
                    f"{self._place} opened {', '.join(found)}; the sweep is on {', '.join(model)}."
                )
        return self._bench

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        if self._idle is not None:
            self._idle.cancel()
        try:
            yield
        finally:
            if self._left:
                self.rest()
            else:
                # A crew that was killed says no more, and its device is wanted by others.
                self._idle = threading.Timer(IDLE_S, self._rest_if_idle)
                self._idle.daemon = True
                self._idle.start()

    def _rest_if_idle(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self.rest()
            finally:
                self._lock.release()


_posts: dict[str, _Post] = {}
"""In a worker: by run of a crew."""
_posting = threading.Lock()


def _post(orders: _Orders, sent: bytes) -> _Post:
    """In a worker: its device for a crew. Raises HarnessError where it cannot serve it."""
    worker = _distributed().get_worker()
    with _posting:
        if orders.run not in _posts:
            place = f"The Dask worker {worker.name} on {platform.node()}"
            if orders.version != harness.__version__:
                raise DeviceError(
                    f"{place} has version {harness.__version__} of the harness; expected {orders.version}."
                )
            _restore_threads()
            suite = orders.suite
            if orders.sent_sha256:
                suite = str(_unpacked(sent, orders.sent_sha256, Path(worker.local_directory)) / suite)
            spec = orders.specs.get(str(worker.name), orders.spec) or os.environ.get("HARNESS_DEVICE") or None
            _posts[orders.run] = _Post(suite, spec, place)
        return _posts[orders.run]


def _man(orders: _Orders, sent: bytes) -> _Manned:
    """In a worker: open its device."""
    worker, host = str(_distributed().get_worker().name), platform.node()
    try:
        device, toolchain = _post(orders, sent).man()
    except HarnessError as error:
        return _Manned(worker=worker, host=host, problem=error)
    return _Manned(worker=worker, host=host, device=device, toolchain=toolchain)


def _do(orders: _Orders, sent: bytes, request: bytes, job: tuple[str, float, bool]) -> _Result:
    """In a worker: one job."""
    address: str = _distributed().get_worker().address
    key, timeout_s, fresh = job
    asked = protocol.decode_request(request)
    assert isinstance(asked, (protocol.Prepare, protocol.Measure, protocol.Compare))
    try:
        answer = _post(orders, sent).do(
            Job(key=key, request=asked, timeout_s=timeout_s, fresh=fresh), orders.model
        )
    except HarnessError as error:
        return _Result(worker=address, lost=error)
    return _Result(worker=address, answer=(protocol.encode(answer.reply), answer.device, answer.host_s))


def _rest(run: str) -> None:
    """In a worker: stop what a crew has running there."""
    if run in _posts:
        _posts[run].rest()


def _leave(run: str) -> None:
    """In a worker: the end of a crew."""
    if run in _posts:
        _posts.pop(run).leave()


def _restore_threads() -> None:
    """Undo what Dask tells its workers' libraries, to use one thread: references are computed on all cores,
    and a CPU's own figures are no others here.
    """
    import dask

    for name, value in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
        if os.environ.get(name) == str(value):
            del os.environ[name]


def _packed(folder: Path) -> tuple[bytes, str]:
    """A suite's folder and the files elsewhere that a build can read, as a ZIP file; and its place in it.
    The same files are the same bytes.

    Raises SuiteError where it cannot be loaded, UsageError where it cannot be read.
    """
    suite = load_folder(folder)
    files = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    files |= files_outside(suite)
    root = Path(os.path.commonpath([folder, *(path.parent for path in files)]))
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(files):
                name = path.relative_to(root).as_posix()
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be sent to workers: {error.strerror or error}.") from None
    return packed.getvalue(), folder.relative_to(root).as_posix()


def _unpacked(sent: bytes, sha256: str, scratch: Path) -> Path:
    """In a worker: the folder of what was sent, written once. Raises StoreError."""
    folder = scratch / f"harness-suite-{sha256[:16]}"
    if folder.is_dir():
        return folder
    try:
        with tempfile.TemporaryDirectory(dir=scratch) as unfinished:
            with zipfile.ZipFile(io.BytesIO(sent)) as archive:
                archive.extractall(Path(unfinished, "suite"))
            Path(unfinished, "suite").rename(folder)
    except OSError as error:
        raise StoreError(
            f"The suite cannot be unpacked in {scratch} on {platform.node()}: {error.strerror or error}."
        ) from None
    return folder


def _distributed() -> Any:
    """Dask's package. Raises UsageError where it is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise UsageError(
            f"Sweeps on several devices need Dask, which cannot be imported ({error}). Install this project "
            "with its extra 'dask': pip install -e '.[dask]' in a clone."
        ) from None
    return distributed


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dask's loggers say what a crew says itself, in sentences."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in before:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


def _local(stack: contextlib.ExitStack, specs: Sequence[str]) -> Any:
    """A client of a cluster of our own, on this host and for this host only."""
    distributed = _distributed()
    import dask

    if not specs:
        raise UsageError("A sweep on this host needs a device at least, such as cuda:0.")
    # What a worker that was killed leaves behind goes with the folder.
    scratch = stack.enter_context(_scratch())
    settings: dict[str, list[str]] = {
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    try:
        with dask.config.set(settings):
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
            f"Dask could not start {len(specs)} workers on this host: {_said(error)}.",
            log=traceback.format_exc(),
        ) from error
    return client


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="harness-", ignore_cleanup_errors=True)
    except OSError as error:
        raise StoreError(
            f"No temporary folder can be made ({error.strerror or error}): free some space, or point TMPDIR "
            "at a folder that has some."
        ) from None
    with folder as path:
        yield Path(path)


def _connected(stack: contextlib.ExitStack, scheduler: str) -> Any:
    """A client of somebody's cluster."""
    distributed = _distributed()
    try:
        asyncio.run(_knock(scheduler))
        with warnings.catch_warnings():
            # Dask only warns of versions that differ; _check_versions refuses them.
            warnings.simplefilter("ignore")
            return stack.enter_context(distributed.Client(scheduler, timeout=CONNECT_S, set_as_default=False))
    except Exception as error:
        raise MeasureError(
            f"No Dask scheduler answers at {scheduler} within {CONNECT_S:g} s ({_said(error)}). Expected the "
            "address that `dask scheduler` says when it starts, such as tcp://host:8786.",
            log=traceback.format_exc(),
        ) from error


async def _knock(scheduler: str) -> None:
    """Raises where nothing answers as Dask does. A client would wait for ever for what only listens."""
    distributed = _distributed()
    security = distributed.Security().get_connection_args("client")
    comm = await asyncio.wait_for(
        distributed.comm.connect(scheduler, timeout=CONNECT_S, **security), CONNECT_S
    )
    comm.abort()


def _check_versions(client: Any, scheduler: str, announced: Mapping[str, Any]) -> None:
    """Raises MeasureError where nobody has a GPU, UsageError where versions do not fit."""
    if not announced:
        raise MeasureError(
            f"No worker of {scheduler} announces a GPU. Start one for each: "
            f"CUDA_VISIBLE_DEVICES=0 dask worker {scheduler} --nthreads 1 --resources {RESOURCE}=1."
        )
    if greedy := [worker for worker in announced.values() if worker["resources"][RESOURCE] != 1]:
        told = "; ".join(f"{worker['name']} {worker['resources'][RESOURCE]:g}" for worker in greedy)
        raise UsageError(
            f"Workers of {scheduler} announce another number of GPUs than 1 each ({told}). Start one worker "
            "for each GPU, which sees no other: CUDA_VISIBLE_DEVICES says which."
        )
    told = client.get_versions()
    theirs = {"the scheduler": told["scheduler"]}
    theirs |= {f"worker {announced[address]['name']}": told["workers"].get(address) for address in announced}
    ours = _dask_version(told["client"])
    different = {who: found for who, what in theirs.items() if (found := _dask_version(what)) != ours}
    # By its name, since whatever is sent of ours is found by importing the harness there.
    versions = client.run(
        pkgutil.resolve_name, "harness:__version__", workers=list(announced), on_error="return"
    )
    for address, found in versions.items():
        who = f"worker {announced[address]['name']}"
        if isinstance(found, BaseException):
            different[who] = f"no harness ({_said(found)})"
        elif found != harness.__version__:
            different[who] = f"harness {found}"
    if different:
        told = "; ".join(f"{who}: {found}" for who, found in different.items())
        raise UsageError(
            f"Versions at {scheduler} do not fit: {told}. Expected harness {harness.__version__} and {ours}, "
            "as here: install the same everywhere."
        )


def _dask_version(told: Any) -> str:
    """What must be the same for one process to read what another sends."""
    if not told:
        return "an unknown version of Dask"
    python = ".".join(str(told["packages"]["python"]).split(".")[:2])
    return f"distributed {told['packages']['distributed']} on Python {python}"


def _model(device: DeviceInfo, toolchain: Toolchain) -> tuple[str, ...]:
    """What must be the same for times to be compared."""
    return device.name, device.arch, f"driver {device.driver}", toolchain.compiler


def _check_apart(known: Sequence[tuple[_Manned, DeviceInfo, Toolchain]]) -> None:
    """Two workers on one device would measure each other. The null device is none."""
    named = [
        (f"{device.name} ({device.uuid or device.spec}) on {one.host}")
        for one, device, _ in known
        if device.backend != "null"
    ]
    if twice := [name for name, count in Counter(named).items() if count > 1]:
        raise UsageError(
            f"Several workers opened one device: {'; '.join(twice)}. Expected one worker for each: ask for "
            "each device once, or start each worker with its own CUDA_VISIBLE_DEVICES."
        )


def _check_alike(known: Sequence[tuple[_Manned, DeviceInfo, Toolchain]]) -> None:
    models = [_model(device, toolchain) for _, device, toolchain in known]
    if len(set(models)) > 1:
        told = "; ".join(
            f"worker {one.worker} on {one.host} has {', '.join(model)}"
            for (one, _, _), model in zip(known, models, strict=True)
        )
        raise UsageError(
            "A sweep needs devices of one model, driver and compiler, or it would rank cards instead of "
            f"configurations: {told}. Choose devices that are alike."
        )


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().rstrip(".:")
