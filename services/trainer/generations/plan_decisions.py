"""Which plan a job takes that leaves it to the trainer: pure functions of a setting that was measured.

Plan `data` needs nothing of its workers but room, so it is taken where the model fits the slots and no
other plan of the search is faster by more than a prediction may err; a pipeline before shards likewise.
Another plan than the one in use is taken where the steps that are left gain more by it than the move costs,
or where the one in use can't go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.errors import ResourceExhaustedError
from peerloom.kit.parallel_plan import DATA, ParallelPlan
from peerloom.kit.plan_model import placed_plan as kinds
from peerloom.kit.plan_model.pipeline_order import ONE_F_ONE_B
from peerloom.kit.plan_model.placed_plan import PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_reasons import report_of, why_too_large
from peerloom.kit.plan_model.plan_search import choose_plan
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.plan_value import PlanPrediction, costed_plan, predict_plan
from peerloom.kit.plan_model.shadow_room import shadow_needs
from peerloom.kit.plan_model.stage_costs import StageCosts
from peerloom.kit.quantity_texts import plural, shown_number, shown_s
from peerloom.services.trainer.generations.decision_types import Form
from peerloom.services.trainer.jobs.plan_entries import ChosenPlan
from peerloom.v1.trainer_pb2 import ModelPart, PredictedStage
from peerloom.v1.trainer_pb2 import PlanPrediction as PredictedPlan

WORTH = 1.1  # a prediction errs by as much
MOVE_S = 2.0  # to form again, and to build the model's parts
MOVE_WORTH = 2.0  # a move must gain so many times what it costs
MOVE_INTERVAL_S = 30.0  # from one move of a job that works to the next
_PIPELINES = (kinds.PIPELINE, kinds.HYBRID)  # with stages of one worker each, or of several
REPLACEMENT_S = 5.0  # how long a lost stage's replacement is waited for before others take its layers


@dataclass(frozen=True, kw_only=True)
class Planned(Form):
    """A generation whose plan was chosen, or looked at again."""

    plan: ChosenPlan


@dataclass(frozen=True)
class PlanOptions:
    """The best of each kind that fits, if any; `why_no_data` and `why_no_pipeline` say what these lack."""

    data: PlanPrediction | None
    pipeline: PlanPrediction | None
    shards: PlanPrediction | None = None
    why_no_data: str = ""
    why_no_pipeline: str = ""

    @property
    def divided(self) -> PlanPrediction | None:
        """The pipeline, or the shards where there is none, or where they are much faster."""
        return _worth(self.pipeline, self.shards)


def options_of(setting: PlanSetting, why_whole: str = "") -> PlanOptions:
    """What could be done; `why_whole` says why the model can't be cut."""
    data, why_no_data = _data(setting)
    pipeline, shards, why_no_pipeline = None, None, why_whole or "a pipeline needs two slots"
    if not why_whole and len(setting.slots) > 1 and len(setting.layers) > 1:
        pipeline, why_no_pipeline = _best_of(setting, _PIPELINES)
        shards, _ = _best_of(setting, (kinds.SHARDED,))
    return PlanOptions(data, pipeline, shards, why_no_data, why_no_pipeline)


def _best_of(setting: PlanSetting, wanted: Sequence[str]) -> tuple[PlanPrediction | None, str]:
    """The best plan of some kinds, or why there is none."""
    try:
        return choose_plan(setting, kinds=wanted).chosen, ""
    except ResourceExhaustedError as error:
        return None, error.message


def best_of(options: PlanOptions) -> PlanPrediction | None:
    """The plan to take where none is in use; None: none fits."""
    return _worth(options.data, options.divided)


def _worth(plain: PlanPrediction | None, other: PlanPrediction | None) -> PlanPrediction | None:
    """The other one only where it finishes more by more than a prediction may err."""
    if plain is None or other is None:
        return plain or other
    return other if other.finished_per_s > WORTH * plain.finished_per_s else plain


def pays(
    now: PlanPrediction | None, other: PlanPrediction, steps_left: int, lost_s: float, batch: int
) -> bool:
    """Whether another plan is worth moving to; `now` is None where the one in use can't go on.

    `lost_s` are the seconds of the steps that would have to be made again.
    """
    if now is None:
        return True
    now_s, other_s = batch / now.finished_per_s, batch / other.finished_per_s
    gained_s = steps_left * (now_s - other_s)
    return now_s >= WORTH * other_s and gained_s > MOVE_WORTH * (MOVE_S + lost_s)


def data_on(setting: PlanSetting, slots: Sequence[int]) -> PlanPrediction | None:
    """Plan `data` on these slots; None where one lacks room for it, or would have no sample."""
    placed = PlacedPlan((PlanStage(0, len(setting.layers), tuple(sorted(slots))),), 1, ONE_F_ONE_B)
    return _predicted(placed, setting)


