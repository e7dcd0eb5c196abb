"""harness check --sanitize: suites in, findings out, an exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import indent

import click

from harness.cli import echo_json, options
from harness.cli.execute import fitting
from harness.config import load_config
from harness.errors import ExitCode, UsageError
from harness.output.progress import Waiting
from harness.output.sanitized import sanitized_table
from harness.output.tables import print_out
from harness.run.sanitize import SIZE, Sanitized, sanitize
from harness.spec import planning
from harness.spec.planning import plan


def sanitize_all(chosen: options.Selection) -> int:
    """Run what is chosen in the simulator. Raises UsageError, and DeviceError where there is none."""
    if chosen.device is not None:
        raise UsageError(f"--sanitize runs in a simulator: leave out --device {chosen.device}.")
    if not chosen.size and not chosen.quick:
        chosen = replace(chosen, size=(str(SIZE),)) if not _say_sizes(chosen.cases) else chosen
    config = load_config()
    suites = planning.load_suites(
        config, chosen.commit, chosen.cases, timeout_s=chosen.timeout, suite_from=chosen.suite_from
    )
    told: list[Sanitized] = []
    for loaded, sizes in fitting(suites, chosen):
        planned = plan(loaded.suite, chosen.cases, sizes, quick=chosen.quick)
        with Waiting("Simulating") as waiting:
            found = sanitize(loaded, planned, chosen.timeout or config.timeout_s, chosen.seed, waiting.tell)
        if not chosen.as_json:
            print_out(sanitized_table(loaded.source, found))
            click.echo()
        told += found
    if chosen.as_json:
        echo_json(told)
    _tell_left_out(told)
    return _status(told)


def _say_sizes(cases: Sequence[str]) -> bool:
    from harness.spec.case_id import Selector

    return any(Selector.parse(case).size for case in cases)


def _tell_left_out(told: Sequence[Sanitized]) -> None:
    for message in dict.fromkeys(each.message for each in told if each.status == "skipped"):
        click.echo(f"Left out: {message}", err=True)
    for each in told:
        if each.status == "failed":
            click.echo(f"{each.case} failed ({each.reason}): {each.message}", err=True)
            if each.log:
                click.echo(indent(each.log, "    "), err=True)


def _status(told: Sequence[Sanitized]) -> ExitCode:
    statuses = {each.status for each in told}
    if "found" in statuses:
        return ExitCode.REGRESSION
    return ExitCode.NOT_MEASURED if "failed" in statuses or "clean" not in statuses else ExitCode.FINE
