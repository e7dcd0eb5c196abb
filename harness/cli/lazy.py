"""Groups of commands that are imported when they are called, so that help and listing stay instant."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """`summaries` says what each command does; the command is `command` of the package's module
    ``<name>_command``.
    """

    summaries: Mapping[str, str]
    package: str

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.summaries:
            return None
        module = importlib.import_module(f"{self.package}.{cmd_name.replace('-', '_')}_command")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        found = [CompletionItem(name, help=summary) for name, summary in self.summaries.items()]
        own = click.Command.shell_complete(self, ctx, incomplete)
        return [*(item for item in found if item.value.startswith(incomplete)), *own]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


def lazy_group(package: str, summaries: Mapping[str, str], **settings: Any) -> Callable[[Any], click.Group]:
    """A decorator like click.group."""
    kind = type("LazyGroup", (LazyGroup,), {"summaries": summaries, "package": package})
    decorate: Callable[[Any], click.Group] = click.group(cls=kind, **settings)
    return decorate
