"""What commands that end in verdicts share."""

from __future__ import annotations

__all__ = ["comparison_options", "fail_on_option", "limit_options"]

import click

from harness.cli.options import (
    Option,
    l2_option,
    no_wait_option,
    percent_option,
    seconds_option,
    together,
)
from harness.records import FAILING

fail_on_option = click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([*FAILING, "none"]),
    help="Verdicts that fail the command; repeatable. Default: all but improvement and new.",
)


def limit_options(margin: str, tolerance: str, confidence: str = "", *, of: str = "case") -> Option:
    """--margin, --tolerance and --confidence, as shares, with what each is by default; confidence is 99.9 %
    unless that is said.
    """
    known = {} if confidence else {"default": 99.9, "show_default": True}
    return together(
        percent_option("--margin", f"Changes up to this are nobody's business; {margin}."),
        percent_option("--tolerance", f"A {of} is unchanged once it is within this for sure; {tolerance}."),
        percent_option("--confidence", f"Of each {of}'s verdict{confidence}.", least=50, **known),
    )


comparison_options = together(
    limit_options("default 0.25, on a CPU 2", "default 1, on a CPU 10"),
    seconds_option("--budget", "Device time, of each suite, after which nothing more is measured."),
    l2_option,
    click.option(
        "--twins/--no-twins",
        default=None,
        help="Test the comparison: compare a kernel with itself too, as it is and with a slowdown "
        "planted; default: where CI is set, unless the device is a CPU.",
    ),
    fail_on_option,
    no_wait_option,
)
"""How to compare, and which verdicts fail."""
