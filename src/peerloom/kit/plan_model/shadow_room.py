"""What shadows of a pipeline's stages would need beside it, and whether they pay: pure."""

from dataclasses import dataclass

from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.plan_value import PlanPrediction
from peerloom.kit.quantity_texts import shown_bytes, shown_s
from peerloom.kit.shadow_ring import shadow_holders
from peerloom.kit.stage_ranks import StageRanks

# Beside its ward's state: two changes that wait, and its own that leaves.
WAITING_CHANGES = 2


@dataclass(frozen=True)
class ShadowNeeds:
    """Whether shadows are worth their cost, and that in words."""

    is_worth: bool
    reason: str


def shadow_needs(found: PlanPrediction, setting: PlanSetting) -> ShadowNeeds:
    """Of a plan whose stages have a slot each, or several, which then need none.

    A slot keeps its own past and its ward's state (parameters and moments), and changes, which are as large
    as gradients; each stage sends its own with each step. They must fit, and travel within a step.
    """
    stages = found.plan.stages
    parameters = [sum(layer.parameters for layer in setting.layers[s.first : s.end]) for s in stages]
    slots = [slot for stage in stages for slot in stage.slots]
    ranks = StageRanks(tuple(len(stage.slots) for stage in stages))
    holders = shadow_holders([setting.slots[slot].name for slot in slots], ranks)
    if not holders:
        return ShadowNeeds(True, "none are needed: each stage's state is in several slots")
    value, kept = setting.value_bytes, setting.value_bytes + setting.optimiser_bytes
    most_bytes, most_s = 0.0, 0.0
    for stage, holder in enumerate(holders):
        if ranks.widths[stage] > 1:
            continue
        beside = ranks.stage_of(holder)
        slot = setting.slots[slots[holder]]
        ward, own = parameters[stage], parameters[beside]
        more = kept * (ward + own) + value * (WAITING_CHANGES * ward + own)
        missing = found.costed.memory[beside].needed_bytes + more - slot.memory_bytes
        if missing > 0:
            why = f"{shown_bytes(more)} more on {slot.name}, where {shown_bytes(missing)} of it are missing"
            return ShadowNeeds(False, f"off: they need {why}")
        way_s = 8 * value * ward / setting.network.bits_per_s[stages[stage].slots[0]][slots[holder]]
        most_bytes, most_s = max(most_bytes, more), max(most_s, way_s)
    takes = f"each stage's gradients travel for up to {shown_s(most_s)} a step"
    if most_s > found.step_s:
        return ShadowNeeds(False, f"off: {takes}, which takes {shown_s(found.step_s)}")
    return ShadowNeeds(True, f"on: up to {shown_bytes(most_bytes)} more a slot, and {takes}")
