"""Counts what the committed events of all jobs say, for metrics; how each job fares is in its record."""

from collections import Counter
from collections.abc import Iterable

from peerloom.kit.clock import from_timestamp
from peerloom.kit.limits import ENDED_STATES
from peerloom.kit.metrics import Tally
from peerloom.v1.trainer_pb2 import StepProgress, WatchJobResponse

RECOVERY_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class JobTally:
    """What happened since this process began, counted when it was durable.

    `recoveries_s` has the time from a worker's loss, the first one where several come together, to the job's
    next committed step. A step that was lost with all who had it and is done again counts again.
    """

    def __init__(self) -> None:
        self.ended: Counter[int] = Counter()
        self.steps = self.samples = self.collective_bytes = self.generations = self.workers_lost = 0
        self.recoveries_s = Tally(RECOVERY_BOUNDS_S)
        self._lost_at_s: dict[str, float] = {}

    def note(self, events: Iterable[WatchJobResponse]) -> None:
        """Counts events that were just committed, each once and in their order."""
        for event in events:
            match event.WhichOneof("event"):
                case "step":
                    self._note_step(event.job_id, event.step, from_timestamp(event.time))
                case "generation_formed":
                    self.generations += 1
                case "worker_lost":
                    self.workers_lost += 1
                    self._lost_at_s.setdefault(event.job_id, from_timestamp(event.time))
                case "state_change" if event.state_change.state in ENDED_STATES:
                    self.ended[event.state_change.state] += 1
                    self._lost_at_s.pop(event.job_id, None)

    def _note_step(self, job_id: str, step: StepProgress, time_s: float) -> None:
        self.steps += 1
        self.samples += step.samples
        self.collective_bytes += step.communicated_bytes * step.workers
        lost_at_s = self._lost_at_s.pop(job_id, None)
        if lost_at_s is not None:
            self.recoveries_s.add(max(0.0, time_s - lost_at_s))
