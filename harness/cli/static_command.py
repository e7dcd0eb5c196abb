"""harness static: what kernels need on cards that are not here."""

from __future__ import annotations

from typing import Any

import click

from harness.cli import options
from harness.config import ARCHITECTURES, RISKS


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
@options.commit("--base", help="Tell what differs from this commit, and what of it may cost time.")
@options.path(
    "--markdown", "With --base: write the answer to this file too, for a pull request.", metavar="FILE"
)
@options.path("--report", "With --base: the same as data, for 'harness ci post-static'.", metavar="FILE")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([*RISKS, "none"]),
    help="With --base: risks that fail the command; repeatable. Default: fail_on of [tool.harness.static].",
)
@options.suite_from
@options.size(help="One number for every axis, or one an axis; repeatable.")
@options.flag("--quick", "The suite's small sizes.")
@options.path("--results", "Where records of --commit go, a folder an architecture; default: as configured.")
@options.no_save
@options.seconds("--timeout", "For one compilation, by default 120; for loading a suite, by default 60.")
@options.json
@options.cases
def command(
    cases: tuple[str, ...],
    commit: str | None,
    suite_from: str | None,
    size: tuple[str, ...],
    quick: bool,
    timeout: float | None,
    as_json: bool,
    **asked: Any,
) -> int:
    """Registers, spills, shared memory, occupancy and instructions of the kernels that CASES select (globs
    such as 'matmul.*tiling*'), or all of them, for cards that need not be here.

    What was compiled at --commit is kept as a record: an architecture is a card that needs no machine, and
    'harness history' has its registers, spills and occupancy.

    Exit status 1 where a risk that fails is found, 3 if any could not be compiled, or none was.
    """
    from harness.cli.static import Asked, against, show

    chosen = options.Selection(
        cases, size, None, commit, suite_from, quick=quick, timeout=timeout, seed=1, as_json=as_json
    )
    given = Asked(**asked)
    return against(chosen, given) if given.base is not None else show(chosen, given)
