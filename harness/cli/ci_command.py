"""harness ci: what the workflows call."""

from __future__ import annotations

from harness.cli.lazy import lazy_group

COMMANDS = {
    "compare": "In the job with the card: compare a pull request with its base, and write the report.",
    "post": "In the job that may write: check the report, and post it.",
    "request": "Start a measurement that a maintainer asked for in a comment.",
    "store": "Append results to the branch that keeps them.",
    "fleet": "Print the cards to measure on, as a job matrix.",
    "init": "Write the workflows into a repository.",
}


@lazy_group("harness.cli.ci", COMMANDS, name="ci")
def command() -> None:
    """What the workflows call: everything they do can be done by hand."""
