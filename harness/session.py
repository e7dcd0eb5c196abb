"""A run, from a plan to rows: open, build, verify, measure, store. The device is only ever touched by
child processes.
"""

from __future__ import annotations

__all__ = ["Observer", "RunResult", "Session", "SessionSettings", "find_device"]

import dataclasses
import datetime as dt
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import harness
from harness import protocol
from harness.backends.base import check_launch
from harness.child import Child
from harness.errors import (
    DeviceError,
    ExitCode,
    HarnessError,
    LaunchError,
    StoreError,
    UsageError,
    WorkerError,
)
from harness.host import describe_host
from harness.loader import LoadedSuite
from harness.machine import machine_name
from harness.measure import MeasureSettings
from harness.peaks import peaks
from harness.planning import PlannedCase, Refusal, launch_of, refusal
from harness.records import DeviceInfo, Row, RowStatus, Run
from harness.store import RunWriter
from harness.suite import Kernel, ceil_div
from harness.telemetry import Probe, Sampler, probe_for, telemetry_of

if TYPE_CHECKING:
    from typing_extensions import Self

OPEN_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How a run is carried out."""

    command: str = "run"
    device: str | None = None
    measure: MeasureSettings | None = field(default_factory=MeasureSettings)
    """None verifies only."""
    timeout_s: float = 120.0
    """For one case: building, verifying and measuring it."""
    seed: int = 1
    machine: str | None = None
    """Name of the device's folder of records; None makes one from the device."""
    results: Path | None = None
    """Folder of all records; the device's own lie in a folder of its name. None stores nothing."""


class Observer(Protocol):
    """Who is told how a run goes."""

    def opened(self, device: DeviceInfo) -> None: ...
    def started(self, planned: PlannedCase, number: int, total: int) -> None: ...
    def stage(self, stage: str) -> None: ...
    def finished(self, row: Row) -> None: ...


@dataclass(frozen=True, slots=True)
class RunResult:
    run: Run
    rows: tuple[Row, ...]
    path: Path | None
    """The stored record."""
    interrupted: bool = False
    problem: str = ""
    """Why the record is not whole, such as a full disk; the rows here are."""


class Session:
    """One suite on one device; a context manager. Entering it finds the device.

    Raises UsageError for a device or policy that makes no sense, DeviceError where there is no such device.
    """

    def __init__(self, loaded: LoadedSuite, settings: SessionSettings, observer: Observer) -> None:
        self.loaded = loaded
        self.settings = settings
        self.observer = observer
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.scratch = stack.enter_context(_scratch_folder())
            self._builder = stack.enter_context(Child(self.scratch))
            self._spec = self.settings.device
            self._opened = self.open(self._builder)
            self.probe = stack.enter_context(closing(probe_for(self._opened.device)))
            self.device = _identified(self._opened.device, self.probe)
            self._spec = self.device.spec
            self._check_policy(self.device)
            self.observer.opened(self.device)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(self, plan: Sequence[PlannedCase]) -> RunResult:
        """Run every planned case. One that fails, crashes or hangs costs its own row only.

        Raises StoreError where no record can be begun. An interrupt ends the run early: finished rows are
        stored and returned.
        """
        run = self._describe()
        rows: list[Row] = []
        interrupted = False
        with self._writer(run) as writer:
            try:
                self._build(plan)
                for row in self._rows(plan):
                    rows.append(row)
                    writer.add(row)
                    self.observer.finished(row)
            except KeyboardInterrupt:
                interrupted = True
            writer.finish(complete=not interrupted)
        return RunResult(run, tuple(rows), writer.path, interrupted, writer.problem)

    def _writer(self, run: Run) -> _Journal:
        if self.settings.results is None:
            return _Journal(None)
        return _Journal(
            RunWriter(self.settings.results / (self.settings.machine or machine_name(self.device)), run)
        )

    def _build(self, plan: Sequence[PlannedCase]) -> None:
        """Compile everything side by side, in the process that found the device."""
        wanted = [planned for planned in plan if _refusal(planned, self.device) is None]
        cases = tuple((planned.kernel.name, planned.case.sizes) for planned in wanted)
        self.observer.stage("build")
        try:
            self._builder.ask(protocol.BuildAll(cases=cases), self._build_timeout_s(wanted))
        except WorkerError:
            pass  # a compiler that hangs or kills its process is reported by the case that needs it
        finally:
            self._builder.kill()

    def _build_timeout_s(self, wanted: Sequence[PlannedCase]) -> float:
        """The case timeout for each turn that the compilers take, a core each."""
        kernels = len({planned.kernel.name for planned in wanted})
        return self.settings.timeout_s * max(1, ceil_div(kernels, os.cpu_count() or 1))

    def _check_policy(self, device: DeviceInfo) -> None:
        if self.settings.measure and self.settings.measure.l2 == "cold" and device.l2_bytes is None:
            raise UsageError(f"{device.name} has no cache that can be flushed: measure with --l2 hot.")

    def open(self, child: Child) -> protocol.Opened:
        """Open this session's device and suite in a worker."""
        return _open(
            child,
            protocol.Open(device=self._spec, suite=str(self.loaded.suite.root), scratch=str(self.scratch)),
        )

    def _describe(self) -> Run:
        limits = self.probe.limits()
        measure = self.settings.measure
        now = dt.datetime.now(dt.timezone.utc)
        return Run(
            harness_version=harness.__version__,
            run_id=secrets.token_hex(8),
            started_at=now.isoformat(timespec="seconds"),
            command=self.settings.command,
            source=self.loaded.source,
            headline=self.loaded.suite.headline,
            kernels=tuple(kernel.name for kernel in self.loaded.suite.kernels),
            device=self.device,
            toolchain=self._opened.toolchain,
            host=describe_host(),
            settings={
                "seed": self.settings.seed,
                "timeout_s": self.settings.timeout_s,
                **({name: getattr(measure, name) for name in measure.__slots__} if measure else {}),
            },
            peaks=peaks(
                self.device, limits.max_sm_clock_mhz, limits.max_memory_clock_mhz, limits.memory_bus_bits
            ),
            identity=self.probe.identity(),
        )

    def _rows(self, plan: Sequence[PlannedCase]) -> Iterator[Row]:
        """One row a case, in plan order. Every kernel has a process of its own, and a new one after a
        failure.
        """
        station: _Station | None = None
        try:
            for number, planned in enumerate(plan, 1):
                self.observer.started(planned, number, len(plan))
                if refused := _refusal(planned, self.device):
                    yield _row(planned, "skipped", refused.reason, refused.message)
                    continue
                if station is not None and station.kernel is not planned.kernel:
                    station.close()
                    station = None
                try:
                    station = station or _Station(self, planned.kernel)
                    row = station.run(planned)
                except HarnessError as error:
                    row = _row(planned, "failed", error.reason, error.message, error.log)
                if row.status == "failed" and station is not None:
                    station.close()
                    station = None
                yield row
        finally:
            if station is not None:
                station.close()


