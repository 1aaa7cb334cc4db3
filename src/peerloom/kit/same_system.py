"""A service's database belongs to one system: the leader notes whose registry it knows, standbys compare."""

import asyncio

from peerloom.errors import FailedPreconditionError, PeerloomError
from peerloom.kit.database import Database, SqlThread
from peerloom.kit.directory import Directory
from peerloom.kit.lease_table import note_system, system_of

ASK_AGAIN_S = 1.0


async def note_own_system(directory: Directory, database: Database, sql: SqlThread) -> None:
    """Notes, as soon as the registry answers, that this database is that of its system."""
    registry_id = await _registry_id(directory)

    def note() -> None:
        with database.write() as connection:
            note_system(connection, database.service, registry_id)

    await sql.run(note)


async def refuse_another_system(directory: Directory, database: Database) -> None:
    """Returns once it is known that whoever leads here belongs to our registry's system.

    Raises FailedPreconditionError (ANOTHER_SYSTEM) when it doesn't, and what storage raises.
    """
    own = await _registry_id(directory)

    def read() -> str:
        with database.read() as connection:
            return system_of(connection, database.service)

    with SqlThread(database) as sql:
        found = await sql.run(read)
    if found not in ("", own):
        service = database.service
        raise FailedPreconditionError(
            f"the {service}'s database {database.engine.url.render_as_string()} is in use by another system: "
            f"whoever leads there knows the registry {found}, but the one at {directory.registry.address} is "
            f"{own}. Give this {service} a database of its own with --database, or the other's --registry.",
            reason="ANOTHER_SYSTEM",
            metadata={"database_of": found, "registry": own},
        )


async def _registry_id(directory: Directory) -> str:
    while True:
        try:
            return await directory.registry_id()
        except PeerloomError:  # its own tasks say that the registry is away
            await asyncio.sleep(ASK_AGAIN_S)
