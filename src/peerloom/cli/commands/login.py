"""`peerloom login` and `peerloom logout`."""

import click

from peerloom.cli.output import say
from peerloom.client.login import log_in, log_out


@click.command("login")
@click.argument("token")
def login(token: str) -> None:
    """Become somebody in a system that has a door, with what `peerloom token create` printed.

    From now on commands and the SDK on this machine talk to that system, as who the token says.
    """
    address, who = log_in(token)
    say(f"logged in at {address} as {who}")


@click.command("logout")
def logout() -> None:
    """Forget the login; its certificate ends by itself, or with `peerloom door revoke`."""
    say("logged out" if log_out() else "nobody is logged in here")
