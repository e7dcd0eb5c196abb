"""harness report ladder: shows published values beside ours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from harness.cli import completion, echo_json, options, tell, tell_at_end, tell_lines
from harness.cli.execute import status_of, tell_result
from harness.config import load_config
from harness.device import backends
from harness.device.lock import Busy
from harness.device.static.demand import demands
from harness.device.static.occupancy import CardModel
from harness.device.static.occupancy import card as card_called
from harness.errors import DeviceError, UsageError
from harness.history.ladders import LadderReport, SuiteLadders, find_ladders, planned
from harness.measure.timing import MeasureSettings
from harness.records.record_files import RunResult
from harness.report.terminal.demands import as_json as demands_as_json
from harness.report.terminal.demands import as_markdown as demands_as_markdown
from harness.report.terminal.demands import print_demands
from harness.report.terminal.ladder_tables import ladder_json, markdown, print_hints, print_ladder
from harness.report.terminal.progress import ProgressObserver, Waiting
from harness.run.run import Session, SessionSettings
from harness.suite.planning import load_suites
from harness.suite.suite import Suite

SLOW_TIMEOUT_S = 3600.0


def known_card(text: str) -> CardModel | None:
    """Return the card of the data file that an author's words name; None if there is none."""
    try:
        return card_called(text) if text else None
    except UsageError:
        return None


@click.command("ladder")
@click.argument("names", nargs=-1, metavar="[SUITE|LADDER|CASE]...", shell_complete=completion.ladders)
@options.flag("--measure", "Measure missing values first, as 'harness run' does.")
@options.flag("--slow", "With --measure: measure also what takes minutes.")
@options.several(
    "--device",
    "SPEC",
    "Show or measure only this device",
    to="devices",
    shell_complete=completion.devices,
)
@options.size("Sizes that replace the authors'.", to="sizes")
@options.value(
    "--against",
    "KERNEL",
    "The kernel to compare with the host; default: the fastest.",
    default="",
    shell_complete=completion.cases,
)
@options.value(
    "--card",
    "NAME",
    "Show what the kernels need on this card, as 'harness list --card' does; default at a terminal: the "
    "author's card, if it is known.",
)
@options.seconds("--timeout", "For one case; default 120, with --slow 3600.")
@options.path("--results", "Where records lie.")
@options.no_wait
@options.form
@options.json
def command(
    names: tuple[str, ...],
    measure: bool,
    slow: bool,
    devices: tuple[str, ...],
    sizes: tuple[str, ...],
    against: str,
    card: str | None,
    timeout: float | None,
    results: Path | None,
    busy: Busy,
    form: str,
    as_json: bool,
) -> int:
    """Show published figures of a suite's kernels next to our newest figures of the same kernels.

    Our figures come from records, of every device that has any; a dash marks a missing figure. Default: every
    ladder of every suite.
    """
    for spec in devices:
        backends.parse_spec(spec)
    named = None if card is None else card_called(card)
    config = load_config()
    folder = results or config.results_folder
    suites = load_suites(config, on_broken=tell_at_end)
    found = find_ladders(suites, names, sizes, results=folder, devices=devices, against=against, slow=slow)
    asked = list(found)
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
    _show(asked, form, named, as_json=as_json)
    return status_of(finished)


def _measure(asked: Sequence[SuiteLadders], settings: SessionSettings) -> list[RunResult]:
    """Measure what is missing on each device, then the fastest kernels at sizes that lack them."""
    finished: list[RunResult] = []
    with ProgressObserver() as observer:
        for ladders in asked:
            for spec in ladders.specs(settings.device):
                try:
                    for result in _measured_on(ladders, replace(settings, device=spec), observer):
                        tell_result(result, "figures that are missing stay so")
                        finished.append(result)
                        if result.interrupted:
                            return finished
                except DeviceError as error:
                    if ladders.devices or spec == settings.device:
                        raise
                    tell(error.message)
    return finished


def _measured_on(
    ladders: SuiteLadders, settings: SessionSettings, observer: ProgressObserver
) -> Iterator[RunResult]:
    with Session(ladders.loaded, settings, observer) as session:
        device = session.device
        if plan := ladders.missing(device):
            yield session.run(plan)
    if plan := ladders.missing_fastest(device):
        with Session(ladders.loaded, settings, observer) as session:
            yield session.run(plan)


def _show(asked: Sequence[SuiteLadders], form: str, named: CardModel | None, *, as_json: bool) -> None:
    found = [ladders.reports() for ladders in asked]
    tell_lines(f"harness: {problem}" for _, problems in found for problem in problems)
    reports = [
        (ladders.suite, report) for ladders, (some, _) in zip(asked, found, strict=True) for report in some
    ]
    if as_json:
        echo_json([_as_json(suite, report, named) for suite, report in reports])
        return
    now = dt.datetime.now(dt.timezone.utc)
    for number, (suite, report) in enumerate(reports):
        if number:
            click.echo()
        if form == "markdown":
            click.echo(markdown(report), nl=False)
            if named:
                click.echo(
                    f"\n{demands_as_markdown(named, suite, demands(suite, planned(suite, report), named))}"
                )
        else:
            print_ladder(report, now)
            _print_demands(suite, report, named)
    if form == "terminal":
        click.echo()
        print_hints([report for _, report in reports])


def _as_json(suite: Suite, report: LadderReport, named: CardModel | None) -> dict[str, Any]:
    asks = demands(suite, planned(suite, report), named) if named else []
    return ladder_json(report) | {"demands": demands_as_json(named, [(suite, asks)]) if named else None}


def _print_demands(suite: Suite, report: LadderReport, named: CardModel | None) -> None:
    """Print the kernels' demands on the named card, else on the author's if known."""
    card = named or known_card(report.ladder.card)
    if card is None:
        return
    cases = planned(suite, report)
    if not cases:
        if named:
            click.echo(f"\n{named.name}: no rung has CUDA text of its own, so its demands are unknown.")
        return
    with Waiting(f"asking what {len(cases)} kernels ask of {card.name}"):
        asks = demands(suite, cases, card)
    click.echo()
    print_demands(card, [(suite, asks)])
