"""What this node's workers are forked from: those of jobs that bring code from a process that sees less."""

import asyncio

from peerloom.services.node_agent.workers.fork_client import ForkServerClient
from peerloom.services.node_agent.workers.forked_worker import ForkedWorker


class WorkerOrigins:
    """Two processes to fork from: `plain`, and `wrapped`, inside bubblewrap, for jobs that bring code.

    The second is started with the first such job, and kept as the first is from then on. None: there is no
    bubblewrap here, and `plain` serves all.
    """

    def __init__(self, plain: ForkServerClient, wrapped: ForkServerClient | None) -> None:
        self._plain, self._wrapped = plain, wrapped
        self._is_wanted = self._has_had_code = False

    async def start(self, *, brings_code: bool) -> ForkedWorker:
        """A new worker, which waits for its assignment. Raises FailedPreconditionError if it can't be."""
        if self._wrapped is None or not brings_code:
            return await self._plain.start()
        self._has_had_code = True
        self.want(self._is_wanted)
        return await self._wrapped.start()

    def want(self, is_wanted: bool) -> None:
        """Whether the machine is lent: what nobody may use doesn't take up the owner's memory."""
        self._is_wanted = is_wanted
        self._plain.want(is_wanted)
        if self._wrapped is not None:
            self._wrapped.want(is_wanted and self._has_had_code)

    async def keep(self) -> None:
        """Keeps those that are wanted ready, until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._plain.keep())
            if self._wrapped is not None:
                both.create_task(self._wrapped.keep())

    async def close(self) -> None:
        """Ends both; call it when the workers have ended."""
        await self._plain.close()
        if self._wrapped is not None:
            await self._wrapped.close()
