"""harness calibrate: how noisy is this device?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli import echo_json, options
from harness.cli.execute import fitting
from harness.config import load_config
from harness.device.lock import Busy
from harness.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from harness.run.calibrate import CalibrationResult


@click.command("calibrate")
@options.selection
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Verdicts of each case against itself.",
)
@click.option(
    "--planted-trials",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Verdicts of each case with each slowdown planted.",
)
@click.option(
    "--levels", default="0.5,1,2,3", show_default=True, metavar="PERCENT,...", help="Slowdowns to plant."
)
@options.l2
@options.path("--results", "Where records go.")
@options.flag("--no-save", "Keep nothing.")
@options.no_wait
def command(
    selection: options.Selection,
    trials: int,
    planted_trials: int,
    levels: str,
    l2: str | None,
    results: Path | None,
    no_save: bool,
    busy: Busy,
) -> int:
    """Measure this device's noise: the kernels that CASES select against themselves, and slowed on purpose.

    Later comparisons on this device are judged by it. Exit status 1 where code came out as slower or faster
    than itself, 3 where nothing could be judged.
    """
    from harness.output.calibrations import as_json, print_calibration
    from harness.output.progress import CompareProgress
    from harness.run.calibrate import CalibrateSettings, calibrate
    from harness.run.compare import CompareSettings, Comparing
    from harness.spec.planning import load_suites, plan

    config = load_config()
    chosen = CalibrateSettings(trials=trials, planted_trials=planted_trials, levels=_levels(levels))
    settings = CompareSettings(
        command="calibrate",
        device=selection.device or config.device,
        l2=l2 or config.l2,  # type: ignore[arg-type]
        timeout_s=selection.timeout or config.timeout_s,
        busy=busy,
        seed=selection.seed,
        measure_identical=True,
        solo_s=0.0,
        twins=False,
        results=results or config.results_folder,
        save=not no_save,
    )
    finished: list[CalibrationResult] = []
    with CompareProgress() as observer:
        suites = load_suites(
            config,
            selection.commit,
            selection.cases,
            timeout_s=selection.timeout,
            suite_from=selection.suite_from,
        )
        for loaded, sizes in fitting(suites, selection):
            with Comparing(loaded, loaded, settings, observer) as comparing:
                quick = selection.quick or comparing.device.kind != "gpu"
                cases = plan(loaded.suite, selection.cases, sizes, quick=quick)
                finished.append(calibrate(comparing, cases, chosen))
            if finished[-1].interrupted:
                break
    if selection.as_json:
        echo_json([as_json(result) for result in finished])
    else:
        print_calibration(finished)
    return _status(finished)


def _levels(text: str) -> tuple[float, ...]:
    try:
        levels = tuple(sorted(float(part) / 100 for part in text.split(",")))
    except ValueError:
        levels = ()
    if not levels or not all(0 < level < 1 for level in levels):
        raise UsageError(f"--levels {text}: expected percents between 0 and 100, such as 0.5,1,2,3.")
    return levels


def _status(results: list[CalibrationResult]) -> ExitCode:
    if any(result.interrupted for result in results):
        return ExitCode.INTERRUPTED
    statuses = {verdict.status for result in results for verdict in result.same}
    if statuses & {"regression", "improvement"}:
        return ExitCode.REGRESSION
    return ExitCode.FINE if statuses & {"unchanged", "inconclusive"} else ExitCode.NOT_MEASURED
