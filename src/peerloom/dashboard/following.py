"""Asks and watches the system, once for all who look."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from peerloom.client.async_client import AsyncClient
from peerloom.client.types import Belief, Job, Model
from peerloom.dashboard.availability import SERVICES, Availability, services_page
from peerloom.dashboard.board import Board
from peerloom.dashboard.close_ups import CloseUps, keep_shown
from peerloom.dashboard.listings import belief_rows, job_rows, jobs_by_node, model_rows
from peerloom.dashboard.network_page import NetworkPage
from peerloom.errors import FailedPreconditionError, PeerloomError
from peerloom.kit.clock import Clock, SystemClock

ASK_EVERY_S = 1.0
LIST_LIMIT = 100


class SystemFollower:
    """Keeps the sections services, nodes, events, jobs, models, beliefs; `close_ups` those of one thing.

    `run` works until it is cancelled. The client's patience should have no limit: what is away is shown.
    """

    def __init__(
        self,
        client: AsyncClient,
        board: Board,
        clock: Clock,
        look_beside: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._look_beside = look_beside
        self._client, self._board, self._clock = client, board, clock
        self._network = NetworkPage()
        self._availability = dict.fromkeys(SERVICES, Availability())
        self._jobs: Sequence[Job] = ()
        self._models: Sequence[Model] = ()
        self._beliefs: Sequence[Belief] = ()
        self._tasks = asyncio.TaskGroup()
        self.close_ups = CloseUps(client, board, self._tasks)
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
            if self._look_beside is not None:
                look = partial(asyncio.to_thread, self._look_beside)  # at a testbed's own counters
                tasks.create_task(keep_shown(self._board, "testbed", look, ASK_EVERY_S))

    async def ask_once(self) -> None:
        """Asks each service once; what one is away for stands in the section services."""
        await asyncio.gather(
            self._ask("registry", self._ask_registry),
            self._ask("selector", self._ask_selector),
            self._ask("trainer", self._ask_trainer),
        )

    async def _watch(self) -> None:
        while True:
            try:
                async for event in self._client.watch_nodes(self._network.sequence):
                    self._network.apply(event)
                    self._touch("nodes", "events")
            except FailedPreconditionError:  # events are missing: what is known is no ground to go on from
                self._network = NetworkPage()
                self._availability["registry"] = Availability()  # it has told nothing of these yet
                self._touch("nodes", "events", "services")
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
        nodes = await self._client.nodes()
        self._network.refresh(nodes, asked_at if page is self._network else 0)
        self._touch("nodes")

    async def _ask_selector(self) -> None:
        self._beliefs = await self._client.beliefs()
        self._touch("beliefs", "nodes")

    async def _ask_trainer(self) -> None:
        self._jobs = await self._client.jobs(limit=LIST_LIMIT)
        self._models = await self._client.models(limit=LIST_LIMIT)
        self._touch("jobs", "models", "nodes")

    def _network_rows(self) -> list[dict[str, Any]]:
        beliefs = {belief.node_id: belief.belief for belief in self._beliefs}
        jobs = jobs_by_node(self._jobs)
        rows = self._network.nodes()
        return [{**row, "belief": beliefs.get(row["id"]), "jobs": jobs.get(row["id"], [])} for row in rows]

    def _touch(self, *names: str) -> None:
        for name in names:
            self._board.touch(name)


@dataclass(frozen=True)
class Followed:
    """A system that is followed: the board that is kept, and who asks. `task` ends early only by a bug."""

    client: AsyncClient
    board: Board
    follower: SystemFollower
    task: asyncio.Task[None]


@asynccontextmanager
async def kept_following(
    connect: Callable[[], AsyncClient], look_beside: Callable[[], dict[str, Any]] | None = None
) -> AsyncIterator[Followed]:
    """Follows the system of a client while the block runs; raises at its end what ended the task early.

    A window over it should close when the task is done: else it would stand still and look alive.
    """
    board = Board()
    async with connect() as client:
        follower = SystemFollower(client, board, SystemClock(), look_beside)
        task = asyncio.create_task(follower.run())
        try:
            yield Followed(client, board, follower, task)
        finally:
            board.close()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
