"""What the trainer tells Prometheus of itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from peerloom.artifacts.object_transfers import ObjectTransfers
from peerloom.kit.limits import ENDED_STATES
from peerloom.kit.metrics import Metric, MetricKind, Reading, enum_labels, reading
from peerloom.services.trainer.jobs.commit_queue import CommitQueue
from peerloom.v1.trainer_pb2 import JobState

JOBS = Metric(
    "peerloom_trainer_jobs",
    MetricKind.GAUGE,
    "Jobs that have not ended, by their state.",
    ("state",),
)
JOBS_ENDED = Metric(
    "peerloom_trainer_jobs_ended_total",
    MetricKind.COUNTER,
    "Jobs that have ended, by the state that they ended in.",
    ("state",),
)
STEPS = Metric("peerloom_trainer_steps_committed_total", MetricKind.COUNTER, "Training steps committed.")
SAMPLES = Metric(
    "peerloom_trainer_samples_committed_total", MetricKind.COUNTER, "Samples of committed training steps."
)
GENERATIONS = Metric(
    "peerloom_trainer_generations_formed_total",
    MetricKind.COUNTER,
    "Process groups that jobs' workers were formed into.",
)
WORKERS_LOST = Metric(
    "peerloom_trainer_workers_lost_total",
    MetricKind.COUNTER,
    "Workers that were lost before their job ended.",
)
RECOVERY = Metric(
    "peerloom_trainer_recovery_seconds",
    MetricKind.HISTOGRAM,
    "Time from the loss of a worker to the next committed step of its job.",
)
COLLECTIVE_BYTES = Metric(
    "peerloom_trainer_collective_bytes_total",
    MetricKind.COUNTER,
    "Bytes that workers sent to each other in committed steps: what one tells, times the workers.",
)
COMMIT_QUEUE = Metric(
    "peerloom_trainer_commit_queue_length", MetricKind.GAUGE, "Changes of jobs that wait to be written."
)
UPLOADS_WAITING = Metric(
    "peerloom_trainer_uploads_waiting",
    MetricKind.GAUGE,
    "Artifacts that the trainer keeps and its object store (`--artifacts`) has not yet.",
)
_LABELS = enum_labels(JobState, "JOB_STATE_")
LIVE = {state: label for state, label in _LABELS.items() if state not in ENDED_STATES}
ENDED = {state: label for state, label in _LABELS.items() if state in ENDED_STATES}


@dataclass(frozen=True)
class TrainerMetrics:
    """Reads the commit queue, which knows all jobs, and what goes to the object store if there is one."""

    queue: CommitQueue
    objects: ObjectTransfers | None = None
    metrics: ClassVar[tuple[Metric, ...]] = (
        JOBS,
        JOBS_ENDED,
        STEPS,
        SAMPLES,
        GENERATIONS,
        WORKERS_LOST,
        RECOVERY,
        COLLECTIVE_BYTES,
        COMMIT_QUEUE,
        UPLOADS_WAITING,
    )

    async def collect(self) -> Sequence[Reading]:
        """All as of now."""
        tally = self.queue.tally
        live: Counter[int] = Counter(record.job.state for record in self.queue.live())
        return [
            Reading(JOBS, {(label,): live[state] for state, label in LIVE.items()}),
            Reading(JOBS_ENDED, {(label,): tally.ended[state] for state, label in ENDED.items()}),
            reading(STEPS, tally.steps),
            reading(SAMPLES, tally.samples),
            reading(GENERATIONS, tally.generations),
            reading(WORKERS_LOST, tally.workers_lost),
            reading(RECOVERY, tally.recoveries_s),
            reading(COLLECTIVE_BYTES, tally.collective_bytes),
            reading(COMMIT_QUEUE, sum(record.log.waiting for record in self.queue.live())),
            reading(UPLOADS_WAITING, self.objects.waiting_count if self.objects else 0),
        ]
