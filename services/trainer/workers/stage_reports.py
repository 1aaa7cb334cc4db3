"""Whether what a worker says of a pipeline's stages can be true: "" or why it can't."""

import math
from collections.abc import Collection, Iterable, Sequence

from peerloom.kit.limits import MAX_REASON_CHARACTERS
from peerloom.kit.parallel_plan import MAX_LAYERS, MAX_STAGES, is_auto_plan, parse_plan
from peerloom.kit.plan_model.model_layers import MOST_PLANNED_LAYERS
from peerloom.services.trainer.jobs.sample_ledger import total_steps
from peerloom.v1.trainer_pb2 import HeldState, Job, ModelStage, StageShadow, WorkerPrepared

MAX_LAYER_CHARACTERS, MOST_HELD = 128, 16


def _most_stages(job: Job) -> int:
    # What a worker says may be of the plan before, where the trainer chooses.
    return MAX_STAGES if is_auto_plan(job.spec.plan) else parse_plan("spec.plan", job.spec.plan).parts


def _widths(job: Job, stage: int) -> Collection[int]:
    """How many workers a stage may have."""
    if is_auto_plan(job.spec.plan):
        return range(1, MAX_STAGES)
    return (parse_plan("spec.plan", job.spec.plan).ranks.widths[stage],)


def why_not_surveyed(job: Job, prepared: WorkerPrepared) -> str:
    """Why what a worker tells of a model and its slot can't be planned by."""
    parts = prepared.parts
    if bool(parts) != is_auto_plan(job.spec.plan):
        return f"it tells of {len(parts)} parts of the model, and the job's plan is {job.spec.plan or 'data'}"
    if len(parts) > MOST_PLANNED_LAYERS:
        return f"it tells of {len(parts)} parts of the model, and {MOST_PLANNED_LAYERS} are the most"
    if len(prepared.why_whole) > MAX_REASON_CHARACTERS:
        return f"why its model can't be cut has more than {MAX_REASON_CHARACTERS} characters"
    end = 0
    for part in parts:
        if part.first_layer != end or not end < part.end_layer <= MAX_LAYERS:
            return f"a part of its model has the layers {part.first_layer} to {part.end_layer}, after {end}"
        end = part.end_layer
        for name in ("forward_operations", "output_bytes", "kept_bytes"):
            if not 0 <= getattr(part, name) < math.inf:
                return (
                    f"the {name} of layer {part.first_layer} are {getattr(part, name)}, but must be 0 or more"
                )
    return ""


def why_not_stage(job: Job, stage: ModelStage) -> str:
    """Why a worker can't hold this part of the model."""
    stages = _most_stages(job)
    if stages == 1 or stage.number >= stages or not stage.first_layer < stage.end_layer <= MAX_LAYERS:
        held = f"layers {stage.first_layer} to {stage.end_layer} as stage {stage.number}"
        return f"it says that it holds {held}, and the job's plan is {job.spec.plan or 'data'}"
    workers = stage.workers or 1
    if workers not in _widths(job, stage.number) or stage.turn >= workers:
        held = f"stage {stage.number} as worker {stage.turn} of {workers}"
        return f"it says that it holds {held}, and the job's plan is {job.spec.plan}"
    if why_not := _why_not_piece(job, stage):
        return why_not
    if max(len(stage.first_name), len(stage.last_name)) > MAX_LAYER_CHARACTERS:
        return f"its layers' names have more than {MAX_LAYER_CHARACTERS} characters"
    return ""


def _why_not_piece(job: Job, stage: ModelStage) -> str:
    pieces = 1 if is_auto_plan(job.spec.plan) else parse_plan("spec.plan", job.spec.plan).pieces
    if (stage.pieces or 1) != pieces or stage.piece != stage.number % pieces:
        held = f"piece {stage.piece} of {stage.pieces} as stage {stage.number}"
        return f"it says that it holds {held}, and the job's plan is {job.spec.plan}"
    if not (0 <= stage.exchange_s < math.inf and 0 <= stage.compute_s < math.inf):
        return f"its exchanges take {stage.exchange_s} s beside {stage.compute_s} s, but must take 0 or more"
    return ""


def steps_of_stages(held: Iterable[HeldState]) -> tuple[tuple[int, int], ...]:
    """Of which stages a worker has the states of which steps, as it said."""
    return tuple((each.stage, each.step) for each in held)


def why_not_held(job: Job, held: Sequence[HeldState | StageShadow]) -> str:
    """Why a worker can't have these states of stages."""
    stages = _most_stages(job)
    if len(held) > MOST_HELD:
        return f"it tells of {len(held)} states of stages, and {MOST_HELD} are the most"
    for one in held:
        if stages == 1 or one.stage >= stages or one.step > total_steps(job):
            has = f"stage {one.stage} after {one.step} steps"
            return f"it says that it has {has}, and the plan is {job.spec.plan or 'data'}"
    return ""


def why_not_shadow(job: Job, shadow: StageShadow) -> str:
    """Why a worker can't keep this copy of a stage's state, or none for this reason."""
    if len(shadow.why_not) > MAX_REASON_CHARACTERS:
        return f"its reason has more than {MAX_REASON_CHARACTERS} characters"
    return why_not_held(job, [shadow])
