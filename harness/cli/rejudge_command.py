"""harness rejudge: stored comparisons, judged by today's rules."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import echo_json, fail_on_option, flag, json_option, limit_options, path_option
from harness.errors import StoreError, UsageError
from harness.judgement.noise import FILE, Calibration, read_calibration
from harness.output.progress import Waiting
from harness.output.verdicts import print_rejudged, rejudged_as_json, rejudged_exit_code
from harness.run.rejudge import Limits, RejudgedRecord, read_labels, rejudge_record, unmatched
from harness.store.records_file import find_comparisons, read_comparison
from harness.system.texts import harmless

Folder = click.Path(path_type=Path, file_okay=False)


@click.command("rejudge")
@click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RECORD...")
@limit_options("default: the record's", "default: the record's", "; default: the record's")
@path_option("--calibration", f"Where the card's {FILE} lies; default: beside each record.", type=Folder)
@flag("--uncalibrated", "Judge by an assumption, whatever lies beside a record.")
@path_option(
    "--labels",
    "What is known of the cases, to count what was found: JSON; repeatable.",
    metavar="FILE",
    multiple=True,
)
@fail_on_option
@json_option
def command(
    records: tuple[Path, ...],
    margin: float | None,
    tolerance: float | None,
    confidence: float | None,
    calibration: Path | None,
    uncalibrated: bool,
    labels: tuple[Path, ...],
    fail_on: tuple[str, ...],
    as_json: bool,
) -> int:
    """Judge stored comparisons by today's rules, from the quads that they hold: no device is needed.

    RECORD is a comparison's file, .jsonl or .jsonl.gz, or a folder of them. As many processes and quads count
    as would be measured now; where more would be, the record ends.

    The exit status is that of compare, by what is said now; 3 where a record cannot be read.
    """
    limits = Limits(
        margin=margin,
        tolerance=tolerance,
        confidence=confidence,
        calibration=_calibration_in(calibration, uncalibrated=uncalibrated),
        uncalibrated=uncalibrated,
    )
    known = read_labels(labels)
    found = find_comparisons(records)
    problems, asides = list(found.problems), []
    if found.others:
        files = "1 file that is" if found.others == 1 else f"{found.others} files that are"
        asides.append(f"Left out: {files} no comparison's, such as a run's.")
    judged: dict[str, RejudgedRecord] = {}
    with Waiting("judging again") as waiting:
        for path in found.comparisons:
            waiting.tell(path.name)
            try:
                stored = read_comparison(path)
                if twice := judged.get(stored.comparison.run_id):
                    asides.append(f"Left out: {path} is the comparison of {twice.path} again.")
                    continue
                judged[stored.comparison.run_id] = rejudge_record(path, stored, limits, known)
            except StoreError as error:
                problems.append(error.message)
    if astray := unmatched(known, judged.values()):
        asides.append(astray)
    asides += (f"harness: {problem}" for problem in problems)
    status = rejudged_exit_code([*judged.values()], problems, fail_on)
    if as_json:
        for aside in asides:
            click.echo(harmless(aside), err=True)
        echo_json([rejudged_as_json(record) for record in judged.values()])
    else:
        print_rejudged([*judged.values()], asides, status)
    return status


def _calibration_in(folder: Path | None, *, uncalibrated: bool) -> Calibration | None:
    if folder is None:
        return None
    if uncalibrated:
        raise UsageError("--calibration and --uncalibrated contradict each other: give one of them.")
    known = read_calibration(folder)
    if known is None:
        raise UsageError(f"There is no {FILE} in {folder}: name the folder of the card's records.")
    return known
