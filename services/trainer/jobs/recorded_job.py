"""What a job's record is made of: the job, a copy for readers, and the log that changes are appended to."""

from collections.abc import Iterable, Mapping

from peerloom.kit.clock import Clock
from peerloom.kit.limits import cut_reason
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.jobs.event_log import NO_SECRETS, EventLog
from peerloom.services.trainer.store import Change
from peerloom.v1.selector_pb2 import Evidence, RankedNode
from peerloom.v1.trainer_pb2 import Job, WatchJobResponse, Worker


class RecordedJob:
    """One job as everybody reads it; `JobRecord` has the verbs that change it."""

    def __init__(self, job: Job, log: EventLog, clock: Clock) -> None:
        self.log = log
        self.last_step_s = 0.0  # how long the newest step took; 0 before the first since the trainer started
        self._job = Job()
        self._job.CopyFrom(job)
        self._snapshot: Job | None = None
        self._clock = clock
        self._logger = get_logger(job=job.job_id)

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._job.job_id

    @property
    def generation(self) -> int:
        """The newest generation, 0 before the first."""
        return self._job.generation

    @property
    def job(self) -> Job:
        """A copy of the record as of now, for reading: what is written into it changes nothing."""
        if self._snapshot is None:
            self._snapshot = Job()
            self._snapshot.CopyFrom(self._job)
        return self._snapshot

    def nodes(self) -> dict[str, RankedNode]:
        """The nodes that gave slots, by id."""
        return {answer.node.node_id: answer.node for answer in self.job.answers if answer.accepted_slots}

    def worker(self, worker_id: str) -> Worker:
        """One of the job's workers; there must be one of this id."""
        return next(worker for worker in self.job.workers if worker.worker_id == worker_id)

    def living_nodes(self) -> set[str]:
        """Ids of the nodes where a worker has not ended."""
        return {worker.node_id for worker in self._job.workers if not worker.ended}

    def take_change(self) -> Change | None:
        """What the commit queue is to write now."""
        return self.log.take(self.job)

    def _end_worker(self, worker_id: str, reason: str) -> Worker:
        worker = next(worker for worker in self._job.workers if worker.worker_id == worker_id)
        worker.ended, worker.end_reason = True, cut_reason(reason)
        return worker

    def _append(
        self,
        event: WatchJobResponse | None = None,
        evidence: Iterable[Evidence] = (),
        secrets: Mapping[str, str] = NO_SECRETS,
        *,
        age_s: float = 0.0,
        is_routine: bool = False,
    ) -> None:
        self._snapshot = None
        self.log.append(event, evidence, secrets, age_s=age_s, is_routine=is_routine)
