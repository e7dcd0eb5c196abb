"""Options that measure a repository's benchmark script instead of suites."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import executable_options, options
from harness.config import Config
from harness.errors import UsageError
from harness.system import git
from harness.system.files import scratch_folder

if TYPE_CHECKING:
    from harness.cli.executable_options import Ends
    from harness.records.record_files import ComparisonResult, RunResult
    from harness.run.calibrate import CalibrationResult
    from harness.run.pair_session import CompareObserver
    from harness.run.scripts.compare_scripts import ComparingScripts, ScriptSettings

_NEED_A_SCRIPT = {
    "timers": "--timer",
    "ignored": "--ignore",
    "rtol": "--rtol",
    "outputs": "--outputs",
    "script_from": "--script-from",
}

script = options.several(
    "--script",
    "COMMAND",
    "Measure the timing calls of a benchmark script, unchanged, such as 'python bench/softmax.py --quick'",
    to="scripts",
)
recorded = options.together(
    options.several(
        "--timer",
        "[MODULE:]NAME",
        "A function of yours that times the function that it gets",
        to="timers",
    ),
    options.several(
        "--ignore", "PATH", "Ignore timing calls of this code, such as an autotuner", to="ignored"
    ),
)
options_of_scripts = options.together(
    script,
    recorded,
    click.option(
        "--script-from",
        type=options.Choice(["head", "each"]),
        help="The script for base: its own (each), or head's with the files beside it (head). Default: its "
        "own, or head's if base has none.",
    ),
    click.option(
        "--rtol",
        type=click.FloatRange(0, min_open=True),
        metavar="SHARE",
        help="Largest accepted difference of head's outputs from base's, as a share of an array's largest "
        "magnitude.",
    ),
    click.option(
        "--outputs",
        type=options.Choice(["check", "note"]),
        help="Fail a call whose outputs differ from base's (check), or only note the difference (note).",
    ),
)


def scripts_in(config: Config, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scripts to measure: the requested ones, or the configuration's if there is no suite.

    Raises UsageError for options of scripts without a script.
    """
    from harness.suite.loader import discover

    if given["scripts"] or executable_options.are_commands(given):
        return tuple(given["scripts"])
    if config.scripts and not discover(config.root, config.suites):
        return config.scripts
    for name, option in _NEED_A_SCRIPT.items():
        if given.get(name):
            raise UsageError(f"{option} is of no use without --script.")
    return ()


def settings_from(config: Config, selection: options.Selection, given: Mapping[str, Any]) -> ScriptSettings:
    """Return settings from the options, else from the configuration."""
    from harness.run.scripts.compare_scripts import ScriptSettings
    from harness.run.scripts.script_process import Recorded

    if several := "--gpus" if selection.gpus is not None else selection.scheduler and "--scheduler":
        raise UsageError(f"{several} shares suites, and a script runs on one device: name it with --device.")
    timers = *config.timers, *given["timers"]
    return ScriptSettings(
        suite=given.get("suite"),
        timeout_s=selection.timeout or executable_options.TIMEOUT_S,
        recorded=Recorded(timers=timers, ignored=tuple(given["ignored"]), seed=selection.seed),
        rtol=given.get("rtol"),
        only_note_outputs=given.get("outputs") == "note",
        **executable_options.shared_settings(config, selection, given),
    )


def compare(
    config: Config,
    selection: options.Selection,
    ends: Ends,
    scripts: Sequence[str],
    given: Mapping[str, Any],
) -> list[ComparisonResult]:
    """Compare scripts, one after another."""
    from harness.report.terminal.progress import CompareProgress
    from harness.run.scripts.script_files import give_script

    if executable_options.are_commands(given):
        raise UsageError("--script and --with-command exclude each other: give one of them.")
    if ends.repository is None:
        raise UsageError("--script needs a commit: harness compare HEAD~1 --script 'python bench.py'.")
    results: list[ComparisonResult] = []
    with CompareProgress() as observer, scratch_folder() as place:
        prepared = _prepared(config, ends, selection, scripts, given, observer, place)
        for comparing in prepared:
            sides = comparing.sides["base"], comparing.sides["head"]
            if told := give_script(*sides, always=given["script_from"] == "head"):
                observer.waiting(told)
            results.append(comparing.run())
            if results[-1].interrupted:
                break
    return results


