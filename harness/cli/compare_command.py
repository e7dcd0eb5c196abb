"""harness compare: compares two commits."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from harness.cli import completion, echo_json, executable_options, options, script_options, tell_wall_time
from harness.cli.on_cards import measure_suites, opening
from harness.config import Config, load_config
from harness.errors import UsageError
from harness.system import git

if TYPE_CHECKING:
    from harness.records.record_files import ComparisonResult
    from harness.records.types import DeviceInfo
    from harness.report.terminal.progress import CompareProgress
    from harness.run.compare_settings import CompareSettings
    from harness.suite.loader import LoadedSuite
    from harness.suite.planning import PlannedCase, SuitePair


@click.command("compare")
@click.argument("base", required=False, shell_complete=completion.commits)
@click.argument("rest", nargs=-1, metavar="[HEAD] [CASES]...", shell_complete=completion.commits_then_cases)
@options.suite_from
@options.cards
@options.graph
@options.case_options
@options.comparison
@options.explain
@options.path("--results", "Folder for records; default: .asv/results.")
@options.no_save
@options.profile_wall
@options.value(
    "--toolchain",
    "PATH|VERSION",
    "Give it twice to compare two toolchains on one commit, base's first: an nvcc, a CUDA folder, a Python "
    "environment, or a version such as 12.9.",
    to="toolchains",
    multiple=True,
)
@script_options.options_of_scripts
@executable_options.options_of_executables
def command(selection: options.Selection, base: str | None, rest: tuple[str, ...], **given: Any) -> int:
    """Find the kernels that HEAD made slower than BASE.

    Both are verified, then timed alternately in fresh processes; a difference is confirmed in more processes.
    HEAD defaults to the working tree; BASE..HEAD names both in one word. With --toolchain there is one
    commit, by default the working tree. CASES are names or globs such as 'matmul.*tiling*'.

    Exit status 1 if a case is slower, missing, or fails at HEAD; 3 if a case could not be measured or is
    invalid; 4 if a case is inconclusive, or nothing was compared.
    """
    config = load_config()
    hint = ""
    if toolchains := given.pop("toolchains"):
        results = compare_toolchains(config, selection, toolchains, base, rest, given)
    elif (scripts := script_options.scripts_in(config, given)) or executable_options.are_given(given):
        ends = executable_options.Ends(None)
        if base is not None:
            one, other, cases = commits_of(config, base, rest)
            ends = executable_options.Ends(repository_of(config), (one, other), cases)
        if scripts:
            results = script_options.compare(config, selection, ends, scripts, given)
        else:
            results = executable_options.compare(config, selection, ends, given)
    elif base is None:
        raise UsageError(
            "Missing argument 'BASE': 'harness compare main' compares main and the working tree."
        )
    else:
        base, head, cases = commits_of(config, base, rest)
        selection = dataclasses.replace(selection, cases=cases)
        from harness.run.worker_process import import_beside

        with opening(selection, config):  # before imports that take as long
            settings = settings_from(config, selection, given)
            import_beside("harness.run.compare")  # while the suites load
            compared = compare_pairs(selection.pairs(config, base, head), selection, settings)
        results, hint = compared.results, _without_a_card(compared, base)
    if given["profile_wall"]:
        tell_wall_time(results)
    status = show(results, given["fail_on"], as_json=selection.as_json)
    if hint:
        click.echo(hint, err=True)
    return status


def _without_a_card(compared: SuiteComparisons, base: str) -> str:
    """Return how to compare kernels without a card; empty unless a card is all that is missing."""
    backends = {result.device.backend for result in compared.results}
    sources = [[*kernel.sources] for head in compared.heads for kernel in head.suite.kernels]
    any_compared = any(result.verdicts for result in compared.results)
    if any_compared or backends & {"cuda", "null"} or any(each != ["cuda"] for each in sources):
        return ""
    return (
        f"These kernels need a CUDA card. Without a card, 'harness static --base {base[:10]}' compares the "
        "registers, spills and instructions of the two commits."
    )


def show(results: Sequence[ComparisonResult], fail_on: Sequence[str], *, as_json: bool) -> int:
    """Print comparisons, and return the exit status."""
    from harness.report.terminal import comparison_tables

    status = comparison_tables.exit_code(results, fail_on)
    if as_json:
        echo_json([comparison_tables.as_json(result) for result in results])
    else:
        comparison_tables.print_comparison(results, status)
    return status


def settings_from(
    config: Config, selection: options.Selection, given: Mapping[str, Any], **more: Any
) -> CompareSettings:
    """Return settings from the options, else from the configuration, with `more` fields."""
    from harness.run.compare_settings import CompareSettings

    shared = executable_options.shared_settings(config, selection, given)
    return CompareSettings(
        l2=given["l2"] or config.l2,  # type: ignore[arg-type]
        timeout_s=selection.timeout or config.timeout_s,
        twins=given["twins"],
        **{"explain": "regressions" if given.get("explain") else "", **shared, **more},
    )


class SuiteComparisons(NamedTuple):
    """The comparisons of the selected suites, in order."""

    results: list[ComparisonResult]
    """A result for each suite and card; fewer after an interrupt."""
    heads: list[LoadedSuite]
    """The suite at head for each result."""


def compare_toolchains(
    config: Config,
    selection: options.Selection,
    named: Sequence[str],
    commit: str | None,
    rest: Sequence[str],
    given: Mapping[str, Any],
) -> list[ComparisonResult]:
    """Compare two toolchains on the suites of one commit, or of the working tree."""
    from harness.device.toolchains import pair_of
    from harness.suite.planning import SuitePair

    if executable_options.are_given(given):
        raise UsageError(
            "--toolchain compares suites, and --with-command compares executables: give one of them."
        )
    if selection.scheduler:
        raise UsageError("--toolchain names compilers of this machine: compare them without --scheduler.")
    cases = tuple(rest)
    if commit is not None and ".." in commit:
        raise UsageError(f"{commit} is two commits: toolchains are compared on one.")
    repository = git.repository_of(config.root)
    if commit is not None and (repository is None or not git.is_commit(repository, commit)):
        cases, commit = (commit, *rest), None
    settings = settings_from(config, selection, given, toolchains=pair_of(named))
    selection = dataclasses.replace(selection, cases=cases, commit=commit)
    pairs = [(SuitePair(each, each), sizes) for each, sizes in selection.suites(config)]
    return compare_pairs(pairs, selection, settings).results


@dataclass(frozen=True, slots=True)
class _Comparisons:
    """A comparison of each pair of suites; see `harness.cli.on_cards.Work`."""

    suites: Sequence[tuple[SuitePair, Sequence[str]]]
    selection: options.Selection
    settings: CompareSettings
    most_cases: int | None

    def planned(self, suite: int, device: DeviceInfo) -> list[PlannedCase]:
        return [planned for side in self._plans(suite, device) for planned in side]

    def _plans(self, suite: int, device: DeviceInfo) -> tuple[list[PlannedCase], list[PlannedCase]]:
        """Return the selected cases of base and of head."""
        pair, sizes = self.suites[suite]
        quick = self.selection.quick or device.kind != "gpu"
        return pair.plans(self.selection.cases, sizes, quick=quick, graph=self.selection.graph)

    def measure(
        self, suite: int, device: str | None, only: Collection[str] | None, observer: CompareProgress
    ) -> ComparisonResult:
        from harness.run.compare import Comparing

        pair, _ = self.suites[suite]
        settings = dataclasses.replace(self.settings, device=device)
        with Comparing(pair.base, pair.head, settings, observer) as comparing:
            base, head = (
                [each for each in side if only is None or each.case.id in only]
                for side in self._plans(suite, comparing.device)
            )
            cases = len({planned.case.id for planned in (*base, *head)})
            if self.most_cases is not None and cases > self.most_cases:
                raise UsageError(
                    f"Suite {pair.head.suite.name} has {cases} cases here, and a report holds "
                    f"{self.most_cases}: nothing of it was measured. Name fewer cases or sizes, in "
                    ".github/fleet.json."
                )
            return comparing.run(base, head)


def compare_pairs(
    pairs: Sequence[tuple[SuitePair, Sequence[str]]],
    selection: options.Selection,
    settings: CompareSettings,
    *,
    most_cases: int | None = None,
) -> SuiteComparisons:
    """Compare the selected cases, suite by suite. Raises UsageError for more cases than `most_cases`."""
    from harness.report.terminal.progress import CompareProgress

    work = _Comparisons(pairs, selection, settings, most_cases)
    with CompareProgress() as observer:
        found = measure_suites(work, len(pairs), selection, settings.device, observer)
    return SuiteComparisons([result for _, result in found], [pairs[suite][0].head for suite, _ in found])


def commits_of(config: Config, base: str, rest: Sequence[str]) -> tuple[str, str | None, tuple[str, ...]]:
    """Return BASE, HEAD (None for the working tree), and CASES."""
    repository = repository_of(config)
    if ".." in base:
        base, _, head = base.replace("...", "..").partition("..")
        return git.resolve(repository, base or "HEAD"), git.resolve(repository, head or "HEAD"), tuple(rest)
    base = git.resolve(repository, base)
    if rest and git.is_commit(repository, rest[0]):
        return base, git.resolve(repository, rest[0]), tuple(rest[1:])
    return base, None, tuple(rest)


def repository_of(config: Config) -> Path:
    """Return the repository around the project. Raises UsageError without a repository."""
    repository = git.repository_of(config.root)
    if repository is None:
        raise UsageError(
            f"{config.root} is in no git repository: there are no commits to compare."
            " Make one with git init, and commit before and after a change."
        )
    return repository
