"""`peerloom down`."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import click

from peerloom.cli.output import say
from peerloom.cli.parameters import state_option
from peerloom.errors import DeadlineError, NotFoundError

_STOP_LIMIT_S = 45.0


@click.command()
@state_option
def down(state: Path) -> None:
    """Stop the system that 'up' started on a state folder, and wait for its last process."""
    from peerloom.embedded.folder import StateFolder

    folder = StateFolder(state)
    pid = folder.owner()
    if pid is None:
        raise NotFoundError(
            f"No system is up on {folder.path}. Another folder is named by --state.", reason="SYSTEM_NOT_UP"
        )
    say(f"stopping the system of process {pid} ...", err=True)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not folder.wait_until_free(_STOP_LIMIT_S):
        raise DeadlineError(
            f"The system of process {pid} on {folder.path} still runs after {_STOP_LIMIT_S:.0f} s; "
            f"its logs are in {folder.path / 'logs'}."
        )
    say("stopped; nothing is left running", err=True)
