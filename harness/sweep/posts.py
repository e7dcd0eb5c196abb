"""What runs in a Dask worker: its device, manned for a crew. See harness.sweep.cluster.

Dask finds these functions by this module's name: crew and worker need the same version of the harness.
"""

from __future__ import annotations

__all__ = ["Manned", "Orders", "do", "leave", "man", "rest"]

import contextlib
import os
import platform
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from harness.config import check_environment
from harness.device.lock import Busy, busy_with
from harness.errors import DeviceError, HarnessError
from harness.records import DeviceInfo, Toolchain
from harness.sweep import parcel
from harness.sweep.bench import Bench
from harness.sweep.crew import Answer, Job

IDLE_S = 60.0
"""After so long without a job a worker gives its device free, and opens it again for the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What every worker of a crew is told, with each job: a worker may be new, or new again."""

    run: str
    version: str
    suite: str
    """The suite's folder; where the suite is sent along, its place in what was sent."""
    specs: Mapping[str, str] = field(default_factory=dict)
    """By a worker's name: the device it is to open."""
    spec: str | None = None
    """For any other; None leaves it to the worker: its $HARNESS_DEVICE, or the first device that works."""
    busy: Busy = "wait"
    model: tuple[str, ...] = ()
    """What its device must be; empty before that is known."""


def _model(device: DeviceInfo, toolchain: Toolchain) -> tuple[str, ...]:
    """What must be the same for times to be compared."""
    return device.name, device.arch, f"driver {device.driver}", toolchain.compiler


@dataclass(frozen=True, slots=True, kw_only=True)
class Manned:
    """A worker that opened its device."""

    worker: str
    host: str
    device: DeviceInfo
    toolchain: Toolchain
    busy_with: str
    """Who else measures there at this moment; empty where nobody does."""

    @property
    def model(self) -> tuple[str, ...]:
        return _model(self.device, self.toolchain)


class _Post:
    """The device of one worker, for one crew: opened for the first job, and given free where none comes."""

    def __init__(self, suite: Path, spec: str | None, place: str, busy: Busy) -> None:
        self._suite, self._spec, self._place, self._busy_device = suite, spec, place, busy
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
            bench = Bench(self._suite, self._spec, busy=self._busy_device)
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
"""By run of a crew."""
_posting = threading.Lock()


def _post(orders: Orders, sent: bytes) -> _Post:
    """The worker's device for a crew. Raises HarnessError where it cannot serve it."""
    worker = _worker()
    with _posting:
        if orders.run not in _posts:
            place = f"The Dask worker {worker.name} on {platform.node()}"
            if orders.version != harness.__version__:
                raise DeviceError(
                    f"{place} has version {harness.__version__} of the harness; expected {orders.version}."
                )
            check_environment()
            _restore_threads()
            suite = Path(orders.suite)
            if sent:
                suite = parcel.unpack(sent, Path(worker.local_directory)) / suite
            spec = orders.specs.get(str(worker.name), orders.spec) or os.environ.get("HARNESS_DEVICE") or None
            _posts[orders.run] = _Post(suite, spec, place, orders.busy)
        return _posts[orders.run]


def _worker() -> Any:
    from distributed import get_worker

    return get_worker()


def man(orders: Orders, sent: bytes) -> Manned | HarnessError:
    """Open the device. `sent` is the suite, as parcel.pack made it; empty where its folder can be read."""
    try:
        device, toolchain = _post(orders, sent).man()
    except HarnessError as error:
        return error
    return Manned(
        worker=str(_worker().name),
        host=platform.node(),
        device=device,
        toolchain=toolchain,
        busy_with=busy_with(device),
    )


def do(orders: Orders, sent: bytes, job: Job) -> tuple[str, Answer | HarnessError]:
    """The worker's address, and a job's answer, or why this worker can do no more of them."""
    address: str = _worker().address
    try:
        return address, _post(orders, sent).do(job, orders.model)
    except HarnessError as error:
        return address, error


def rest(run: str) -> None:
    """Stop what a crew has running here."""
    if run in _posts:
        _posts[run].rest()


def leave(run: str) -> None:
    """The end of a crew."""
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
