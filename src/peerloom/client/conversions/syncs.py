"""What a job's trainer chose of ways to synchronise."""

from peerloom.client.types import PredictedStep, SyncInUse
from peerloom.v1 import trainer_pb2


def sync_of(message: trainer_pb2.JobSync) -> SyncInUse:
    """A JobSync message as a value."""
    known = message.predicted
    parts = (known.step_s, known.compute_s, known.exposed_s, known.compression_s)
    return SyncInUse(
        method=message.method,
        reason=message.reason,
        predicted=PredictedStep(*parts) if message.HasField("predicted") else None,
        measured_step_s=message.measured_step_s or None,
        measured_compute_s=message.measured_compute_s if message.measured_step_s else None,
        measured_communication_s=message.measured_communication_s if message.measured_step_s else None,
        runner_up=message.runner_up or None,
        runner_up_step_s=message.runner_up_step_s or None,
        changes=message.changes,
    )
