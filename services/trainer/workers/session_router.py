"""The open sessions of all workers: which job a worker belongs to, and over which stream a job reaches it.

Whoever reaches the trainer can name any worker. So each worker has a secret, which it was given when it was
started; a session is opened for a worker only with that, and what is said there counts for that one alone.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from peerloom.errors import FailedPreconditionError, PermissionDeniedError
from peerloom.kit.checks import check_name
from peerloom.kit.interceptors import caller
from peerloom.kit.principal import Principal
from peerloom.v1.trainer_pb2 import EndWorker, WorkerHello, WorkerSessionRequest, WorkerSessionResponse


class SessionListener(Protocol):
    """What a job wants to hear of its workers' sessions."""

    def session_opened(self, request: WorkerSessionRequest) -> None:
        """A worker said hello."""

    def session_message(self, worker_id: str, request: WorkerSessionRequest) -> None:
        """A worker said something."""

    def session_closed(self, worker_id: str) -> None:
        """A worker's stream broke; the worker may come back."""


@dataclass
class _Stream:
    hello: WorkerSessionRequest
    outbox: "asyncio.Queue[WorkerSessionResponse | None]"


@dataclass
class _Job:
    listener: SessionListener
    secrets: dict[str, str] = field(repr=False)
    nodes: dict[str, str]

    def check(self, hello: WorkerHello, principal: Principal | None) -> None:
        """Raises PermissionDeniedError unless one of the job's workers says this, on its own node."""
        expected = self.secrets.get(hello.worker_id, "")
        if not expected or not hmac.compare_digest(expected.encode(), hello.secret.encode()):
            raise PermissionDeniedError(
                f"{hello.worker_id} did not prove that it is a worker of this job: only a process "
                "that an agent started for the job may open a session.",
                reason="NOT_THIS_WORKER",
            )
        node = self.nodes.get(hello.worker_id, "")
        if principal is not None and principal.node != node:
            raise PermissionDeniedError(
                f"{principal}, on the node {principal.node}, can't speak for {hello.worker_id}: the trainer "
                f"started that on {node or 'no node that it knows'}.",
                reason="NOT_THIS_WORKER",
            )


class SessionRouter:
    """Routes messages between workers' streams and their jobs."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._streams: dict[str, _Stream] = {}

    def listen(
        self, job_id: str, listener: SessionListener, secrets: Mapping[str, str], nodes: Mapping[str, str]
    ) -> None:
        """From now on this job hears of its workers.

        `secrets` and `nodes` have those that were started before, and on which nodes, by their ids.
        """
        self._jobs[job_id] = _Job(listener, dict(secrets), dict(nodes))

    def admit(self, job_id: str, secrets: Mapping[str, str], node_id: str) -> None:
        """These workers, by id, may open sessions with their secrets, from this node."""
        self._jobs[job_id].secrets.update(secrets)
        self._jobs[job_id].nodes.update(dict.fromkeys(secrets, node_id))

    def forget(self, job_id: str) -> None:
        """This job is over: it hears no more, and whoever is connected for it is told so.

        That may be a worker which the job doesn't know: the trainer died before it wrote that it was started.
        """
        self._jobs.pop(job_id, None)
        for stream in self._streams.values():
            if stream.hello.hello.job_id == job_id:
                stream.outbox.put_nowait(_over(job_id))

    def send(self, worker_id: str, message: WorkerSessionResponse) -> None:
        """Says something to a worker; nothing happens when it isn't connected."""
        stream = self._streams.get(worker_id)
        if stream is not None:
            stream.outbox.put_nowait(message)

    def hello_of(self, worker_id: str) -> WorkerSessionRequest | None:
        """What a connected worker said first."""
        stream = self._streams.get(worker_id)
        return None if stream is None else stream.hello

    def ask(self, worker_id: str, message: WorkerSessionResponse) -> None:
        """Sends what is sent again soon: only over a stream on which no other message waits."""
        stream = self._streams.get(worker_id)
        if stream is not None and stream.outbox.empty():
            stream.outbox.put_nowait(message)

    def is_connected(self, worker_id: str) -> bool:
        """Whether the worker's stream is open."""
        return worker_id in self._streams

    def close_all(self) -> None:
        """Ends all streams; workers go on and come back."""
        for stream in self._streams.values():
            stream.outbox.put_nowait(None)

    async def serve(
        self, requests: AsyncIterator[WorkerSessionRequest]
    ) -> AsyncIterator[WorkerSessionResponse]:
        """One worker's session from its hello until either side ends it, or the worker opens another.

        Raises PermissionDeniedError for a hello that isn't the worker's, InvalidArgumentError for one that
        can't be anybody's.
        """
        hello = await anext(aiter(requests), None)
        if hello is None or not hello.HasField("hello"):
            raise FailedPreconditionError("A worker's session begins with hello.", reason="NO_HELLO")
        worker_id, job_id = hello.hello.worker_id, hello.hello.job_id
        check_name("hello.worker_id", worker_id)
        check_name("hello.job_id", job_id)
        _check_is_worker(caller.get().principal, worker_id, job_id)
        hello.hello.owner = caller.get().owner
        job = self._jobs.get(job_id)
        if job is None:
            yield _over(job_id)
            return
        job.check(hello.hello, caller.get().principal)
        if worker_id in self._streams:
            self._streams[worker_id].outbox.put_nowait(None)
        stream = self._streams[worker_id] = _Stream(hello, asyncio.Queue())
        listener = job.listener
        listener.session_opened(hello)
        reader = asyncio.create_task(self._read(listener, worker_id, requests, stream))
        try:
            while (message := await stream.outbox.get()) is not None:
                yield message
        finally:
            reader.cancel()
            if self._streams.get(worker_id) is stream:
                del self._streams[worker_id]
                listener.session_closed(worker_id)

    async def _read(
        self,
        listener: SessionListener,
        worker_id: str,
        requests: AsyncIterator[WorkerSessionRequest],
        stream: _Stream,
    ) -> None:
        try:
            async for request in requests:
                if self._streams.get(worker_id) is stream:
                    listener.session_message(worker_id, request)
        finally:
            stream.outbox.put_nowait(None)


def _check_is_worker(principal: Principal | None, worker_id: str, job_id: str) -> None:
    if principal is not None and (principal.id, principal.job) != (worker_id, job_id):
        raise PermissionDeniedError(
            f"{principal}, for the job {principal.job}, can't speak for {worker_id} of {job_id}.",
            reason="NOT_THIS_WORKER",
        )


def _over(job_id: str) -> WorkerSessionResponse:
    return WorkerSessionResponse(end=EndWorker(reason=f"the job {job_id} is over"))
