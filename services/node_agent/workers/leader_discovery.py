"""Finds out who leads for workers whose job no trainer watches here: one that took over may not get through.

A trainer that leads watches each job's workers on each node, and says so where it is (`job_trainers`). Cut
from this node it can't, though workers may reach it, or soon will: they would go on asking the former one
until they give up, minutes later, in slots that nobody frees.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from peerloom.errors import FailedPreconditionError, PeerloomError
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.workers.job_trainers import JobTrainer
from peerloom.services.node_agent.workers.local_pool import LocalWorkerPool

LOOK_INTERVAL_S = 2.5  # a standby leads after two seconds, and then watches within one
_log = get_logger()


class LeaderDiscovery:
    """Asks by `leader` (host:port and epoch; None: nobody leads) for jobs of `pool` that nobody watches."""

    def __init__(
        self, pool: LocalWorkerPool, leader: Callable[[], Awaitable[tuple[str, int] | None]]
    ) -> None:
        self._pool, self._leader = pool, leader
        self._unwatched: Sequence[str] = ()

    async def look_forever(self) -> None:
        """Looks now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Sends the workers to the leader whose jobs aren't watched, and weren't at the look before."""
        before, self._unwatched = self._unwatched, self._pool.unwatched()
        if lasting := [job_id for job_id in self._unwatched if job_id in before]:
            await self._send_to_leader(lasting)

    async def _send_to_leader(self, job_ids: Sequence[str]) -> None:
        try:
            leader = await self._leader()
        except PeerloomError:  # the registry is away: whoever reports to it tells so
            return
        if leader is None:
            return
        for job_id in job_ids:
            try:
                await self._pool.follow(job_id, JobTrainer(*leader))
            except FailedPreconditionError:  # a later one was here, of whom the registry doesn't know yet
                pass
            except PeerloomError as error:  # of the disk: the next look tries again
                _log.warning("workers_not_sent", job_id=job_id, trainer=leader[0], reason=error.message)
