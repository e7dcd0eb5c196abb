"""What commands that end in verdicts share."""

from __future__ import annotations

__all__ = ["Percent", "comparison_options", "fail_on_option"]

from collections.abc import Callable
from typing import Any, TypeVar

import click

from harness.cli.options import no_wait_option
from harness.records import FAILING

F = TypeVar("F", bound=Callable[..., Any])

Percent = click.FloatRange(min=0, max=100, min_open=True, max_open=True)

fail_on_option = click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([*FAILING, "none"]),
    help="Verdicts that fail the command; repeatable. Default: all but improvement and new.",
)


def comparison_options(function: F) -> F:
    """The options that say how to compare, and which verdicts fail."""
    call: Any = function
    for option in (
        no_wait_option,
        fail_on_option,
        click.option(
            "--twins/--no-twins",
            default=None,
            help="Test the comparison: compare a kernel with itself too, as it is and with a slowdown "
            "planted; default: where CI is set, unless the device is a CPU.",
        ),
        click.option(
            "--l2", type=click.Choice(["cold", "hot"]), help="Flush the L2 before every launch, or not."
        ),
        click.option(
            "--budget",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Device time, of each suite, after which nothing more is measured.",
        ),
        click.option(
            "--confidence",
            type=click.FloatRange(min=50, max=100, min_open=True, max_open=True),
            default=99.9,
            show_default=True,
            metavar="PERCENT",
            help="Of each case's verdict.",
        ),
        click.option(
            "--tolerance",
            type=Percent,
            metavar="PERCENT",
            help="A case is unchanged once it is within this for sure; default 1, on a CPU 10.",
        ),
        click.option(
            "--margin",
            type=Percent,
            metavar="PERCENT",
            help="Changes up to this are nobody's business; default 0.25, on a CPU 2.",
        ),
    ):
        call = option(call)
    return call  # type: ignore[no-any-return]
