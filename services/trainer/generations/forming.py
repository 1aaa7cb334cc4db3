"""Turns the decision to form or to leave a generation into messages to its workers."""

import math

from peerloom.kit import tracing
from peerloom.kit.logs import get_logger
from peerloom.kit.shadow_ring import shadow_holders
from peerloom.services.trainer.generations.decision_types import Form
from peerloom.services.trainer.generations.plan_decisions import Planned
from peerloom.services.trainer.generations.sync_tuning import SyncTuner
from peerloom.services.trainer.jobs.federated_entries import beliefs_in
from peerloom.services.trainer.jobs.plan_entries import has_shadows, plan_in_use, plan_text, stages_of
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.stage_entries import stage_starts
from peerloom.services.trainer.jobs.sync_entries import for_workers, steps_at_once
from peerloom.services.trainer.models.collecting import Collector
from peerloom.services.trainer.workers.accusations import AuditKeeper
from peerloom.services.trainer.workers.decisions import REPORT_INTERVAL_S
from peerloom.services.trainer.workers.pool import WorkerPool
from peerloom.services.trainer.workers.rendezvous import Rendezvous
from peerloom.services.trainer.workers.state import Lost
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    Checkpoint,
    ConfigureGeneration,
    Job,
    JobSpec,
    WorkerSessionResponse,
)
from peerloom.worker.shares import first_shares

# A polite leave names a step a little ahead, so that the message reaches all before they are there.
POLITE_LEAD_S = 0.1
POLITE_LEAD_STEPS = 2
# Whose node wants its slots back waits no longer than this for the end of a step. A round of local steps that
# is left is made again by the others, which costs them less than a process that is killed in it.
LONGEST_LEAVE_S = 1.0
SHORTEST_STEP_S = 1e-4  # a report that says less must not put the leave off for ever
# Members that meet beside the training hold nobody up, but for a newcomer that nobody can reach.
MEETING_LIMIT_S = 15.0


