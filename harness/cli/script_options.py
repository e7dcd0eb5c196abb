"""Options by which a benchmark script of the repository is measured in the place of suites."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import executable_options, options
from harness.config import Config
from harness.errors import UsageError
from harness.suite.case_id import Selector, size_label
from harness.system.files import scratch_folder

if TYPE_CHECKING:
    from harness.cli.executable_options import Ends
    from harness.records.record_files import ComparisonResult
    from harness.run.scripts.call_names import CallName

_NEED_A_SCRIPT = {"timers": "--timer", "ignored": "--ignore", "rtol": "--rtol", "outputs": "--outputs"}

options_of_scripts = options.together(
    options.several(
        "--script",
        "COMMAND",
        "Compare the timing calls of a benchmark script, unchanged: 'python bench/softmax.py --quick'",
        to="scripts",
    ),
    options.several(
        "--timer",
        "[MODULE:]NAME",
        "A function of the author's that times the function that it is given",
        to="timers",
    ),
    options.several(
        "--ignore", "PATH", "Code whose timing calls do not count, such as an autotuner's", to="ignored"
    ),
    click.option(
        "--rtol",
        type=click.FloatRange(0, min_open=True),
        metavar="SHARE",
        help=(
            "Largest difference of head's outputs from base's, as a share of an array's largest magnitude."
        ),
    ),
    click.option(
        "--outputs",
        type=click.Choice(["check", "note"]),
        help="What becomes of a call whose outputs differ from base's: it fails, or that is noted.",
    ),
)


def are_given(given: Mapping[str, Any]) -> bool:
    """Return whether scripts are to be compared. Raises UsageError for their options without them."""
    if given["scripts"]:
        return True
    for name, option in _NEED_A_SCRIPT.items():
        if given[name]:
            raise UsageError(f"{option} is of no use without --script.")
    return False


def compare(
    config: Config, selection: options.Selection, ends: Ends, given: Mapping[str, Any]
) -> list[ComparisonResult]:
    """Compare the scripts that the options name, one after another."""
    from harness.report.terminal.progress import CompareProgress
    from harness.run.scripts.compare_scripts import ComparingScripts, ScriptSettings
    from harness.run.scripts.script_process import Recorded

    _check(selection, ends, given)
    settings = ScriptSettings(
        suite=given["suite"],
        timeout_s=selection.timeout or executable_options.TIMEOUT_S,
        recorded=Recorded(
            timers=tuple(given["timers"]), ignored=tuple(given["ignored"]), seed=selection.seed
        ),
        rtol=given["rtol"],
        only_note_outputs=given["outputs"] == "note",
        **executable_options.shared_settings(config, selection, given),
    )
    wanted = [Selector.parse(case) for case in ends.cases]

    def is_wanted(suite: str, name: CallName) -> bool:
        label = size_label(dict(name.sizes))
        return not wanted or any(each.names(suite, name.kernel) and each.has_label(label) for each in wanted)

    results: list[ComparisonResult] = []
    with CompareProgress() as observer, scratch_folder() as place:
        bases, heads = executable_options.at_commits(
            config, place, ends, given["scripts"], given["build_command"], observer.stage
        )
        for base, head in zip(bases, heads, strict=True):
            scripts = {each.side: script_of(each.command, each.folder) for each in (base, head)}
            results.append(ComparingScripts(base, head, scripts, settings, observer, is_wanted).run())
            if results[-1].interrupted:
                break
    return results


def script_of(command: str, folder: Path) -> Path | None:
    """Return the script's file in a command, as one side has it; None where the command names none."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{command!r} is no command of a shell: {error}.") from None
    for place, word in enumerate(words):
        path = folder / word
        if word.endswith(".py") and path.exists():
            return path
        if word == "-m" and place + 1 < len(words):
            path = folder / f"{words[place + 1].replace('.', '/')}.py"
            return path if path.exists() else None
    return None


def _check(selection: options.Selection, ends: Ends, given: Mapping[str, Any]) -> None:
    from harness.run.importing import checked_suite

    of_suites = {"--size": selection.size, "--quick": selection.quick}
    for option, value in (of_suites | {"--l2": given["l2"], "--twins": given["twins"]}).items():
        if value:
            raise UsageError(f"{option} is of no use here: the script's own options say what it measures.")
    if given["with_command"] or given["base_command"] or given["head_command"]:
        raise UsageError("--script and --with-command are two ways to run a benchmark: give one of them.")
    if ends.repository is None:
        raise UsageError("--script needs a commit: harness compare HEAD~1 --script 'python bench.py'.")
    if given["suite"]:
        checked_suite(given["suite"])
        if len(given["scripts"]) > 1:
            raise UsageError("--suite names one script, and there are more.")
