"""harness compare: two commits against each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from harness import git
from harness.cli.execute import fitting
from harness.cli.options import Selection, case_options, echo_json
from harness.comparison import CompareSettings, Comparing, ComparisonResult
from harness.config import Config, load_config
from harness.errors import NoSuiteError, SuiteError, UsageError
from harness.loader import LoadedSuite, discover, discover_at, load
from harness.planning import PlannedCase, check_patterns, plan
from harness.report.progress import CompareProgress
from harness.report.verdicts import FAILING, as_json, exit_code, print_comparison

Percent = click.FloatRange(min=0, max=100, min_open=True, max_open=True)


@click.command("compare")
@click.argument("base")
@click.argument("rest", nargs=-1, metavar="[HEAD] [CASES]...")
@case_options
@click.option(
    "--margin",
    type=Percent,
    metavar="PERCENT",
    help="Changes up to this are nobody's business; default 0.25, on a CPU 2.",
)
@click.option(
    "--tolerance",
    type=Percent,
    metavar="PERCENT",
    help="A case is unchanged once it is within this for sure; default 1, on a CPU 10.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(min=50, max=100, min_open=True, max_open=True),
    default=99.9,
    show_default=True,
    metavar="PERCENT",
    help="Of each case's verdict.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Device time, of each suite, after which nothing more is measured.",
)
@click.option("--l2", type=click.Choice(["cold", "hot"]), help="Flush the L2 before every launch, or not.")
@click.option(
    "--twins/--no-twins",
    default=None,
    help="Test the comparison: compare a kernel with itself too, as it is and with a slowdown planted; "
    "default: where CI is set, unless the device is a CPU.",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([*FAILING, "none"]),
    help="Verdicts that fail the command; repeatable. Default: all but improvement and new.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where records go; default: .asv/results.",
)
@click.option("--no-save", is_flag=True, help="Keep no record.")
def command(selection: Selection, base: str, rest: tuple[str, ...], **options: Any) -> int:
    """Tell which kernels HEAD made slower than BASE: paired, in fresh processes, verified first.

    HEAD defaults to the working tree; BASE..HEAD names both in one word. CASES are globs such as
    'matmul.*tiling*'.

    Exit status 1 for a regression, a case that vanished, or one that fails at HEAD; 3 where something could
    not be measured or is invalid; 4 where it is inconclusive.
    """
    config = load_config()
    base, head, cases = _commits(config, base, rest)
    selection = dataclasses.replace(selection, cases=cases)
    settings = _settings(config, selection, options)
    suites = _suites(config, base, head, cases)
    finished: list[ComparisonResult] = []
    with CompareProgress() as observer:
        for (before, after), sizes in suites_with_sizes(suites, selection):
            with Comparing(before, after, settings, observer) as comparing:
                quick = selection.quick or comparing.device.kind != "gpu"
                plans = [_plan(side, cases, sizes, quick=quick) for side in (before, after)]
                finished.append(comparing.run(*plans))
            if finished[-1].interrupted:
                break
    status = exit_code(finished, options["fail_on"])
    if selection.as_json:
        echo_json([as_json(result) for result in finished])
    else:
        print_comparison(finished, status)
    return status


def _settings(config: Config, selection: Selection, options: dict[str, Any]) -> CompareSettings:
    margin, tolerance = (options[name] and options[name] / 100 for name in ("margin", "tolerance"))
    return CompareSettings(
        device=selection.device or config.device,
        margin=margin,
        tolerance=tolerance,
        confidence=options["confidence"] / 100,
        l2=options["l2"] or config.l2,  # type: ignore[arg-type]
        timeout_s=selection.timeout or config.timeout_s,
        budget_s=options["budget"],
        seed=selection.seed,
        twins=options["twins"],
        results=options["results"] or config.root / config.results,
        save=not options["no_save"],
    )


def _commits(config: Config, base: str, rest: Sequence[str]) -> tuple[str, str | None, tuple[str, ...]]:
    """BASE, HEAD or None for the working tree, and CASES."""
    repository = git.repository_of(config.root)
    if repository is None:
        raise UsageError(f"{config.root} is in no git repository: there are no commits to compare.")
    if ".." in base:
        base, _, head = base.replace("...", "..").partition("..")
        return git.resolve(repository, base or "HEAD"), git.resolve(repository, head or "HEAD"), tuple(rest)
    base = git.resolve(repository, base)
    if rest and git.is_commit(repository, rest[0]):
        return base, git.resolve(repository, rest[0]), tuple(rest[1:])
    return base, None, tuple(rest)


Pair = tuple[LoadedSuite, LoadedSuite]


def _suites(config: Config, base: str, head: str | None, cases: tuple[str, ...]) -> list[Pair]:
    """Every suite that either commit has, at both. Raises SuiteError, UsageError."""
    root, patterns = config.root, config.suites
    at_head = discover_at(root, patterns, head) if head else discover(root, patterns)
    folders = dict.fromkeys([*at_head, *discover_at(root, patterns, base)])
    if not folders:
        raise SuiteError(
            f"No suite in {root} at either commit: no folder with a suite.py matches {', '.join(patterns)}."
        )
    pairs = [_loaded(folder, base, head) for folder in folders]
    check_patterns(cases, [side.suite for pair in pairs for side in pair])
    return pairs


def _loaded(folder: Path, base: str, head: str | None) -> Pair:
    """A suite at both commits; where one does not have it, the other's stands in."""
    before, after = (_load(folder, commit) for commit in (base, head))
    present = next((side for side in (after, before) if isinstance(side, LoadedSuite)), None)
    if present is None:
        problem = after or before
        assert isinstance(problem, SuiteError)  # it was found at one of them
        raise problem
    return _standing_in(before, present, base), _standing_in(after, present, head)


def _load(folder: Path, commit: str | None) -> LoadedSuite | SuiteError | None:
    """The suite at a commit; None where the commit does not have it, its error where it is broken there."""
    if commit is None and not (folder / "suite.py").is_file():
        return None
    try:
        return load(folder, commit)
    except NoSuiteError:
        return None
    except SuiteError as error:
        return error


def _standing_in(
    side: LoadedSuite | SuiteError | None, present: LoadedSuite, commit: str | None
) -> LoadedSuite:
    if isinstance(side, LoadedSuite):
        return side
    return dataclasses.replace(present, commit=commit, absent=True, problem=side)


def suites_with_sizes(pairs: Sequence[Pair], selection: Selection) -> list[tuple[Pair, list[str]]]:
    """The suites that are asked for, each with the sizes that fit it."""
    # A kernel that only base has may be asked for too: that it vanished is the answer.
    asked = [after if plan(after.suite, selection.cases) else before for before, after in pairs]
    sizes = {id(loaded): found for loaded, found in fitting(asked, selection)}
    return [(pair, sizes[id(side)]) for pair, side in zip(pairs, asked, strict=True) if id(side) in sizes]


def _plan(
    side: LoadedSuite, cases: tuple[str, ...], sizes: Sequence[str], *, quick: bool
) -> list[PlannedCase]:
    """The cases of one side; where its axes are others than the other's, those sizes that fit them."""
    fit = [size for size in sizes if len(size.split(",")) in (1, len(side.suite.problem.axes))]
    return [] if side.absent or (sizes and not fit) else plan(side.suite, cases, fit, quick=quick)
