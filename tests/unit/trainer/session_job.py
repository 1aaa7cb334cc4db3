"""A job's pool and sessions without its services, for tests that speak as its workers."""

from typing import Any

from noted_streams import Streams
from trainer_room import Room, prepared_for, worker
from trainer_site import reported

from peerloom.services.trainer.generations.planning import JobPlanner
from peerloom.services.trainer.generations.sync_tuning import SyncTuner
from peerloom.services.trainer.models.checkpoints import CheckpointKeeper
from peerloom.services.trainer.workers.accusations import AuditKeeper
from peerloom.services.trainer.workers.pool import WorkerPool
from peerloom.services.trainer.workers.rendezvous import Rendezvous
from peerloom.services.trainer.workers.sessions import WorkerSessions
from peerloom.services.trainer.workers.state import WorkerState
from peerloom.v1.trainer_pb2 import (
    StepProgress,
    WorkerBeat,
    WorkerHello,
    WorkerReady,
    WorkerSessionRequest,
)


class Job:
    """A job's pool, with a clock and streams that tests move."""

    def __init__(self, **spec: Any) -> None:
        self.room = Room()
        self.record = self.room.new_record(batch_size=10, **spec)
        self.streams: Any = Streams()
        self.witness = self.room.witness(self.record)
        self.pool = WorkerPool(self.record, self.streams, self.witness, self.room.clock)
        self.checkpoints = CheckpointKeeper(self.record, self.room.collector, self.room.clock)
        self.listen()

    def listen(self) -> None:
        """Begins to hear of the pool's workers."""
        self.rendezvous = Rendezvous(self.pool.send)
        audits = AuditKeeper(self.record, self.pool, self.witness)
        planner = JobPlanner(self.record, self.checkpoints, self.room.clock, 10.0)
        hears = (self.rendezvous, audits, SyncTuner(self.record, self.room.clock), planner)
        self.sessions = WorkerSessions(
            self.record, self.pool, self.checkpoints, self.streams, *hears, self.room.clock, 10.0
        )

    def hello(self, number: int, step: int = 0, generation: int = 0) -> None:
        """A worker's session opens."""
        hello = WorkerHello(worker_id=f"worker-{number}", committed_step=step, generation=generation)
        request = self.streams.hellos[hello.worker_id] = WorkerSessionRequest(hello=hello)
        self.sessions.session_opened(request)

    def says(self, number: int, **message: Any) -> None:
        """A worker says something."""
        self.sessions.session_message(f"worker-{number}", WorkerSessionRequest(**message))

    def reports(self, number: int, first: int, last: int, generation: int = 1) -> None:
        """A worker reports these steps, of 10 samples each."""
        self.says(number, steps=reported(*(step_of(s, generation) for s in range(first, last + 1))).steps)

    def goes(self, number: int) -> None:
        """A worker's session breaks."""
        del self.streams.hellos[f"worker-{number}"]
        self.sessions.session_closed(f"worker-{number}")

    def state(self, number: int) -> WorkerState:
        """A worker as the decisions see it."""
        [state] = [s for s in self.pool.states() if s.worker_id == f"worker-{number}"]
        return state

    def evidence(self) -> list[str]:
        """What was seen of nodes since the last time that this was asked."""
        change = self.record.take_change()
        return [fact.node_id for fact in change.evidence] if change else []


def restarted(job: Job, resumes: bool = True) -> Job:
    """The same job under a trainer that has just been started."""
    again = Job()
    again.record = job.record
    again.pool = WorkerPool(job.record, again.streams, again.witness, again.room.clock)
    again.listen()
    if resumes:
        again.sessions.resume()
    return again


def step_of(number: int, generation: int = 1) -> StepProgress:
    """A step of the only epoch as it is reported."""
    first = 10 * (number - 1)
    return StepProgress(step=number, epoch=1, first_sample=first, samples=10, generation=generation)


def begin(job: Job, *numbers: int, beside: bool = False) -> None:
    """A generation of these workers begins, or meets beside the training."""
    ids = [f"worker-{number}" for number in numbers]
    newest = max(job.state(number).step for number in numbers)
    job.record.generation_begun(ids, newest, "they go on", beside)
    job.pool.begin_generation(ids, newest, 15.0 if beside else None)


def prepared_job(**spec: Any) -> Job:
    """Two workers on two nodes that have loaded their task."""
    job = Job(**spec)
    job.sessions.expect([worker(1, "ada"), worker(2, "bob")])
    for number in (1, 2):
        job.hello(number)
        job.says(number, prepared=prepared_for(job.record.job.spec, samples=200))
    return job


def working_job(**spec: Any) -> Job:
    """The two work in the first generation, at step 3."""
    job = prepared_job(**spec)
    begin(job, 1, 2)
    for number in (1, 2):
        job.says(number, ready=WorkerReady(generation=1))
        job.says(number, beat=WorkerBeat(committed_step=3))
    job.streams.sent.clear()
    job.record.take_change()
    return job
