"""`peerloom top`."""

import asyncio
import shutil
import sys
from importlib.util import find_spec

import click

from peerloom.cli.exits import OK, UNREACHABLE
from peerloom.cli.invocation import Invocation, system_options
from peerloom.cli.output import say
from peerloom.errors import FailedPreconditionError

PIPE_WIDTH = 160  # columns where no terminal says how many there are


@click.command()
@click.option(
    "--once", is_flag=True, help="Print all once, as plain text, as is done where there is no terminal."
)
@system_options
@click.pass_context
def top(ctx: click.Context, once: bool) -> None:
    """Watch the network and its jobs in a terminal.

    It only shows, and goes on when a service comes back. Tab goes from nodes to jobs, arrows choose a row,
    Enter shows what happened to it, Escape goes back, q ends. With --once it ends with 4 when a service is
    away.
    """
    asked = ctx.ensure_object(Invocation)
    if once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        from peerloom.dashboard.terminal_snapshot import take_snapshot  # here, as it brings gRPC

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
        lines, healthy = asyncio.run(take_snapshot(asked.patient_client, width))
        for line in lines:
            say(line)
        ctx.exit(OK if healthy else UNREACHABLE)
    if find_spec("textual") is None:
        raise FailedPreconditionError(
            "The window in a terminal needs Textual. Get it with: pip install 'peerloom[top]'. Without: "
            "peerloom top --once",
            reason="TOP_MISSING",
        )
    from peerloom.dashboard.terminal_window import show_in_terminal

    asyncio.run(show_in_terminal(asked.patient_client))
