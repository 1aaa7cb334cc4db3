"""`peerloom login` and `peerloom logout`."""

import asyncio
import os
import shutil

import click

from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import join_by_token
from peerloom.cli.output import say
from peerloom.client.address import LOGIN_ADDRESS, login_folder
from peerloom.kit.identity import FILE_NAME, Identity, write_private


@click.command("login")
@click.argument("token")
def login(token: str) -> None:
    """Become somebody in a system that has a door, with what `peerloom token create` printed.

    From now on commands and the SDK on this machine talk to that system, as who the token says.
    """
    folder = login_folder(os.environ)
    address = asyncio.run(join_by_token(JoinString.parse(token), folder / FILE_NAME))
    write_private(folder / LOGIN_ADDRESS, f"{address}\n".encode())
    say(f"logged in at {address} as {Identity(folder / FILE_NAME).principal}")


@click.command("logout")
def logout() -> None:
    """Forget the login; its certificate ends by itself, or with `peerloom door revoke`."""
    folder = login_folder(os.environ)
    was = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    say("logged out" if was else "nobody is logged in here")
