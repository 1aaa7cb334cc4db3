"""Turns the decision to form or to leave a generation into messages to its workers."""

import math
from collections.abc import Sequence

from peerloom.kit.logs import get_logger
from peerloom.services.trainer.collecting import Collector
from peerloom.services.trainer.crew import Crew
from peerloom.services.trainer.generations import Form
from peerloom.services.trainer.hub import Hub
from peerloom.services.trainer.journal import JobJournal
from peerloom.services.trainer.ledger import go_back
from peerloom.services.trainer.members import Phase
from peerloom.services.trainer.rendezvous import Rendezvous
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    ConfigureGeneration,
    GenerationFormed,
    StateChange,
    WatchJobResponse,
    Worker,
    WorkerSessionResponse,
)
from peerloom.worker.shares import first_shares

# A polite leave names a step a little ahead, so that the message reaches all before they are there.
POLITE_LEAD_S = 0.1
POLITE_LEAD_STEPS = 2
# Members that meet beside the training hold nobody up, but for a newcomer that nobody can reach.
MEETING_LIMIT_S = 15.0


class Former:
    """Forms one job's generations, one after the other, and divides the batch among their workers."""

    collective_timeout_s = 60.0

    def __init__(
        self,
        journal: JobJournal,
        crew: Crew,
        hub: Hub,
        rendezvous: Rendezvous,
        collector: Collector,
    ) -> None:
        self._journal = journal
        self._crew = crew
        self._hub = hub
        self._rendezvous = rendezvous
        self._collector = collector
        self._shares: list[int] = []

    async def form(self, form: Form) -> bool:
        """Numbers, records and announces the next generation; False if some of its workers were lost instead.

        Raises a PeerloomError if that fails, DataLossError if its checkpoint can't be used.
        """
        job = self._journal.job
        if form.from_checkpoint:
            failed = await self._collector.distribute_checkpoint(job, form.worker_ids)
            for worker_id, reason in failed.items():
                self._crew.lose(worker_id, reason)
        store_address = await self._rendezvous.address()
        there = {member.worker_id for member in self._crew.members() if member.phase is not Phase.LOST}
        if not there.issuperset(form.worker_ids):
            return False  # one was lost while the others were given the checkpoint
        if form.from_checkpoint:
            # What came after it was lost with all who had it, and is done again.
            job.progress.step, job.progress.epoch = job.checkpoint.step, job.checkpoint.epoch
            go_back(job.ledger, job.checkpoint.step, job.spec.batch_size)
        speeds = {} if job.spec.equal_shares else self._crew.speeds()
        self._shares = first_shares(form.worker_ids, speeds)
        job.generation += 1
        workers = self._crew.begin_generation(form.worker_ids, MEETING_LIMIT_S if form.beside else None)
        if form.beside:
            job.state_reason = form.reason
            change = StateChange(state=job.state, reason=form.reason)
            self._journal.note(WatchJobResponse(state_change=change))
        else:
            self._note_formed(workers, form.first_step)
        # Nobody works in a generation that a restart of ours could forget.
        await self._journal.wait_written()
        for rank, worker_id in enumerate(form.worker_ids):
            configure = self._configure(form, rank, store_address)
            self._hub.send(worker_id, WorkerSessionResponse(configure=configure))
        get_logger(job=job.job_id).info("generation_formed", generation=job.generation, reason=form.reason)
        return True

    def enter(self, reason: str) -> int:
        """All have met: those who work leave their generation for it once the returned step is committed."""
        at_step, last = self._boundary_ahead(), self._journal.job.generation - 1
        leave = AbortGeneration(generation=last, reason=reason, at_step=at_step)
        working = [mate for mate in self._crew.mates if mate.phase is Phase.WORKING]
        entering = [mate for mate in working if mate.meets_by_s is not None]
        for mate in entering:
            mate.meets_by_s = None
            self._hub.send(mate.worker.worker_id, WorkerSessionResponse(abort=leave))
        for mate in working:
            if mate not in entering:
                mate.is_in_generation = False
                self._crew.leave([mate.worker.worker_id], leave)
        self._note_formed(sorted((mate.worker for mate in entering), key=lambda worker: worker.rank), at_step)
        return at_step

    def abort(self, reason: str, is_polite: bool) -> AbortGeneration:
        """The message that ends the current generation, at once or at a step boundary ahead."""
        at_step = self._boundary_ahead() if is_polite else 0
        return AbortGeneration(generation=self._journal.job.generation, reason=reason, at_step=at_step)

    def _boundary_ahead(self) -> int:
        step_s = self._journal.last_step_s
        ahead = math.ceil(POLITE_LEAD_S / step_s) if step_s else 0
        return int(self._journal.job.progress.step) + max(ahead, POLITE_LEAD_STEPS)

    def _note_formed(self, workers: Sequence[Worker], first_step: int) -> None:
        job = self._journal.job
        formed = GenerationFormed(
            generation=job.generation, workers=workers, backend=job.backend, first_step=first_step
        )
        self._journal.note(WatchJobResponse(generation_formed=formed))

    def _configure(self, form: Form, rank: int, store_address: str) -> ConfigureGeneration:
        job = self._journal.job
        # A newcomer that has met the others waits in its first collective for the end of their steps.
        waits_s = (POLITE_LEAD_STEPS + 1) * self._journal.last_step_s if form.beside else 0.0
        return ConfigureGeneration(
            generation=job.generation,
            rank=rank,
            world_size=len(form.worker_ids),
            store_address=store_address,
            store_prefix=f"{job.job_id}/{job.generation}",
            backend=job.backend,
            spec=job.spec,
            state_rank=form.state_rank,
            first_step=form.first_step,
            batch_shares=self._shares,
            collective_timeout_s=self.collective_timeout_s + waits_s,
            transfer_state=form.transfer_state,
            checkpoint_digest=job.checkpoint.artifact.digest if form.from_checkpoint else "",
            beside=form.beside,
        )
