"""How a service that stores something begins and ends: it serves only while it holds its database's lease.

Once that is lost, or couldn't be renewed, the process lets go: health says NOT_SERVING, calls are refused,
streams end, nothing is written, and it ends with status 1. What keeps it running starts it again.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from peerloom.errors import PeerloomError, ResourceExhaustedError, UnavailableError
from peerloom.kit.clock import Clock
from peerloom.kit.database import Database, SqlThread
from peerloom.kit.lease import LOOK_INTERVAL_S, Lease
from peerloom.kit.lease_rules import Verdict
from peerloom.kit.logs import get_logger
from peerloom.kit.schema import load_alembic
from peerloom.kit.server import Server

StandBy = Callable[[], Coroutine[Any, Any, None]]
_log = get_logger()


async def serve_with_lease(
    server: Server,
    database: Database,
    clock: Clock,
    migrations: str,
    serve: Callable[[Clock], Awaitable[None]],
    stand_by: StandBy | None = None,
    make_lease: Callable[[Database, Clock, str], Lease] = Lease,
) -> None:
    """Takes the lease, brings the tables up to date and runs `serve`; releases and closes at the end.

    `clock` is the machine's; `serve` is given the one that all processes of this database share. As long as
    another process holds the lease, `server` stands by and `stand_by` runs. Nothing is served, and `serve`
    isn't called, if a stop is asked for before. `make_lease` is for a simulation, whose processes are its
    own. Raises what `stand_by`, `serve` and `Database.migrate` raise.
    """
    lease = make_lease(database, clock, server.address)
    try:
        async with server:
            # Before the lease is ours: on a busy machine its renewals would come late beside an import.
            await asyncio.to_thread(load_alembic)
            if await take_lease_or_stop(server, lease, stand_by):
                server.start_task("lease", partial(_lead, server, database, lease))
                with SqlThread(database) as sql:
                    await sql.run(database.migrate, migrations)
                await serve(lease.clock)
    finally:
        await lease.release()
        database.close()


async def _lead(server: Server, database: Database, lease: Lease) -> None:
    try:
        await lease.keep()
    except UnavailableError as error:
        server.let_go(error)
        database.let_go()
        raise


async def take_lease_or_stop(server: Server, lease: Lease, stand_by: StandBy | None) -> bool:
    """Stands by until the lease is ours, or, then False, until the server was asked to stop.

    Meanwhile `stand_by` runs, e.g. to tell others that we are there. Raises what it raises.
    """
    verdict = await lease.try_to_take()
    if verdict.may_take:
        return True
    try:
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(stand_by())] if stand_by is not None else []
            is_ours = await _wait_for_lease(server, lease, verdict)
            for task in beside:
                task.cancel()
    except* PeerloomError as failed:
        failure = failed.exceptions[0]
    else:
        return is_ours
    raise failure


async def _wait_for_lease(server: Server, lease: Lease, verdict: Verdict) -> bool:
    told = ""
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
        except (UnavailableError, ResourceExhaustedError) as error:
            _log.warning("lease_not_seen", reason=error.message)
    return True
