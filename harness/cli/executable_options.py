"""Options of `harness compare` for benchmark executables instead of suites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from harness.cli import options
from harness.config import Config
from harness.errors import UsageError
from harness.system.files import scratch_folder

if TYPE_CHECKING:
    from harness.measure.protocol import SideName
    from harness.records.record_files import ComparisonResult
    from harness.run.executables.executable_build import Executable

_GIVEN = ("with_command", "base_command", "head_command")
TIMEOUT_S = 600.0
BUILD_TIMEOUT_S = 3600.0

build_command = options.value(
    "--build-command", "COMMAND", "Run this first in each commit's files, to build the benchmark."
)
options_of_executables = options.together(
    options.several(
        "--with-command",
        "COMMAND",
        "Compare a benchmark program instead of suites: run it alternately at both commits",
    ),
    build_command,
    options.value("--base-command", "COMMAND", "An executable of base that is built already.", multiple=True),
    options.value("--head-command", "COMMAND", "An executable of head that is built already.", multiple=True),
    click.option(
        "--format",
        "format_",
        type=options.FORMATS,
        help="Format of the program's results; default: detected from the command, its --help or its file.",
    ),
    options.value("--suite", "NAME", "Name of the program in results; default: its own name."),
)


def are_commands(given: Mapping[str, Any]) -> bool:
    """Return whether the options name commands of executables."""
    return any(given.get(name) for name in _GIVEN)


def are_given(given: Mapping[str, Any]) -> bool:
    """Return whether to compare executables. Raises UsageError for their options without a command."""
    if are_commands(given):
        return True
    for name, option in (("build_command", "--build-command"), ("format_", "--format"), ("suite", "--suite")):
        if given[name]:
            raise UsageError(f"{option} is of no use without --with-command.")
    return False


def shared_settings(config: Config, selection: options.Selection, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the common fields of CompareSettings and ExecutablesSettings for which the command
    has options.
    """
    named = {"margin": "margin", "tolerance": "tolerance", "confidence": "confidence", "budget": "budget_s"}
    return {field: given[name] for name, field in named.items() if name in given} | {
        "device": selection.device or config.device,
        "busy": given["busy"],
        "seed": selection.seed,
        "results": given.get("results") or config.results_folder,
        "save": not given.get("no_save"),
    }


def compare(
    config: Config, selection: options.Selection, ends: Ends, given: Mapping[str, Any]
) -> list[ComparisonResult]:
    """Compare the executables in the options, one after another."""
    from harness.report.terminal.progress import CompareProgress
    from harness.run.executables.compare_executables import ComparingExecutables, ExecutablesSettings
    from harness.run.executables.executable_build import name_of

    _check(selection, ends, given)
    settings = ExecutablesSettings(
        format=given["format_"],
        suite=given["suite"],
        timeout_s=selection.timeout or TIMEOUT_S,
        **shared_settings(config, selection, given),
    )
    results: list[ComparisonResult] = []
    with CompareProgress() as observer, scratch_folder() as place:
        for one, other in _executables(config, place, ends, given, observer.stage):
            comparing = ComparingExecutables(one, other, settings, observer, ends.cases)
            results.append(comparing.run(name_of(other.command)))
            if results[-1].interrupted:
                break
    return results


def _check(selection: options.Selection, ends: Ends, given: Mapping[str, Any]) -> None:
    from harness.run.importing import checked_suite

    of_suites = {
        "--size": selection.size,
        "--quick": selection.quick,
        "--gpus": selection.gpus,
        "--scheduler": selection.scheduler,
        "--graph": selection.graph,
    }
    for option, value in (of_suites | {"--l2": given["l2"], "--twins": given["twins"]}).items():
        if value:
            raise UsageError(f"{option} has no effect on executables: use the executable's own options.")
    if given["with_command"] and (given["base_command"] or given["head_command"]):
        raise UsageError("--with-command runs both sides: leave out --base-command and --head-command.")
    if len(given["base_command"]) != len(given["head_command"]):
        raise UsageError("--base-command and --head-command go together, one of each executable.")
    if given["build_command"] and not given["with_command"]:
        raise UsageError(
            "--build-command builds what --with-command runs; what is built already is not built."
        )
    if given["with_command"] and ends.repository is None:
        raise UsageError("--with-command needs commits: harness compare BASE [HEAD] --with-command COMMAND.")
    if given["suite"]:
        checked_suite(given["suite"])
    if given["suite"] and len(given["with_command"] or given["base_command"]) > 1:
        raise UsageError("--suite names one executable, and there are more.")


class Ends(NamedTuple):
    """The two sides of a comparison of executables, and its cases."""

    repository: Path | None
    """The repository; None without commits, if the source of the executables is unknown."""
    commits: tuple[str | None, str | None] = (None, None)
    """Base and head; None means the working tree."""
    cases: tuple[str, ...] = ()

    @property
    def by_side(self) -> dict[SideName, str | None]:
        return {"base": self.commits[0], "head": self.commits[1]}


def _executables(
    config: Config, place: Path, ends: Ends, given: Mapping[str, Any], tell: Callable[[str], None]
) -> list[tuple[Executable, Executable]]:
    """Return base and head of each executable, built and ready to run."""
    from harness.run.executables.executable_build import Executable, source_at

    if given["base_command"]:
        sides: tuple[SideName, ...] = ("base", "head")
        source = source_at(ends.repository, None)
        built = [
            [Executable(side, each, Path.cwd(), source) for each in given[f"{side}_command"]]
            for side in sides
        ]
    else:
        assert ends.repository is not None
        commits = ends.by_side
        commands, build = given["with_command"], given["build_command"]
        built = at_commits(config, place, ends.repository, commits, commands, build, tell)
    return list(zip(*built, strict=True))


def at_commits(
    config: Config,
    place: Path,
    repository: Path,
    commits: Mapping[SideName, str | None],
    commands: Sequence[str],
    build: str | None,
    tell: Callable[[str], None],
) -> list[list[Executable]]:
    """Put the files of each side's commit into `place`, build them, and return the commands of each side."""
    from harness.run.executables.executable_build import Executable, built, put_files, source_at
    from harness.run.executables.side_code import SideFolders

    def of_side(side: SideName, commit: str | None) -> list[Executable]:
        source = source_at(repository, commit)
        files = place / side
        put_files(repository, commit, files)
        folder = files / config.root.resolve().relative_to(repository.resolve())
        folder.mkdir(parents=True, exist_ok=True)  # a commit may lack it; then its command fails
        others = repository, *(place / other for other in commits if other != side)
        folders = SideFolders(side, files, folder, others)
        problem = None
        if build:
            tell(f"building {side}")
            problem = built(build, folder, side, BUILD_TIMEOUT_S)
        return [Executable(side, each, folder, source, problem, folders) for each in commands]

    return [of_side(side, commit) for side, commit in commits.items()]
