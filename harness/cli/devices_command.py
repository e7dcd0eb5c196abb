"""harness devices: lists the devices of this machine."""

from __future__ import annotations

import click

from harness.cli import echo_json, options
from harness.device import backends
from harness.errors import ExitCode


@click.command("devices")
@options.json
def command(as_json: bool) -> int:
    """List every device, mark the default, and explain each backend without devices.

    Exit status 3 if there is no device at all.
    """
    surveys = backends.survey()
    found = [device for survey in surveys for device in survey.devices]
    problems = {survey.backend: survey.problem for survey in surveys if survey.problem}
    if as_json:
        echo_json({"default": found[0].spec if found else None, "devices": found, "problems": problems})
        return ExitCode.FINE if found else ExitCode.NOT_MEASURED
    from harness.report.terminal.run_tables import devices_table, print_out

    if found:
        print_out(devices_table(found))
    for backend, problem in problems.items():
        click.echo(f"{backend}: {problem}", err=True)
    return ExitCode.FINE if found else ExitCode.NOT_MEASURED
