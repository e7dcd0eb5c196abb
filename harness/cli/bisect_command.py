"""harness bisect: which commit between two made a case slower or faster."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import completion, echo_json, options
from harness.cli.compare_command import repository_of
from harness.config import Config, load_config
from harness.errors import ExitCode, UsageError
from harness.spec.case_id import in_short
from harness.system import git

if TYPE_CHECKING:
    from harness.run.bisect import BisectResult
    from harness.run.compare import CompareSettings
    from harness.spec.case_id import CaseId
    from harness.spec.planning import SuitePair


@click.command("bisect")
@click.argument("case", shell_complete=completion.cases)
@click.argument("good", shell_complete=completion.commits)
@click.argument("bad", default="HEAD", shell_complete=completion.commits)
@options.suite_from
@options.case_options
@options.percent("--margin", "A change of the ends up to this is nobody's business; as of compare.")
@options.seconds("--budget", "Device time after which nothing more is measured.")
@options.l2
@options.no_wait
@options.flag("--fresh", "Measure anew what an earlier bisection did.")
@options.path("--results", "Where records go; default: .asv/results.")
@options.no_save
def command(selection: options.Selection, case: str, good: str, bad: str, **given: Any) -> int:
    """Tell which commit after GOOD, up to BAD, made CASE slower, or faster, and how surely.

    CASE is one case, such as matmul.naive@1024; BAD defaults to HEAD. GOOD and BAD are compared first. Then
    commits between them are held against GOOD, and the one that is found against its parent. What does not
    build is gone around, and code that is known is not measured again.

    Exit status 0 where one commit is found, 3 where something could not be measured, 4 where GOOD and BAD do
    not differ or several commits are left.
    """
    from harness.output import bisections

    config = load_config()
    result = _bisect(config, selection, case, good, bad, given)
    status = bisections.exit_code(result)
    if selection.as_json:
        echo_json(bisections.as_json(result))
    else:
        bisections.print_bisection(result, status)
        if status is ExitCode.FINE:
            _tell_merge(repository_of(config), result)
    return status


def _tell_merge(repository: Path, result: BisectResult) -> None:
    """Where the commit that was found merged a branch, how to go on in that."""
    merge = result.suspects[0].hash
    if git.is_commit(repository, f"{merge}^2"):
        ends = git.merge_base(repository, f"{merge}^1", f"{merge}^2"), git.resolve(repository, f"{merge}^2")
        case = in_short(result.case)
        click.echo(f"It is a merge. In its branch: harness bisect {case} {ends[0][:10]} {ends[1][:10]}")


def _bisect(
    config: Config, selection: options.Selection, case: str, good: str, bad: str, given: dict[str, Any]
) -> BisectResult:
    from harness.output.progress import BisectProgress
    from harness.run.bisect import Bisecting, BisectOptions, line_of, touching
    from harness.run.commit_pairs import OneDevice
    from harness.spec.loader import WORKING_TREE

    repository = repository_of(config)
    ends = [git.resolve(repository, revision) for revision in (good, bad)]
    line = line_of(repository, *ends)
    if selection.suite_from not in (None, WORKING_TREE):
        selection = dataclasses.replace(selection, suite_from=git.resolve(repository, selection.suite_from))
    pair, chosen = _chosen(config, selection, case, *ends)
    asked = BisectOptions(
        settings=_settings(config, selection, given), suite_from=selection.suite_from, fresh=given["fresh"]
    )
    with BisectProgress() as observer:
        crew = OneDevice(pair.head, asked.settings.device, observer, selection.suite_from)
        searched = touching(repository, line, pair)
        return Bisecting(chosen, line, searched, crew, asked, observer).run()


def _chosen(
    config: Config, selection: options.Selection, case: str, good: str, bad: str
) -> tuple[SuitePair, CaseId]:
    """The suite at both ends, and the one case that is named. Raises UsageError."""
    from harness.spec.case_id import CaseId
    from harness.spec.planning import fitting, load_pairs

    selection = dataclasses.replace(selection, cases=(case,))
    pairs = load_pairs(
        config, good, bad, (case,), timeout_s=selection.timeout, suite_from=selection.suite_from
    )
    found: dict[str, tuple[SuitePair, CaseId]] = {}
    for pair, sizes in fitting(pairs, (case,), selection.size).chosen:
        for side in pair.plans((case,), sizes, quick=selection.quick):
            for each in (planned.case for planned in side):
                found[each.id] = pair, CaseId.of(each.suite, each.kernel, each.sizes)
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise UsageError(f"{case} is no case at {good[:10]} nor at {bad[:10]}.")
    some = ", ".join(each.short for _, each in list(found.values())[:6])
    raise UsageError(f"{case} names {len(found)} cases, and one is bisected: name one, of {some}.")


def _settings(config: Config, selection: options.Selection, given: dict[str, Any]) -> CompareSettings:
    from harness.run.compare import CompareSettings

    return CompareSettings(
        command="bisect",
        device=selection.device or config.device,
        margin=given["margin"],
        l2=given["l2"] or config.l2,  # type: ignore[arg-type]
        timeout_s=selection.timeout or config.timeout_s,
        busy=given["busy"],
        budget_s=given["budget"],
        seed=selection.seed,
        twins=False,
        results=given["results"] or config.results_folder,
        save=not given["no_save"],
    )
