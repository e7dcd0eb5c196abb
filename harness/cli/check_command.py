"""harness check: verifies or builds kernels, without timing them."""

from __future__ import annotations

import click

from harness.cli import options
from harness.cli.on_cards import opening
from harness.config import load_config
from harness.errors import UsageError


@click.command("check")
@options.max_launch
@options.profile_wall
@options.value(
    "--build-only",
    "ARCH[,ARCH]",
    "Compile CUDA kernels for these architectures, such as sm_86,sm_90a, and run nothing: no card is needed.",
)
@options.flag(
    "--sanitize",
    "Find races, accesses beyond an array and uninitialised values: run each kernel once, on a card under "
    "compute-sanitizer's four tools, without a card in the simulator Oclgrind.",
)
@click.option(
    "--tool",
    "tools",
    multiple=True,
    type=options.Choice(["memcheck", "racecheck", "initcheck", "synccheck", "oclgrind"]),
    help="With --sanitize: run only this tool; repeatable.",
)
@options.graph
@options.selection
def command(
    selection: options.Selection,
    max_launch_ms: float | None,
    build_only: str | None,
    sanitize: bool,
    tools: tuple[str, ...],
    profile_wall: bool,
) -> int:
    """Verify kernels without timing them.

    CASES select kernels by name or glob, such as 'matmul.*tiling*'; the default is all. Outputs are first
    filled with NaN, arrays lie between guard zones, and every element is compared with a float64 reference.

    Exit status 1 if a result is wrong, 3 if a case could not be run.
    """
    if build_only is not None:
        from harness.cli.build import build

        return build(selection, build_only)
    if tools and not sanitize:
        raise UsageError(f"--tool {tools[0]} is a tool of --sanitize: give that too.")
    if sanitize:
        from harness.cli.sanitize_suites import sanitize_all

        return sanitize_all(selection, tools)
    with opening(selection, load_config()):
        from harness.cli.execute import execute  # takes as long as opening the device

        return execute(
            selection, "check", None, no_save=True, max_launch_ms=max_launch_ms, profile_wall=profile_wall
        )
