"""Why no plan fits into the slots' memory: what is missing, and where."""

from collections.abc import Sequence

from peerloom.errors import ResourceExhaustedError
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.plan_value import CostedPlan
from peerloom.kit.quantity_texts import shown_bytes


def no_plan_fits(setting: PlanSetting, looked_at: Sequence[CostedPlan]) -> ResourceExhaustedError:
    """A layer fits no slot, or all slots together are too small, or a cut fits none: the first that is true.

    A layer needs its parameters, their gradients, what the optimiser keeps, and one sample's activations.
    """
    least = [layer.parameters * setting.state_bytes + layer.kept_bytes for layer in setting.layers]
    largest, room = max(least), max(slot.memory_bytes for slot in setting.slots)
    total, together = sum(least), sum(slot.memory_bytes for slot in setting.slots)
    if largest > room:
        number = least.index(largest)
        missing = largest - room
        text = (
            f"layer {number} ({setting.layers[number].name}) alone needs {shown_bytes(largest)}, and the "
            f"largest slot has {shown_bytes(room)}: {shown_bytes(missing)} are missing. "
            "Of the plans only tensor=K cuts a layer, and it is named, not searched"
        )
    elif total > together:
        missing = total - together
        text = (
            f"the model needs {shown_bytes(total)} with one sample, and all {len(setting.slots)} slots "
            f"together have {shown_bytes(together)}: {shown_bytes(missing)} are missing"
        )
    elif not looked_at:
        missing, text = 0.0, "the layers can't be placed on these slots so"
    else:
        nearest = min(looked_at, key=lambda one: one.missing_bytes)
        number = max(range(len(nearest.memory)), key=lambda one: nearest.memory[one].missing_bytes)
        stage, memory = nearest.plan.stages[number], nearest.memory[number]
        missing = memory.missing_bytes
        text = (
            f"the nearest that was found lacks {shown_bytes(missing)} on {setting.slots[memory.slot].name}, "
            f"where layers {stage.first} to {stage.end - 1} need {shown_bytes(memory.needed_bytes)}"
        )
    return ResourceExhaustedError(
        f"No plan fits: {text}. Lend more memory or more slots, or train with fewer optimiser bytes.",
        reason="MODEL_TOO_LARGE",
        metadata={"missing_bytes": str(round(missing))},
    )
