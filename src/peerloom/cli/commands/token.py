"""`peerloom token`."""

from datetime import timedelta

import click

from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, listing_options
from peerloom.cli.output import print_document, say
from peerloom.cli.parameters import Duration, choice_of
from peerloom.client.types.admission import TokenRole

_HERE = "peerloom.cli.commands.token"
_SERVICES = ("node", "selector", "trainer")


@click.group(
    cls=LazyGroup, table={"create": (f"{_HERE}:create_token", "Make a token that admits one, once.")}
)
def token() -> None:
    """Tokens with which others join a system that has a door."""


@click.command("create")
@click.option("--role", required=True, type=choice_of(TokenRole), help="What it may be.")
@click.option(
    "--name", default="", help="The id in its certificate; of a node: one that was admitted before."
)
@click.option("--ttl", type=Duration(), default="15m", show_default=True, help="How long it can be used.")
@click.option("--owner", default="", help="Whose it is, for operators.  [default: whose you are]")
@listing_options
@click.pass_obj
def create_token(invocation: Invocation, role: TokenRole, name: str, ttl: timedelta, owner: str) -> None:
    """Make a token that admits one, once. It is printed here and nowhere else; hand it over in private."""
    with invocation.client() as client:
        made = client.door.create_token(role, name=name, ttl=ttl, owner=owner)
        address = client.address
    if invocation.output != "table":
        print_document(made, invocation.output)
        return
    say(made.text)
    command = f"{role} --registry {address} --join" if role in _SERVICES else "login"
    say(f"use it once, within {ttl.total_seconds() / 60:g} minutes: peerloom {command} TOKEN", err=True)
