"""Whether what a worker says of a pipeline's stages can be true: "" or why it can't."""

from collections.abc import Sequence

from peerloom.kit.limits import MAX_REASON_CHARACTERS
from peerloom.kit.parallel_plan import MAX_LAYERS, parse_plan
from peerloom.services.trainer.jobs.sample_ledger import total_steps
from peerloom.v1.trainer_pb2 import HeldState, Job, ModelStage, StageShadow

MAX_LAYER_CHARACTERS, MOST_HELD = 128, 16


def why_not_stage(job: Job, stage: ModelStage) -> str:
    """Why a worker can't hold this part of the model."""
    stages = parse_plan("spec.plan", job.spec.plan).stages
    if stages == 1 or stage.number >= stages or not stage.first_layer < stage.end_layer <= MAX_LAYERS:
        held = f"layers {stage.first_layer} to {stage.end_layer} as stage {stage.number}"
        return f"it says that it holds {held}, and the job's plan is {job.spec.plan or 'data'}"
    if max(len(stage.first_name), len(stage.last_name)) > MAX_LAYER_CHARACTERS:
        return f"its layers' names have more than {MAX_LAYER_CHARACTERS} characters"
    return ""


def why_not_held(job: Job, held: Sequence[HeldState | StageShadow]) -> str:
    """Why a worker can't have these states of stages."""
    stages = parse_plan("spec.plan", job.spec.plan).stages
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
