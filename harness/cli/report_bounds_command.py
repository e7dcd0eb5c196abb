"""harness report bounds: compares measured times with lower time bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from harness.cli import echo_json, options, tell_lines
from harness.config import load_config
from harness.device.peaks import SLACK
from harness.errors import ExitCode, HarnessError, UsageError
from harness.report.terminal.progress import Waiting
from harness.report.terminal.run_tables import print_out
from harness.report.terminal.static_tables import bounds_tables
from harness.run.bounded_cases import BoundedCase, bounded_cases, read_record


@click.command("bounds")
@click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RECORD...")
@options.form
@options.seconds("--timeout", "For one compilation; default 120.")
@options.json
def command(records: tuple[Path, ...], form: str, timeout: float | None, as_json: bool) -> int:
    """Compare measured times with the bounds of 'harness static --card'.

    RECORD is a run's file, or a comparison's, of which base counts, or a folder of them. The newest figure of
    each case counts. Kernels are compiled as they were measured.

    Exit status 1 if a case was faster than its bound, 3 if no case has a bound.
    """
    config = load_config()
    found: dict[tuple[str, str], BoundedCase] = {}
    for path in _files(records):
        try:
            record = read_record(path)
            with Waiting(f"Compiling {record.source.suite} for {record.device.name}") as waiting:
                bounded, unbounded = bounded_cases(
                    record, config.root, timeout or config.timeout_s, waiting.tell
                )
        except HarnessError as error:
            whose = "" if path.name in error.message else f"{path.name}: "
            click.echo(f"Left out: {whose}{error.message}", err=True)
            continue
        found |= {(each.card, each.case): each for each in bounded}
        tell_lines(f"Left out: {line}" for line in unbounded)
    every = list(found.values())
    if as_json:
        echo_json([asdict(each) | {"reached": each.reached} for each in every])
    for sheet in bounds_tables(every) if not as_json else ():
        if form == "markdown":
            click.echo(f"### {sheet.title}\n\n{sheet.markdown()}")
        else:
            print_out(sheet)
        click.echo()
    if not every:
        return ExitCode.NOT_MEASURED
    return ExitCode.REGRESSION if any(each.reached > SLACK for each in every) else ExitCode.FINE


def _files(places: Sequence[Path]) -> Iterator[Path]:
    """Return the files, oldest first, by their names."""
    files: list[Path] = []
    for place in places:
        below = [each for each in place.rglob("*.jsonl*") if each.is_file()] if place.is_dir() else [place]
        if not below:
            raise UsageError(f"There is no record in {place} or below: expected files that end in .jsonl.")
        files += below
    yield from sorted(files, key=lambda each: each.name)
