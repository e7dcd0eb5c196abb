"""Code and data in a Dask worker: the suite, and its device for the duration of a sweep.

Dask finds these functions by this module's name: client and worker need the same version of the harness.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from harness.config import check_environment
from harness.device.lock import Busy, busy_with
from harness.errors import DeviceError, HarnessError, StoreError, UsageError
from harness.records.types import DeviceInfo, Toolchain
from harness.run.sweep.executors import Job, JobResult, LocalExecutor
from harness.suite.suite import Suite
from harness.suite.suite_files import tree_files

IDLE_S = 60.0
"""Time without a job in seconds, after which a worker releases its device. It opens it again for the next
job."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of files whose date does not matter. ZIP has no earlier one."""


# The suite, for hosts that cannot read its folder


def pack(suite: Suite) -> tuple[bytes, str]:
    """Return a ZIP of a suite's folder and of other files that a build can read, and its path within.

    The same files give the same bytes. Raises UsageError if it cannot be read.
    """
    folder, files = suite.root, tree_files(suite)
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


def unpack(sent: bytes, scratch: Path) -> Path:
    """Unpack the files into a folder in `scratch`, once, and return the folder. Raises StoreError."""
    folder = scratch / f"harness-suite-{hashlib.sha256(sent).hexdigest()[:16]}"
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


# The worker's device


def this_worker() -> Any:
    from distributed import get_worker

    return get_worker()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpecs:
    """The device that a worker opens."""

    specs: tuple[str, ...] = ()
    """The specs by worker name in our own cluster, where names are numbers."""
    spec: str | None = None
    """Device that workers of other clusters open. None: their $HARNESS_DEVICE, or the first that works."""

    def here(self) -> str | None:
        """Return the device that this worker is to open."""
        if self.specs:
            return self.specs[int(this_worker().name)]
        return self.spec or os.environ.get("HARNESS_DEVICE") or None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """The setup that every job carries, because its worker may be new."""

    sweep: str
    """A random name, because a worker may serve several sweeps."""
    version: str
    suite: str
    """The suite's folder; if the suite is sent along, its path in the files sent."""
    specs: WorkerSpecs
    busy: Busy = "wait"
    model: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDevice:
    worker: str
    host: str
    device: DeviceInfo
    toolchain: Toolchain
    address: str
    """The worker's address."""
    busy_with: str = ""
    """Sentence about another measurement on the device at this moment; empty without one."""
    settings: tuple[str, ...] = ()
    """Settings of a card that affect its times, where cards may differ."""

    @classmethod
    def here(cls, device: DeviceInfo, toolchain: Toolchain, **more: Any) -> OpenedDevice:
        """Return the device of this worker."""
        worker = this_worker()
        name, host, address = str(worker.name), platform.node(), worker.address
        return cls(worker=name, host=host, address=address, device=device, toolchain=toolchain, **more)

    @property
    def model(self) -> tuple[str, ...]:
        """Return the properties that must be equal for times to be comparable."""
        device = self.device
        return device.name, device.arch, f"driver {device.driver}", self.toolchain.compiler


class _WorkerDevice:
    """The device of one worker for one sweep: opened for the first job, and released if no job comes."""

    def __init__(self, suite: Path, spec: str | None, worker: str, busy: Busy) -> None:
        self._suite, self._spec, self._worker, self._busy = suite, spec, worker, busy
        self._turn = threading.Lock()
        """Lock that lets one job run at a time, even if the worker has several threads."""
        self._executor: LocalExecutor | None = None
        self._idle: threading.Timer | None = None
        self._is_over = False
        self._lost: HarnessError | None = None

    def open(self, model: tuple[str, ...] = ()) -> LocalExecutor:
        """Return the device, and open it if necessary. Raises HarnessError."""
        if self._executor is None:
            executor = LocalExecutor(self._suite, self._spec, busy=self._busy, hold_later=True)
            self._executor = executor.__enter__()
            found = OpenedDevice.here(executor.devices[0], executor.toolchain).model
            if model and found != model:
                self.close()
                raise DeviceError(
                    f"{self._worker} opened {', '.join(found)}; the sweep is on {', '.join(model)}."
                )
        return self._executor

    def run(self, job: Job, model: tuple[str, ...]) -> JobResult:
        if self._lost is not None:
            raise self._lost
        try:
            return self.open(model).run_one(job)
        except HarnessError as error:
            self._lost = error
            raise

    def close(self) -> None:
        """Release the device at any time. A running job fails."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.__exit__(None, None, None)

    def end(self) -> None:
        self._is_over = True
        if self._idle is not None:
            self._idle.cancel()
        self.close()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        with self._turn:
            if self._idle is not None:
                self._idle.cancel()
            try:
                yield
            finally:
                if self._is_over:
                    self.close()
                else:
                    # A killed client cannot release the device, which others need.
                    self._idle = threading.Timer(IDLE_S, self._close_if_idle)
                    self._idle.daemon = True
                    self._idle.start()

    def _close_if_idle(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._turn.release()


_devices: dict[str, _WorkerDevice] = {}  # by sweep
_opening = threading.Lock()


def _device_for(setup: WorkerSetup, sent: bytes) -> _WorkerDevice:
    worker = this_worker()
    with _opening:
        if setup.sweep not in _devices:
            name = f"The Dask worker {worker.name} on {platform.node()}"
            if setup.version != harness.__version__:
                raise DeviceError(
                    f"{name} has version {harness.__version__} of the harness; expected {setup.version}."
                )
            check_environment()
            restore_threads()
            suite = Path(setup.suite)
            if sent:
                suite = unpack(sent, Path(worker.local_directory)) / suite
            _devices[setup.sweep] = _WorkerDevice(suite, setup.specs.here(), name, setup.busy)
        return _devices[setup.sweep]


def open_device(setup: WorkerSetup, sent: bytes) -> OpenedDevice | HarnessError:
    """Open this worker's device. `sent` is the suite from `pack`; empty if its folder can be read here."""
    try:
        own = _device_for(setup, sent)
        with own.in_use():
            executor = own.open()
            (device,) = executor.devices
            return OpenedDevice.here(device, executor.toolchain, busy_with=busy_with(device))
    except HarnessError as error:
        return error


def run_job(setup: WorkerSetup, sent: bytes, job: Job) -> tuple[str, JobResult | HarnessError]:
    """Return the worker's address and a job's result, or why this worker can do no more jobs."""
    address: str = this_worker().address
    try:
        own = _device_for(setup, sent)
        with own.in_use():
            return address, own.run(job, setup.model)
    except HarnessError as error:
        return address, error


def close_device(sweep: str) -> None:
    """Stop all work for a sweep on this worker."""
    if sweep in _devices:
        _devices[sweep].close()


def end_sweep(sweep: str) -> None:
    if sweep in _devices:
        _devices.pop(sweep).end()


def restore_threads() -> None:
    """Undo Dask's request that libraries use one thread: references are computed on all cores."""
    import dask

    for name, value in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
        if os.environ.get(name) == str(value):
            del os.environ[name]
