"""`peerloom demo`."""

import os
from pathlib import Path

import click

from peerloom.cli.exits import code_of_job
from peerloom.cli.parameters import nodes_option
from peerloom.cli.stopping import stop_signals


def _demo_state() -> Path:
    return Path(os.environ.get("PEERLOOM_STATE") or "~/.peerloom/demo").expanduser()


@click.command()
@nodes_option
@click.option("--requests", default=3, show_default=True, help="How many nodes may be asked for compute.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default=_demo_state,
    metavar="DIR",
    help="The folder that keeps beliefs and models.  [default: PEERLOOM_STATE or ~/.peerloom/demo]",
)
@click.pass_context
def demo(ctx: click.Context, slots: tuple[int, ...], requests: int, state: Path) -> None:
    """Watch unequal nodes choose each other by belief and train a real model.

    Starts a whole system on this machine, trains the digits task on it, shows what happened and why, and
    leaves no process behind. Run it again: it begins with the beliefs that it ended with.
    """
    from peerloom.cli.demonstration import demonstrate

    with stop_signals():
        ending = demonstrate(slots, requests, state)
    ctx.exit(code_of_job(ending))
