"""`peerloom login` and `peerloom logout`."""

import click

from peerloom.cli.output import say
from peerloom.client.login import log_in, log_out


@click.command("login")
@click.argument("token")
@click.option("--profile", default="", metavar="NAME", help="Keep it as this profile.  [default: the login]")
def login(token: str, profile: str) -> None:
    """Become somebody in a system that has a door, with what `peerloom token create` printed.

    From now on commands and the SDK on this machine talk to that system, as who the token says; with
    --profile they do where that profile is used.
    """
    address, who = log_in(token, profile)
    say(f"logged in at {address} as {who}")
    if profile:
        say(f"to talk to it: peerloom config use {profile}, or --profile {profile}", err=True)


@click.command("logout")
def logout() -> None:
    """Forget the login; its certificate ends by itself, or with `peerloom door revoke`."""
    say("logged out" if log_out() else "nobody is logged in here")
