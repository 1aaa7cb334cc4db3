"""Groups of commands that import a command's module only when it is called."""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from peerloom.cli.exits import INTERRUPTED, code_of
from peerloom.cli.output import say
from peerloom.errors import PeerloomError


class LazyGroup(click.Group):
    """`table` maps each command's name to ("module" or "module:function", one line of help).

    Without a function's name it is that of the command.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._table, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return super().get_command(ctx, cmd_name)
        module, _, function = self._table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), function or cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx) and not ctx.resilient_parsing:
            raise click.NoSuchCommand(name, possibilities=self.list_commands(ctx), ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in self._table.items()])


class RootGroup(LazyGroup):
    """The outermost group: turns our exceptions into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            return super().invoke(ctx)
        except PeerloomError as error:
            say(f"error: {error.message}", err=True)
            ctx.exit(code_of(error))
        except KeyboardInterrupt:
            say("interrupted", err=True)
            ctx.exit(INTERRUPTED)
