"""How a service that stores something begins and ends: it serves only while it holds its database's lease."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from peerloom.errors import UnavailableError
from peerloom.kit.clock import Clock
from peerloom.kit.database import Database, SqlThread
from peerloom.kit.lease import LOOK_INTERVAL_S, Lease
from peerloom.kit.logs import get_logger
from peerloom.kit.server import Server

_log = get_logger()


async def serve_with_lease(
    server: Server,
    database: Database,
    clock: Clock,
    migrations: str,
    serve: Callable[[], Awaitable[None]],
    make_lease: Callable[[Database, Clock, str], Lease] = Lease,
) -> None:
    """Takes the lease, brings the tables up to date and runs `serve`; releases and closes at the end.

    As long as another process holds the lease, `server` stands by. Nothing is served, and `serve` isn't
    called, if a stop is asked for before. `make_lease` is for a simulation, whose processes are its own.
    Raises what `serve` and `Database.migrate` raise.
    """
    lease = make_lease(database, clock, server.address)
    try:
        async with server:
            if await take_lease_or_stop(server, lease):
                server.start_task("lease", lease.keep)
                with SqlThread(database) as sql:
                    await sql.run(database.migrate, migrations)
                await serve()
    finally:
        await lease.release()
        database.close()


async def take_lease_or_stop(server: Server, lease: Lease) -> bool:
    """Stands by until the lease is ours, or, then False, until the server was asked to stop."""
    verdict, told = await lease.try_to_take(), ""
    while not verdict.may_take:
        if verdict.reason != told:
            told = verdict.reason
            _log.warning("standing_by", reason=told)
            await server.stand_by(f"stands by; {told}")
            print(f"standing by: {told}", file=sys.stderr, flush=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(server.stopping.wait(), LOOK_INTERVAL_S)
            return False
        try:
            verdict = await lease.try_to_take()
        except UnavailableError as error:
            _log.warning("lease_not_seen", reason=error.message)
    return True
