"""harness list: suites, kernels and sizes."""

from __future__ import annotations

import click

from harness.cli.options import cases_argument, echo_json, json_option, load_suites
from harness.config import load_config
from harness.planning import selects


@click.command("list")
@click.option("--commit", metavar="REV", help="As of this commit; default: the working tree.")
@json_option
@cases_argument
def command(cases: tuple[str, ...], commit: str | None, as_json: bool) -> None:
    """Show the kernels that CASES select (globs such as 'matmul.*tiling*'), or all of them."""
    listed = []
    for loaded in load_suites(load_config(), commit, cases):
        suite = loaded.suite
        kernels = [
            kernel for kernel in suite.kernels if not cases or any(selects(p, suite, kernel) for p in cases)
        ]
        if kernels:
            listed.append((suite, loaded.source, kernels))
    if as_json:
        echo_json(
            [
                {
                    "suite": suite.name,
                    "headline": suite.headline,
                    "source": source,
                    "axes": {
                        name: {"default": axis.default, "quick": axis.quick}
                        for name, axis in suite.problem.axes.items()
                    },
                    "kernels": [
                        {
                            "name": k.name,
                            "source": k.source,
                            "dtype": k.dtype,
                            "requires": k.requires,
                            "about": k.about,
                        }
                        for k in kernels
                    ],
                }
                for suite, source, kernels in listed
            ]
        )
        return
    for suite, _, kernels in listed:
        axes = ", ".join(
            f"{name} = {' '.join(map(str, axis.default))}" for name, axis in suite.problem.axes.items()
        )
        click.echo(f"{suite.name}  ({suite.headline}; {axes})")
        width = max(len(kernel.name) for kernel in kernels)
        for kernel in kernels:
            needs = f"  [{kernel.requires}]" if kernel.requires else ""
            click.echo(f"  {kernel.name:{width}}  {kernel.about}{needs}")
