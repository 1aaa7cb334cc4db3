"""What a job's steps took on this worker, added up over its generations."""

from peerloom.v1.trainer_pb2 import StepProgress, WorkerFinished

SPEED_GAIN = 0.1  # weight of the newest step in the measured speed


class TrainingFigures:
    """The sums for the result of a job, and the running mean of what computing a sample takes here.

    Times are in seconds; `samples` and `communicated_bytes` as in `StepProgress`.
    """

    def __init__(self) -> None:
        self.steps = self.samples = self.communicated_bytes = 0
        self.training_s = self.compute_s = self.communication_s = 0.0
        self.compute_s_per_sample = 0.0

    def add(self, progress: StepProgress) -> None:
        """Adds a step up."""
        self.steps += 1
        self.samples += progress.samples
        self.training_s += progress.step_s
        self.compute_s += progress.compute_s
        self.communication_s += progress.communication_s
        self.communicated_bytes += progress.communicated_bytes

    def note_speed(self, compute_s_per_sample: float) -> None:
        """Adds a step to the running mean."""
        past = self.compute_s_per_sample or compute_s_per_sample
        self.compute_s_per_sample = past + SPEED_GAIN * (compute_s_per_sample - past)

    def finished(self) -> WorkerFinished:
        """What they say of a finished job; the times are means of its steps."""
        steps = max(1, self.steps)
        return WorkerFinished(
            training_s=self.training_s,
            samples=self.samples,
            compute_s_per_step=self.compute_s / steps,
            communication_s_per_step=self.communication_s / steps,
            communicated_bytes=self.communicated_bytes,
        )
