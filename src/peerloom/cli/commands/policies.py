"""`peerloom policies`."""

import click

from peerloom.cli.invocation import Invocation, listing_options
from peerloom.cli.output import print_list
from peerloom.kit.printable import Column

_COLUMNS = (
    Column("POLICY", lambda policy: policy.name + (" (default)" if policy.is_default else "")),
    Column("WHAT IT DOES", lambda policy: policy.description),
    Column("FROM", lambda policy: policy.source),
)


@click.command()
@listing_options
@click.pass_obj
def policies(invocation: Invocation) -> None:
    """List the ways to choose nodes; give one to 'train --policy'."""
    with invocation.client() as client:
        found = client.policies()
    print_list(found, _COLUMNS, invocation.output, "the selector knows no policy")