def calibrate(
    config: Config,
    repository: Path,
    selection: options.Selection,
    scripts: Sequence[str],
    given: Mapping[str, Any],
) -> list[CalibrationResult]:
    """Compare scripts of one commit, or of the working tree, with themselves."""
    from harness.report.terminal.progress import CompareProgress

    commit = git.resolve(repository, selection.commit) if selection.commit else None
    ends = executable_options.Ends(repository, (commit, commit), selection.cases)
    results: list[CalibrationResult] = []
    with CompareProgress() as observer, scratch_folder() as place:
        for comparing in _prepared(config, ends, selection, scripts, given, observer, place):
            results.append(comparing.calibrate(given["trials"]))
            if results[-1].interrupted:
                break
    return results


def _prepared(
    config: Config,
    ends: Ends,
    selection: options.Selection,
    scripts: Sequence[str],
    given: Mapping[str, Any],
    observer: CompareObserver,
    place: Path,
) -> list[ComparingScripts]:
    """Put both sides of each script into `place`, built, and return their comparisons."""
    from harness.run.scripts.compare_scripts import ComparingScripts

    _check(selection, scripts, given)
    assert ends.repository is not None
    settings = settings_from(config, selection, given)
    bases, heads = executable_options.at_commits(
        config, place, ends.repository, ends.by_side, scripts, given["build_command"], observer.stage
    )
    names = _names_of(scripts) if len(scripts) > 1 else [settings.suite]
    return [
        ComparingScripts(base, head, dataclasses.replace(settings, suite=name), observer, ends.cases)
        for base, head, name in zip(bases, heads, names, strict=True)
    ]


def run(
    config: Config,
    repository: Path,
    selection: options.Selection,
    scripts: Sequence[str],
    given: Mapping[str, Any],
) -> list[RunResult]:
    """Measure scripts of one commit, or of the working tree, one after another."""
    from harness.report.terminal.progress import CompareProgress
    from harness.run.scripts.run_script import RunningScript

    _check(selection, scripts, given)
    settings = settings_from(config, selection, given)
    commit = git.resolve(repository, selection.commit) if selection.commit else None
    with CompareProgress() as observer, scratch_folder() as place:
        [executables] = executable_options.at_commits(
            config, place, repository, {"head": commit}, scripts, given["build_command"], observer.stage
        )
        return [RunningScript(each, settings, observer).run() for each in executables]


def _names_of(scripts: Sequence[str]) -> list[str | None]:
    """Return a suite's name for each script: its whole command if two share a name, else None."""
    from harness.records.imports.imported import identifier
    from harness.run.executables.executable_build import name_of

    names = [name_of(each) for each in scripts]
    return [
        identifier(each) if names.count(name) > 1 else None for each, name in zip(scripts, names, strict=True)
    ]


def _check(selection: options.Selection, scripts: Sequence[str], given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that have no effect with a script."""
    from harness.run.importing import checked_suite

    of_suites = {"--size": selection.size, "--quick": selection.quick, "--graph": selection.graph}
    for option, value in (of_suites | {"--l2": given.get("l2"), "--twins": given.get("twins")}).items():
        if value:
            raise UsageError(f"{option} has no effect on scripts: use the script's own options.")
    for script in scripts:
        first = script.split(maxsplit=1)[0] if script.strip() else ""
        if first.endswith(".py") and "/" not in first and shutil.which(first) is None:
            raise UsageError(
                f"--script {script!r} starts with a Python file, which a shell does not run: write "
                f"'python {script}'."
            )
    if given.get("suite"):
        checked_suite(given["suite"])
        if len(scripts) > 1:
            raise UsageError("--suite names one script, and there are more.")
