"""A trainer's record of two workers, whose method it chooses; the clock and all figures are invented."""

from trainer_room import Room, prepared_for, worker

from peerloom.kit.sync_method import SyncMethod
from peerloom.services.trainer.generations.decision_types import Form
from peerloom.services.trainer.generations.sync_tuning import SyncTuner
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.workers.state import WorkerState, Working
from peerloom.v1.trainer_pb2 import (
    MeasuredCodec,
    MeasuredLayer,
    MeasuredLink,
    StepProgress,
    WorkerMeasured,
)

RING = str(SyncMethod())
IDS = ("worker-1", "worker-2")
AT_WORK = [WorkerState(worker_id, Working()) for worker_id in IDS]
SAMPLES = 100_000  # in batches of 10


class TunedJob:
    """A record of two workers and its tuner, in `generation` 1."""

    def __init__(self, sync: str = "auto", bears_rounds: bool = False) -> None:
        self.room = Room()
        self.record: JobRecord = self.room.new_record(batch_size=10, sync=sync)
        self.record.workers_added([worker(1, "ada"), worker(2, "bob")])
        self.loaded(bears_rounds)
        self.restart()
        self.form()

    def loaded(self, bears_rounds: bool) -> None:
        """A worker has loaded the task, which can be trained in rounds or can't."""
        prepared = prepared_for(self.record.job.spec, SAMPLES)
        prepared.bears_rounds = bears_rounds
        self.record.task_loaded(prepared)

    def restart(self) -> None:
        """Another trainer goes on with the record."""
        self.tuner = SyncTuner(self.record, self.room.clock)

    def form(self, sync: str = "", worker_ids: tuple[str, ...] = IDS) -> None:
        """The next generation."""
        self.record.generation_begun(worker_ids, int(self.record.job.progress.step), "why", False, sync)

    def measured(
        self,
        delay_s: float = 0.1,
        codecs: tuple[str, ...] = (),
        bits_per_s: float = 1e8,
    ) -> None:
        """Both have measured, as a rule 100 Mbit/s: a ring takes two round trips, others two single ways."""
        known = [MeasuredCodec(codec=codec, encode_s=1e-9, decode_s=1e-9) for codec in codecs]
        generation = self.record.generation
        link = MeasuredLink(
            rank=1, delay_s=delay_s, sent_bits_per_s=bits_per_s, received_bits_per_s=bits_per_s
        )
        layers = [MeasuredLayer(parameters=1_000_000, forward_s=0.02, backward_s=0.04)]
        first = WorkerMeasured(generation=generation, links=[link], codecs=known, layers=layers)
        second = WorkerMeasured(generation=generation, codecs=known)
        self.tuner.heard(IDS[0], first)
        self.tuner.heard(IDS[1], second)

    def steps(self, count: int, step_s: float, compute_s: float = 0.06) -> None:
        """So many are committed."""
        for _ in range(count):
            number = int(self.record.job.progress.step) + 1
            step = StepProgress(
                step=number,
                epoch=1,
                samples=10,
                first_sample=10 * (number - 1),
                step_s=step_s,
                compute_s=compute_s,
                communication_s=step_s - compute_s,
                generation=self.record.generation,
                workers=2,
            )
            self.record.step_committed(step)
            self.tuner.stepped(step)

    async def wanted(self, workers: list[WorkerState] = AT_WORK) -> Form | None:
        """The change that is made after all that was said."""
        await self.tuner.judge()
        return self.tuner.change(workers)

    async def changed(self) -> Form:
        """The change that is made after plain steps of 0.8 s, once its generation is formed."""
        self.measured()
        self.steps(30, 0.8)
        form = await self.wanted()
        assert form is not None
        self.form(form.sync)
        return form
