"""What is followed of one thing: a job on and on once somebody has looked, all else while somebody does."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from peerloom.client.async_client import AsyncClient
from peerloom.client.jobs import AsyncJobHandle
from peerloom.dashboard.board import Board
from peerloom.dashboard.job_page import JobPage
from peerloom.dashboard.listings import artifact_rows, belief_steps
from peerloom.errors import PeerloomError

STATUS_EVERY_S = 1.0
# Each asks several services, or all nodes.
NODE_EVERY_S, ARTIFACTS_EVERY_S = 2.0, 5.0
HISTORY_LIMIT = 200
# Jobs whose events are kept after somebody looked at them; the one looked at longest ago goes first.
FOLLOWED_LIMIT = 16


def job_section(job_id: str) -> str:
    """The name of the section with a job's page."""
    return f"job:{job_id}"


def events_section(job_id: str) -> str:
    """The name of the section with all that happened to a job that is followed."""
    return f"events:{job_id}"


class CloseUps:
    """Keeps the sections job:ID, events:ID, node:NAME and artifacts: of what somebody looks at."""

    def __init__(self, client: AsyncClient, board: Board, tasks: asyncio.TaskGroup) -> None:
        self._client, self._board, self._tasks = client, board, tasks
        self._jobs: OrderedDict[str, asyncio.Task[None]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._lookers: Counter[str] = Counter()

    @contextmanager
    def looking(self, page: str, item: str) -> Iterator[list[str]]:
        """Follows what a page shows beside the lists while the block runs; the names of its sections."""
        if page == "job":
            yield [self.look_at(item)]
        elif page == "node":
            with self._while_looked_at(f"node:{item}", lambda: self._node(item), NODE_EVERY_S) as name:
                yield [name]
        elif page == "artifacts":
            with self._while_looked_at("artifacts", self._artifacts, ARTIFACTS_EVERY_S) as name:
                yield [name]
        else:
            yield []

    def look_at(self, job_id: str) -> str:
        """Follows a job from now on; returns the name of its section."""
        task = self._jobs.get(job_id)
        if task is None or task.done():
            self._pin_job(job_id)
            self._jobs[job_id] = self._tasks.create_task(self._follow_job(job_id))
        self._jobs.move_to_end(job_id)
        while len(self._jobs) > FOLLOWED_LIMIT:
            oldest, task = self._jobs.popitem(last=False)
            task.cancel()
            self._board.unpin(job_section(oldest))
            self._board.unpin(events_section(oldest))
        return job_section(job_id)

    async def _follow_job(self, job_id: str) -> None:
        """Shows a job until it has ended; where the trainer can't tell of it, why, until it can."""
        while True:
            try:
                await self._watch_job(await self._client.job(job_id), job_id)
                return
            except PeerloomError as error:
                self._board.show(job_section(job_id), {"trouble": error.message, "id": job_id})
            await asyncio.sleep(STATUS_EVERY_S)

    async def _watch_job(self, job: AsyncJobHandle, job_id: str) -> None:
        page, name = self._pin_job(job_id), job_section(job_id)
        asking = self._tasks.create_task(self._keep_status(job, name, page))
        try:
            async for event in job.watch():
                page.apply(event)
                self._board.touch(name)
            page.refresh(await job.status())
            self._board.touch(name)
        finally:
            asking.cancel()

    def _pin_job(self, job_id: str) -> JobPage:
        page = JobPage()
        self._board.pin(job_section(job_id), page.page)
        self._board.pin(events_section(job_id), page.events)
        return page

    async def _keep_status(self, job: AsyncJobHandle, name: str, page: JobPage) -> None:
        """The snapshot has what events don't tell: the ledger, checkpoints, the state of each worker."""
        while True:
            try:
                page.refresh(await job.status())
                self._board.touch(name)
            except PeerloomError:
                pass  # the trainer's availability tells of it
            await asyncio.sleep(STATUS_EVERY_S)

    async def _node(self, name: str) -> dict[str, Any]:
        return {"name": name, "steps": belief_steps(await self._client.belief_history(name, HISTORY_LIMIT))}

    async def _artifacts(self) -> dict[str, Any]:
        await self._client.nodes()  # fails while the registry is away, where the list would be without nodes
        return {"rows": artifact_rows(await self._client.artifacts.list())}

    @contextmanager
    def _while_looked_at(
        self, name: str, ask: Callable[[], Awaitable[dict[str, Any]]], every_s: float
    ) -> Iterator[str]:
        if not self._lookers[name]:
            self._asking[name] = self._tasks.create_task(keep_shown(self._board, name, ask, every_s))
        self._lookers[name] += 1
        try:
            yield name
        finally:
            self._lookers[name] -= 1
            if not self._lookers[name]:
                del self._lookers[name]
                self._asking.pop(name).cancel()
                self._board.unpin(name)


async def keep_shown(
    board: Board, name: str, ask: Callable[[], Awaitable[dict[str, Any]]], every_s: float
) -> None:
    """Shows what is answered, on and on; while nothing is, what was answered last, and why it is old."""
    found: dict[str, Any] = {}
    while True:
        try:
            found = await ask()
        except PeerloomError as error:
            found = {**found, "trouble": error.message}
        board.show(name, found)
        await asyncio.sleep(every_s)
