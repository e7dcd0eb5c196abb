"""harness bisect: the commits between two that made a case slower or faster."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import completion, echo_json, executable_options, options, script_options, tell
from harness.cli.compare_command import repository_of, settings_from
from harness.config import Config, load_config
from harness.errors import ExitCode, StoreError, UsageError
from harness.suite.case_id import CaseId, in_short
from harness.system import git

if TYPE_CHECKING:
    from harness.measure.protocol import SideName
    from harness.run.bisect.commit_pairs import PairDevices
    from harness.run.bisect.search import BisectResult
    from harness.run.executables.executable_build import Executable
    from harness.run.pair_session import CompareObserver
    from harness.suite.loader import LoadedSuite
    from harness.suite.planning import SuitePair


@click.command("bisect")
@click.argument("case", shell_complete=completion.cases)
@click.argument("good", required=False, shell_complete=completion.commits)
@click.argument("bad", default="HEAD", shell_complete=completion.commits)
@options.suite_from
@options.case_options
@options.value(
    "--devices", "SPECS", "Measure several commits at once, one on each of these devices: cuda:0,cuda:1."
)
@options.scheduler
@options.percent("--margin", "Ignore a change from GOOD to BAD up to this; default 0.25, on a CPU 2.")
@options.seconds("--budget", "Stop after this much device time, and list the suspects that are left.")
@options.l2
@options.no_wait
@options.flag("--fresh", "Do not use measurements of an earlier bisection.")
@options.path("--results", "Folder for records; default: .asv/results.")
@options.no_save
@script_options.script
@script_options.recorded
@executable_options.build_command
def command(selection: options.Selection, case: str, good: str | None, bad: str, **given: Any) -> int:
    """Find the commits after GOOD, up to BAD, that made CASE slower or faster.

    CASE is one case, such as matmul.naive@1024; BAD defaults to HEAD. The id of a change, as 'harness
    history' prints it, replaces all three. GOOD and BAD are compared first, then commits between them with
    GOOD, and finally each commit that was found with its parent. Commits that do not build are skipped, and
    equal code is not measured twice.

    Exit status 0 if every step has its commit; 3 if something could not be measured; 4 if GOOD and BAD do not
    differ, if several commits are left for a step, or if the change crept in.
    """
    from harness.report.terminal import bisections

    config = load_config()
    if good is None:
        case, good, bad = _of_change(config, case, given["results"])
        click.echo(f"harness bisect {case} {good[:10]} {bad[:10]}", err=True)
    bisect = _bisect_script if given["scripts"] else _bisect
    result = bisect(config, selection, case, good, bad, given)
    status = bisections.exit_code(result)
    if selection.as_json:
        echo_json(bisections.as_json(result))
    else:
        bisections.print_bisection(result, status)
        if status is ExitCode.FINE:
            _tell_merge(repository_of(config), result)
    return status


def _of_change(config: Config, change: str, results: Path | None) -> tuple[str, str, str]:
    """Return case, good and bad of a change in the history, or of an event's largest change. Raises
    UsageError.
    """
    from harness.history.reading import read_history
    from harness.integrations.asv.conf import history_of

    lacking = (
        f"Missing argument 'GOOD': 'harness bisect {change} main~20' looks for the commit after main~20."
    )
    conf = history_of(config, results=results)
    try:
        history = read_history(
            conf.results, config.root, repository=conf.repository, directions=config.directions
        )
    except StoreError as error:
        raise UsageError(f"{lacking} {error.message}") from None
    changes = (stated.change for card in history.cards for stated in card.changes)
    ranges = [(each.id, each.case, each.good, each.bad) for each in changes]
    ranges += [(each.id, each.worst.change.case, each.good, each.bad) for each in history.events]
    for name, case, good, bad in ranges:
        if name == change:
            return case, history.commits[good].hash, history.commits[bad].hash
    raise UsageError(
        f"{lacking} {change} is no id of an event or a change in 'harness history --all' either."
    )


def _tell_merge(repository: Path, result: BisectResult) -> None:
    """Print how to continue in the branch of each merge that was found."""
    case = in_short(result.case)
    for merge in (commit.hash for commit in result.suspects):
        if git.is_commit(repository, f"{merge}^2"):
            base, tip = (
                git.merge_base(repository, f"{merge}^1", f"{merge}^2"),
                git.resolve(repository, f"{merge}^2"),
            )
            click.echo(
                f"{merge[:10]} is a merge. In its branch: harness bisect {case} {base[:10]} {tip[:10]}"
            )


def _bisect(
    config: Config, selection: options.Selection, case: str, good: str, bad: str, given: dict[str, Any]
) -> BisectResult:
    from harness.report.terminal.progress import BisectProgress
    from harness.run.bisect.search import Bisecting, line_of, touching
    from harness.suite.loader import WORKING_TREE

    repository = repository_of(config)
    ends = [git.resolve(repository, revision) for revision in (good, bad)]
    line = line_of(repository, *ends)
    if selection.suite_from not in (None, WORKING_TREE):
        selection = dataclasses.replace(selection, suite_from=git.resolve(repository, selection.suite_from))
    pair, chosen = _chosen(config, selection, case, *ends)
    if bad == "HEAD" and git.is_dirty(repository, pair.head.path):
        tell("Uncommitted changes are ignored.")
    settings = settings_from(config, selection, given | {"twins": False}, command="bisect")
    with BisectProgress() as observer:
        searched = touching(repository, line, pair)
        with _pair_devices(pair.head, selection, settings.device, given, observer) as devices:
            suite_from, fresh = selection.suite_from, given["fresh"]
            bisecting = Bisecting(
                chosen, line, searched, devices, settings, observer, suite_from=suite_from, fresh=fresh
            )
            return bisecting.run()


def _bisect_script(
    config: Config, selection: options.Selection, case: str, good: str, bad: str, given: dict[str, Any]
) -> BisectResult:
    """Bisect a timing call of a benchmark script. Every commit runs the script of BAD."""
    from harness.report.terminal.progress import BisectProgress
    from harness.run.bisect.search import Bisecting, line_of
    from harness.run.scripts.script_pairs import ScriptPairs

    if len(given["scripts"]) > 1:
        raise UsageError("A bisection follows one script: give --script once.")
    if given["devices"] or selection.scheduler:
        raise UsageError("--script bisects on one device: name it with --device.")
    repository = repository_of(config)
    line = line_of(repository, *(git.resolve(repository, revision) for revision in (good, bad)))
    settings = settings_from(config, selection, given | {"twins": False}, command="bisect")
    script = script_options.settings_from(config, selection, given | {"fail_on": ()})
    with BisectProgress() as observer:

        def export(place: Path, commits: Mapping[SideName, str]) -> list[Executable]:
            words, build = given["scripts"], given["build_command"]
            found = executable_options.at_commits(
                config, place, repository, commits, words, build, observer.stage
            )
            return [each for [each] in found]

        pairs = ScriptPairs(export, line[-1].hash, script, observer)
        touching, fresh = range(1, len(line)), given["fresh"]
        return Bisecting(CaseId.parse(case), line, touching, pairs, settings, observer, fresh=fresh).run()


@contextlib.contextmanager
def _pair_devices(
    loaded: LoadedSuite,
    selection: options.Selection,
    device: str | None,
    given: dict[str, Any],
    observer: CompareObserver,
) -> Iterator[PairDevices]:
    """Open a single device, or a Dask cluster of this host or an existing one."""
    devices, scheduler, suite_from = given["devices"], selection.scheduler, selection.suite_from
    if devices is not None and (scheduler or selection.device):
        other = "--scheduler" if scheduler else "--device"
        raise UsageError(f"--devices and {other} exclude each other: give one of them.")
    if scheduler is None and devices is None:
        from harness.run.bisect.commit_pairs import OneDevice

        yield OneDevice(loaded, device, observer, suite_from)
        return
    from harness.run.sweep.commit_pairs_on_cluster import DaskPairDevices

    # This machine's configured device has no meaning on a cluster.
    named = devices.split(",") if devices else filter(None, [selection.device])
    specs = [spec.strip() for spec in named]
    with DaskPairDevices(loaded, specs, observer, scheduler=scheduler, suite_from=suite_from) as opened:
        yield opened


def _chosen(
    config: Config, selection: options.Selection, case: str, good: str, bad: str
) -> tuple[SuitePair, CaseId]:
    """Return the suite at both ends, and the named case. Raises UsageError."""
    selection = dataclasses.replace(selection, cases=(case,))
    found: dict[str, tuple[SuitePair, CaseId]] = {}
    for pair, sizes in selection.pairs(config, good, bad):
        for side in pair.plans((case,), sizes, quick=selection.quick):
            for each in (planned.case for planned in side):
                found[each.id] = pair, CaseId.of(each.suite, each.kernel, each.sizes)
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise UsageError(f"{case} is no case, neither at {good[:10]} nor at {bad[:10]}.")
    some = ", ".join(each.short for _, each in list(found.values())[:6])
    raise UsageError(f"{case} names {len(found)} cases, and one is bisected: name one, of {some}.")
