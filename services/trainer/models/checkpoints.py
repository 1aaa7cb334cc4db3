"""One job's checkpoints: keeps what its workers offer, and falls back to the older one at need."""

import asyncio
from contextlib import suppress

from peerloom.errors import PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.models.collecting import Collector
from peerloom.v1.trainer_pb2 import Checkpoint

# After a checkpoint was moved, so many times as long belongs to the gradients, which may use the same link.
REST_TIMES = 9


class CheckpointKeeper:
    """Keeps one checkpoint at a time, the newest that is offered; moving them takes a tenth of the time."""

    def __init__(self, record: JobRecord, collector: Collector, clock: Clock) -> None:
        self.failure = ""  # why the job has no checkpoint left that could be used
        self._record = record
        self._collector = collector
        self._clock = clock
        self._offer: tuple[str, Checkpoint] | None = None
        self._offered, self._settled, self._pressing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._settled.set()
        self._log = get_logger(job=record.job_id)

    async def settle(self) -> None:
        """Returns once what was offered so far is kept, or can't be; that waits for no rest to end."""
        self._pressing.set()
        await self._settled.wait()

    def offered(self, worker_id: str, checkpoint: Checkpoint, *, is_pressing: bool = False) -> None:
        """A worker has stored a checkpoint with its agent; the one that is kept is passed over.

        A pressing one waits for no rest to end.
        """
        if checkpoint.artifact.digest == self._record.job.checkpoint.artifact.digest and self._offer is None:
            return
        self._offer = (worker_id, checkpoint)
        self._settled.clear()
        self._offered.set()
        if is_pressing:
            self._pressing.set()

    async def keep_forever(self) -> None:
        """Copies what is offered to here and to a second node, until cancelled."""
        while True:
            await self._offered.wait()
            self._offered.clear()
            self._pressing.clear()
            assert self._offer is not None, "it is set before the event"
            (worker_id, checkpoint), self._offer = self._offer, None
            began_s = self._clock.monotonic_s()
            try:
                await self._collector.keep_checkpoint(self._record, worker_id, checkpoint)
            except (PeerloomError, TimeoutError) as error:
                self._log.warning("checkpoint_not_kept", step=checkpoint.step, reason=str(error))
            if self._offer is None:
                self._settled.set()
            await self._rest(REST_TIMES * (self._clock.monotonic_s() - began_s))

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._pressing.wait()

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
