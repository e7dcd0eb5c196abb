"""A run, from a plan to rows: open, build, verify, measure, store. The device is only ever touched by
child processes.
"""

from __future__ import annotations

__all__ = ["Observer", "RunResult", "Session", "SessionSettings"]

import dataclasses
import datetime as dt
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import harness
from harness.bench import protocol
from harness.bench.measure import MeasureSettings
from harness.device.host import describe_host
from harness.device.lock import Busy
from harness.device.machine import machine_name
from harness.errors import HarnessError, WorkerError
from harness.records import METHOD_VERSION, Row, RowStatus, Run
from harness.run.device_session import DeviceObserver, Station, Workplace, unfit
from harness.spec.loader import LoadedSuite
from harness.spec.planning import PlannedCase
from harness.spec.suite import Kernel, ceil_div
from harness.store.records_file import Journal, RecordWriter

if TYPE_CHECKING:
    pass


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
    library: bool = True
    """Hold what is measured against the vendor's own kernel, where the suite has one for the device."""
    max_launch_ms: float | None = None
    """Most device time of one dispatch; None launches as each kernel says."""
    busy: Busy = "wait"
    """What to do where another process measures on the device. Who only verifies need not care."""
    results: Path | None = None
    """Folder of all records; the device's own lie in a folder of its name. None stores nothing."""
    notes: Mapping[str, str | bool] = field(default_factory=dict)
    """What the record says beside the settings of what it was asked for, such as that it is a part."""


class Observer(DeviceObserver, Protocol):
    """Who is told how a run goes."""

    def started(self, planned: PlannedCase, number: int, total: int) -> None: ...
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


class Session(Workplace):
    """One suite on one device, case by case; a context manager like its base."""

    observer: Observer

    def __init__(self, loaded: LoadedSuite, settings: SessionSettings, observer: Observer) -> None:
        l2 = settings.measure.l2 if settings.measure else None
        super().__init__(
            observer,
            loaded.suite.root,
            device=settings.device,
            l2=l2,
            command=settings.command,
            busy=settings.busy if settings.measure else "ignore",
            work_tree=loaded.work_tree,
        )
        self.loaded = loaded
        self.settings = settings
        self._unsound = False
        """Whether a vendor's kernel failed in the worker, which is not to be trusted with another case."""

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
                for row in map(self._explained, self._rows(plan)):
                    rows.append(row)
                    writer.add(row)
                    self.observer.finished(row)
            except KeyboardInterrupt:
                interrupted = True
            writer.finish(complete=not interrupted)
        return RunResult(run, tuple(rows), writer.path, interrupted, writer.problem)

    def _writer(self, run: Run) -> Journal:
        if self.settings.results is None:
            return Journal(None)
        return Journal(
            RecordWriter(self.settings.results / (self.settings.machine or machine_name(self.device)), run)
        )

    def _build(self, plan: Sequence[PlannedCase]) -> None:
        """Compile everything side by side, in the process that found the device."""
        wanted = [planned for planned in plan if unfit(planned, self.device) is None]
        if self.settings.measure is not None:
            held = (self._library(planned) for planned in wanted)
            wanted += [library for library in held if library and unfit(library, self.device) is None]
        cases = tuple((planned.kernel.name, planned.case.sizes) for planned in wanted)
        self.observer.stage("build")
        try:
            self.builder.ask(protocol.BuildAll(cases=cases), self._build_timeout_s(wanted))
        except WorkerError:
            pass  # a compiler that hangs or kills its process is reported by the case that needs it
        finally:
            self.builder.kill()

    def _build_timeout_s(self, wanted: Sequence[PlannedCase]) -> float:
        """The case timeout for each turn that the compilers take, a core each."""
        kernels = len({planned.kernel.name for planned in wanted})
        return self.settings.timeout_s * max(1, ceil_div(kernels, os.cpu_count() or 1))

    def _describe(self) -> Run:
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
            toolchain=self.toolchain,
            host=describe_host(),
            settings={
                "seed": self.settings.seed,
                "timeout_s": self.settings.timeout_s,
                **({"max_launch_ms": most_ms} if (most_ms := self.settings.max_launch_ms) else {}),
                **(
                    {"method": METHOD_VERSION, **{name: getattr(measure, name) for name in measure.__slots__}}
                    if measure
                    else {}
                ),
                **self.settings.notes,
            },
            peaks=self.peaks,
            identity=self.probe.identity(),
        )

    def _rows(self, plan: Sequence[PlannedCase]) -> Iterator[Row]:
        """One row a case, in plan order. Every kernel has a process of its own, and a new one after a
        failure.
        """
        station: Station | None = None
        kernel: Kernel | None = None
        try:
            for number, planned in enumerate(plan, 1):
                self.observer.started(planned, number, len(plan))
                if refused := unfit(planned, self.device):
                    yield _row(planned, "skipped", refused.reason, refused.message)
                    continue
                if station is not None and kernel is not planned.kernel:
                    station.close()
                    station = None
                try:
                    station, kernel = station or Station(self), planned.kernel
                    row = self._row(station, planned)
                except HarnessError as error:
                    row = _row(planned, "failed", error.reason, error.message, error.log)
                if (row.status == "failed" or self._unsound) and station is not None:
                    station.close()
                    station, self._unsound = None, False
                yield row
        finally:
            if station is not None:
                station.close()

    def _row(self, station: Station, planned: PlannedCase) -> Row:
        request = protocol.Measure(
            kernel=planned.kernel.name,
            sizes=planned.case.sizes,
            seed=self.settings.seed,
            settings=self.settings.measure,
            max_launch_ms=self.settings.max_launch_ms,
            hold=self._library(planned) is not None,
        )
        reply = station.ask(request, self.settings.timeout_s)
        if isinstance(reply, protocol.Failed):
            return _row(planned, "failed", reply.reason, reply.message, reply.log)
        assert reply.row is not None
        if reply.row.measurement is None:
            return reply.row
        times = reply.row.measurement
        row = dataclasses.replace(reply.row, telemetry=station.seen(times.started_ns, times.ended_ns))
        return self._held_against(station, planned, row)

    def _explained(self, row: Row) -> Row:
        if row.status != "failed":
            return row
        return dataclasses.replace(row, message=self.loaded.explained(row.message, row.log))

    def _library(self, planned: PlannedCase) -> PlannedCase | None:
        """The vendor's own kernel that a case is held against on this device."""
        library = self.loaded.suite.library_for(planned.kernel) if self.settings.library else None
        if library is None or library.source_for(self.device.backend) is None:
            return None
        return PlannedCase(library, self.loaded.suite.case(library, planned.case.sizes))

    def _held_against(self, station: Station, planned: PlannedCase, row: Row) -> Row:
        """A measured row with what the vendor's own kernel does in its place, or why that is not known."""
        library = self._library(planned)
        if library is None:
            return row
        if refused := unfit(library, self.device):
            return dataclasses.replace(row, library_missing=refused.message)
        try:
            reply = station.ask(protocol.HoldAgainst(library=library.kernel.name), self.settings.timeout_s)
            failed = reply.message if isinstance(reply, protocol.Failed) else ""
        except HarnessError as error:
            failed = error.message
        self._unsound = bool(failed)
        if self._unsound:
            return dataclasses.replace(row, library_missing=f"{library.kernel.name}: {failed}")
        assert isinstance(reply, protocol.Done)
        return dataclasses.replace(row, library=reply.library)


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
