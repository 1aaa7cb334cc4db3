"""One job's checkpoints: keeps what its workers offer, and falls back to the older one at need."""

import asyncio

from peerloom.errors import PeerloomError
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.models.collecting import Collector
from peerloom.v1.trainer_pb2 import Checkpoint


class CheckpointKeeper:
    """Keeps one checkpoint at a time; what is offered meanwhile is passed over: newer ones will come."""

    def __init__(self, record: JobRecord, collector: Collector) -> None:
        self.failure = ""  # why the job has no checkpoint left that could be used
        self._record = record
        self._collector = collector
        self._offer: tuple[str, Checkpoint] | None = None
        self._offered = asyncio.Event()
        self._log = get_logger(job=record.job_id)

    def offered(self, worker_id: str, checkpoint: Checkpoint) -> None:
        """A worker has stored a checkpoint with its agent."""
        if self._offer is None:
            self._offer = (worker_id, checkpoint)
            self._offered.set()

    async def keep_forever(self) -> None:
        """Copies what is offered to here and to a second node, until cancelled."""
        while True:
            await self._offered.wait()
            self._offered.clear()
            assert self._offer is not None, "it is set before the event"
            worker_id, checkpoint = self._offer
            try:
                await self._collector.keep_checkpoint(self._record, worker_id, checkpoint)
            except (PeerloomError, TimeoutError) as error:
                self._log.warning("checkpoint_not_kept", step=checkpoint.step, reason=str(error))
            self._offer = None

    def refused(self, digest: str, reason: str) -> None:
        """A worker or the trainer can't use a checkpoint; several may refuse the same, the first decides."""
        job = self._record.job
        if digest != job.checkpoint.artifact.digest:
            return
        why = f"the checkpoint of step {job.checkpoint.step} ({digest[:12]}) can't be used: {reason}"
        if job.HasField("previous_checkpoint"):
            with self._collector.holding(self._record):
                self._record.checkpoint_refused(why)
        else:
            self.failure = f"{why}; there is no older one"
