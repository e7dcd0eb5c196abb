"""Runs a benchmark script of one commit once: a row for each of its timing calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from harness.device.lock import held
from harness.device.machine import machine_name
from harness.device.telemetry import Sampler, probe_for, telemetry_of
from harness.errors import HarnessError
from harness.judgement.statistics.paired import trimmed_mean
from harness.records.imports.imported import identifier
from harness.records.record_files import Journal, RecordWriter, RunResult
from harness.records.types import Measurement, Outputs, Row, Run
from harness.run.device_session import begun, identified
from harness.run.executables.executable_build import Executable, name_of
from harness.run.importing import HEADLINE
from harness.run.pair_session import CompareObserver
from harness.run.scripts.call_names import CallName, names_of
from harness.run.scripts.compare_scripts import (
    ScriptSettings,
    nothing_recorded,
    only_that_card,
    script_device,
)
from harness.run.scripts.script_files import caches_of
from harness.run.scripts.script_process import Call, Done, ScriptProcess, ScriptServer
from harness.run.scripts.script_turns import BUDGET_MS, WARM_UP_MS, CallFailedError, sampled, tick_of
from harness.suite.case_id import CaseId
from harness.system.files import scratch_folder

_SLOTS = 25
NOT_COMPARED = "There is no base: outputs were not compared."


@dataclass(frozen=True, slots=True)
class _Measured:
    """A call with its slots, or with its error."""

    call: Call
    slots: Sequence[Done]
    problem: CallFailedError | None = None


class RunningScript:
    """A run of a script on one device; `run` does everything.

    Raises UsageError, DeviceError, BusyError, NothingRecordedError, OtherCodeError, StoreError.
    """

    def __init__(self, executable: Executable, settings: ScriptSettings, observer: CompareObserver) -> None:
        self.executable, self.settings, self.observer = executable, settings, observer
        self.suite = settings.suite or identifier(name_of(executable.command))

    def run(self) -> RunResult:
        """Measure every timing call, in the script's order."""
        settings = self.settings
        with ExitStack() as stack:
            device = script_device(settings.device)
            stack.enter_context(held(device, "run", settings.busy, self.observer.waiting))
            probe = stack.enter_context(closing(probe_for(device)))
            self.device = identified(device, probe.identity())
            self.observer.opened(self.device)
            scratch = stack.enter_context(scratch_folder())
            sampler = stack.enter_context(Sampler(probe, mark_s=0.1))
            variables = {**caches_of(self.executable), **only_that_card(self.device, settings.device)}
            what = dataclasses.replace(settings.recorded, variables=variables)
            if self.executable.problem is not None:
                raise self.executable.problem
            server = stack.enter_context(closing(ScriptServer(self.executable, scratch / "script", what)))
            process = stack.enter_context(closing(server.run()))
            measured, failure = self._measured(process)
            if not measured and failure is None:
                raise nothing_recorded(self.executable.command)
            [names] = names_of([[each.call for each in measured]])
            rows = [
                self._row(name, each, sampler, process.pid)
                for name, each in zip(names, measured, strict=True)
            ]
            return self._stored(self._describe(measured, probe.identity()), rows, failure)

    def _measured(self, process: ScriptProcess) -> tuple[list[_Measured], HarnessError | None]:
        """Measure each call of the script. Return them, and the failure that ended the script."""
        found: list[_Measured] = []
        timeout_s = self.settings.timeout_s
        try:
            while (call := process.reach(timeout_s)) is not None:
                self.observer.stage(f"call {len(found) + 1}, {call.functions[0] if call.functions else ''}")
                try:
                    sampled(process, BUDGET_MS, timeout_s)
                    warm = sampled(process, WARM_UP_MS, timeout_s)
                    budget_ms = max(BUDGET_MS, 3 * trimmed_mean(warm.times_ns) / 1e6)
                    slots = [sampled(process, budget_ms, timeout_s) for _ in range(_SLOTS)]
                    found.append(_Measured(call, slots))
                except CallFailedError as error:
                    found.append(_Measured(call, (), error))
            process.imported()
        except HarnessError as error:
            return found, error
        return found, None

    def _row(self, name: CallName, measured: _Measured, sampler: Sampler, pid: int) -> Row:
        sizes = dict(name.sizes)
        row = Row(
            case=str(CaseId.of(self.suite, name.kernel, sizes)),
            kernel=name.kernel,
            sizes=sizes,
            dtype="",
            status="measured",
            message=NOT_COMPARED,
            outputs=Outputs(held_to="nothing", reason="not-compared"),
        )
        if measured.problem is not None:
            problem = measured.problem
            return dataclasses.replace(
                row, status="failed", reason=problem.reason, message=problem.message, outputs=None
            )
        slots, call = measured.slots, measured.call
        seen = telemetry_of(sampler, slots[0].started_ns, slots[-1].ended_ns, own_pids=[pid])
        measurement = Measurement(
            times_ns=tuple(trimmed_mean(each.times_ns) for each in slots),
            launches_per_slot=min(each.launches * len(each.times_ns) for each in slots),
            l2="cold" if call.l2 == "cold" else "hot",
            clock=call.clock,
            tick_ns=tick_of(call),
            warmup_launches=None,
            warmup_s=None,
            settled=None,
            stopped_by="slots",
            started_ns=slots[0].started_ns,
            ended_ns=slots[-1].ended_ns,
        )
        return dataclasses.replace(row, measurement=measurement, telemetry=seen)

    def _describe(self, measured: Sequence[_Measured], identity: Mapping[str, str]) -> Run:
        timers = dict.fromkeys(each.call.timer for each in measured)
        return Run(
            **begun(),
            command="run",
            source=dataclasses.replace(self.executable.source, suite=self.suite),
            headline=HEADLINE,
            kernels=(),
            device=self.device,
            toolchain=None,
            identity=identity,
            settings={
                "method": ", ".join(timers),
                "script": self.executable.command,
                "timeout_s": self.settings.timeout_s,
                "seed": self.settings.seed,
            },
        )

    def _stored(self, run: Run, rows: Sequence[Row], failure: HarnessError | None) -> RunResult:
        if failure is not None:
            rows = [*rows, self._failed(failure)]
        run = dataclasses.replace(run, kernels=tuple(dict.fromkeys(row.kernel for row in rows)))
        settings = self.settings
        folder = settings.results / machine_name(self.device) if settings.results else None
        with Journal(RecordWriter(folder, run) if folder and settings.save else None) as journal:
            for row in rows:
                journal.add(row)
            journal.finish(complete=True)
        return RunResult(run, tuple(rows), journal.path, problem=journal.problem)

    def _failed(self, error: HarnessError) -> Row:
        return Row(
            case=f"{self.suite}.script[]",
            kernel="script",
            sizes={},
            dtype="",
            status="failed",
            reason=error.reason,
            message=error.message,
            log=error.log,
        )
