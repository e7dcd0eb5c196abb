"""harness machine: describes this machine's device as an asv machine."""

from __future__ import annotations

import click

from harness.cli import echo_json, options
from harness.config import load_config


@click.command("machine")
@options.device
@options.json
def command(device: str | None, as_json: bool) -> None:
    """Write the device into asv's machine file, ~/.asv-machine.json, so that asv never asks a question.

    One card is one asv machine, named after its model and UUID. 'asv run' does this by itself.
    """
    from harness.integrations.asv.conf import register

    registered = register(device or load_config().device)
    entry = registered.entry
    if as_json:
        echo_json({"path": str(registered.file), "machine": entry})
        return
    click.echo(f"{entry['machine']} is registered in {registered.file}:")
    for key, value in entry.items():
        click.echo(f"  {key:18} {value}")
