"""harness static: shows what kernels need on cards that are not present."""

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
    "--card",
    "NAME",
    "Show waves and bounds at each size on this card, named as in 'harness list --card'",
    to="cards",
)
@options.commit("--commit", help="Take kernels from this commit; default: the working tree.")
@options.commit("--base", help="Show the differences from this commit, and which of them may cost time.")
@options.path(
    "--markdown", "With --base: also write the result to this file, for a pull request.", metavar="FILE"
)
@options.path(
    "--report", "With --base: also write the result as data, for 'harness ci post-static'.", metavar="FILE"
)
@click.option(
    "--fail-on",
    multiple=True,
    type=options.Choice([*RISKS, "none"]),
    help="With --base: risks that fail the command; repeatable. Default: fail_on of [tool.harness.static].",
)
@options.suite_from
@options.size("One number for every axis, or one per axis; repeatable.")
@options.flag("--quick", "Use the suite's small sizes.")
@options.path("--results", "Folder for the records of --commit; default: the project's.")
@options.no_save
@options.seconds(
    "--timeout", "Limit for one compilation, by default 120, and for loading a suite, by default 60."
)
@options.json
@options.cases
@options.one_selection
def command(selection: options.Selection, **given: Any) -> int:
    """Show registers, spills, shared memory, occupancy and instructions of kernels, for cards that need not
    be here.

    CASES select kernels by name or glob, such as 'matmul.*tiling*'; the default is all. With --commit the
    result is stored as a record, and 'harness history' follows registers, spills and occupancy of each
    architecture.

    Exit status 1 if there is a risk of --fail-on, 3 if a kernel could not be compiled, or none was.
    """
    if given["base"] is None:
        for name in ("markdown", "report", "fail_on"):
            if given[name]:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for a comparison: say with what, by --base COMMIT.")
    from harness.cli.static_suites import against, show

    return show(selection, given) if given["base"] is None else against(selection, given)
