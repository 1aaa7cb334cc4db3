"""`peerloom status`."""

import click

from peerloom import Job
from peerloom.cli.commands.jobs import COLUMNS as JOB_COLUMNS
from peerloom.cli.commands.nodes import COLUMNS as NODE_COLUMNS
from peerloom.cli.exits import OK, UNREACHABLE
from peerloom.cli.invocation import Invocation, listing_options
from peerloom.cli.output import print_document, say, table_lines
from peerloom.errors import PeerloomError
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import plural

_SERVICE_COLUMNS = (
    Column("SERVICE", lambda service: service.name),
    Column("ROLE", lambda service: "stands by" if service.stands_by else "leads" if service.healthy else "-"),
    Column("HEALTH", lambda service: "healthy" if service.healthy else f"not healthy: {service.detail}"),
    Column("ADDRESS", lambda service: service.address),
)
_RUNNING = ("queued", "selecting", "starting", "running", "waiting", "finishing")


@click.command()
@listing_options
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show services with their health, nodes, and the jobs that run.

    Ends with 4 when a service is missing or not healthy.
    """
    invocation: Invocation = ctx.obj
    jobs: list[Job] | None
    with invocation.client() as client:
        services, nodes = client.services(), client.nodes(states=("alive", "suspect"))
        try:
            jobs = client.jobs(states=_RUNNING)
        except PeerloomError as error:
            say(f"error: {error.message}", err=True)
            jobs = None
    if invocation.output != "table":
        print_document({"services": services, "nodes": nodes, "jobs": jobs}, invocation.output)
    else:
        _print_part(table_lines(services, _SERVICE_COLUMNS))
        _print_part(table_lines(nodes, NODE_COLUMNS) if nodes else ["no nodes"])
        if jobs is not None:
            running = (
                [plural(len(jobs), "job"), *table_lines(jobs, JOB_COLUMNS)] if jobs else ["no running jobs"]
            )
            _print_part(running[1:] or running, last=True)
    healthy = jobs is not None and all(service.healthy for service in services)
    ctx.exit(OK if healthy else UNREACHABLE)


def _print_part(lines: list[str], last: bool = False) -> None:
    for line in lines:
        say(line)
    if not last:
        say()
