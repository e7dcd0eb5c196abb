"""Executes a plan and stores its rows. Only child processes use the device."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.device.lock import Busy
from harness.device.machine import machine_name
from harness.errors import HarnessError, WorkerError
from harness.measure.protocol import BuildAll, CaseOf, CountEvents, HoldAgainst, Measure, against_itself
from harness.measure.timing import MeasureSettings
from harness.records.record_files import Journal, RecordWriter, RunResult
from harness.records.types import METHOD_VERSION, Row, RowStatus, Run, fields_of
from harness.run.device_session import DeviceObserver, DeviceSession, most_cards
from harness.run.worker_process import WorkerProcess, worker_variables
from harness.suite.kernel import Kernel, PythonFunction
from harness.suite.loader import LoadedSuite, is_plain
from harness.suite.packages_ahead import packages_ahead
from harness.suite.planning import PlannedCase
from harness.suite.problem import ceil_div
from harness.system.process import Failed, failure, template_with

if TYPE_CHECKING:
    from harness.system.ready import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    command: str = "run"
    device: str | None = None
    measure: MeasureSettings | None = field(default_factory=MeasureSettings)
    """Settings of the measurement; None verifies only."""
    timeout_s: float = 120.0
    """Timeout of one case in seconds, for building, verifying and measuring."""
    seed: int = 1
    machine: str | None = None
    """Name of the device's folder of records; None derives it from the device."""
    library: bool = True
    """True to compare with the vendor's kernel, if the suite has one for the device."""
    max_launch_ms: float | None = None
    """Longest device time of one dispatch, in ms; None keeps each kernel's launch."""
    busy: Busy = "wait"
    """Reaction to another process that measures on the device. A verifying run ignores it."""
    results: Path | None = None
    """Folder of all records, with a folder for each device; None stores nothing."""
    counters: bool = False
    """True to read hardware counters of each measured case, in a process of its own."""
    notes: Mapping[str, str | bool] = field(default_factory=dict)
    """Further settings for the record, such as a note that it is partial."""


class Observer(DeviceObserver, Protocol):
    def started(self, case: str, number: int, total: int) -> None: ...
    def finished(self, row: Row) -> None: ...


