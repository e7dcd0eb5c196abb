"""harness ci fleet: the cards as a job matrix."""

from __future__ import annotations

from pathlib import Path

import click

from harness.errors import ExitCode
from harness.github.events import append_file
from harness.github.scaffold import FLEET_FILE, matrix_of, read_fleet


@click.command("fleet")
@click.argument("file", type=click.Path(path_type=Path), default=FLEET_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print it in a workflow too.")
def command(file: Path, as_json: bool) -> ExitCode:
    """Check the file of cards, and print it as a job's matrix: one line of JSON.

    In a workflow it becomes the step's outputs instead: `matrix`, and `count`, the number of cards.
    """
    fleet = read_fleet(file)
    matrix = matrix_of(fleet)
    outputs = f"matrix={matrix}\ncount={len(fleet.cards)}\n"
    if as_json or not append_file("GITHUB_OUTPUT", "step's outputs", outputs):
        click.echo(matrix)
    else:
        click.echo(f"{file}: {', '.join(card.name for card in fleet.cards) or 'no card'}")
    return ExitCode.FINE
