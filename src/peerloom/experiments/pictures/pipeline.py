"""A pipeline's step as its simulation has it: a lane a worker of a stage, a box a pass of a micro-batch."""

from typing import Any

from peerloom.experiments.pictures.canvas import canvas, label
from peerloom.kit.plan_model.pipeline_order import PassKind
from peerloom.kit.plan_model.pipeline_simulation import TimedPass
from peerloom.kit.plan_model.placed_plan import PlanStage
from peerloom.kit.plan_model.plan_value import PlanPrediction
from peerloom.kit.stage_ranks import StageRanks

_PASSES = {
    PassKind.FORWARD: ("#5fa8a0", "forward"),
    PassKind.BACKWARD: ("#0b3c5d", "backward"),
    PassKind.WEIGHTS: ("#7d8ea3", "gradients of weights"),
}
_SUM = "#c25b12"
_LANE_INCHES = 0.5
_LEAST_PART = 0.012  # of the step: a narrower box has no room for its number


def draw_pipeline(found: PlanPrediction) -> Any:
    """One axis; the numbers in the boxes are micro-batches."""
    ranks = found.plan.ranks
    figure, axes = canvas(size=(9.0, 1.4 + _LANE_INCHES * ranks.workers))
    axis, step_s = axes[0], found.step_s
    for kind, (colour, name) in _PASSES.items():
        mine = [one for one in found.simulated.passes if one.kind is kind]
        if not mine:
            continue
        axis.barh(
            [_lane(one, ranks) for one in mine],
            [one.end_s - one.start_s for one in mine],
            left=[one.start_s for one in mine],
            color=colour,
            edgecolor="white",
            linewidth=0.6,
            label=name,
        )
    for one in found.simulated.passes:
        if one.end_s - one.start_s > _LEAST_PART * step_s:
            middle_s = (one.start_s + one.end_s) / 2
            axis.text(
                middle_s,
                _lane(one, ranks),
                one.micro_batch,
                ha="center",
                va="center",
                fontsize=7,
                color="white",
            )
    sums = [
        (rank, one.start_s, one.end_s - one.start_s)
        for stage, one in enumerate(found.simulated.sums)
        for rank in ranks.of_stage(stage)
        if one.end_s > one.start_s
    ]
    if sums:
        numbers, starts, lengths = zip(*sums, strict=True)
        axis.barh(numbers, lengths, left=starts, color=_SUM, edgecolor="white", label="gradients' sum")
    axis.set_yticks(
        range(ranks.workers),
        [f"stage {stage}: {_layers(found.plan.stages[stage])}" for stage in ranks.by_rank()],
        fontsize=8,
    )
    axis.invert_yaxis()
    axis.grid(visible=False)
    axis.set_xlim(0, step_s)
    figure.legend(loc="outside lower right", fontsize=8, frameon=False, ncols=3)
    title = f"{found.plan.kind}, {found.plan.order}: a step of {step_s:.3g} s, predicted"
    label(axis, title, "time (s); numbers are micro-batches", "")
    return figure


def _lane(one: TimedPass, ranks: StageRanks) -> int:
    return ranks.of_stage(one.stage)[one.worker]


def _layers(stage: PlanStage) -> str:
    last = stage.end - 1
    return f"layer {last}" if stage.first == last else f"layers {stage.first} to {last}"