class Session(DeviceSession):
    """Runs one suite on one device, case by case. A context manager like its base."""

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
            timed=settings.measure is not None,
            cards=most_cards(loaded.suite),
        )
        self.loaded = loaded
        self.settings = settings
        self._has_built = False
        self._template: Template | None = None
        """A process that has imported the packages of all kernels, from which their processes are forked."""

    def run(self, plan: Sequence[PlannedCase]) -> RunResult:
        """Run every planned case. A case that fails, crashes or hangs loses only its own row.

        Raises StoreError if no record can be begun. An interrupt ends the run early: finished rows are stored
        and returned.
        """
        run = self._describe()
        rows: list[Row] = []
        interrupted = False
        results, machine = self.settings.results, self.settings.machine or machine_name(self.device)
        with Journal(RecordWriter(results / machine, run) if results else None) as writer:
            try:
                self._build(plan)
                for row in map(self._explained, self._rows(plan)):
                    rows.append(row)
                    writer.add(row)
                    self.observer.finished(row)
            except KeyboardInterrupt:
                interrupted = True
            writer.finish(complete=not interrupted)
        wall_s = self.wall_time.spent_s()
        return RunResult(run, tuple(rows), writer.path, interrupted, writer.problem, wall_s)

    def _build(self, plan: Sequence[PlannedCase]) -> None:
        """Compile everything in parallel, in the process that found the device, once a session."""
        if self._has_built:
            return
        self._has_built = True
        wanted = [planned for planned in plan if self.refusal(planned) is None]
        self.wanted = len({each.kernel.name for each in wanted})
        self._template = self._with_packages({each.kernel.name: each.kernel for each in wanted})
        if self.settings.measure is not None:
            libraries = map(self._library, wanted)
            wanted += [each for each in libraries if each and self.refusal(each) is None]
        cases = tuple(CaseOf(kernel=each.kernel.name, sizes=each.case.sizes) for each in wanted)
        self.stage("build")
        # One case timeout for each round of compilations, with one core per compiler.
        turns = ceil_div(len({each.kernel.name for each in wanted}), os.cpu_count() or 1)
        if self._timed:
            self.open_ahead(1)
        try:
            self.builder.ask(BuildAll(cases=cases), self.settings.timeout_s * max(1, turns))
            if self._may_keep_builder(wanted):
                self.keep_builder()
        except WorkerError:
            pass  # If a compiler hangs or kills its process, the case that needs it reports that.
        finally:
            if not self._may_keep_builder(wanted):
                self.end_soon(self.builder)
            self.wall_time.enter("judge")

    def _with_packages(self, kernels: Mapping[str, Kernel]) -> Template | None:
        """Return a process that imports the packages of several functions once; None if it must not.

        A single function is verified in the process that found the device, or imports its packages there.
        """
        sources = [kernel.source_for(self.device.backend) for kernel in kernels.values()]
        if self._fresh or len(sources) < 2 or not all(isinstance(each, PythonFunction) for each in sources):
            return None
        found = packages_ahead(self.loaded.suite, kernels.values(), self.device.backend)
        return template_with(found.packages, found.names, worker_variables()) if found.packages else None

    def _new_worker(self) -> WorkerProcess:
        answered = self._answered_by()
        return WorkerProcess(self.scratch, answered=answered, fresh=self._fresh, template=self._template)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._template is not None:
            self._template.close()

    def _may_keep_builder(self, built: Sequence[PlannedCase]) -> bool:
        """Tell whether kernels can be verified in the building process, because no code of another one has
        run there.
        """
        kernels = {each.kernel.name: each.kernel for each in built}.values()
        backend = self.device.backend
        return not self._timed and (len(kernels) == 1 or all(is_plain(each, backend) for each in kernels))

    def _describe(self) -> Run:
        measure = self.settings.measure
        return Run(
            **self.description(),
            command=self.settings.command,
            source=self.loaded.source,
            headline=self.loaded.suite.headline,
            kernels=tuple(kernel.name for kernel in self.loaded.suite.kernels),
            settings={
                **fields_of(self.settings, "seed", "timeout_s"),
                **({"max_launch_ms": most_ms} if (most_ms := self.settings.max_launch_ms) else {}),
                **({"method": METHOD_VERSION} if measure else {}),
                **(fields_of(measure, *measure.__slots__) if measure else {}),
                **self.settings.notes,
            },
            peaks=self.peaks,
        )

    def _rows(self, plan: Sequence[PlannedCase]) -> Iterator[Row]:
        """Yield one row for each case in plan order. A kernel keeps its process until a case fails."""
        kernel: Kernel | None = None
        for number, planned in enumerate(plan, 1):
            self.observer.started(planned.case.short_id, number, len(plan))
            if refused := self.refusal(planned):
                yield _row(planned, "skipped", reason=refused.reason, message=refused.message)
                continue
            if kernel is not planned.kernel:
                self.leave()
            kernel = planned.kernel
            try:
                row = self._row(planned)
            except HarnessError as error:
                row = _failed_row(planned, failure(error))
            if row.status == "failed":
                self.leave()
            yield self._counted(planned, row) if self.settings.counters else row
        self.leave()

    def _row(self, planned: PlannedCase) -> Row:
        library = self._library(planned)
        request = Measure(
            kernel=planned.kernel.name,
            sizes=planned.case.sizes,
            seed=self.settings.seed,
            settings=self.settings.measure,
            max_launch_ms=self.settings.max_launch_ms,
            hold=library is not None,
        )
        reply = self.ask(request, self.settings.timeout_s)
        if isinstance(reply, Failed):
            return _failed_row(planned, reply)
        if reply.measurement is None:
            return reply
        row = dataclasses.replace(reply, telemetry=self.seen(*reply.measurement.span_ns))
        return row if library is None else self._held_against(library, row)

    def _counted(self, planned: PlannedCase, row: Row) -> Row:
        """Return a measured row with hardware counters, read in a process that times nothing."""
        if row.measurement is None:
            return row
        request = CountEvents(
            pair=against_itself(planned.case, planned.case.id),
            side="head",
            seed=self.settings.seed,
            order_seed=self.settings.seed,
            l2=row.measurement.l2,
        )
        self.leave()
        try:
            reply = self.ask(request, self.settings.timeout_s)
        except HarnessError as error:
            reply = failure(error)
        self.leave()
        if isinstance(reply, Failed):
            return dataclasses.replace(row, counters_missing=reply.message)
        return dataclasses.replace(row, counters=reply["head"].counters)

    def _explained(self, row: Row) -> Row:
        if row.status != "failed":
            return row
        return dataclasses.replace(row, message=self.loaded.explained(row.message, row.log))

    def _library(self, planned: PlannedCase) -> PlannedCase | None:
        """Return the vendor's kernel for comparison with a case on this device."""
        library = self.loaded.suite.library_for(planned.kernel) if self.settings.library else None
        if library is None or library.source_for(self.device.backend) is None:
            return None
        return PlannedCase(library, self.loaded.suite.case(library, planned.case.sizes))

    def _held_against(self, library: PlannedCase, row: Row) -> Row:
        """Return a measured row with the vendor's time, or with the reason why it is unknown."""
        if refused := self.refusal(library):
            return dataclasses.replace(row, library_missing=refused.message)
        name = library.kernel.name
        reply = self.ask(HoldAgainst(library=name), self.settings.timeout_s)
        if isinstance(reply, Failed):
            return dataclasses.replace(row, library_missing=f"{name}: {reply.message}")
        return dataclasses.replace(row, library=reply)


def _failed_row(planned: PlannedCase, failed: Failed) -> Row:
    return _row(planned, "failed", **fields_of(failed, "reason", "message", "log"))


def _row(planned: PlannedCase, status: RowStatus, **why: Any) -> Row:
    case, kernel = planned.case, planned.kernel
    return Row(case=case.id, kernel=kernel.name, sizes=case.sizes, dtype=kernel.dtype, status=status, **why)
