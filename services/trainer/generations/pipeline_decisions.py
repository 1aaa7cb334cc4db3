"""What a pipeline's generations differ in from others: pure functions of who is there.

A generation goes on from the newest states that living workers hold of all stages, their own and the shadows
that they keep of others (`stage_states`); where a stage's is gone, from the newest checkpoint, or anew before
there is one. Those who live keep their processes, and their stages. It needs as many workers as the stages
have together; those beyond are spare, and wait until one of them is lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from peerloom.kit.parallel_plan import ParallelPlan
from peerloom.kit.stage_ranks import shares_of_stages
from peerloom.services.trainer.generations.decision_types import (
    Abort,
    Decision,
    Dismiss,
    Fail,
    Form,
    Hold,
    Wait,
)
from peerloom.services.trainer.generations.decisions import decide
from peerloom.services.trainer.generations.stage_states import GoBack, GoOn
from peerloom.services.trainer.jobs.plan_entries import ChosenPlan
from peerloom.services.trainer.workers.decisions import Limits, next_deadline
from peerloom.services.trainer.workers.slot_measures import SlotMeasures
from peerloom.services.trainer.workers.state import Finished, Idle, Leaving, WorkerState, Working
from peerloom.v1.trainer_pb2 import Job
from peerloom.worker.shares import stage_shares

_NONE = GoBack("")
STAGES, SHARDS, PIECES = "stages", "shards", "pieces"


@dataclass(frozen=True)
class StageDivision:
    """How a model is to be divided.

    `shares` say how much of its cost each stage should have, in comparison; empty: as much for each worker.
    `rooms` are the bytes of memory that each stage's slots have; empty: not known.
    """

    shares: tuple[int, ...] = ()
    rooms: tuple[int, ...] = ()


_EVEN = StageDivision()


def division_of(
    job: Job, worker_ids: Sequence[str], plan: ParallelPlan, slots: SlotMeasures
) -> StageDivision:
    """How a model is divided by what workers, in the order of their ranks, told of their slots.

    Stages are as large as their slots are fast, and have room. In shards each worker computes all layers, and
    holds as many as it has room for. Of layers that are cut in pieces all workers have alike.
    """
    if plan.pieces > 1:
        return _EVEN
    nodes = {worker.worker_id: worker.node_id for worker in job.workers}
    lent = {
        answer.node.node_id: int(answer.slot_memory_bytes) for answer in job.answers if answer.accepted_slots
    }
    rooms = slots.rooms(worker_ids, nodes, lent)
    if plan.is_sharded:
        seconds = {worker_id: 1 / max(1.0, room) for worker_id, room in rooms.items()}
        return StageDivision(tuple(shares_of_stages(stage_shares(worker_ids, seconds), plan.ranks)))
    shares = shares_of_stages(stage_shares(worker_ids, slots.speeds()), plan.ranks)
    if len(rooms) < len(worker_ids):
        return StageDivision(tuple(shares))
    of_stages = [plan.ranks.of_stage(stage) for stage in range(plan.stages)]
    least = [min(rooms[worker_ids[rank]] for rank in ranks) for ranks in of_stages]
    return StageDivision(tuple(shares), tuple(int(room) for room in least))


@dataclass(frozen=True)
class Begin:
    """These are there, as many as the stages have: `begin_pipeline` says from where they go on.

    `plan` is the one in use, looked at again, where the trainer chooses.
    """

    worker_ids: tuple[str, ...]
    plan: ChosenPlan | None = None


def decide_pipeline(
    workers: Sequence[WorkerState], generation: int, limits: Limits, now_s: float
) -> Decision | Begin:
    """As `decide`, for a pipeline, whose stages have as many workers as `limits` want at least.

    What they allow beyond is spare.
    """
    workers = _without_spares(workers, limits)
    limits = replace(limits, max_workers=limits.min_workers, meets_beside=False)
    is_ending = any(isinstance(w.phase, Finished) for w in workers)
    busy = any(isinstance(w.phase, Working | Leaving) for w in workers)
    going = tuple(w.worker_id for w in workers if isinstance(w.phase, Idle) and w.is_departing)
    if going and not busy:
        return Dismiss(going, "its node asked it to leave")
    # A stage's state is of no use without those of its time: what idle workers have made counts for nothing.
    shown = [replace(w, step=0) if isinstance(w.phase, Idle | Finished) else w for w in workers]
    match decide(shown, generation, limits, now_s):
        case Fail() if generation:
            return Hold("waiting for nodes: no worker is left", next_deadline(workers, limits, now_s))
        case Abort(is_polite=True) if is_ending:
            return Wait("the model is being written", next_deadline(workers, limits, now_s))
        case Form(worker_ids=worker_ids):
            return Begin(worker_ids)
        case decision:
            return decision


def _without_spares(workers: Sequence[WorkerState], limits: Limits) -> list[WorkerState]:
    """Without those who aren't needed now, and may wait: while one of the others wants to go all count."""
    taking_part = [w for w in workers if isinstance(w.phase, Working | Leaving | Idle | Finished)]
    if any(w.is_departing for w in taking_part):
        return list(workers)
    surplus = min(len(taking_part) - limits.min_workers, limits.max_workers - limits.min_workers)
    strangers = [w.worker_id for w in taking_part if isinstance(w.phase, Idle) and not w.is_member]
    # Those who came first are the first to fill a gap.
    spares = set(strangers[len(strangers) - surplus :]) if surplus > 0 else set()
    return [w for w in workers if w.worker_id not in spares]


