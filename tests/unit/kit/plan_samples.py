"""Settings for the plan search, small enough to be reckoned by hand or searched through."""

import math
from random import Random

from peerloom.kit.plan_model.model_layers import ModelLayer
from peerloom.kit.plan_model.plan_setting import PlanNetwork, PlanSetting, PlanSlot
from peerloom.kit.sync_model.access_links import AccessLink

ROOM = 1e12
FAST = 1e15  # bits/s that nobody waits for


def layer(
    forward_s: float = 1.0,
    backward_s: float = 2.0,
    parameters: int = 0,
    output_bytes: float = 0.0,
    kept_bytes: float = 0.0,
) -> ModelLayer:
    return ModelLayer("layer", parameters, forward_s, backward_s, output_bytes, kept_bytes)


def slot(speed: float = 1.0, memory_bytes: float = ROOM, interruption_s: float = math.inf) -> PlanSlot:
    return PlanSlot("slot", speed, memory_bytes, interruption_s)


def drawn_setting(random: Random, layers: int, slots: int, batch: int) -> PlanSetting:
    """Unequal layers, slots and links; all slots together have room for about two copies of the model."""
    drawn = tuple(
        ModelLayer(
            f"layer {number}",
            random.randint(0, 2_000_000),
            random.uniform(0.001, 0.01),
            random.uniform(0.002, 0.02),
            random.choice([1e3, 1e4, 1e5]),
            random.choice([1e5, 1e6]),
        )
        for number in range(layers)
    )
    needed = sum(one.parameters * 16 + one.kept_bytes * batch for one in drawn)
    return PlanSetting(
        drawn,
        tuple(
            PlanSlot(
                f"slot {number}",
                random.choice([0.25, 0.5, 1, 1]),
                needed * random.uniform(1, 4) / slots,
                random.choice([math.inf, 3600.0, 600.0]),
            )
            for number in range(slots)
        ),
        PlanNetwork.of_access(
            [
                AccessLink(random.choice([2e7, 5e7, 1e9]), random.choice([2e7, 5e7, 1e9]))
                for _ in range(slots)
            ],
            [random.choice([0.0, 0.001, 0.02]) for _ in range(slots)],
        ),
        batch,
        pass_overhead_s=0.001,
    )
