"""harness report ladder: what others published, and ours beside it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from harness.bench.measure import MeasureSettings
from harness.cli import completion
from harness.cli.execute import status_of, tell_result
from harness.cli.options import (
    echo_json,
    flag,
    json_option,
    no_wait_option,
    path_option,
    seconds_option,
    size_option,
)
from harness.config import load_config
from harness.device import backends
from harness.device.lock import Busy
from harness.errors import DeviceError
from harness.output.ladder_tables import markdown, print_hints, print_ladder
from harness.output.ladders import LadderReport, SuiteLadders, find_ladders
from harness.output.ladders import as_json as ladder_as_json
from harness.output.progress import ProgressObserver
from harness.run.run import RunResult, Session, SessionSettings
from harness.spec.planning import load_suites

SLOW_TIMEOUT_S = 3600.0


@click.command("ladder")
@click.argument("names", nargs=-1, metavar="[SUITE|LADDER|CASE]...", shell_complete=completion.ladders)
@flag("--measure", "Measure what is missing first, as 'harness run' does.")
@flag("--slow", "With --measure: what takes minutes too.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="SPEC",
    shell_complete=completion.devices,
    help="Show, or measure on, this device alone; repeatable.",
)
@size_option("sizes", help="Other sizes than the authors'.")
@click.option(
    "--against",
    metavar="KERNEL",
    default="",
    shell_complete=completion.cases,
    help="The kernel to hold against the host; default: the fastest.",
)
@seconds_option("--timeout", "For one case; default 120, with --slow 3600.")
@path_option("--results", "Where records lie.")
@no_wait_option
@click.option(
    "--format", "form", type=click.Choice(("terminal", "markdown")), default="terminal", show_default=True
)
@json_option
def command(
    names: tuple[str, ...],
    measure: bool,
    slow: bool,
    devices: tuple[str, ...],
    sizes: tuple[str, ...],
    against: str,
    timeout: float | None,
    results: Path | None,
    busy: Busy,
    form: str,
    as_json: bool,
) -> int:
    """Show what others published of a suite's kernels, and our newest figures of the same kernels beside it.

    Figures come from records, from every device that has any; what is not there is a dash. Default: every
    ladder of every suite.
    """
    for spec in devices:
        backends.parse_spec(spec)
    config = load_config()
    folder = results or config.results_folder
    asked = list(
        find_ladders(
            load_suites(config), names, sizes, results=folder, devices=devices, against=against, slow=slow
        )
    )
    finished: list[RunResult] = []
    if measure:
        settings = SessionSettings(
            device=config.device,
            measure=MeasureSettings(l2=config.l2),  # type: ignore[arg-type]
            timeout_s=timeout or (max(SLOW_TIMEOUT_S, config.timeout_s) if slow else config.timeout_s),
            busy=busy,
            results=folder,
        )
        finished = _measure(asked, settings)
    _show(asked, form, as_json=as_json)
    return status_of(finished)


def _measure(asked: Sequence[SuiteLadders], settings: SessionSettings) -> list[RunResult]:
    """Run what is missing on each device, and then, where a table holds one kernel of a device against the
    host, the fastest at the table's sizes.
    """
    finished: list[RunResult] = []
    with ProgressObserver() as observer:
        for ladders in asked:
            for spec in ladders.specs(settings.device):
                try:
                    for result in _measured_on(ladders, replace(settings, device=spec), observer):
                        finished.append(result)
                        if result.interrupted:
                            return finished
                except DeviceError as error:
                    if ladders.devices or spec == settings.device:
                        raise
                    click.echo(f"harness: {error.message}", err=True)
    return finished


def _measured_on(
    ladders: SuiteLadders, settings: SessionSettings, observer: ProgressObserver
) -> Iterator[RunResult]:
    with Session(ladders.loaded, settings, observer) as session:
        device = session.device
        if plan := ladders.missing(device):
            yield _told(session.run(plan))
    if plan := ladders.missing_fastest(device):
        with Session(ladders.loaded, settings, observer) as session:
            yield _told(session.run(plan))


def _told(result: RunResult) -> RunResult:
    tell_result(result, "figures that are missing stay so")
    return result


def _show(asked: Sequence[SuiteLadders], form: str, *, as_json: bool) -> None:
    reports: list[LadderReport] = []
    problems: list[str] = []
    for ladders in asked:
        found, unread = ladders.reports()
        reports += found
        problems += unread
    for problem in dict.fromkeys(problems):
        click.echo(f"harness: {problem}", err=True)
    if as_json:
        echo_json([ladder_as_json(report) for report in reports])
        return
    now = dt.datetime.now(dt.timezone.utc)
    for number, report in enumerate(reports):
        if number:
            click.echo()
        if form == "markdown":
            click.echo(markdown(report), nl=False)
        else:
            print_ladder(report, now)
    if form == "terminal":
        click.echo()
        print_hints(reports)
