"""How long events are kept: a job's record stays, but what it told on the way would fill any disk in time."""

import asyncio

from peerloom.errors import PeerloomError
from peerloom.kit.database import SqlThread
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.store import TrainerStore

PRUNE_INTERVAL_S = 600.0
_log = get_logger()


async def prune_forever(store: TrainerStore, sql: SqlThread, ended_jobs: int, events: int) -> None:
    """Keeps events of the newest `ended_jobs` ended jobs, `events` of each job, until cancelled."""
    while True:
        after: int | None = 0
        try:
            while after is not None:
                pruned, after = await sql.run(store.prune_events, ended_jobs, events, after)
                if pruned:
                    _log.info("events_pruned", events=pruned)
        except PeerloomError as error:
            _log.warning("events_not_pruned", reason=error.message)
        await asyncio.sleep(PRUNE_INTERVAL_S)
