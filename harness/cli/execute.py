"""The common part of check and run: measures suites, prints rows, returns an exit status."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import echo_json, options, show_sheets, tell_failed, tell_lines, tell_wall_time
from harness.cli.on_cards import measure_suites
from harness.config import load_config
from harness.errors import ExitCode
from harness.report.terminal.progress import ProgressObserver
from harness.report.terminal.run_tables import check_table, print_end, run_tables
from harness.run.worker_process import import_beside
from harness.suite.planning import divided, plan

if TYPE_CHECKING:
    from harness.device.lock import Busy
    from harness.measure.timing import MeasureSettings
    from harness.records.record_files import RunResult
    from harness.records.types import DeviceInfo
    from harness.run.run import SessionSettings
    from harness.suite.loader import LoadedSuite
    from harness.suite.planning import PlannedCase

NOT_FOR_THIS_DEVICE = (
    "Nothing of it runs on this device. 'harness devices' says what else there is here, and why no more; "
    "'harness check --build-only sm_90' compiles CUDA kernels without a card; Triton's functions need one."
)


@dataclass(frozen=True, slots=True)
class _Runs:
    """A run of each suite; see `harness.cli.on_cards.Work`."""

    suites: options.Sized[LoadedSuite]
    chosen: options.Selection
    settings: SessionSettings

    def planned(self, suite: int, device: DeviceInfo) -> list[PlannedCase]:
        return self._divided(suite, device)[0]

    def _divided(self, suite: int, device: DeviceInfo) -> tuple[list[PlannedCase], dict[str, list[str]]]:
        """Return the cases to run on a device, and the kernels for other backends, by backend."""
        loaded, sizes = self.suites[suite]
        chosen = self.chosen
        quick = chosen.quick or device.kind != "gpu"
        planned = plan(loaded.suite, chosen.cases, sizes, quick=quick, graph=chosen.graph)
        return divided(planned, chosen.cases, device)

    def measure(
        self, suite: int, device: str | None, only: Collection[str] | None, observer: ProgressObserver
    ) -> RunResult:
        from harness.run.run import Session

        loaded, _ = self.suites[suite]
        with Session(loaded, dataclasses.replace(self.settings, device=device), observer) as session:
            cases, others = self._divided(suite, session.device)
            result = session.run([each for each in cases if only is None or each.case.id in only])
        for backends, names in others.items():
            observer.waiting(f"Not for {session.device.spec}: {', '.join(names)} ({backends}).")
        return result


def execute(
    chosen: options.Selection,
    command: str,
    measure: MeasureSettings | None,
    *,
    results: Path | None = None,
    no_save: bool = False,
    no_library: bool = False,
    max_launch_ms: float | None = None,
    counters: bool = False,
    busy: Busy = "wait",
    profile_wall: bool = False,
) -> int:
    """Measure the chosen suites, and print their rows. Call it while the device opens.

    Returns the exit status.
    """
    config = load_config()
    if measure is not None and measure.l2 is None:
        measure = dataclasses.replace(measure, l2=config.l2)  # type: ignore[arg-type]
    import_beside("harness.run.run")  # while the suites load
    with ProgressObserver() as observer:
        suites = chosen.suites(config)

        from harness.run.run import SessionSettings

        settings = SessionSettings(
            command=command,
            device=chosen.device or config.device,
            measure=measure,
            timeout_s=chosen.timeout or config.timeout_s,
            seed=chosen.seed,
            library=not no_library and max_launch_ms is None,  # a library decides its own launches
            max_launch_ms=max_launch_ms,
            counters=counters,
            busy=busy,
            results=None if no_save else results or config.results_folder,
        )
        runs = _Runs(suites, chosen, settings)
        found = measure_suites(runs, len(suites), chosen, settings.device, observer)
    finished = [result for _, result in found]
    if profile_wall:
        tell_wall_time(finished)
    return show(finished, chosen, timed=measure is not None)


def show(finished: Sequence[RunResult], chosen: options.Selection, *, timed: bool) -> int:
    """Print runs as tables or JSON, and return the exit status."""
    if chosen.as_json:
        echo_json([_as_json(result) for result in finished])
    else:
        for result in finished:
            _show(result, timed=timed)
    status = status_of(finished)
    left_out = [row.reason for result in finished for row in result.rows if row.status == "skipped"]
    if status is ExitCode.FINE and len(left_out) == sum(len(result.rows) for result in finished):
        if all(reason in ("needs-backend", "needs-cuda") for reason in left_out):
            click.echo(NOT_FOR_THIS_DEVICE, err=True)
        return ExitCode.NOT_MEASURED
    return status


def _show(result: RunResult, *, timed: bool) -> None:
    """Print the tables of one suite, and report omissions on standard error."""
    if result.rows:
        show_sheets(run_tables(result) if timed else [check_table(result)])
    tell_lines(f"Left out: {row.message}" for row in result.rows if row.status == "skipped")
    tell_lines(f"No counters: {row.counters_missing}" for row in result.rows if row.counters_missing)
    if any(row.status == "not-built" for row in result.rows):
        click.echo(
            "The null device compiles nothing: references stood in for kernels. 'harness check "
            "--build-only sm_90' compiles CUDA kernels without a card; Triton's functions need one.",
            err=True,
        )
    tell_result(result, "the rows above are all that was finished")


def _as_json(result: RunResult) -> dict[str, Any]:
    from harness.history.row_summary import summary_of

    return {
        "run": result.run,
        "complete": not result.interrupted,
        "record": str(result.path) if result.path else None,
        "problem": result.problem,
        "wall_s": result.wall_s,
        "rows": [{"row": row, "summary": summary_of(row, result.run)} for row in result.rows],
    }


def tell_result(result: RunResult, interrupted: str) -> None:
    """Print failures with logs, the record, and what an interrupted run left, on standard error."""
    for row in result.rows:
        if row.status == "failed":
            tell_failed(f"{row.case} failed ({row.reason}): {row.message}", row.log)
    print_end(result.problem, result.path, interrupted if result.interrupted else "")


def status_of(results: Sequence[RunResult]) -> ExitCode:
    rows = [row for result in results for row in result.rows]
    if any(result.interrupted for result in results):
        return ExitCode.INTERRUPTED
    if any(row.reason == "wrong-result" for row in rows):
        return ExitCode.REGRESSION
    if any(result.problem for result in results) or any(row.status == "failed" for row in rows):
        return ExitCode.NOT_MEASURED
    return ExitCode.FINE
