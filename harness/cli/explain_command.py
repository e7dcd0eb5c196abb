"""harness explain: compares two commits, and shows hardware counters of both sides of each case."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from harness.cli import completion, options, tell_wall_time
from harness.cli.compare_command import commits_of, compare_pairs, settings_from, show
from harness.cli.on_cards import opening
from harness.config import load_config


@click.command("explain")
@click.argument("base", shell_complete=completion.commits)
@click.argument("rest", nargs=-1, metavar="[HEAD] [CASES]...", shell_complete=completion.commits_then_cases)
@options.suite_from
@options.cards
@options.graph
@options.case_options
@options.comparison
@options.path("--results", "Folder for records; default: .asv/results.")
@options.no_save
@options.profile_wall
def command(selection: options.Selection, base: str, rest: tuple[str, ...], **given: Any) -> int:
    """Show why cases became slower from BASE to HEAD, by hardware counters.

    It compares as 'harness compare --explain' does, and explains cases without a regression too. HEAD
    defaults to the working tree. The exit status is that of 'harness compare'.
    """
    config = load_config()
    base, head, cases = commits_of(config, base, rest)
    selection = dataclasses.replace(selection, cases=cases)
    settings = settings_from(config, selection, given, explain="all")
    with opening(selection, config):
        results = compare_pairs(selection.pairs(config, base, head), selection, settings).results
    if given["profile_wall"]:
        tell_wall_time(results)
    status = show(results, given["fail_on"], as_json=selection.as_json)
    if not selection.as_json:
        from harness.report.terminal import comparison_tables

        comparison_tables.print_counters([verdict for each in results for verdict in each.verdicts])
    return status
