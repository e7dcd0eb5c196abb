"""harness init: writes suites and benchmark files for a repository's own kernels."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli import echo_json, options, tell
from harness.errors import ExitCode, UsageError
from harness.system.texts import harmless

if TYPE_CHECKING:
    from harness.init.guessed_suite import LeftOut, SuiteGuess
    from harness.init.own_benchmarks import OtherFramework, OwnBenchmark
    from harness.init.repository import Repository
    from harness.init.written_files import Written

_SHOWN = 3
"""Most kernels listed for each reason to leave them out; --json has all."""
_SHOWN_BENCHMARKS = 8
"""Most commands listed for the project's own benchmarks."""
_SHOWN_SUITES = 24
"""Most suites listed."""
_MOST = 12
"""Most suites written without a question. If there are more, only those with a known reference
are written."""


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@options.flag("--yes", "Ask nothing: write every suite that is proposed.")
@options.flag("--ci", "Write the CI workflows too, as 'harness ci init' does.")
@options.value(
    "--harness",
    "REQUIREMENT",
    "With --ci: the harness that the workflows install, as in 'harness ci init'.",
    to="requirement",
)
@options.value("--suites", "FOLDER", "Folder for the suites; default: perf.")
@options.several("--only", "GLOB", "Write only suites whose name matches")
@options.flag("--dry-run", "Show what would be written, and write nothing.")
@options.flag("--force", "Overwrite existing files that differ.")
@options.json
def command(
    folder: Path,
    yes: bool,
    ci: bool,
    requirement: str | None,
    suites: str | None,
    only: tuple[str, ...],
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> ExitCode:
    """List the benchmarks of a repository, and write suites that measure its GPU kernels.

    FOLDER is the project's top, by default the current one. The command runs and compiles nothing. It lists
    benchmark scripts and tests with pytest-benchmark first, each with the command that measures it unchanged.
    Comments in the suites mark guesses. Existing files that differ stay as they are.

    Exit status 3 if there is neither a benchmark nor a kernel that a suite could measure.
    """
    from harness.init import written_files
    from harness.init.guess import suites_of
    from harness.init.own_benchmarks import other_frameworks, own_benchmarks
    from harness.init.repository import Repository

    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder. Give the top folder of a project.")
    below = written_files.suites_folder(folder, suites)
    repository = Repository(folder, [below])
    benchmarks = own_benchmarks(repository)
    proposed, left = suites_of(repository)
    others = other_frameworks(repository, {each.file for suite in proposed for each in suite.kernels})
    chosen = _chosen(written_files.not_measured_yet(proposed, folder, below), only)
    found = {
        "benchmarks": list(map(dataclasses.asdict, benchmarks)),
        "frameworks_without_suites": list(map(dataclasses.asdict, others)),
    }
    if as_json and not chosen:
        echo_json({**found, **_as_json(chosen, left, written_files.Written())})
    elif not as_json:
        _show_files(repository)
        _show_benchmarks(benchmarks)
        _show_executables(repository.executables)
        _show_kernels(chosen, left, below if proposed else "", other=bool(benchmarks or others))
        _show_frameworks(others)
    has_benchmarks = any(each.command for each in benchmarks)
    if not chosen:
        return ExitCode.FINE if proposed or has_benchmarks else ExitCode.NOT_MEASURED
    if not (yes or dry_run or as_json):
        chosen = _asked(chosen)
    if not only and not (as_json and dry_run):  # it lists all of them
        chosen = _few(chosen, has_benchmarks=has_benchmarks)
    if not chosen:
        return ExitCode.FINE
    workflows = _workflows(folder, requirement, dry_run=dry_run, force=force) if ci else ()
    planned = written_files.planned(chosen, folder, below)
    done = written_files.write(folder, planned, force=force, dry_run=dry_run)
    done = dataclasses.replace(done, written=(*done.written, *workflows))
    if as_json:
        echo_json({**found, **_as_json(chosen, left, done)})
    else:
        _show_written(repository, done, chosen, dry_run=dry_run)
        if f"{below}/kernel_benchmarks/suites.py" in planned:
            _show_beside(folder, below, written_files.own_conf(folder))
    return ExitCode.FINE


def _show_beside(folder: Path, below: str, own: Path | None) -> None:
    """Print how to measure the kernels beside the project's own asv configuration or benchmarks."""
    asv = "asv run; "
    if own:
        results = f"{below}/.asv/results"
        asv = f"asv run --config {below}/asv.conf.json; harness history --results {results}; "
    click.echo(
        f"The project has benchmarks of its own{f' ({own.relative_to(folder)})' if own else ''}, "
        f"which stay as they are. Beside them: {asv}pytest {below}/kernel_benchmarks."
    )


def _workflows(folder: Path, requirement: str | None, *, dry_run: bool, force: bool) -> tuple[str, ...]:
    """Write the workflows, and return their files."""
    from harness.ci.scaffold import COPIED, UNKNOWN_HARNESS, own_requirement, scaffold

    asked = requirement or own_requirement()
    if dry_run:
        if not asked:
            tell(UNKNOWN_HARNESS)
        return tuple(f".github/{name}" for name in COPIED)
    if not asked:
        raise UsageError(
            "--ci: what the workflows are to install is not known. Say it with --harness REQUIREMENT."
        )
    return scaffold(folder, asked, force=force).written


def _chosen(proposed: Sequence[SuiteGuess], only: Sequence[str]) -> list[SuiteGuess]:
    if not only or not proposed:  # the omitted files then say why
        return list(proposed)
    for pattern in only:
        if not any(fnmatchcase(suite.name, pattern) for suite in proposed):
            names = ", ".join(suite.name for suite in proposed) or "none"
            raise UsageError(f"No suite that is proposed is called {pattern!r}. Proposed: {names}.")
    return [suite for suite in proposed if any(fnmatchcase(suite.name, pattern) for pattern in only)]


def _asked(proposed: list[SuiteGuess]) -> list[SuiteGuess]:
    """Return the suites that the user selects at the terminal; all of them without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        tell("no terminal to ask at: writing every suite that is proposed, as with --yes.")
        return proposed
    names = click.prompt(
        "Which suites? Names with spaces between, or nothing for all", default="", show_default=False
    )
    return _chosen(proposed, names.split())


def _few(proposed: list[SuiteGuess], *, has_benchmarks: bool) -> list[SuiteGuess]:
    """Return the suites; of dozens, only those with a reference. Raises UsageError if none is left."""
    understood = [suite for suite in proposed if suite.held_to != "base"]
    if len(proposed) <= _MOST or len(understood) == len(proposed):
        return proposed
    told = f"{len(proposed)} suites are proposed"
    if not understood and not has_benchmarks:
        raise UsageError(
            f"{told}, and what they compute is unknown. Choose some with --only NAME: their "
            "outputs are compared with base's."
        )
    tell(f"{told}: writing the {len(understood)} with a reference. --only NAME writes others.")
    return understood


def _show_files(repository: Repository) -> None:
    where = "of git's list" if repository.top else "in the folder"
    click.echo(f"Looked at {len(repository.files)} file{'s'[: len(repository.files) != 1]} {where}.")
    if repository.passed_over:
        passed = ", ".join(f"{name} ({count})" for name, count in sorted(repository.passed_over.items()))
        click.echo(f"Passed over: {passed}.")
    if repository.not_fetched:
        build = "Kernels that include their files build after 'git submodule update --init'."
        click.echo(f"Not fetched: {', '.join(repository.not_fetched)}. {build}")


def _show_benchmarks(benchmarks: Sequence[OwnBenchmark]) -> None:
    """Print the commands that measure the project's own benchmarks unchanged."""
    measured = [each for each in benchmarks if each.command]
    if measured:
        click.echo("\nBenchmarks that the project has, and the commands that measure them as they are:")
    for each in measured[:_SHOWN_BENCHMARKS]:
        tests = f"{each.tests} test{'s'[: each.tests != 1]} with " if each.tests else ""
        click.echo(harmless(f"  {each.command}  # {tests}{', '.join(each.timers)}"))
    if (more := len(measured) - _SHOWN_BENCHMARKS) > 0:
        click.echo(f"  and {more} more: harness init --dry-run --json lists all of them.")
    if inline := [each.path for each in benchmarks if not each.command]:
        some, others = ", ".join(inline[:_SHOWN]), len(inline) - _SHOWN
        listed = f"{some} and {others} more" if others > 0 else some
        way_out = "Put what is timed into a function, and name the function that times it with --timer."
        click.echo(f"\nTimed between two lines of their own: {harmless(listed)}. {way_out}")


def _show_frameworks(frameworks: Sequence[OtherFramework]) -> None:
    """Print the frameworks without suites, a line for each way to measure them."""
    by_way: dict[str, list[str]] = {}
    for each in frameworks:
        by_way.setdefault(each.measured_by, []).append(
            f"{each.name} ({each.files[0]}{_and_more(each.files)})"
        )
    if by_way:
        click.echo("\nNo suite is proposed for these. What measures them:")
    for way, names in by_way.items():
        click.echo(harmless(f"  {way}: {', '.join(names)}"))


def _and_more(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _show_kernels(
    proposed: Sequence[SuiteGuess], left: Sequence[LeftOut], measured_in: str, *, other: bool
) -> None:
    """Print the suites, and the kernels left out.

    `measured_in` is a folder whose suites already measure everything. With `other` findings, nothing is said
    about a repository without kernels.
    """
    if not proposed and measured_in:
        click.echo(f"The suites in {measured_in} measure every kernel that was found.")
    elif not (proposed or left or other):
        click.echo(
            "No kernel was found, and no benchmark. Looked for __global__ functions in .cu, .cuh and C++ "
            "files and headers; for __kernel functions in .cl files; for functions that launch @triton.jit, "
            "cupy.RawKernel and @numba.cuda.jit kernels, functions of torch.Tensors, and benchmarks in .py "
            "files."
        )
    if proposed:
        width = max(5, *(len(suite.name) for suite in proposed))
        held = max(9, *(len(suite.held_to) for suite in proposed[:_SHOWN_SUITES]))
        click.echo(f"\n{'suite':{width}}  kernels  {'reference':{held}}  from")
        for suite in proposed[:_SHOWN_SUITES]:
            places = list(dict.fromkeys(kernel.file for kernel in suite.kernels))
            what = f"{suite.held_to:{held}}"
            told = f"{suite.name:{width}}  {len(suite.kernels):7}  {what}  {places[0]}{_and_more(places)}"
            click.echo(harmless(told))
        if (more := len(proposed) - _SHOWN_SUITES) > 0:
            click.echo(f"and {more} more: harness init --dry-run --json lists all of them.")
    if left:
        click.echo(f"\nLeft out: {len(left)} kernel{'s' if len(left) > 1 else ''}")
        by_reason: dict[str, list[LeftOut]] = {}
        for each in left:
            by_reason.setdefault(each.why, []).append(each)
        for why, kernels in by_reason.items():
            names = ", ".join(f"{each.kernel} ({each.where})" for each in kernels[:_SHOWN])
            others = f" and {len(kernels) - _SHOWN} more" if len(kernels) > _SHOWN else ""
            click.echo(harmless(f"  {names}{others}: {why}"))


def _show_executables(executables: Sequence[tuple[str, str, int]]) -> None:
    """Print C++ benchmarks, a line for each file; of many files, a line for each form."""
    by_form: dict[str, list[tuple[str, int]]] = {}
    for file, whose, count in executables:
        by_form.setdefault(whose, []).append((file, count))
    for whose, files in by_form.items():
        if len(files) > _SHOWN:
            total, names = sum(count for _, count in files), ", ".join(file for file, _ in files[:_SHOWN])
            has, are = f"{len(files)} files, {names} and so on, have {total}", "executables of their own"
            click.echo(harmless(f"{has} of {whose}'s benchmarks: {are}, left to them."))
            continue
        for file, count in files:
            has = f"{file} has {count} of {whose}'s benchmarks"
            click.echo(harmless(f"{has}: an executable of its own, left to it."))
    if executables:
        click.echo("Two builds of an executable are compared by harness compare --with-command.")


def _show_written(
    repository: Repository, done: Written, chosen: Sequence[SuiteGuess], *, dry_run: bool
) -> None:
    would = "would write" if dry_run else "written"
    click.echo()
    for what, names in ((would, done.written), ("unchanged", done.unchanged), ("differs", done.differs)):
        for name in names:
            click.echo(f"{what:9}  {harmless(name)}")
    if done.differs:
        click.echo("Files that differ were left as they are; --force overwrites them.")
    if not repository.top:
        click.echo("Not a git repository: 'harness run' works, and comparing commits needs git (git init).")
    by_base = [suite.name for suite in chosen if suite.held_to == "base"]
    if by_base:
        click.echo(
            f"Compared with base's outputs in harness compare, until you write a reference(): "
            f"{', '.join(by_base)}."
        )
    if repository.top and not dry_run and (unignored := _unignored_results(repository.folder)):
        click.echo(f"Results will lie in {unignored}, which git does not ignore: name .asv/ in .gitignore.")
    click.echo(
        "Next: harness list; harness check --build-only sm_86 without a card; harness check; harness run."
    )


def _unignored_results(folder: Path) -> str:
    """Return the project's results folder `.asv` if git does not ignore it; else ""."""
    from harness.config import load_config
    from harness.errors import GitError
    from harness.system import git

    results = load_config(folder).results_folder
    if results.parts[-2:] != (".asv", "results"):
        return ""
    try:
        ignored = bool(git.ask(folder, "check-ignore", str(results / "record")))
    except GitError:
        ignored = False
    return "" if ignored else os.path.relpath(results.parent, folder)


def _as_json(chosen: Sequence[SuiteGuess], left: Sequence[LeftOut], done: Written) -> dict[str, object]:
    return {
        "suites": [
            {
                "name": suite.name,
                "kernels": [kernel.name for kernel in suite.kernels],
                "reference": suite.reference is not None,
                "held_to": suite.held_to,
            }
            for suite in chosen
        ],
        "left_out": [dataclasses.asdict(each) for each in left],
        **dataclasses.asdict(done),
    }
