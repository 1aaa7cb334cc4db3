"""Users of the system: one submits a job, another watches it, a third looks at the nodes."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

from peerloom.errors import NotFoundError, PeerloomError
from peerloom.kit.dialing import TrainerPeer
from peerloom.kit.directory import Directory
from peerloom.kit.ids import new_request_id
from peerloom.kit.limits import ENDED_STATES
from peerloom.testing.memory_replicas import dialer_of
from peerloom.testing.service_wiring import TRAINER
from peerloom.testing.simulated_processes import ProcessRun
from peerloom.v1.registry_pb2 import DrainRequest, ListNodesRequest, Node, WatchNodesRequest
from peerloom.v1.trainer_pb2 import (
    CancelJobRequest,
    GetJobRequest,
    Job,
    JobSpec,
    SubmitJobRequest,
    WatchJobRequest,
)

RETRY_S = 0.3


class Watched:
    """What a watcher saw, in order, and where it found a gap or a repeat."""

    def __init__(self) -> None:
        self.events: dict[int, bytes] = {}
        self.last = 0
        self.wrong = ""

    def see(self, sequence: int, event: Any) -> None:
        """One more event."""
        if sequence != self.last + 1 and not self.wrong:
            self.wrong = f"event {sequence} came after event {self.last}"
        self.last = sequence
        self.events[sequence] = event.SerializeToString(deterministic=True)


class User:
    """One person's program. It tries again for as long as it takes, with the same request id."""

    def __init__(
        self, run: ProcessRun, chance: random.Random, registries: str, is_told_of_takeovers: bool
    ) -> None:
        self._run, self._chance = run, chance
        dialer = dialer_of(run)
        self._directory = Directory(dialer, registries)
        self._registry = self._directory.registry
        self._known_trainer = None if is_told_of_takeovers else dialer.trainer(TRAINER)
        if is_told_of_takeovers:
            run.spawn(self._directory.follow_forever())

    async def _trainer(self) -> TrainerPeer:
        """Who leads now, as the registry says; where nobody takes over, the only one."""
        return self._known_trainer or await self._directory.trainer()

    async def _ask_trainer(self, name: str, request: Any, timeout_s: float = 3.0) -> Any:
        async def call() -> Any:
            trainer = await self._trainer()
            return await trainer.call(getattr(trainer.stub, name), request, timeout_s)

        return await self._insist(call)

    async def submit(self, spec: JobSpec, is_repeated: bool = False) -> Job:
        """Hands a job in, perhaps twice."""
        request = SubmitJobRequest(spec=spec, request_id=new_request_id())
        answer = await self._ask_trainer("SubmitJob", request)
        if is_repeated:
            answer = await self._ask_trainer("SubmitJob", request)
        job: Job = answer.job
        self._run.world.history.note(f"{self._run.name} has submitted {job.job_id}")
        return job

    async def cancel(self, job_id: str) -> None:
        """Ends a job."""
        self._run.world.history.note(f"{self._run.name} cancels {job_id}")
        await self._ask_trainer("CancelJob", CancelJobRequest(job_id=job_id), 10.0)

    async def drain(self, node: str, undo: bool) -> None:
        """Keeps new work from a node, or allows it again."""
        request, stub = DrainRequest(node=node, undo=undo), self._registry.stub
        self._run.world.history.note(f"{self._run.name} {'undrains' if undo else 'drains'} {node}")
        try:
            await self._insist(lambda: self._registry.call(stub.Drain, request, 3.0))
        except NotFoundError:
            return  # it has not registered yet

    async def nodes(self) -> Sequence[Node]:
        """All nodes as they are now."""
        stub = self._registry.stub
        answer = await self._insist(lambda: self._registry.call(stub.ListNodes, ListNodesRequest(), 3.0))
        nodes: Sequence[Node] = answer.nodes
        return nodes

    async def watch_job(self, job_id: str, watched: Watched) -> None:
        """Sees all events of a job, going on where it was when the stream breaks."""
        while True:
            await self._follow_job(job_id, watched)
            answer = await self._ask_trainer("GetJob", GetJobRequest(job_id=job_id))
            if answer.job.state in ENDED_STATES and await self._saw_the_end(job_id, watched):
                return
            await asyncio.sleep(RETRY_S)

    async def _saw_the_end(self, job_id: str, watched: Watched) -> bool:
        before = watched.last
        return await self._follow_job(job_id, watched) and watched.last == before

    async def watch_nodes(self, watched: Watched) -> None:
        """Sees all events of the registry, until the history ends."""
        while True:
            request = WatchNodesRequest(after_sequence=watched.last)
            await self._follow(self._registry.stream(self._registry.stub.WatchNodes, request), watched)
            await asyncio.sleep(RETRY_S)

    async def _follow_job(self, job_id: str, watched: Watched) -> bool:
        request = WatchJobRequest(job_id=job_id, after_sequence=watched.last)
        try:
            trainer = await self._trainer()
        except PeerloomError:
            return False
        return await self._follow(trainer.stream(trainer.stub.WatchJob, request), watched)

    async def _follow(self, stream: AsyncIterator[Any], watched: Watched) -> bool:
        try:
            async for event in stream:
                watched.see(event.sequence, event)
        except PeerloomError:
            return False
        return True

    async def _insist(self, call: Any) -> Any:
        while True:
            try:
                return await call()
            except NotFoundError:
                raise
            except PeerloomError:
                await asyncio.sleep(RETRY_S * self._chance.uniform(0.5, 1.5))