class _Journal:
    """A record, written as long as it can be: a disk that fills up must not cost what is being measured."""

    def __init__(self, writer: RunWriter | None) -> None:
        self._writer = writer
        self.path = writer.path if writer else None
        self.problem = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer:
            self._writer.__exit__(kind, error, trace)

    def add(self, row: Row) -> None:
        self._attempt(lambda writer: writer.add(row))

    def finish(self, *, complete: bool) -> None:
        self._attempt(lambda writer: writer.finish(complete=complete))

    def _attempt(self, write: Callable[[RunWriter], object]) -> None:
        if self._writer is None or self.problem:
            return
        try:
            write(self._writer)
        except StoreError as error:
            self.problem, self.path = error.message, None


class _Station:
    """A worker process for one kernel, with a sampler that has watched the card since before it started."""

    def __init__(self, session: Session, kernel: Kernel) -> None:
        self.kernel = kernel
        self._session = session
        with ExitStack() as stack:
            self._sampler = stack.enter_context(Sampler(session.probe))
            self._child = Child(session.scratch)
            stack.callback(self._end)
            session.open(self._child)
            self._stack = stack.pop_all()

    def run(self, planned: PlannedCase) -> Row:
        settings = self._session.settings
        request = protocol.Measure(
            kernel=planned.kernel.name,
            sizes=planned.case.sizes,
            seed=settings.seed,
            settings=settings.measure,
        )
        reply = self._child.ask(request, settings.timeout_s, self._session.observer.stage)
        if isinstance(reply, protocol.Failed):
            return _row(planned, "failed", reply.reason, reply.message, reply.log)
        assert isinstance(reply, protocol.Done)
        assert reply.row is not None
        if reply.row.measurement is None:
            return reply.row
        times = reply.row.measurement
        seen = telemetry_of(self._sampler, times.started_ns, times.ended_ns, own_pids=[self._child.pid])
        return dataclasses.replace(reply.row, telemetry=seen)

    def _end(self) -> None:
        # Killed rather than asked: nothing in a worker is worth waiting for, and a hung kernel would not
        # answer.
        self._child.kill()
        self._child.close()

    def close(self) -> None:
        self._stack.close()


def _refusal(planned: PlannedCase, device: DeviceInfo) -> Refusal | None:
    """Why the device cannot run the case, as far as its spec alone tells."""
    try:
        check_launch(launch_of(planned.kernel, planned.case), device)
    except LaunchError as error:
        known = f"{planned.kernel.name} cannot run at {planned.case.size_label}. {error.message}"
        return refusal(planned.kernel, device) or Refusal(error.reason, known)
    except HarnessError:
        pass  # a spec that is wrong is an error of the suite's, which the worker reports
    return refusal(planned.kernel, device)


def _row(planned: PlannedCase, status: RowStatus, reason: str, message: str, log: str = "") -> Row:
    """A row with no result, only a reason."""
    return Row(
        case=planned.case.id,
        kernel=planned.kernel.name,
        sizes=planned.case.sizes,
        dtype=planned.kernel.dtype,
        status=status,
        reason=reason,
        message=message,
        log=log,
    )


def _identified(device: DeviceInfo, probe: Probe) -> DeviceInfo:
    """The device with what its driver knows better: the card's UUID, and the driver's own version."""
    identity = probe.identity()
    return dataclasses.replace(
        device, uuid=device.uuid or identity.get("uuid"), driver=identity.get("driver") or device.driver
    )


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="harness-")
    except OSError as error:
        raise StoreError(
            f"No temporary folder can be made ({error.strerror or error}): free some space, or point TMPDIR "
            "at a folder that has some."
        ) from None
    with folder as path:
        yield Path(path)


def find_device(spec: str | None) -> DeviceInfo:
    """The device that `spec` names, or the default. Raises UsageError, DeviceError."""
    with _scratch_folder() as scratch, Child(scratch) as child:
        device = _open(child, protocol.Open(device=spec, suite=None, scratch=str(scratch))).device
        with closing(probe_for(device)) as probe:
            return _identified(device, probe)


def _open(child: Child, request: protocol.Open) -> protocol.Opened:
    reply = child.ask(request, OPEN_TIMEOUT_S)
    if isinstance(reply, protocol.Failed):
        kind = UsageError if reply.exit_code == ExitCode.USAGE else DeviceError
        raise kind(reply.message, log=reply.log)
    assert isinstance(reply, protocol.Opened)
    return reply
