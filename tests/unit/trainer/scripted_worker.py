"""A worker's side of its session with the trainer, as a script."""

import asyncio
from collections.abc import AsyncIterator

from peerloom.kit.interceptors import Caller, caller
from peerloom.kit.principal import Principal, Role
from peerloom.services.trainer.workers.session_router import SessionRouter
from peerloom.v1.trainer_pb2 import WorkerHello, WorkerSessionRequest, WorkerSessionResponse

DEADLINE_S = 20.0


class ScriptedWorker:
    """A worker's side of its session: says what a test tells it to, and notes what it hears.

    With an `owner` it shows a certificate of that owner's.
    """

    def __init__(
        self, router: SessionRouter, worker_id: str, job_id: str, secret: str = "", owner: str = ""
    ) -> None:
        self.worker_id, self.secret, self._owner = worker_id, secret, owner
        self._job_id, self._router = job_id, router
        self._said: asyncio.Queue[WorkerSessionRequest | None] = asyncio.Queue()
        self._heard: asyncio.Queue[WorkerSessionResponse] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def connect(self, step: int = 0, generation: int = 0) -> None:
        """Opens a session."""
        self._said = asyncio.Queue()
        hello = WorkerHello(
            worker_id=self.worker_id,
            job_id=self._job_id,
            committed_step=step,
            generation=generation,
            secret=self.secret,
            owner="somebody-else",  # what a worker says here doesn't count
        )
        self.say(WorkerSessionRequest(hello=hello))
        self._task = asyncio.create_task(self._listen(self._requests(self._said)))

    def say(self, message: WorkerSessionRequest) -> None:
        """Sends a message."""
        self._said.put_nowait(message)

    async def hear(self, kind: str) -> WorkerSessionResponse:
        """The next message of this kind; others are passed over."""
        async with asyncio.timeout(DEADLINE_S):
            while (message := await self._heard.get()).WhichOneof("message") != kind:
                pass
        return message

    async def disconnect(self) -> None:
        """Its session ends."""
        self._said.put_nowait(None)
        if self._task is not None:
            await self._task

    async def _listen(self, requests: AsyncIterator[WorkerSessionRequest]) -> None:
        if self._owner:
            shown = Principal(Role.WORKER, self.worker_id, self._owner, "node-ada", self._job_id)
            caller.set(Caller(shown, ""))
        async for message in self._router.serve(requests):
            self._heard.put_nowait(message)

    @staticmethod
    async def _requests(
        said: "asyncio.Queue[WorkerSessionRequest | None]",
    ) -> AsyncIterator[WorkerSessionRequest]:
        while (message := await said.get()) is not None:
            yield message
