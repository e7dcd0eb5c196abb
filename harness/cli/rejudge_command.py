"""harness rejudge: judges stored comparisons by today's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli import echo_json, options, tell_lines
from harness.errors import StoreError, UsageError
from harness.judgement.noise import FILE, read_calibration
from harness.records.record_files import find_comparisons, read_comparison
from harness.report.terminal.comparison_tables import print_rejudged, rejudged_as_json, rejudged_exit_code
from harness.report.terminal.progress import Waiting
from harness.run.rejudge import RejudgedRecord, RejudgeSettings, read_labels, rejudge_record, unmatched
from harness.system.texts import harmless


@click.command("rejudge")
@click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RECORD...")
@options.limits("default: the record's", "default: the record's", "; default: the record's")
@options.path(
    "--calibration", f"Where the card's {FILE} lies; default: beside each record.", type=options.FOLDER
)
@options.flag("--uncalibrated", "Ignore calibrations, and assume a noise.")
@options.path(
    "--labels",
    "Known truths about the cases, in JSON, to count right and wrong verdicts; repeatable.",
    metavar="FILE",
    multiple=True,
)
@options.fail_on
@options.json
def command(
    records: tuple[Path, ...],
    calibration: Path | None,
    uncalibrated: bool,
    labels: tuple[Path, ...],
    fail_on: tuple[str, ...],
    as_json: bool,
    **limits: Any,
) -> int:
    """Judge stored comparisons by today's rules, without a device.

    RECORD is a comparison's file, .jsonl or .jsonl.gz, or a folder of them. Only as many processes and quads
    count as would be measured today. If today's rules would measure more than the record holds, the verdict
    is inconclusive.

    The exit status is that of compare, by today's verdicts; 3 if a record cannot be read.
    """
    noise = None
    if calibration is not None and uncalibrated:
        raise UsageError("--calibration and --uncalibrated exclude each other: give one of them.")
    if calibration is not None and (noise := read_calibration(calibration)) is None:
        raise UsageError(f"There is no {FILE} in {calibration}: name the folder of the card's records.")
    judging = RejudgeSettings(calibration=noise, uncalibrated=uncalibrated, **limits)
    expected = read_labels(labels)
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
                judged[stored.comparison.run_id] = rejudge_record(path, stored, judging, expected)
            except StoreError as error:
                problems.append(error.message)
    if astray := unmatched(expected, judged.values()):
        asides.append(astray)
    asides += (f"harness: {problem}" for problem in problems)
    status = rejudged_exit_code([*judged.values()], problems, fail_on)
    if as_json:
        tell_lines(map(harmless, asides))
        echo_json([rejudged_as_json(record) for record in judged.values()])
    else:
        print_rejudged([*judged.values()], asides, status)
    return status
