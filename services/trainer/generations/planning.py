"""Chooses how the model of a job spreads over its workers, where the job leaves that to the trainer.

Before each generation that begins with a checkpoint, or anew, the search is asked what would be best on the
workers that are there, and while one works, whenever others wait beside it. Of that the record keeps what it
led to; what workers told of their slots they tell again to a trainer that was started anew.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from peerloom.kit.clock import Clock
from peerloom.kit.parallel_plan import is_auto_plan
from peerloom.kit.plan_model.plan_setting import MOST_PLANNED_SLOTS, STATE_BYTES, PlanSetting
from peerloom.kit.plan_model.plan_value import PlanPrediction
from peerloom.kit.quantity_texts import doing
from peerloom.kit.sync_auto import first_method
from peerloom.kit.sync_model.scheme import scheme_of
from peerloom.services.trainer.generations import decision_types as g
from peerloom.services.trainer.generations import plan_decisions as p
from peerloom.services.trainer.generations.decisions import decide_training
from peerloom.services.trainer.generations.pipeline_decisions import (
    SHARDS,
    STAGES,
    Begin,
    begin_pipeline,
    by_stage,
    decide_pipeline,
)
from peerloom.services.trainer.generations.plan_measures import (
    SurveyedWorker,
    is_assumed,
    parts_of,
    setting_of,
    who_lacks_room,
    why_whole,
)
from peerloom.services.trainer.generations.plan_pace import PlanPace
from peerloom.services.trainer.generations.plan_situation import (
    candidates,
    may_move,
    surveyed_workers,
    without_small,
)
from peerloom.services.trainer.jobs.plan_entries import ChosenPlan, plan_in_use
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.stage_entries import former_ranks
from peerloom.services.trainer.models.checkpoints import CheckpointKeeper
from peerloom.services.trainer.workers.decisions import Limits
from peerloom.services.trainer.workers.state import Finished, WorkerState, Working
from peerloom.v1.trainer_pb2 import Job, MeasuredLink, StepProgress, WorkerMeasured, WorkerPrepared

ASSUMED = "; links between nodes aren't measured, 1 Gbit/s is assumed"
Decision = g.Decision | Begin


@dataclass(frozen=True)
class _Known:
    """What is known of the workers that could take part, in this order, and what could be done with them."""

    worker_ids: tuple[str, ...]
    workers: list[SurveyedWorker]
    setting: PlanSetting
    options: p.PlanOptions
    is_assumed: bool

    def of(self, found: PlanPrediction) -> tuple[str, ...]:
        """The workers of a plan, by rank: in the order of its stages, and of the turns in each."""
        return tuple(self.worker_ids[slot] for slot in found.plan.slots)


class JobPlanner:
    """One job's. It has a say only where the job's `plan` is "auto"."""

    def __init__(
        self, record: JobRecord, checkpoints: CheckpointKeeper, clock: Clock, checkpoint_interval_s: float
    ) -> None:
        self._record = record
        self._checkpoints = checkpoints
        self._clock = clock
        self._checkpoint_interval_s = checkpoint_interval_s
        self.has_a_say = is_auto_plan(record.job.spec.plan)
        self._surveys: dict[str, WorkerPrepared] = {}
        self._links: dict[tuple[str, str], MeasuredLink] = {}
        self._known: _Known | None = None
        self._held_since_s: float | None = None
        self._moved_s = -p.MOVE_INTERVAL_S
        self._pace = PlanPace()

    # What workers say

    def surveyed(self, worker_id: str, prepared: WorkerPrepared) -> None:
        """A worker told of the model and of its slot."""
        if self.has_a_say and prepared.parts:
            self._surveys[worker_id] = prepared
            self._known = None

    def measured(self, measured: WorkerMeasured, worker_id: str) -> None:
        """A worker has measured its ways to others of the newest generation."""
        if not self.has_a_say or measured.generation != self._record.generation:
            return
        job = self._record.job
        ranks = {w.rank: w.worker_id for w in job.workers if w.generation == job.generation}
        for link in (link for link in measured.links if link.rank in ranks):
            self._links[worker_id, ranks[link.rank]] = link
        self._known = None

    def stepped(self, step: StepProgress) -> None:
        """A step was committed: what steps take is told beside what was predicted."""
        if not self.has_a_say or step.generation != self._record.generation:
            return
        if (step_s := self._pace.median_s(step)) is not None:
            self._record.plan_measured(step_s)

    # What is decided

    async def decide(self, states: Sequence[WorkerState], limits: Limits, now_s: float) -> Decision:
        """As `decide` and `decide_pipeline`, whichever the plan in use asks for, and with a plan."""
        job = self._record.job
        plan = plan_in_use(job)
        if plan.is_divided:
            workers = plan.ranks.workers
            inner = replace(limits, min_workers=workers, max_workers=max(workers, limits.max_workers))
            decision: Decision = decide_pipeline(states, job.generation, inner, now_s)
        else:
            shown = without_small(states, self._small(states)) if job.HasField("plan_in_use") else states
            decision = decide_training(job, shown, limits, now_s)
        if not isinstance(decision, g.Hold):
            self._held_since_s = None
        match decision:
            case g.Form(beside=True):
                return await self._joined(decision, states)
            case g.Form() | Begin():
                return await self._formed(decision, states)
            case g.Hold() if plan.is_divided:
                return await self._with_fewer(decision, states, limits, now_s)
            case g.Wait() if job.generation and may_move(states):
                return await self._moved(decision, states, now_s)
        return decision

    async def _formed(self, decision: g.Form | Begin, states: Sequence[WorkerState]) -> Decision:
        # Stages that left politely have written a checkpoint, which is worth more than an older one.
        await self._checkpoints.settle()
        job, there = self._record.job, candidates(states, self._surveys)
        is_first = not job.HasField("plan_in_use")
        has_all = set(decision.worker_ids) <= set(there)
        if not is_first and (not has_all or any(isinstance(state.phase, Finished) for state in states)):
            return decision  # somebody hands over, or ends, or hasn't told again: nothing is changed now
        if not there:
            return g.Hold("waiting for nodes: those that are there want their slots back")
        known = await self._ask(there)
        best = p.best_of(known.options)
        now, lost_s = (None, 0.0) if is_first else self._in_use(decision, known)
        if best is None:
            return self._none(known, is_first) if now is None else decision
        is_other = is_first or plan_in_use(job).is_divided or best.plan.is_divided
        pays = lost_s is not None and p.pays(now, best, _steps_left(job), lost_s, known.setting.batch)
        if (is_other or now is None) and pays:
            return self._planned(best, known)
        return decision if now is None else self._with_plan(decision, now, known)

    async def _joined(self, form: g.Form, states: Sequence[WorkerState]) -> Decision:
        """Workers join beside the training, with plan `data`: other figures are predicted for it."""
        there = candidates(states, self._surveys, at_work=True)
        if not set(form.worker_ids) <= set(there):
            return form
        known = await self._ask(there)
        now, _ = self._in_use(form, known)
        return form if now is None else self._with_plan(form, now, known)

    def _with_plan(self, decision: g.Form | Begin, now: PlanPrediction, known: _Known) -> Decision:
        told = self._chosen(now, known)
        # What is predicted counts shadows and micro-batches as they are.
        told = replace(told, plan=str(plan_in_use(self._record.job)))
        if isinstance(decision, Begin):
            return replace(decision, plan=told)
        return p.Planned(**vars(decision), plan=told)

    async def _with_fewer(
        self, hold: g.Hold, states: Sequence[WorkerState], limits: Limits, now_s: float
    ) -> Decision:
        """A stage's worker is gone: after a while those who are left take its layers, if they have room."""
        self._held_since_s = now_s if self._held_since_s is None else self._held_since_s
        by_s = self._held_since_s + p.REPLACEMENT_S
        if now_s < by_s:
            return replace(hold, until_s=by_s if hold.until_s is None else min(by_s, hold.until_s))
        there = candidates(states, self._surveys)
        if len(there) < max(1, limits.min_workers) or any(isinstance(s.phase, Working) for s in states):
            return hold
        await self._checkpoints.settle()
        known = await self._ask(there)
        best = p.best_of(known.options)
        if best is None:
            return replace(hold, reason=f"{hold.reason}; fewer can't go on: {p.why_none(known.options)}")
        return self._planned(best, known)

    async def _moved(self, wait: g.Wait, states: Sequence[WorkerState], now_s: float) -> Decision:
        """Whether those who work are to form again, as others wait beside them or ways were measured."""
        job = self._record.job
        if now_s < self._moved_s + p.MOVE_INTERVAL_S:
            until_s = self._moved_s + p.MOVE_INTERVAL_S
            return replace(wait, until_s=until_s if wait.until_s is None else min(until_s, wait.until_s))
        there = candidates(states, self._surveys, at_work=True)
        working = tuple(state.worker_id for state in states if isinstance(state.phase, Working))
        if not set(working) <= set(there):
            return wait
        known = await self._ask(there)
        best = p.best_of(known.options)
        if best is None or not (best.plan.is_divided or plan_in_use(job).is_divided):
            return wait
        ranked = Begin(working) if plan_in_use(job).is_divided else g.Form(working, 0, 0, "")
        now, lost_s = self._in_use(ranked, known)
        # A pipeline that is left politely writes a checkpoint.
        lost_s = 0.0 if isinstance(ranked, Begin) else lost_s
        if now is None or lost_s is None:
            return wait
        if not p.pays(now, best, _steps_left(job), lost_s, known.setting.batch):
            return wait
        self._moved_s = now_s
        return g.Abort(working, f"another plan is worth it: {self._text(best, known)}", is_polite=True)

    def _in_use(self, decision: g.Form | Begin, known: _Known) -> tuple[PlanPrediction | None, float | None]:
        """What the plan in use would do with the decision's workers, and what leaving it would lose.

        None for a plan that can't go on, and for a loss without a checkpoint, of all that was made.
        """
        job, parts = self._record.job, parts_of(known.workers)
        steps = int(job.progress.step) - (_checkpoint_step(job) or 0)
        is_lost_anyway = isinstance(decision, g.Form) and decision.from_checkpoint
        lost_s = 0.0 if is_lost_anyway else steps * self._record.last_step_s
        places = {worker_id: slot for slot, worker_id in enumerate(known.worker_ids)}
        if isinstance(decision, Begin):
            worker_ids = by_stage(decision.worker_ids, former_ranks(job))
            slots = [places[worker_id] for worker_id in worker_ids]
            return p.divided_on(known.setting, plan_in_use(job), parts, slots), lost_s
        slots = [places[worker_id] for worker_id in decision.worker_ids]
        has_a_copy = is_lost_anyway or job.HasField("checkpoint") or not job.progress.step
        return p.data_on(known.setting, slots), lost_s if has_a_copy else None

    # What is known

    def _small(self, states: Sequence[WorkerState]) -> frozenset[str]:
        """Who lacks room for the whole model."""
        job, there = self._record.job, candidates(states, self._surveys, at_work=True)
        return who_lacks_room(surveyed_workers(job, there, self._surveys), job.spec.batch_size, STATE_BYTES)

    async def _ask(self, worker_ids: tuple[str, ...]) -> _Known:
        """What could be done with these workers."""
        worker_ids = worker_ids[:MOST_PLANNED_SLOTS]
        if self._known is not None and sorted(self._known.worker_ids) == sorted(worker_ids):
            return self._known
        job = self._record.job
        workers = surveyed_workers(job, worker_ids, self._surveys)
        workers.sort(key=lambda worker: -worker.belief)
        worker_ids = tuple(worker.worker_id for worker in workers)
        scheme = scheme_of(first_method(job.spec.sync))
        links = dict(self._links)
        setting = setting_of(workers, job.spec.batch_size, scheme, links, self._checkpoint_interval_s)
        # It may take a second: not in the loop that waits for workers' signs of life.
        options = await asyncio.to_thread(p.options_of, setting, why_whole(workers))
        self._known = _Known(worker_ids, workers, setting, options, is_assumed(workers, links))
        return self._known

    def _planned(self, found: PlanPrediction, known: _Known) -> p.Planned:
        """The generation that takes this plan, from the newest checkpoint or anew."""
        job, worker_ids = self._record.job, known.of(found)
        chosen = self._chosen(found, known)
        step, self._moved_s = _checkpoint_step(job), self._clock.monotonic_s()
        parts_of = SHARDS if found.plan.is_sharded else STAGES
        stages = len(found.plan.stages)
        form = begin_pipeline(worker_ids, job.generation, step, stages=stages, parts_of=parts_of)
        if not found.plan.is_divided:
            where = "from the beginning" if step is None else f"from the checkpoint of step {step}"
            verb = "go on" if job.generation else "begin"
            form = replace(form, reason=doing(len(worker_ids), "worker", f"{verb} {where}"))
        return p.Planned(**vars(form), plan=chosen)

    def _chosen(self, found: PlanPrediction, known: _Known) -> ChosenPlan:
        parts = parts_of(known.workers)
        plan = p.job_plan(found, known.setting, parts)
        predicted = p.message_of(found, known.setting, parts)
        return ChosenPlan(str(plan), self._text(found, known), predicted)

    def _text(self, found: PlanPrediction, known: _Known) -> str:
        return p.why_taken(found, known.options, known.setting) + (ASSUMED if known.is_assumed else "")

    def _none(self, known: _Known, is_first: bool) -> g.Decision:
        why = p.why_none(known.options)
        may_come = self._record.job.spec.HasField("max_workers")
        return g.Fail(why) if is_first and not may_come else g.Hold(f"waiting for more memory: {why}")


def _checkpoint_step(job: Job) -> int | None:
    return int(job.checkpoint.step) if job.HasField("checkpoint") else None


def _steps_left(job: Job) -> int:
    return int(job.progress.total_steps - job.progress.step)
