"""Open sessions of workers: finds the job that a worker belongs to, and the worker that a job talks to."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from peerloom.errors import FailedPreconditionError
from peerloom.v1.trainer_pb2 import EndWorker, WorkerSessionRequest, WorkerSessionResponse


class SessionListener(Protocol):
    """What a job wants to hear of its workers' sessions."""

    def session_opened(self, request: WorkerSessionRequest) -> None:
        """A worker said hello."""

    def session_message(self, worker_id: str, request: WorkerSessionRequest) -> None:
        """A worker said something."""

    def session_closed(self, worker_id: str) -> None:
        """A worker's line broke; it may come back."""


@dataclass
class _Line:
    hello: WorkerSessionRequest
    outbox: "asyncio.Queue[WorkerSessionResponse | None]"


class Hub:
    """Routes messages between sessions and jobs."""

    def __init__(self) -> None:
        self._listeners: dict[str, SessionListener] = {}
        self._lines: dict[str, _Line] = {}

    def listen(self, job_id: str, listener: SessionListener) -> None:
        """From now on this job hears of its workers."""
        self._listeners[job_id] = listener

    def forget(self, job_id: str) -> None:
        """This job hears no more."""
        self._listeners.pop(job_id, None)

    def send(self, worker_id: str, message: WorkerSessionResponse) -> None:
        """Says something to a worker; nothing happens when it isn't connected."""
        line = self._lines.get(worker_id)
        if line is not None:
            line.outbox.put_nowait(message)

    def hello_of(self, worker_id: str) -> WorkerSessionRequest | None:
        """What a connected worker said first."""
        line = self._lines.get(worker_id)
        return None if line is None else line.hello

    def ask(self, worker_id: str, message: WorkerSessionResponse) -> None:
        """Says something that is soon said again: only to a line on which nothing else waits."""
        line = self._lines.get(worker_id)
        if line is not None and line.outbox.empty():
            line.outbox.put_nowait(message)

    def is_connected(self, worker_id: str) -> bool:
        """Whether the worker's line is open."""
        return worker_id in self._lines

    def close_all(self) -> None:
        """Ends all lines; workers go on and come back."""
        for line in self._lines.values():
            line.outbox.put_nowait(None)

    async def serve(
        self, requests: AsyncIterator[WorkerSessionRequest]
    ) -> AsyncIterator[WorkerSessionResponse]:
        """One worker's session from its hello until either side ends it."""
        hello = await anext(aiter(requests), None)
        if hello is None or not hello.HasField("hello"):
            raise FailedPreconditionError("A worker's session begins with hello.", reason="NO_HELLO")
        worker_id, job_id = hello.hello.worker_id, hello.hello.job_id
        listener = self._listeners.get(job_id)
        if listener is None:
            yield WorkerSessionResponse(end=EndWorker(reason=f"the job {job_id} is over"))
            return
        line = self._lines[worker_id] = _Line(hello, asyncio.Queue())
        listener.session_opened(hello)
        reader = asyncio.create_task(self._read(listener, worker_id, requests, line))
        try:
            while (message := await line.outbox.get()) is not None:
                yield message
        finally:
            reader.cancel()
            if self._lines.get(worker_id) is line:
                del self._lines[worker_id]
                listener.session_closed(worker_id)

    async def _read(
        self,
        listener: SessionListener,
        worker_id: str,
        requests: AsyncIterator[WorkerSessionRequest],
        line: _Line,
    ) -> None:
        try:
            async for request in requests:
                listener.session_message(worker_id, request)
        finally:
            line.outbox.put_nowait(None)
