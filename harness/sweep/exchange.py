"""What a Dask worker is sent, and what it runs: the suite, and its device for as long as a sweep lasts.

Dask finds these functions by this module's name: client and worker need the same version of the harness.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from harness.config import check_environment
from harness.device.lock import Busy, busy_with
from harness.errors import DeviceError, HarnessError, StoreError, UsageError
from harness.records import DeviceInfo, Toolchain
from harness.spec.case_id import size_label
from harness.spec.loader import load
from harness.spec.sources import tree_files
from harness.sweep.bench import Job, JobResult, LocalExecutor
from harness.sweep.model import Final, SweepResult, SweepRow
from harness.system.cache import write_atomically

IDLE_S = 60.0
"""After so long without a job a worker gives its device free, and opens it again for the next one."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""A date for files whose date does not matter; ZIP knows none before it."""


# The suite, for hosts that cannot read its folder


def pack(folder: Path) -> tuple[bytes, str]:
    """A suite's folder and the files elsewhere that a build can read, as a ZIP file; and its place in it.
    The same files are the same bytes.

    Raises SuiteError where it cannot be loaded, UsageError where it cannot be read.
    """
    suite = load(folder).suite
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
    """The folder of what was packed, in `scratch`, written once. Raises StoreError."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """What every worker is told, with each job: a worker may be new, or new again."""

    sweep: str
    """Which of the sweeps that a worker serves it is: random."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDevice:
    """The device that a worker opened."""

    worker: str
    host: str
    device: DeviceInfo
    toolchain: Toolchain
    model: tuple[str, ...]
    """What must be the same for times to be compared."""
    busy_with: str
    """Who else measures there at this moment; empty where nobody does."""


