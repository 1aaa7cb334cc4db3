"""What a job's record says of its workers' ranks and stages: who holds which, and whose shadow lies where."""

from collections.abc import Sequence
from itertools import pairwise

from peerloom.v1.trainer_pb2 import Job, ModelStage, StageShadow, Worker


def enter_stage(job: Job, worker_id: str, stage: ModelStage) -> bool:
    """Notes the part of the model that a worker holds; whether that is news."""
    worker = _worker(job, worker_id)
    is_news = worker.stage != stage
    worker.stage.CopyFrom(stage)
    return is_news


def enter_shadow(job: Job, worker_id: str, shadow: StageShadow) -> str | None:
    """Notes the copy that a worker keeps of another stage; the reason, when it is news that none is kept.

    None where all of it is known already.
    """
    worker = _worker(job, worker_id)
    if worker.shadow == shadow:
        return None
    is_news = worker.shadow.why_not != shadow.why_not
    worker.shadow.CopyFrom(shadow)
    # All say the same: one is heard.
    return shadow.why_not if is_news and not worker.rank else ""


def rank_workers(job: Job, worker_ids: Sequence[str]) -> None:
    """The newest generation has these workers, ranked so; which shadows they keep they say anew."""
    ranks = {worker_id: rank for rank, worker_id in enumerate(worker_ids)}
    for worker in job.workers:
        worker.ClearField("shadow")
        if worker.worker_id in ranks:
            worker.rank, worker.generation = ranks[worker.worker_id], job.generation


def former_ranks(job: Job) -> dict[str, int]:
    """The ranks that workers of the newest generation had; those of a pipeline say their stages."""
    if not job.generation:
        return {}
    return {worker.worker_id: worker.rank for worker in job.workers if worker.generation == job.generation}


def stage_starts(job: Job) -> list[int]:
    """The layers, from 0, at which the stages begin that workers held last; empty unless these fit."""
    told = sorted((w for w in job.workers if w.HasField("stage")), key=lambda worker: worker.generation)
    newest = {worker.stage.number: worker.stage for worker in told}
    stages = [newest[number] for number in sorted(newest)]
    fits = all(_follow(first, second) for first, second in pairwise(stages))
    is_all = [stage.number for stage in stages] == list(range(len(stages)))
    return [stage.first_layer for stage in stages] if fits and is_all else []


def _follow(first: ModelStage, second: ModelStage) -> bool:
    """Whether the second one's layers come after those of the first, or it has another piece of them."""
    if second.piece:
        return (first.first_layer, first.end_layer) == (second.first_layer, second.end_layer)
    return first.end_layer == second.first_layer


def exchanges_of(stage: ModelStage) -> str:
    """What to tell of pieces whose exchanges are predicted to take longer than their computing; or "".

    Each worker says about the same of them: the one of the first piece is heard.
    """
    if stage.number or stage.exchange_s <= stage.compute_s:
        return ""
    return (
        f"exchanges within layers are predicted to take {stage.exchange_s:.2g} s of each step, beside "
        f"{stage.compute_s:.2g} s of computing: plan tensor is for workers that are near each other, as on "
        "one host, and a pipeline exchanges less"
    )


def _worker(job: Job, worker_id: str) -> Worker:
    return next(worker for worker in job.workers if worker.worker_id == worker_id)
