"""How a job's model spreads over its workers, as its record has it: pure functions of the job."""

from dataclasses import dataclass, field

from peerloom.kit.limits import cut_reason
from peerloom.kit.parallel_plan import DATA, ParallelPlan, is_auto_plan, parse_plan
from peerloom.v1.trainer_pb2 import Job, JobPlan, PlanChosen, PlanPrediction

_NAMED = 3  # a job may have met hundreds


@dataclass(frozen=True)
class ChosenPlan:
    """A plan, all pairs, for a job that leaves it to the trainer; why, and what is predicted for it."""

    plan: str
    reason: str
    predicted: PlanPrediction = field(default_factory=PlanPrediction)


def plan_in_use(job: Job) -> ParallelPlan:
    """The plan of the newest generation, or the one that the first will have; "data" while none is chosen."""
    return parse_plan("spec.plan", plan_text(job))


def plan_text(job: Job) -> str:
    """The same, all pairs."""
    return (job.plan_in_use.plan or DATA) if is_auto_plan(job.spec.plan) else job.spec.plan


def is_divided(job: Job) -> bool:
    """Whether its workers hold a part of the model each."""
    return plan_in_use(job).is_divided


def stages_of(job: Job) -> int:
    """Parts of the model that workers hold, and may wait for one after the other."""
    return plan_in_use(job).parts


def has_shadows(job: Job) -> bool:
    """Whether the state of each of its stages of one worker is kept by another one too."""
    plan = plan_in_use(job)
    return plan.is_divided and plan.shadow


def take(job: Job, chosen: ChosenPlan) -> PlanChosen | None:
    """The newest generation has this plan; what is told of it unless it is the one in use."""
    before, reason = job.plan_in_use, cut_reason(chosen.reason)
    is_first, former = not job.HasField("plan_in_use"), before.plan
    changes = before.changes + (not is_first and former != chosen.plan)
    job.plan_in_use.CopyFrom(JobPlan(plan=chosen.plan, reason=reason, changes=changes))
    if chosen.predicted.step_s:
        job.plan_in_use.predicted.CopyFrom(chosen.predicted)
    if not is_first and former == chosen.plan:
        return None
    for worker in job.workers:  # they hold other parts from now on, or all of it
        worker.ClearField("stage")
    _ask_all_again(job)
    return PlanChosen(
        generation=job.generation,
        plan=chosen.plan,
        former=former,
        reason=reason,
        predicted=job.plan_in_use.predicted if chosen.predicted.step_s else None,
    )


def unfit_nodes(job: Job) -> set[str]:
    """The nodes that lacked something that a worker of this job needed, under the plan that it has."""
    return {worker.node_id for worker in job.workers if worker.unfit}


def without_unfit(reason: str, job: Job) -> str:
    """Why a job waits for nodes; and which aren't asked, so that nobody waits for those."""
    names = sorted({worker.node_name for worker in job.workers if worker.unfit})
    if not names:
        return reason
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{reason}; not asked again, as they can't do it: {', '.join(names[:_NAMED])}{more}"


def resume(job: Job) -> None:
    """A job that had ended goes on: void is what was found at its end, and which nodes couldn't do it."""
    for name in ("end_time", "evaluation", "script_run", "plan_in_use"):
        job.ClearField(name)
    _ask_all_again(job)


def _ask_all_again(job: Job) -> None:
    for worker in job.workers:
        worker.ClearField("unfit")


def note_measured(job: Job, step_s: float) -> bool:
    """What the newest generation's steps take, the median; whether that is news."""
    is_news = job.plan_in_use.measured_step_s != step_s
    job.plan_in_use.measured_step_s = step_s
    return is_news
