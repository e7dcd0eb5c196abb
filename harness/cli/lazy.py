"""Groups of commands that are imported when they are called, so that help and listing stay instant."""

from __future__ import annotations

__all__ = ["lazy_group"]

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class _LazyGroup(click.Group):
    commands_told: Mapping[str, str]
    package: str

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands_told)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.commands_told:
            return None
        module = importlib.import_module(f"{self.package}.{cmd_name.replace('-', '_')}_command")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        found = [CompletionItem(name, help=told) for name, told in self.commands_told.items()]
        own = click.Command.shell_complete(self, ctx, incomplete)
        return [*(item for item in found if item.value.startswith(incomplete)), *own]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_told.items()))


def lazy_group(package: str, commands: Mapping[str, str], **settings: Any) -> Callable[[Any], click.Group]:
    """A decorator like click.group. `commands` tells each command's name what it does; the command is
    `command` of the package's module ``<name>_command``.
    """

    def decorate(function: Any) -> click.Group:
        group: click.Group = click.group(
            cls=type("LazyGroup", (_LazyGroup,), {"commands_told": commands, "package": package}), **settings
        )(function)
        return group

    return decorate
