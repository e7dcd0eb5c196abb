"""harness calibrate: measures how noisy this device is."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from harness.cli import echo_json, executable_options, options, script_options
from harness.cli.compare_command import repository_of, settings_from
from harness.cli.on_cards import measure_suites, opening
from harness.config import Config, load_config
from harness.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from harness.records.types import DeviceInfo
    from harness.report.terminal.progress import CompareProgress
    from harness.run.calibrate import CalibrateSettings, CalibrationResult
    from harness.run.compare_settings import CompareSettings
    from harness.suite.loader import LoadedSuite
    from harness.suite.planning import PlannedCase


def _trials(name: str, how: str, *, least: int, default: int) -> options.Option:
    kind = click.IntRange(min=least)
    return click.option(
        name, type=kind, default=default, show_default=True, help=f"Verdicts of each case {how}."
    )


@click.command("calibrate")
@options.cards
@options.selection
@_trials("--trials", "against itself", least=1, default=4)
@_trials("--planted-trials", "with each slowdown planted", least=0, default=1)
@options.value("--levels", "PERCENT,...", "Slowdowns to plant.", default="0.5,1,2,3", show_default=True)
@options.l2
@options.path("--results", "Folder for the calibration and its records; default: .asv/results.")
@options.flag("--no-save", "Store nothing.")
@options.no_wait
@script_options.script
@script_options.recorded
@executable_options.build_command
def command(selection: options.Selection, **given: Any) -> ExitCode:
    """Measure the noise of this device: compare kernels with themselves, and with copies slowed on purpose.

    Later comparisons on this device use the result. CASES select the kernels. With --script the calls of a
    benchmark script are compared with themselves, and nothing is slowed.

    Exit status 1 if code came out slower or faster than itself, 3 if nothing could be judged.
    """
    config = load_config()
    if scripts := script_options.scripts_in(config, given):
        _refuse_planting()
        repository = repository_of(config)
        finished = script_options.calibrate(config, repository, selection, scripts, given)
    else:
        if given["build_command"]:
            raise UsageError("--build-command is of no use without --script.")
        finished = _of_suites(config, selection, given)
    return _shown(finished, as_json=selection.as_json)


def _refuse_planting() -> None:
    context = click.get_current_context()
    for name, option in (("planted_trials", "--planted-trials"), ("levels", "--levels")):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{option} is of no use with --script: a script's calls are measured as they are."
            )


def _of_suites(
    config: Config, selection: options.Selection, given: Mapping[str, Any]
) -> list[CalibrationResult]:
    """Calibrate with the kernels of suites, one suite after another."""
    from harness.report.terminal.progress import CompareProgress
    from harness.run.calibrate import CalibrateSettings

    trials, planted = given["trials"], given["planted_trials"]
    chosen = CalibrateSettings(trials=trials, planted_trials=planted, levels=_levels(given["levels"]))
    settings = settings_from(
        config, selection, {**given, "twins": False}, command="calibrate", measure_identical=True, solo_s=0.0
    )
    with opening(selection, config), CompareProgress() as observer:
        work = _Calibrations(selection.suites(config), selection, settings, chosen)
        # Each card has its own noise, so each card measures all cases.
        found = measure_suites(work, len(work.suites), selection, settings.device, observer, share=False)
    return [result for _, result in found]


@dataclass(frozen=True, slots=True)
class _Calibrations:
    """Calibrations with the kernels of each suite; see `harness.cli.on_cards.Work`."""

    suites: options.Sized[LoadedSuite]
    selection: options.Selection
    settings: CompareSettings
    chosen: CalibrateSettings

    def planned(self, suite: int, device: DeviceInfo) -> list[PlannedCase]:
        from harness.suite.planning import plan

        loaded, sizes = self.suites[suite]
        quick = self.selection.quick or device.kind != "gpu"
        return plan(loaded.suite, self.selection.cases, sizes, quick=quick)

    def measure(
        self, suite: int, device: str | None, only: Collection[str] | None, observer: CompareProgress
    ) -> CalibrationResult:
        from harness.run.calibrate import calibrate
        from harness.run.compare import Comparing

        loaded, _ = self.suites[suite]
        settings = dataclasses.replace(self.settings, device=device)
        with Comparing(loaded, loaded, settings, observer) as comparing:
            cases = self.planned(suite, comparing.device)
            return calibrate(
                comparing, [each for each in cases if only is None or each.case.id in only], self.chosen
            )


def _shown(finished: Sequence[CalibrationResult], *, as_json: bool) -> ExitCode:
    """Print calibrations, and return the exit status."""
    from harness.report.terminal import calibrations

    if as_json:
        echo_json([calibrations.as_json(result) for result in finished])
    else:
        calibrations.print_calibration(finished)
    if any(result.interrupted for result in finished):
        return ExitCode.INTERRUPTED
    statuses = {verdict.status for result in finished for verdict in result.same}
    if statuses & {"regression", "improvement"}:
        return ExitCode.REGRESSION
    return ExitCode.FINE if statuses & {"unchanged", "inconclusive"} else ExitCode.NOT_MEASURED


def _levels(text: str) -> tuple[float, ...]:
    try:
        levels = tuple(sorted(float(part) / 100 for part in text.split(",")))
    except ValueError:
        levels = ()
    if not levels or not all(0 < level < 1 for level in levels):
        raise UsageError(f"--levels {text}: expected percents between 0 and 100, such as 0.5,1,2,3.")
    return levels
