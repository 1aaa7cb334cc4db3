"""Services that have a standby: where their database is, and which of the two processes leads."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerloom.testing.simulated_processes import MemoryWorld, Process

SERVICES = ("registry", "selector", "trainer")
DATABASE_HOST = "10.0.0.9"


def standby_of(service: str) -> str:
    """The name of a service's second process, which may well lead."""
    return f"{service}2"


def leader_of(world: "MemoryWorld", service: str) -> "Process":
    """The process that took the service's lease last; the first, before anybody did."""
    known, disk = world.processes, world.processes[service].disk
    query = "SELECT process FROM service_leases WHERE service = ?"
    holder = disk.databases[service].execute(query, (service,)).fetchone() if disk.databases else None
    name = str(holder[0]).partition("\n")[0] if holder else service
    return known[name] if name in known else known[service]