class _WorkerDevice:
    """The device of one worker, for one sweep: opened for the first job, and given free where none comes."""

    def __init__(self, suite: Path, spec: str | None, worker: str, busy: Busy) -> None:
        self._suite, self._spec, self._worker, self._busy = suite, spec, worker, busy
        self._turn = threading.Lock()
        """One job at a time, however many threads the worker has."""
        self._executor: LocalExecutor | None = None
        self._idle: threading.Timer | None = None
        self._is_over = False
        self._lost: HarnessError | None = None

    def open(self, model: tuple[str, ...] = ()) -> LocalExecutor:
        """The device, opened where it is not. Raises HarnessError."""
        if self._executor is None:
            executor = LocalExecutor(self._suite, self._spec, busy=self._busy, hold_later=True)
            self._executor = executor.__enter__()
            found = _model(executor)
            if model and found != model:
                self.close()
                raise DeviceError(
                    f"{self._worker} opened {', '.join(found)}; the sweep is on {', '.join(model)}."
                )
        return self._executor

    def run(self, job: Job, model: tuple[str, ...]) -> JobResult:
        """Raises HarnessError where there is no device any more, from then on."""
        if self._lost is not None:
            raise self._lost
        try:
            return self.open(model).run_one(job)
        except HarnessError as error:
            self._lost = error
            raise

    def close(self) -> None:
        """Give the device free, whatever it is doing: a job that runs fails."""
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
                    # A client that was killed says no more, and its device is wanted by others.
                    self._idle = threading.Timer(IDLE_S, self._close_if_idle)
                    self._idle.daemon = True
                    self._idle.start()

    def _close_if_idle(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._turn.release()


_devices: dict[str, _WorkerDevice] = {}
"""By sweep."""
_opening = threading.Lock()


def _model(executor: LocalExecutor) -> tuple[str, ...]:
    (device,) = executor.devices
    return device.name, device.arch, f"driver {device.driver}", executor.toolchain.compiler


def _device_for(setup: WorkerSetup, sent: bytes) -> _WorkerDevice:
    """The worker's device for a sweep. Raises HarnessError where it cannot serve it."""
    worker = _worker()
    with _opening:
        if setup.sweep not in _devices:
            name = f"The Dask worker {worker.name} on {platform.node()}"
            if setup.version != harness.__version__:
                raise DeviceError(
                    f"{name} has version {harness.__version__} of the harness; expected {setup.version}."
                )
            check_environment()
            _restore_threads()
            suite = Path(setup.suite)
            if sent:
                suite = unpack(sent, Path(worker.local_directory)) / suite
            spec = setup.specs.get(str(worker.name), setup.spec) or os.environ.get("HARNESS_DEVICE") or None
            _devices[setup.sweep] = _WorkerDevice(suite, spec, name, setup.busy)
        return _devices[setup.sweep]


def _worker() -> Any:
    from distributed import get_worker

    return get_worker()


def open_device(setup: WorkerSetup, sent: bytes) -> OpenedDevice | HarnessError:
    """`sent` is the suite, as `pack` made it; empty where its folder can be read."""
    try:
        own = _device_for(setup, sent)
        with own.in_use():
            executor = own.open()
            (device,) = executor.devices
            return OpenedDevice(
                worker=str(_worker().name),
                host=platform.node(),
                device=device,
                toolchain=executor.toolchain,
                model=_model(executor),
                busy_with=busy_with(device),
            )
    except HarnessError as error:
        return error


def run_job(setup: WorkerSetup, sent: bytes, job: Job) -> tuple[str, JobResult | HarnessError]:
    """The worker's address, and a job's result, or why this worker can do no more of them."""
    address: str = _worker().address
    try:
        own = _device_for(setup, sent)
        with own.in_use():
            return address, own.run(job, setup.model)
    except HarnessError as error:
        return address, error


def close_device(sweep: str) -> None:
    """Stop what runs here for a sweep."""
    if sweep in _devices:
        _devices[sweep].close()


def end_sweep(sweep: str) -> None:
    if sweep in _devices:
        _devices.pop(sweep).end()


def _restore_threads() -> None:
    """Undo what Dask tells its workers' libraries, to use one thread: references are computed on all cores,
    and a CPU's own figures are no others here.
    """
    import dask

    for name, value in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
        if os.environ.get(name) == str(value):
            del os.environ[name]


SCHEMA_VERSION = "1.0.0"
_INVALIDITY = {
    "build-failed": "compile",
    "needs-package": "compile",
    "suite": "compile",
    "wrong-result": "correctness",
    "timed-out": "timeout",
}
"""T4's word for a reason of ours. The rest failed where it ran."""


def t4_results(result: SweepResult) -> dict[str, dict[str, Any]]:
    """A document for each size, by the size's label: T4 knows one problem size a document.

    What was rejected or failed is in it too, with its reason among the measurements. `runtimes` are the times
    that are kept: of a winner each fresh process's median, of others the median of screening.
    """
    finals = {size_label(final.sizes): final for final in result.finals}
    rows: dict[str, list[SweepRow]] = {}
    for row in result.rows:
        rows.setdefault(size_label(row.configuration.sizes), []).append(row)
    return {
        size: {
            "schema_version": SCHEMA_VERSION,
            "metadata": _metadata(result, found[0].configuration.sizes),
            "results": [_entry(row, finals.get(size)) for row in found],
        }
        for size, found in rows.items()
    }


def write_t4(result: SweepResult, path: Path) -> tuple[Path, ...]:
    """Write the documents: to `path` where there is one size, else to ``name-512.json`` and so on beside it.

    Raises StoreError where they cannot be written.
    """
    documents = t4_results(result)
    written = []
    for size, document in documents.items():
        place = path if len(documents) == 1 else path.with_name(f"{path.stem}-{size}{path.suffix}")
        try:
            write_atomically(place, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
        except OSError as error:
            raise StoreError(
                f"Cannot write {place}: {error.strerror or error}. Name a file in a folder with room."
            ) from error
        written.append(place)
    return tuple(written)


def _metadata(result: SweepResult, sizes: Mapping[str, int]) -> dict[str, Any]:
    sweep = result.sweep
    return {
        "timeunit": "milliseconds",
        "kernel_name": sweep.kernel,
        "problem_size": dict(sizes),
        "device_name": sweep.device.name,
        "device_driver": sweep.device.driver,
        "compiler": sweep.toolchain.compiler if sweep.toolchain else "",
        "tool": f"gpu-harness {sweep.harness_version}",
        "sweep_id": sweep.sweep_id,
        "commit": sweep.source.commit or "",
        "complete": result.complete,
    }


def _entry(row: SweepRow, final: Final | None) -> dict[str, Any]:
    invalidity = _invalidity(row)
    times_ns = _times_ns(row, final)
    return {
        "configuration": dict(row.configuration.parameters),
        "objectives": ["time"],
        "times": {"benchmark": row.gpu_s * 1e3, "runtimes": [time / 1e6 for time in times_ns]},
        "invalidity": invalidity,
        # Nothing is timed that was not verified.
        "correctness": int(invalidity == "correct"),
        "measurements": _measurements(row, final),
    }


def _invalidity(row: SweepRow) -> str:
    if row.status == "measured":
        return "correct"
    return "constraints" if row.status == "rejected" else _INVALIDITY.get(row.reason, "runtime")


def _is_winner(row: SweepRow, final: Final | None) -> bool:
    return final is not None and final.number in (row.configuration.number, row.same_as)


def _times_ns(row: SweepRow, final: Final | None) -> tuple[float, ...]:
    if row.status != "measured" or row.time_ns is None:
        return ()
    if final is not None and _is_winner(row, final):
        return final.process_times_ns
    return (row.time_ns,)


def _measurements(row: SweepRow, final: Final | None) -> list[dict[str, Any]]:
    if row.status != "measured" or row.time_ns is None:
        return [_measured("reason", row.reason), _measured("message", row.message)]
    time_ns = final.time_ns if final is not None and _is_winner(row, final) else row.time_ns
    limits = [("time_low", row.time_low_ns), ("time_high", row.time_high_ns)]
    registers = row.resources.registers if row.resources else None
    numbers: list[tuple[str, float | None, str]] = [
        ("time", time_ns / 1e6, "ms"),
        *((name, None if limit is None else limit / 1e6, "ms") for name, limit in limits),
        ("gflops", row.flop / time_ns if row.flop else None, "GFLOP/s"),
        ("gbytes_per_s", row.moved_bytes / time_ns if row.moved_bytes else None, "GB/s"),
        ("behind", row.behind.effect if row.behind else None, ""),
        ("registers", registers, ""),
        ("same_as", row.same_as, ""),
        ("number", row.configuration.number, ""),
    ]
    return [_measured(name, value, unit) for name, value, unit in numbers if value is not None]


def _measured(name: str, value: float | str, unit: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit}
