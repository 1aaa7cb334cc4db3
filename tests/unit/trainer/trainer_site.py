"""A trainer that serves without a server, with one node that starts scripted workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scripted_worker import ScriptedWorker
from trainer_room import Agent, Room, prepared_for, until

from peerloom.kit.limits import ENDED_STATES
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.trainer_pb2 import (
    Checkpoint,
    EpochProgress,
    Job,
    JobSpec,
    StepProgress,
    WorkerFinished,
    WorkerReady,
    WorkerSessionRequest,
    WorkerSteps,
)

SPEC = JobSpec(task="digits", epochs=1, batch_size=10)
CHECKPOINT = Checkpoint(step=2, artifact=Artifact(digest="c" * 64))


class Site:
    """A trainer that serves, with one node, of the `owner` ("": nobody), that starts scripted workers."""

    def __init__(self, slots: int = 1, owner: str = "") -> None:
        self._owner = owner
        self.agent = Agent("ada", slots, on_start=self._start)
        self.room = Room(self.agent)
        self.workers: list[ScriptedWorker] = []
        self._begun = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Site"]:
        """As `serve` does it, without a server."""
        async with asyncio.TaskGroup() as tasks:
            forever = [
                tasks.create_task(work)
                for work in (
                    self.room.jobs.run_forever(),
                    self.room.queue.write_forever(),
                    self.room.reporter.report_forever(),
                )
            ]
            yield self
            for task in forever:
                task.cancel()

    async def restarted(self) -> "Site":
        """Another process on what this one has stored; no node has a slot that was taken before."""
        again = Site(self.agent.slots)
        again.room.database, again.room.store = self.room.database, self.room.store
        for part in (again.room.queue, again.room.jobs):
            part._store, part._sql = self.room.store, self.room.sql
        await again.room.jobs.resume_all()
        return again

    async def submit(self, sync: str = "") -> str:
        """Hands in a job."""
        spec = JobSpec(task=SPEC.task, epochs=SPEC.epochs, batch_size=SPEC.batch_size, sync=sync)
        job = await self.room.jobs.submit(spec, f"request-{len(self.workers)}")
        return job.job_id

    def job(self, job_id: str) -> Job:
        """The job as it is stored."""
        return self.room.store.find_job(job_id)[0]

    async def ended(self, job_id: str) -> Job:
        """The job once it has ended."""
        await until(lambda: self.job(job_id).state in ENDED_STATES)
        return self.job(job_id)

    async def worker(self) -> ScriptedWorker:
        """The newest worker, in the first generation that is announced to it."""
        await until(lambda: len(self.workers) > self._begun)
        worker = self.workers[self._begun]
        self._begun += 1
        prepare = (await worker.hear("prepare")).prepare
        prepared = prepared_for(prepare.spec, samples=40)
        worker.say(WorkerSessionRequest(prepared=prepared))
        return worker

    async def working(self) -> ScriptedWorker:
        """The newest worker, alone in a generation from the first step on, with two steps done."""
        worker = await self.worker()
        configure = (await worker.hear("configure")).configure
        assert not configure.first_step
        worker.say(WorkerSessionRequest(ready=WorkerReady(generation=configure.generation)))
        for number in (1, 2):
            worker.say(reported(step(number, configure.generation)))
        return worker

    def _start(self, worker_id: str) -> None:
        [job_id] = {request.job_id for request in self.agent.asked}
        secret = self.agent.secrets[worker_id]
        worker = ScriptedWorker(self.room.router, worker_id, job_id, secret, self._owner)
        self.workers.append(worker)
        worker.connect()


def reported(*steps: StepProgress) -> WorkerSessionRequest:
    """A worker's message that it has just committed these steps."""
    return WorkerSessionRequest(steps=WorkerSteps(steps=steps, ages_s=[0.0] * len(steps)))


def step(number: int, generation: int = 1) -> StepProgress:
    first = 10 * (number - 1)
    return StepProgress(
        step=number, epoch=1, samples=10, first_sample=first, generation=generation, workers=1
    )


def finish(worker: ScriptedWorker, generation: int = 1) -> None:
    """It makes its last two steps."""
    for number in (3, 4):
        worker.say(reported(step(number, generation)))
    worker.say(WorkerSessionRequest(epoch=EpochProgress(epoch=1, metric_name="accuracy", metric=0.9)))
    said = WorkerFinished(
        generation=generation,
        model=Artifact(digest="f" * 64),
        parameters_digest="a" * 64,
        training_gflops=2.0,
    )
    worker.say(WorkerSessionRequest(finished=said))
