"""What a job's committed events say as spans of its trace: pure, as a job outlives calls and trainers.

The job's own span is told when it ends, from its submission on; its id follows from the call that handed the
job in, so whoever drives the job, before or after a restart, tells its parts below it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from peerloom.kit.clock import from_timestamp
from peerloom.kit.limits import ENDED_STATES
from peerloom.kit.tracing import Attributes, PastSpan, span_id_below, traceparent_below
from peerloom.v1.trainer_pb2 import GenerationFormed, Job, JobState, WatchJobResponse, WorkerLost


def job_traceparent(job: Job) -> str:
    """What a part of the job stands below; empty for a job that isn't traced."""
    return traceparent_below(job.traceparent, job.job_id)


@dataclass(frozen=True)
class _Began:
    begin_s: float
    attributes: Attributes = field(default_factory=dict)


class JobSpans:
    """One job's spans of what began since this trainer follows it; what a restart cut in two has none.

    "start worker" lasts until its first generation, "generation" until the next one, "form generation" and
    "recover" until the next committed step.
    """

    def __init__(self, job: Job) -> None:
        self._starting: dict[str, _Began] = {}
        self._known = {worker.worker_id for worker in job.workers}
        self._generation: _Began | None = None
        self._forming: _Began | None = None
        self._lost: _Began | None = None
        # One that had ended begins anew, in another trace.
        self._begin_s = None if job.state in ENDED_STATES else from_timestamp(job.submit_time)

    def note(self, job: Job, events: Iterable[WatchJobResponse], now_s: float) -> list[PastSpan]:
        """The spans that these events, just committed with `job` at `now_s`, bring to their ends."""
        told: list[PastSpan] = []
        for worker in job.workers:
            if worker.worker_id not in self._known:
                self._known.add(worker.worker_id)
                who = {"worker": worker.worker_id, "node": worker.node_name}
                self._starting[worker.worker_id] = _Began(now_s, who)
        for event in events:
            time_s = from_timestamp(event.time)
            self._begin_s = time_s if self._begin_s is None else self._begin_s
            told += self._note(job, event, time_s)
        return told

    def _note(self, job: Job, event: WatchJobResponse, time_s: float) -> list[PastSpan]:
        match event.WhichOneof("event"):
            case "generation_formed":
                return self._formed(job, event.generation_formed, time_s)
            case "step":
                return self._stepped(job, time_s)
            case "worker_lost":
                return self._worker_lost(job, event.worker_lost, time_s)
            case "state_change" if event.state_change.state in ENDED_STATES:
                return self._ended(job, event.state_change.state, event.state_change.reason, time_s)
        return []

    def _formed(self, job: Job, formed: GenerationFormed, time_s: float) -> list[PastSpan]:
        told = self._end(job, "generation", self._generation, time_s)
        for worker in formed.workers:
            told += self._end(job, "start worker", self._starting.pop(worker.worker_id, None), time_s)
        about: Attributes = {
            "generation": formed.generation,
            "workers": len(formed.workers),
            "first_step": formed.first_step,
            "sync": formed.sync,
        }
        self._generation = self._forming = _Began(time_s, about)
        return told

    def _stepped(self, job: Job, time_s: float) -> list[PastSpan]:
        told = self._end(job, "form generation", self._forming, time_s)
        told += self._end(job, "recover", self._lost, time_s)
        self._forming = self._lost = None
        return told

    def _worker_lost(self, job: Job, lost: WorkerLost, time_s: float) -> list[PastSpan]:
        about = {"worker": lost.worker.worker_id, "node": lost.worker.node_name, "reason": lost.reason}
        self._lost = self._lost or _Began(time_s, about)  # the first, where several come together
        starting = self._starting.pop(lost.worker.worker_id, None)
        return self._end(job, "start worker", starting, time_s, lost.reason)

    def _ended(self, job: Job, state: "JobState.ValueType", reason: str, time_s: float) -> list[PastSpan]:
        told = self._end(job, "generation", self._generation, time_s)
        told += self._end(job, "form generation", self._forming, time_s, "the job ended before its next step")
        told += self._end(job, "recover", self._lost, time_s, "the job ended before its next step")
        self._generation = self._forming = self._lost = None
        name = JobState.Name(state).removeprefix("JOB_STATE_").lower()
        about: Attributes = {
            "job": job.job_id,
            "task": job.spec.task,
            "state": name,
            "reason": reason,
            "generations": job.generation,
            "steps": job.progress.step,
        }
        is_well = state == JobState.JOB_STATE_SUCCEEDED
        begin_s, own_id = self._begin_s or time_s, span_id_below(job.traceparent, job.job_id)
        error = "" if is_well else f"{name}: {reason}"
        return [*told, PastSpan("job", job.traceparent, begin_s, time_s, about, error, own_id)]

    def _end(
        self, job: Job, name: str, began: _Began | None, time_s: float, error: str = ""
    ) -> list[PastSpan]:
        if began is None:
            return []
        return [PastSpan(name, job_traceparent(job), began.begin_s, time_s, began.attributes, error)]
