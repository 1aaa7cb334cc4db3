"""A service's database belongs to one system: the leader notes whose registry it knows, standbys compare.

A registry, which others know their system by, is told its system's name instead, and compares that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from peerloom.errors import FailedPreconditionError, PeerloomError
from peerloom.kit.database import Database, SqlThread
from peerloom.kit.directory import Directory
from peerloom.kit.lease import BEAT_INTERVAL_S
from peerloom.kit.lease_rules import NO_EPOCH, LeaseRow, is_beating
from peerloom.kit.lease_table import note_system, read_lease, system_of
from peerloom.v1.registry_pb2 import ServiceKind

ASK_AGAIN_S = 1.0
T = TypeVar("T")


async def note_own_system(directory: Directory, database: Database, sql: SqlThread) -> None:
    """Notes, as soon as registry and database answer, that this database is that of the registry's system."""

    async def note() -> None:
        registry_id = await directory.registry_id()

        def write() -> None:
            with database.write() as connection:
                note_system(connection, database.service, registry_id)

        await sql.run(write)

    await _until_answered(note)


async def stand_by_in(
    directory: Directory, database: Database, kind: "ServiceKind.ValueType", address: str
) -> None:
    """Announces, until cancelled, that a service stands by at `address`.

    Raises what `refuse_another_system` raises.
    """
    announcing = asyncio.create_task(directory.announce_forever(kind, address, NO_EPOCH))
    try:
        await refuse_another_system(directory, database)
        await announcing
    finally:
        announcing.cancel()


async def refuse_another_system(directory: Directory, database: Database) -> None:
    """Returns once it is known that whoever leads here belongs to our registry's system.

    Raises FailedPreconditionError (ANOTHER_SYSTEM) when it doesn't, and lives: the lease in a restored backup
    is that of a process that is gone, and soon ours.
    """

    def read() -> tuple[str, LeaseRow | None]:
        with database.read() as connection:
            service = database.service
            return system_of(connection, service), read_lease(connection, service)

    own = await _until_answered(directory.registry_id)
    with SqlThread(database) as sql:
        found, lease = await _until_answered(lambda: sql.run(read))
        while found == "":  # who leads has not heard of its own registry yet
            await asyncio.sleep(ASK_AGAIN_S)
            found, lease = await _until_answered(lambda: sql.run(read))
        while found != own:
            await asyncio.sleep(BEAT_INTERVAL_S)
            before = lease
            found, lease = await _until_answered(lambda: sql.run(read))
            if before is not None and lease is not None and is_beating(before, lease):
                break
    if found != own:
        service = database.service
        raise FailedPreconditionError(
            f"the {service}'s database {database.engine.url.render_as_string()} is in use by another system: "
            f"whoever leads there knows the registry {found}, but the one at {directory.registry.address} is "
            f"{own}. Give this {service} a database of its own with --database, or the other's --registry.",
            reason="ANOTHER_SYSTEM",
            metadata={"database_of": found, "registry": own},
        )


async def refuse_another_name(database: Database, name: str) -> None:
    """Returns once it is known that whoever leads here as a registry bears the system's `name`, too.

    "" is none, and where nobody noted one that will do for ever. Raises FailedPreconditionError
    (ANOTHER_SYSTEM).
    """

    with SqlThread(database) as sql:
        found = await _until_answered(lambda: sql.run(_noted, database))
        while name and not found:  # who leads bears none, or has just begun
            await asyncio.sleep(ASK_AGAIN_S)
            found = await _until_answered(lambda: sql.run(_noted, database))
    _check_name(database, found, name)


def note_name(database: Database, name: str) -> None:
    """Notes the name of the system that leads here, unless it is there. Raises as `refuse_another_name`."""
    found = _noted(database)
    _check_name(database, found, name)
    if found != name:
        with database.write() as connection:  # nobody else writes: who calls this leads
            note_system(connection, database.service, name)


def _noted(database: Database) -> str:
    with database.read() as connection:
        return system_of(connection, database.service)


def _check_name(database: Database, found: str, name: str) -> None:
    if found in ("", name):
        return
    own = f"is of the system {name!r}" if name else "is of a system without a name"
    raise FailedPreconditionError(
        f"the {database.service}'s database {database.engine.url.render_as_string()} is that of the system "
        f"{found!r}, and this {database.service} {own}. Give it a database of its own with --database, or "
        f"--system {found} if it belongs there.",
        reason="ANOTHER_SYSTEM",
        metadata={"database_of": found, "system": name},
    )


async def _until_answered(ask: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await ask()
        except PeerloomError:  # the service's own tasks say what is away
            await asyncio.sleep(ASK_AGAIN_S)