class Former:
    """Forms one job's generations, one after the other, and divides the batch among their workers."""

    def __init__(
        self,
        record: JobRecord,
        pool: WorkerPool,
        collector: Collector,
        rendezvous: Rendezvous,
        audits: AuditKeeper,
        tuner: SyncTuner,
        collective_timeout_s: float,
    ) -> None:
        self._record = record
        self._pool = pool
        self._collector = collector
        self._rendezvous = rendezvous
        self._audits = audits
        self._tuner = tuner
        self._collective_timeout_s = collective_timeout_s
        self._round_before = 1  # steps that were committed at once in the generation before the newest

    async def form(self, form: Form) -> bool:
        """Numbers, records and announces the next generation; False if some of its workers were lost instead.

        Raises a PeerloomError if that fails, DataLossError if its checkpoint can't be used.
        """
        record, checkpoint = self._record, None
        if form.from_checkpoint:
            checkpoint = record.job.checkpoint
            with tracing.span("distribute checkpoint", step=checkpoint.step):
                failed = await self._collector.distribute_checkpoint(record, checkpoint, form.worker_ids)
            for worker_id, reason in failed.items():
                self._pool.lose(worker_id, reason)
        there = {state.worker_id for state in self._pool.states() if not isinstance(state.phase, Lost)}
        if not there.issuperset(form.worker_ids):
            return False  # one was lost while the others were given the checkpoint
        speeds = {} if record.job.spec.equal_shares else self._pool.slots.speeds()
        shares = first_shares(form.worker_ids, speeds)
        plan = form.plan if isinstance(form, Planned) else None
        self._round_before = steps_at_once(record.job)
        record.generation_begun(form.worker_ids, form.first_step, form.reason, form.beside, form.sync, plan)
        limit_s = MEETING_LIMIT_S if form.beside else None
        self._pool.begin_generation(form.worker_ids, form.first_step, limit_s)
        self._rendezvous.begin(record.generation, form.worker_ids)
        # Nobody works in a generation that a restart of the trainer could forget.
        await record.log.wait_written()
        audits, ways_known = self._audits.may_audit(form.worker_ids), self._tuner.knows_ways(form.worker_ids)
        for rank, worker_id in enumerate(form.worker_ids):
            configure = self._configure(form, rank, shares, checkpoint)
            configure.audits, configure.ways_known = audits, ways_known
            self._pool.send(worker_id, WorkerSessionResponse(configure=configure))
        get_logger(job=record.job_id).info(
            "generation_formed", generation=record.generation, reason=form.reason
        )
        return True

    def enter(self, reason: str) -> int:
        """All have met: those who work leave their generation for it once the returned step is committed."""
        at_step, last = self._boundary_ahead(self._round_before), self._record.generation - 1
        leave = AbortGeneration(generation=last, reason=reason, at_step=at_step)
        self._record.generation_entered(self._pool.enter_generation(leave), at_step)
        return at_step

    def abort(self, reason: str, is_polite: bool) -> AbortGeneration:
        """The message that ends the current generation, at once or at a step boundary.

        That is one ahead, or, where a node wants its slots back and a step takes long, the last one.
        """
        at_step = self._boundary_ahead(steps_at_once(self._record.job)) if is_polite else 0
        wait_s = (at_step - self._record.job.progress.step) * self._record.last_step_s
        if wait_s > LONGEST_LEAVE_S and any(state.is_departing for state in self._pool.states()):
            at_step = max(1, int(self._record.job.progress.step))
        return AbortGeneration(generation=self._record.generation, reason=reason, at_step=at_step)

    def _boundary_ahead(self, at_once: int) -> int:
        step_s = self._record.last_step_s
        lead_s = REPORT_INTERVAL_S + POLITE_LEAD_S  # the workers have made more steps than they have told
        ahead = math.ceil(lead_s / max(step_s, SHORTEST_STEP_S)) if step_s else 0
        # Within the round that begins there, whoever hears of it late still leaves.
        return int(self._record.job.progress.step) + max(ahead, POLITE_LEAD_STEPS, at_once)

    def _configure(
        self, form: Form, rank: int, shares: list[int], checkpoint: Checkpoint | None
    ) -> ConfigureGeneration:
        job = self._record.job
        node_ids = [self._record.worker(worker_id).node_id for worker_id in form.worker_ids]
        # A newcomer that has met the others waits in its first collective for the end of their steps.
        waits_s = (POLITE_LEAD_STEPS + 1) * self._record.last_step_s if form.beside else 0.0
        return ConfigureGeneration(
            generation=job.generation,
            rank=rank,
            world_size=len(form.worker_ids),
            backend=job.backend,
            spec=_planned_spec(job),
            first_step=form.first_step,
            batch_shares=shares,
            stage_shares=form.stage_shares,
            stage_rooms=form.stage_rooms,
            stage_starts=stage_starts(job) if form.state_sources else (),
            state_sources=form.state_sources,
            shadow_holders=shadow_holders(node_ids, plan_in_use(job).ranks) if has_shadows(job) else (),
            # Who has fewer samples of a round waits for the others' local steps, and a stage for all others.
            collective_timeout_s=self._collective_timeout_s * steps_at_once(job) * stages_of(job) + waits_s,
            newcomers=form.newcomers,
            checkpoint_digest=checkpoint.artifact.digest if checkpoint is not None else "",
            beside=form.beside,
            sync=for_workers(job),
            owners=[self._pool.owner_of(worker_id) for worker_id in form.worker_ids],
            node_ids=node_ids,
            beliefs=beliefs_in(job, node_ids),
        )


def _planned_spec(job: Job) -> JobSpec:
    """The job's, with the plan that this generation has."""
    spec = JobSpec()
    spec.CopyFrom(job.spec)
    spec.plan = plan_text(job)
    return spec
