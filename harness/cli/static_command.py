"""harness static: what kernels need on cards that are not here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from harness.cli import echo_json, options

if TYPE_CHECKING:
    from harness.static.occupancy import Card

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
"""What is compiled for where nothing is said: Turing to Blackwell, a data centre's and a desk's."""


@click.command("static")
@click.option(
    "--arch",
    "archs",
    metavar="ARCH[,ARCH]",
    help=f"Architectures to compile for; default: {','.join(ARCHITECTURES)}, or those of the cards.",
)
@click.option(
    "--card",
    "cards",
    metavar="NAME",
    multiple=True,
    help="Waves at each size on a card, named as by 'harness list --card'; repeatable.",
)
@options.commit("--commit", help="Kernels as they were at this commit; default: the working tree.")
@options.suite_from
@options.size(help="One number for every axis, or one an axis; repeatable.")
@options.flag("--quick", "The suite's small sizes.")
@options.seconds("--timeout", "For one compilation, by default 120; for loading a suite, by default 60.")
@options.json
@options.cases
def command(
    cases: tuple[str, ...],
    archs: str | None,
    cards: tuple[str, ...],
    commit: str | None,
    suite_from: str | None,
    size: tuple[str, ...],
    quick: bool,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Registers, spills, shared memory, occupancy and instructions of the kernels that CASES select (globs
    such as 'matmul.*tiling*'), or all of them, for cards that need not be here.

    Exit status 3 if any could not be compiled, or none was.
    """
    chosen = options.Selection(
        cases, size, None, commit, suite_from, quick=quick, timeout=timeout, seed=1, as_json=as_json
    )
    return _show(chosen, archs, cards)


def _show(chosen: options.Selection, archs: str | None, cards: Sequence[str]) -> int:
    from harness.cli.build import built, status_of, tell_left_out
    from harness.output.static_tables import as_json, facts_tables
    from harness.output.tables import print_out
    from harness.static.facts import facts
    from harness.static.occupancy import card

    there = {words: card(words) for words in cards}
    wanted = _wanted(archs, there.values())
    found = [
        (result, facts(planned, result.builds, there))
        for result, planned in built(chosen, wanted, instructions=True)
    ]
    if chosen.as_json:
        echo_json([row for result, some in found for row in as_json(result, some)])
    else:
        for sheet in (sheet for result, some in found for sheet in facts_tables(result, some)):
            print_out(sheet)
            click.echo()
    results = [result for result, _ in found]
    tell_left_out(results)
    return status_of(results)


def _wanted(archs: str | None, cards: Iterable[Card]) -> list[str]:
    """The architectures asked for, and of each card its own unless one like it is asked for."""
    from harness.cli.build import wanted_archs
    from harness.static.builds import capability_of

    wanted = wanted_archs(archs) if archs is not None else []
    for each in cards:
        if each.capability not in map(capability_of, wanted):
            wanted.append(each.arch)
    return wanted or list(ARCHITECTURES)
