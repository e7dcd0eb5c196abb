"""harness check --build-only: suites in, builds out, an exit status."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

import click

from harness.cli import echo_json, options
from harness.cli.execute import fitting
from harness.config import load_config
from harness.errors import ExitCode, UsageError
from harness.output.builds import as_json, build_table
from harness.output.tables import print_out
from harness.run.build_only import BuildResult, build_only
from harness.spec import planning
from harness.spec.planning import plan
from harness.static.builds import check_arch


def build(chosen: options.Selection, archs: str) -> int:
    """Build what is chosen for architectures, such as `sm_86,sm_90a`. Raises UsageError."""
    wanted = list(dict.fromkeys(check_arch(each.strip()) for each in archs.split(",")))
    if chosen.device is not None:
        raise UsageError(f"--build-only runs on no device: leave out --device {chosen.device}.")
    config = load_config()
    suites = planning.load_suites(
        config, chosen.commit, chosen.cases, timeout_s=chosen.timeout, suite_from=chosen.suite_from
    )
    results = []
    for loaded, sizes in fitting(suites, chosen):
        planned = plan(loaded.suite, chosen.cases, sizes, quick=chosen.quick)
        click.echo(f"Compiling {loaded.suite.name} for {', '.join(wanted)}", err=True)
        results.append(build_only(loaded, planned, wanted, chosen.timeout or config.timeout_s))
    if chosen.as_json:
        echo_json(as_json(results))
    else:
        _print(results)
    return _status(results)


def _print(results: Sequence[BuildResult]) -> None:
    for result in results:
        print_out(build_table(result))
        click.echo()
    rows = [row for result in results for row in result.builds]
    for message in dict.fromkeys(row.message for row in rows if row.status == "not-built"):
        click.echo(f"Not built: {message}", err=True)
    for row in rows:
        if row.status == "failed":
            click.echo(f"{row.cases[0]} failed for {row.arch} ({row.reason}): {row.message}", err=True)
            if row.log:
                click.echo(indent(row.log, "    "), err=True)


def _status(results: Sequence[BuildResult]) -> ExitCode:
    statuses = {row.status for result in results for row in result.builds}
    return ExitCode.NOT_MEASURED if "failed" in statuses or "built" not in statuses else ExitCode.FINE