def divided_on(
    setting: PlanSetting, plan: ParallelPlan, parts: Sequence[ModelPart], slots: Sequence[int]
) -> PlanPrediction | None:
    """A job's stages or shards on slots by rank; None: one lacks room, or the cut is unknown.

    Or the model is another one now, whose workers can't take turns so.
    """
    known = {part.first_layer: number for number, part in enumerate(parts)}
    ranks = plan.ranks
    if len(slots) != ranks.workers or any(start not in known for start in plan.starts):
        return None
    starts = [0, *(known[start] for start in plan.starts)]
    ends = [*starts[1:], len(parts)]
    groups = [tuple(slots[rank] for rank in ranks.of_stage(stage)) for stage in range(ranks.stages)]
    stages = tuple(PlanStage(*each) for each in zip(starts, ends, groups, strict=True))
    micro_batches = min(plan.micro_batches, setting.batch)
    return _predicted(PlacedPlan(stages, micro_batches, plan.order, plan.is_sharded), setting)


def job_plan(found: PlanPrediction, setting: PlanSetting, parts: Sequence[ModelPart]) -> ParallelPlan:
    """As a job has it: stages by layers, their workers, and shadows where they are worth their cost."""
    if not found.plan.is_divided:
        return ParallelPlan()
    starts = [parts[stage.first].first_layer for stage in found.plan.stages[1:]]
    return found.plan.as_job(starts, shadow=shadow_needs(found, setting).is_worth)


def message_of(found: PlanPrediction, setting: PlanSetting, parts: Sequence[ModelPart]) -> PredictedPlan:
    """The prediction as the record has it."""
    report = report_of(found, setting)
    stages = [
        PredictedStage(
            first_layer=parts[one.first].first_layer,
            last_layer=parts[one.last].end_layer - 1,
            nodes=one.slots,
            computing_s=one.computing_s,
            idle_ratio=one.idle_ratio,
            needed_bytes=round(one.needed_bytes),
            memory_bytes=round(one.memory_bytes),
        )
        for one in report.stages
    ]
    return PredictedPlan(
        step_s=report.step_s, samples_per_s=report.finished_per_s, binds=report.binds, stages=stages
    )


def why_taken(found: PlanPrediction, options: PlanOptions, setting: PlanSetting) -> str:
    """What speaks for the plan, and what was left."""
    told = (
        f"steps of {shown_s(found.step_s)}, {shown_number(found.finished_per_s)} samples a second predicted"
    )
    left = len(setting.slots) - len(found.plan.slots)
    waits = f"; {plural(left, 'more slot')} would gain nothing, or lack room" if left else ""
    if not found.plan.is_divided:
        why = "each worker has room for the whole model"
        if options.divided is not None:
            word = _word_of(options.divided)
            why += f", and the best {word} would make steps of {shown_s(options.divided.step_s)}"
        elif options.why_no_pipeline:
            why += f" (no pipeline: {options.why_no_pipeline.rstrip('.')})"
        return f"{why}; {told}{waits}"
    wide = _why_wide(found)
    others = f"plan {DATA} {options.why_no_data}"
    if options.data is not None:
        others = f"plan {DATA} would make steps of {shown_s(options.data.step_s)}"
    other = options.shards if found is options.pipeline else options.pipeline
    if other is not None:
        others += f"; the best {_word_of(other)} would make steps of {shown_s(other.step_s)}"
    return f"{others}; {told}{wide}{waits}"


def _word_of(found: PlanPrediction) -> str:
    return "shards" if found.plan.is_sharded else "pipeline"


def _why_wide(found: PlanPrediction) -> str:
    """Which stages have several workers, and what that is good for."""
    wide = [stage for stage, width in enumerate(found.plan.ranks.widths) if width > 1]
    if not wide:
        return ""
    which = f"stages {', '.join(map(str, wide))} have" if len(wide) > 1 else f"stage {wide[0]} has"
    return f"; {which} several workers, who take turns, and each of whom has its state should one be lost"


def why_none(options: PlanOptions) -> str:
    """What is missing, and where."""
    return f"plan {DATA} {options.why_no_data}; {options.why_no_pipeline}"


def _data(setting: PlanSetting) -> tuple[PlanPrediction | None, str]:
    """Plan `data` on all slots that have room for it: fewer of them get more samples each."""
    costs, why = StageCosts(setting), "has a sample for no slot"
    slots = sorted(range(len(setting.slots)), key=lambda one: -setting.slots[one].memory_bytes)
    for count in range(len(slots), 0, -1):
        stage = PlanStage(0, len(setting.layers), tuple(sorted(slots[:count])))
        costed = costed_plan(PlacedPlan((stage,), 1, ONE_F_ONE_B), setting, costs)
        if costed is None:
            continue
        if not costed.missing_bytes:
            return predict_plan(costed, setting), ""
        why = why_too_large(costed, setting)
    return None, why


def _predicted(placed: PlacedPlan, setting: PlanSetting) -> PlanPrediction | None:
    costed = costed_plan(placed, setting, StageCosts(setting))
    return None if costed is None or costed.missing_bytes else predict_plan(costed, setting)