def begin_pipeline(
    worker_ids: tuple[str, ...],
    generation: int,
    checkpoint_step: int | None,
    division: StageDivision = _EVEN,
    states: GoOn | GoBack = _NONE,
    stages: int = 0,
    parts_of: str = STAGES,
) -> Form:
    """The generation after `generation` of these workers, in the order of their stages.

    There are as many `stages` as workers unless it is told; `parts_of` is what they are called. With `states`
    to go on with the model stays divided as it is, else `division` says how.
    """
    stages, workers = stages or len(worker_ids), len(worker_ids)
    of_workers = f" on {workers} workers" if workers > stages else ""
    by = "memory" if parts_of == SHARDS else "speeds"
    went_on = f"{stages} {parts_of}{of_workers} {'go on' if generation else 'begin'}"
    if isinstance(states, GoOn):
        return Form(worker_ids, states.step, 0, f"{went_on} {states.reason}", state_sources=states.sources)
    where = "from the beginning"
    if checkpoint_step is not None:
        where = f"from the checkpoint of step {checkpoint_step}"
    cut, shares = "", division.shares
    if len(set(shares)) > 1:
        parts = " : ".join(f"{100 * share / sum(shares):.0f}" for share in shares)
        cut = f", with parts of the model by the {by} of their slots, {parts}"
    why = f", as {states.reason}" if states.reason else ""
    reason = f"{went_on} {where}{cut}{why}"
    form = Form(worker_ids, checkpoint_step or 0, 0, reason, stage_shares=shares, stage_rooms=division.rooms)
    return replace(form, from_checkpoint=checkpoint_step is not None)


def called(plan: ParallelPlan) -> str:
    """What a plan's parts are called."""
    return SHARDS if plan.is_sharded else PIECES if plan.pieces > 1 else STAGES


def near_each_other(job: Job, worker_ids: Sequence[str]) -> list[str]:
    """Workers in an order in which those of one node follow each other, as pieces of the same layers do."""
    nodes = {worker.worker_id: worker.node_id for worker in job.workers}
    met = list(dict.fromkeys(nodes[worker_id] for worker_id in worker_ids))
    return sorted(worker_ids, key=lambda worker_id: met.index(nodes[worker_id]))


def by_stage(worker_ids: Sequence[str], former: Mapping[str, int]) -> tuple[str, ...]:
    """The workers by rank, in the order of stages: each keeps that of `former`, new ones fill the gaps."""
    ranks: dict[int, str] = {}
    for worker_id in worker_ids:
        rank = former.get(worker_id)
        if rank is not None and rank < len(worker_ids) and rank not in ranks:
            ranks[rank] = worker_id
    others = iter([worker_id for worker_id in worker_ids if worker_id not in ranks.values()])
    return tuple(ranks[rank] if rank in ranks else next(others) for rank in range(len(worker_ids)))
