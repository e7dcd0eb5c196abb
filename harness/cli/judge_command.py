"""harness judge: judges files of pytest-benchmark or another harness from two commits."""

from __future__ import annotations

from typing import Any

import click

from harness.cli import echo_json, options
from harness.errors import MeasureError, UsageError
from harness.judgement.saved_runs import judge_files
from harness.records.imports.imported_files import read_saved
from harness.records.imports.pytest_benchmark_files import find_files
from harness.report.terminal.comparison_tables import exit_code, judgement_as_json, print_judgement

SIDES = ("--base", "--head")


class _Greedy(click.Command):
    """A command whose --base and --head take all words up to the next option, such as an expanded glob."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        side = ""
        for word in args:
            if word.startswith("-"):
                name = word.partition("=")[0]
                side = name if name in SIDES else ""
            elif side and spread[-1] != side:
                spread.append(side)
            spread.append(word)
        return super().parse_args(ctx, spread)


@click.command("judge", cls=_Greedy)
@options.value(
    "--base",
    "FILE...",
    "Files of base, one per process; folders and globs too.",
    required=True,
    multiple=True,
)
@options.value("--head", "FILE...", "Files of head, equally many.", required=True, multiple=True)
@options.limits("default 2, by a GPU's own clock 1", "default 10, by a GPU's own clock 5", of="benchmark")
@options.fail_on
@options.json
def command(
    base: tuple[str, ...], head: tuple[str, ...], fail_on: tuple[str, ...], as_json: bool, **limits: Any
) -> int:
    """Compare files of pytest-benchmark, nvbench or Google Benchmark of two commits that were saved
    alternately.

    Alternately means: one process of base, one of head, and so on, at least four of each, better eight.

    Exit status 1 if a benchmark is slower or missing; 3 if the files do not allow a verdict; 4 if a verdict
    is inconclusive.
    """
    before, after = (find_files(words, name) for words, name in zip((base, head), SIDES, strict=True))
    if both := {path.resolve() for path in before} & {path.resolve() for path in after}:
        raise UsageError(f"{min(both)} is given as base and as head: it can be of one commit only.")
    files = [[read_saved(path) for path in paths] for paths in (before, after)]
    result = judge_files(*files, **limits)
    if not result.verdicts:
        raise MeasureError(
            " ".join(("No file has a time of any benchmark: nothing was compared.", *result.notes))
        )
    status = exit_code([result], fail_on)
    if as_json:
        echo_json(judgement_as_json(result))
    else:
        print_judgement(result, status)
    return status
