"""Options by which `harness compare` runs benchmark executables in the place of suites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from harness.cli import options
from harness.config import Config
from harness.errors import UsageError
from harness.spec.case_id import Selector, size_label
from harness.system import git

if TYPE_CHECKING:
    from harness.records import Source
    from harness.run.compare import ComparisonResult
    from harness.run.executables import Executable, SideName
    from harness.store.imported import ImportedCase

FORMATS = ("nvbench", "google-benchmark")
_GIVEN = ("with_command", "base_command", "head_command")
_NO_USE = {"size": "--size", "quick": "--quick"}
_NO_USE_EITHER = {"l2": "--l2", "twins": "--twins"}
TIMEOUT_S = 600.0
BUILD_TIMEOUT_S = 3600.0

options_of_executables = options.together(
    click.option(
        "--with-command",
        multiple=True,
        metavar="COMMAND",
        help="Compare a benchmark executable in place of suites: run at both commits, in turns; repeatable.",
    ),
    click.option("--build-command", metavar="COMMAND", help="What builds it, in each commit's files."),
    click.option(
        "--base-command",
        multiple=True,
        metavar="COMMAND",
        help="An executable that is built already; base's.",
    ),
    click.option("--head-command", multiple=True, metavar="COMMAND", help="Head's."),
    click.option(
        "--format",
        "format_",
        type=click.Choice(FORMATS),
        help="Of the executables; default: what they say with --help.",
    ),
    click.option("--suite", metavar="NAME", help="What to call an executable; default: its own name."),
)


def are_given(given: Mapping[str, Any]) -> bool:
    """Whether executables are to be compared. Raises UsageError for their options without them."""
    if any(given[name] for name in _GIVEN):
        return True
    for name, option in (("build_command", "--build-command"), ("format_", "--format"), ("suite", "--suite")):
        if given[name]:
            raise UsageError(f"{option} is of no use without --with-command.")
    return False


def compare(
    config: Config, selection: options.Selection, ends: Ends, given: Mapping[str, Any]
) -> list[ComparisonResult]:
    """Compare the executables that the options name, one after another."""
    from harness.output.progress import CompareProgress
    from harness.run.compare_executables import ComparingExecutables, ExecutablesSettings
    from harness.run.executables import name_of
    from harness.system.files import scratch_folder

    _check(selection, ends, given)
    settings = ExecutablesSettings(
        format=given["format_"],
        suite=given["suite"],
        device=selection.device or config.device,
        margin=given["margin"],
        tolerance=given["tolerance"],
        confidence=given["confidence"],
        timeout_s=selection.timeout or TIMEOUT_S,
        busy=given["busy"],
        budget_s=given["budget"],
        seed=selection.seed,
        results=given.get("results") or config.results_folder,
        save=not given.get("no_save"),
    )
    results: list[ComparisonResult] = []
    with ExitStack() as stack:
        observer = stack.enter_context(CompareProgress())
        place = stack.enter_context(scratch_folder())
        is_wanted = partial(_is_wanted, [Selector.parse(case) for case in ends.cases])
        for one, other in _executables(config, place, ends, given, observer.stage):
            comparing = ComparingExecutables(one, other, settings, observer, is_wanted)
            results.append(comparing.run(name_of(other.command)))
            if results[-1].interrupted:
                break
    return results


def _check(selection: options.Selection, ends: Ends, given: Mapping[str, Any]) -> None:
    from harness.run.importing import checked_suite

    told = {option: getattr(selection, name) for name, option in _NO_USE.items()}
    told |= {option: given[name] for name, option in _NO_USE_EITHER.items()}
    for option, value in told.items():
        if value:
            raise UsageError(f"{option} is of no use here: an executable's own options say what it measures.")
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


def _is_wanted(wanted: Sequence[Selector], suite: str, case: ImportedCase) -> bool:
    label = size_label(case.sizes)
    return not wanted or any(each.names(suite, case.kernel) and each.has_label(label) for each in wanted)


class Ends(NamedTuple):
    """What is compared with what."""

    repository: Path | None
    """None where no commit is named: then nobody knows what the executables are built from."""
    commits: tuple[str | None, str | None] = (None, None)
    """None is the working tree."""
    cases: tuple[str, ...] = ()


def _source(repository: Path | None, commit: str | None) -> Source:
    from harness.records import Source

    if repository is None:
        return Source(suite="", path="")
    at = commit or git.resolve(repository, "HEAD")
    dirty = commit is None and git.is_dirty(repository, repository)
    return Source(suite="", path="", commit=at, committed_at=git.committed_at(repository, at), dirty=dirty)


def _executables(
    config: Config, place: Path, ends: Ends, given: Mapping[str, Any], tell: Callable[[str], None]
) -> list[tuple[Executable, Executable]]:
    """Base and head of each executable, built and ready to run."""
    from harness.run.executables import Executable

    one, other = (_source(ends.repository, commit) for commit in ends.commits)
    if given["base_command"]:
        here = Path.cwd()
        commands = zip(given["base_command"], given["head_command"], strict=True)
        return [
            (Executable("base", base, here, one), Executable("head", head, here, other))
            for base, head in commands
        ]
    base = _of_commit(config, place / "base", "base", ends, one, given, tell)
    head = _of_commit(config, place / "head", "head", ends, other, given, tell)
    return list(zip(base, head, strict=True))


def _of_commit(
    config: Config,
    folder: Path,
    side: SideName,
    ends: Ends,
    source: Source,
    given: Mapping[str, Any],
    tell: Callable[[str], None],
) -> list[Executable]:
    """Every executable of one side, in a folder that has the files of its commit, built there."""
    from harness.run.executables import Executable, built, put_files

    assert ends.repository is not None
    put_files(ends.repository, ends.commits[side == "head"], folder)
    folder /= config.root.resolve().relative_to(ends.repository.resolve())
    folder.mkdir(parents=True, exist_ok=True)  # a commit may lack it, and then its command fails
    problem = None
    if command := given["build_command"]:
        tell(f"building {side}")
        problem = built(command, folder, side, BUILD_TIMEOUT_S)
    return [Executable(side, one, folder, source, problem) for one in given["with_command"]]
