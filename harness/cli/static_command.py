"""harness static: what kernels need on cards that are not here."""

from __future__ import annotations

from typing import Any

import click

from harness.cli import options
from harness.config import ARCHITECTURES, RISKS
from harness.errors import UsageError


@click.command("static")
@options.value(
    "--arch",
    "ARCH[,ARCH]",
    f"Architectures to compile for; default: {','.join(ARCHITECTURES)}, or those of the cards.",
    to="archs",
)
@options.several(
    "--card", "NAME", "Waves at each size on a card, named as by 'harness list --card'", to="cards"
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
@options.size("One number for every axis, or one an axis; repeatable.")
@options.flag("--quick", "The suite's small sizes.")
@options.path("--results", "Where records of --commit go, a folder an architecture; default: as configured.")
@options.no_save
@options.seconds("--timeout", "For one compilation, by default 120; for loading a suite, by default 60.")
@options.json
@options.cases
@options.one_selection
def command(selection: options.Selection, **given: Any) -> int:
    """Registers, spills, shared memory, occupancy and instructions of the kernels that CASES select (globs
    such as 'matmul.*tiling*'), or all of them, for cards that need not be here.

    What was compiled at --commit is kept as a record: an architecture is a card that needs no machine, and
    'harness history' has its registers, spills and occupancy.

    Exit status 1 where a risk that fails is found, 3 if any could not be compiled, or none was.
    """
    if given["base"] is None:
        for name in ("markdown", "report", "fail_on"):
            if given[name]:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for a comparison: say with what, by --base COMMIT.")
    from harness.cli.static_suites import against, show

    return show(selection, given) if given["base"] is None else against(selection, given)
