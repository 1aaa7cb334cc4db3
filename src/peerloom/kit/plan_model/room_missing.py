"""Why no plan fits into the slots' memory: what is missing, and where."""

from collections.abc import Sequence

from peerloom.errors import ResourceExhaustedError
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.plan_value import CostedPlan


def no_plan_fits(setting: PlanSetting, looked_at: Sequence[CostedPlan]) -> ResourceExhaustedError:
    """The first that is true: a layer fits no slot, all slots together are too small, or the nearest plan lacks.

    A layer needs its parameters, their gradients, what the optimiser keeps, and one sample's activations.
    """
    least = [layer.parameters * setting.state_bytes + layer.kept_bytes for layer in setting.layers]
    largest, room = max(least), max(slot.memory_bytes for slot in setting.slots)
    total, together = sum(least), sum(slot.memory_bytes for slot in setting.slots)
    if largest > room:
        number = least.index(largest)
        missing = largest - room
        text = (
            f"layer {number} ({setting.layers[number].name}) alone needs {_bytes(largest)}, and the largest "
            f"slot has {_bytes(room)}: {_bytes(missing)} are missing. No plan cuts within a layer"
        )
    elif total > together:
        missing = total - together
        text = (
            f"the model needs {_bytes(total)} with one sample, and all {len(setting.slots)} slots together "
            f"have {_bytes(together)}: {_bytes(missing)} are missing"
        )
    else:
        nearest = min(looked_at, key=lambda one: one.missing_bytes)
        number = max(range(len(nearest.memory)), key=lambda one: nearest.memory[one].missing_bytes)
        stage, memory = nearest.plan.stages[number], nearest.memory[number]
        missing = memory.missing_bytes
        text = (
            f"the nearest that was found lacks {_bytes(missing)} on {setting.slots[memory.slot].name}, which "
            f"has layers {stage.first} to {stage.end - 1} there and needs {_bytes(memory.needed_bytes)}"
        )
    return ResourceExhaustedError(
        f"No plan fits: {text}. Lend more memory or more slots, or train with fewer optimiser bytes.",
        reason="MODEL_TOO_LARGE",
        metadata={"missing_bytes": str(round(missing))},
    )


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.3f} GB" if count >= 1e9 else f"{count / 1e6:,.3f} MB"
