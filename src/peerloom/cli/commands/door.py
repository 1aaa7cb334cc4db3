"""`peerloom door`: who was let in."""

import click

from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, listing_options, system_options
from peerloom.cli.output import print_list, say
from peerloom.cli.units import human_age
from peerloom.kit.printable import Column

_HERE = "peerloom.cli.commands.door"
_COLUMNS = (
    Column("ID", lambda each: each.id),
    Column("ROLE", lambda each: each.role),
    Column("OWNER", lambda each: each.owner),
    Column("JOINED", lambda each: human_age(each.joined_time)),
    Column("STATE", lambda each: "revoked" if each.revoked else "admitted"),
)


@click.group(
    cls=LazyGroup,
    table={
        "list": (f"{_HERE}:list_admitted", "Who was admitted."),
        "revoke": (f"{_HERE}:revoke", "Turn somebody out, at once."),
        "rotate": (f"{_HERE}:rotate", "Replace the authority that signs certificates."),
    },
)
def door() -> None:
    """Who was admitted to a system that has a door."""


@click.command("list")
@listing_options
@click.pass_obj
def list_admitted(invocation: Invocation) -> None:
    """Who was admitted, newest first: all for an operator, else those of your owner."""
    with invocation.client() as client:
        found = client.door.admitted()
    print_list(
        found, _COLUMNS, invocation.output, "nobody yet; make a token: peerloom token create --role ROLE"
    )


@click.command("revoke")
@click.argument("principal")
@listing_options
@click.pass_obj
def revoke(invocation: Invocation, principal: str) -> None:
    """Turn somebody out, by id or URI: its certificate counts no longer, nor do those of its workers."""
    with invocation.client() as client:
        print_list([client.door.revoke(principal)], _COLUMNS, invocation.output, "")


@click.command("rotate")
@system_options
@click.pass_obj
def rotate(invocation: Invocation) -> None:
    """Replace the authority that signs certificates; running jobs go on.

    The new one signs once every certificate that is out now has ended; the old one counts as long again.
    """
    with invocation.client() as client:
        digest = client.door.rotate_authority()
    say(f"made the authority {digest}; it signs as soon as everybody knows it")
