"""Asks and watches the system, once for all who look."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from peerloom.client.async_client import AsyncClient
from peerloom.client.types import Belief, Job, Model
from peerloom.dashboard.availability import SERVICES, Availability, services_page
from peerloom.dashboard.board import Board
from peerloom.dashboard.job_page import JobPage
from peerloom.dashboard.listings import belief_rows, job_rows, jobs_by_node, model_rows
from peerloom.dashboard.network_page import NetworkPage
from peerloom.errors import FailedPreconditionError, PeerloomError
from peerloom.kit.clock import Clock

ASK_EVERY_S = 1.0
LIST_LIMIT = 100
# Jobs whose events are kept after somebody looked at them; the one looked at longest ago goes first.
FOLLOWED_LIMIT = 16


def events_section(job_id: str) -> str:
    """The name of the section with all that happened to a job that is followed."""
    return f"events:{job_id}"


class SystemFollower:
    """Keeps the board's sections services, nodes, events, jobs, models, beliefs; job:ID, events:ID.

    `run` works until it is cancelled. The client's patience should have no limit: what is away is shown.
    """

    def __init__(self, client: AsyncClient, board: Board, clock: Clock) -> None:
        self._client, self._board, self._clock = client, board, clock
        self._network = NetworkPage()
        self._availability = dict.fromkeys(SERVICES, Availability())
        self._jobs: Sequence[Job] = ()
        self._models: Sequence[Model] = ()
        self._beliefs: Sequence[Belief] = ()
        self._followed: OrderedDict[str, asyncio.Task[None]] = OrderedDict()
        self._tasks = asyncio.TaskGroup()
        board.pin("services", lambda: services_page(self._availability, client.address))
        board.pin("nodes", self._network_rows)
        board.pin("events", lambda: self._network.events())
        board.pin("jobs", lambda: job_rows(self._jobs))
        board.pin("models", lambda: model_rows(self._models))
        board.pin("beliefs", lambda: belief_rows(self._beliefs))

    async def run(self) -> None:
        """Follows until it is cancelled. Raises what was raised, if something was: a bug of ours."""
        async with self._tasks as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._keep_asking("registry", self._ask_registry))
            tasks.create_task(self._keep_asking("selector", self._ask_selector))
            tasks.create_task(self._keep_asking("trainer", self._ask_trainer))

    async def ask_once(self) -> None:
        """Asks each service once; what one is away for stands in the section services."""
        await asyncio.gather(
            self._ask("registry", self._ask_registry),
            self._ask("selector", self._ask_selector),
            self._ask("trainer", self._ask_trainer),
        )

    def look_at(self, job_id: str) -> str:
        """Follows a job from now on, while `run` works; returns the name of its section."""
        name = f"job:{job_id}"
        task = self._followed.get(name)
        if task is None or task.done():
            page = JobPage()
            self._board.pin(name, page.page)
            self._board.pin(events_section(job_id), page.events)
            self._followed[name] = self._tasks.create_task(self._follow_job(job_id, name, page))
        self._followed.move_to_end(name)
        while len(self._followed) > FOLLOWED_LIMIT:
            oldest, task = self._followed.popitem(last=False)
            task.cancel()
            self._board.unpin(oldest)
            self._board.unpin(events_section(oldest.partition(":")[2]))
        return name

    async def _watch(self) -> None:
        while True:
            try:
                async for event in self._client.watch_nodes(self._network.sequence):
                    self._network.apply(event)
                    self._touch("nodes", "events")
            except FailedPreconditionError:  # events are missing: what is known is no ground to go on from
                self._network = NetworkPage()
                self._touch("nodes", "events")
            except PeerloomError:
                pass  # lists tell the same, a little later; who asks for them says what is away
            await asyncio.sleep(ASK_EVERY_S)

    async def _keep_asking(self, service: str, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._ask(service, ask)
            await asyncio.sleep(ASK_EVERY_S)

    async def _ask(self, service: str, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except PeerloomError as error:
            self._note_failure(service, error)
            return
        before = self._availability[service]
        self._availability[service] = before.answered(self._clock.wall_s())
        if before.is_news or before.away_since:
            self._touch("services")

    def _note_failure(self, service: str, error: PeerloomError) -> None:
        before = self._availability[service]
        self._availability[service] = before.failed(self._clock.wall_s(), error.message)
        self._touch("services")

    async def _ask_registry(self) -> None:
        page, asked_at = self._network, self._network.sequence
        page.refresh(await self._client.nodes(), asked_at)
        self._touch("nodes")

    async def _ask_selector(self) -> None:
        self._beliefs = await self._client.beliefs()
        self._touch("beliefs", "nodes")

    async def _ask_trainer(self) -> None:
        self._jobs = await self._client.jobs(limit=LIST_LIMIT)
        self._models = await self._client.models(limit=LIST_LIMIT)
        self._touch("jobs", "models", "nodes")

    async def _follow_job(self, job_id: str, name: str, page: JobPage) -> None:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(self._keep_status(job_id, name, page))
            try:
                job = await self._client.job(job_id)
                async for event in job.watch():
                    page.apply(event)
                    self._touch(name)
                page.refresh(await job.status())
            except PeerloomError as error:
                trouble = error.message
                self._board.pin(name, lambda: {"trouble": trouble, "id": job_id})
            asking.cancel()
        self._touch(name)

    async def _keep_status(self, job_id: str, name: str, page: JobPage) -> None:
        """The snapshot has what events don't tell: the ledger, checkpoints, the state of each worker."""
        while True:
            try:
                page.refresh(await (await self._client.job(job_id)).status())
                self._touch(name)
            except PeerloomError:
                pass  # the trainer's availability tells of it
            await asyncio.sleep(ASK_EVERY_S)

    def _network_rows(self) -> list[dict[str, Any]]:
        beliefs = {belief.node_id: belief.belief for belief in self._beliefs}
        jobs = jobs_by_node(self._jobs)
        rows = self._network.nodes()
        return [{**row, "belief": beliefs.get(row["id"]), "jobs": jobs.get(row["id"], [])} for row in rows]

    def _touch(self, *names: str) -> None:
        for name in names:
            self._board.touch(name)
