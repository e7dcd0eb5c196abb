"""harness list: lists suites, kernels and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from harness.cli import echo_json, options, tell_at_end, tell_lines
from harness.config import load_config
from harness.errors import SuiteError
from harness.records.types import fields_of
from harness.suite.case_id import Selector
from harness.suite.kernel import Kernel
from harness.suite.loader import LoadedSuite
from harness.suite.planning import fitting, load_suites, plan
from harness.suite.problem import Problem
from harness.suite.sources import check_functions
from harness.suite.suite import Ladder, Suite
from harness.suite.suite_files import missing_files


@click.command("list")
@options.commit("--commit", help="List suites as of this commit; default: the working tree.")
@options.value(
    "--card",
    "NAME",
    "Show what each case needs on this card, which need not be here: rtx3060, a6000, a10, a100, rtx4090, "
    "rtx5090, h100, h200, 'all' of them, or compute capability and multiprocessors, such as sm_86:28; "
    "repeatable.",
    to="cards",
    multiple=True,
)
@options.size("With --card: sizes that replace the suite's own; repeatable.")
@options.json
@options.cases
def command(
    cases: tuple[str, ...], commit: str | None, cards: tuple[str, ...], size: tuple[str, ...], as_json: bool
) -> None:
    """Show the kernels that CASES select (globs such as 'matmul.*tiling*'), or all of them."""
    if cards:
        _show_demands(commit, cases, size, cards, as_json)
        return
    selectors = [Selector.parse(case) for case in cases] or [Selector("*")]
    listed = []
    for loaded in load_suites(load_config(), commit, cases, on_broken=tell_at_end):
        name = loaded.suite.name
        kernels = [each for each in loaded.suite.kernels if any(s.names(name, each.name) for s in selectors)]
        if kernels:
            listed.append((loaded, kernels))
    if as_json:
        echo_json([_as_json(loaded, kernels) for loaded, kernels in listed])
    else:
        for loaded, kernels in listed:
            _print(loaded.suite, kernels)
    # After the listing, check that each kernel's source, function and prelude exist.
    missing = [
        loaded.explained(f"{loaded.suite.name}{of}: there is no file {path}.", f"No such file: {path}")
        for loaded, kernels in listed
        for of, path in missing_files(loaded.suite, kernels)
    ]
    if missing:
        raise SuiteError(" ".join([*missing, "Check the names in suite.py."]))
    for loaded, kernels in listed:
        check_functions(loaded.suite, kernels)


def _as_json(loaded: LoadedSuite, kernels: Sequence[Kernel]) -> dict[str, Any]:
    suite = loaded.suite
    fields = ("name", "files", "dtype", "requires", "library", "cooperative", "graph", "about")
    return {
        "suite": suite.name,
        "headline": suite.headline,
        "has_reference": suite.problem.has_reference,
        "held_to": suite.problem.held_to if suite.problem.has_reference else "nothing",
        "source": loaded.source,
        "axes": {name: {"default": a.default, "quick": a.quick} for name, a in suite.problem.axes.items()},
        "kernels": [
            fields_of(kernel, *fields)
            | {
                "backends": tuple(kernel.sources),
                "cluster": "by case" if callable(kernel.cluster) else kernel.cluster,
                "tune": _tune_json(suite, kernel),
            }
            for kernel in kernels
        ],
        "ladders": [
            _ladder_json(suite, ladder)
            for ladder in suite.ladders
            if {rung.kernel for rung in ladder.rungs} & {kernel.name for kernel in kernels}
        ],
    }


def _tune_json(suite: Suite, kernel: Kernel) -> dict[str, Any] | None:
    """Return the configurations of the kernel's sweep."""
    if kernel.tune is None:
        return None
    from harness.suite.configurations import configurations, points

    sizes = points(suite, kernel.tune)
    return {
        "parameters": kernel.tune.names,
        "sizes": sizes,
        "configurations": len(configurations(suite, kernel, kernel.tune, sizes)),
    }


def _ladder_json(suite: Suite, ladder: Ladder) -> dict[str, Any]:
    fields = (
        *("name", "title", "source", "publication", "author", "url", "date"),
        *("card", "peak", "against", "note"),
    )
    rung_fields = ("label", "kernel", "macros", "rate", "average", "time_ms", "speed_up")
    rungs = [
        fields_of(rung, *rung_fields) | {"sizes": None if rung.swept else suite.rung_sizes(ladder, rung)}
        for rung in ladder.rungs
    ]
    return fields_of(ladder, *fields) | {"rungs": rungs}


def _print(suite: Suite, kernels: Sequence[Kernel]) -> None:
    axes = suite.problem.axes.items()
    sizes = ", ".join(f"{name} = {' '.join(map(str, axis.default))}" for name, axis in axes)
    click.echo(f"{suite.name}  ({suite.headline}; {sizes}){_reference(suite.problem)}")
    width = max(len(kernel.name) for kernel in kernels)
    for kernel in kernels:
        words = [kernel.arch or kernel.requires or "", "cooperative" if kernel.cooperative else ""]
        words += [] if kernel.cluster is None else ["cluster"]
        words += ["graph"] if kernel.graph else []
        needs = f"  [{', '.join(filter(None, words))}]" if any(words) else ""
        click.echo(f"  {kernel.name:{width}}  {kernel.about}{needs}".rstrip())


def _reference(problem: Problem) -> str:
    """Return a note on a suite's reference; empty if suite.py computes it."""
    if not problem.has_reference:
        return "  needs your reference()"
    if problem.reference_function:
        return f"  held to {problem.reference_function.name}"
    return "  held to base's outputs" if problem.held_to == "base" else ""


def _show_demands(
    commit: str | None, cases: Sequence[str], sizes: Sequence[str], names: Sequence[str], as_json: bool
) -> None:
    from harness.device.static.demand import demands
    from harness.device.static.occupancy import CARDS, card
    from harness.report.terminal import demands as output

    every = [known for name in names for known in (CARDS if name == "all" else (name,))]
    asked = list(dict.fromkeys(map(card, every)))
    wanted = fitting(load_suites(load_config(), commit, cases, on_broken=tell_at_end), cases, sizes)
    tell_lines(wanted.left_out)
    planned = [(each.suite, plan(each.suite, cases, fits)) for each, fits in wanted.chosen]
    found = [(known, [(suite, demands(suite, some, known)) for suite, some in planned]) for known in asked]
    if as_json:
        echo_json([output.as_json(*each) for each in found])
    else:
        for each in found:
            output.print_demands(*each)
