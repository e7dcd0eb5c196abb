"""harness ci: the commands for workflows. They are in ci_measure, ci_report and ci_setup."""

from __future__ import annotations

import click

from harness.cli.ci_measure import compare, devices, measured
from harness.cli.ci_report import post, post_static, request
from harness.cli.ci_setup import audit, fleet, init, store


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)


@click.group("ci", cls=_InOrder)
def command() -> None:
    """Commands that the workflows call. You can also run each command by hand."""


for _each in (compare, devices, measured, post, post_static, request, store, fleet, audit, init):
    command.add_command(_each)
