"""harness run: verifies and measures kernels, and prints the ladder."""

from __future__ import annotations

from typing import Any

import click

from harness.cli import executable_options, options, script_options, tell_wall_time
from harness.cli.compare_command import repository_of
from harness.cli.on_cards import opening
from harness.config import load_config
from harness.errors import UsageError

_OF_SCRIPTS = ("scripts", "timers", "ignored", "build_command")


@click.command("run")
@click.option(
    "--l2",
    type=options.L2,
    help="L2 cache before each launch; default: cold on a GPU, hot on a CPU and by graph.",
)
@options.seconds(
    "--max-time", "Longest time to measure one case, without warm-up; default: 2 on a GPU, 1 elsewhere."
)
@options.max_launch
@options.path("--results", "Folder for records; default: the project's.")
@options.flag("--counters", "Also read hardware counters of each case, in a process of its own.")
@options.flag("--no-library", "Do not measure the vendor's library next to the kernels.")
@options.no_save
@options.profile_wall
@options.no_wait
@script_options.script
@script_options.recorded
@executable_options.build_command
@options.cards
@options.graph
@options.selection
def command(selection: options.Selection, l2: str | None, max_time: float | None, **given: Any) -> int:
    """Verify kernels, then measure them.

    CASES select kernels by name or glob, such as 'matmul.*tiling*'; the default is all. The command prints a
    table per size: rate, speed-up over the first kernel, share of the card's peak and of the vendor's
    library, clocks and temperature. It never times a kernel whose result is wrong. With --script it measures
    the timing calls of a benchmark script instead, without checking their results.
    """
    config = load_config()
    if scripts := script_options.scripts_in(config, given):
        if max_time is not None:
            raise UsageError("--max-time is of no use here: the harness decides how long it measures a call.")
        if given["counters"]:
            raise UsageError("--counters reads counters of a suite's kernels, not of a script's calls.")
        from harness.cli.execute import show

        finished = script_options.run(config, repository_of(config), selection, scripts, {**given, "l2": l2})
        if given["profile_wall"]:
            tell_wall_time(finished)
        return show(finished, selection, timed=True)
    given = {name: each for name, each in given.items() if name not in _OF_SCRIPTS}
    with opening(selection, config):
        from harness.cli.execute import execute  # takes as long as opening the device
        from harness.measure.timing import MeasureSettings

        measure = MeasureSettings(l2=l2, max_time_s=max_time)  # type: ignore[arg-type]
        return execute(selection, "run", measure, **given)
