"""The model of the benchmarks of pipelines and of shards: equal layers, emulated, and its prediction."""

from benchmarks.measure import Goal, Measurement, measurement
from peerloom.kit.plan_model.model_layers import ModelLayer
from peerloom.kit.plan_model.placed_plan import PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_setting import PlanNetwork, PlanSetting, PlanSlot
from peerloom.kit.plan_model.plan_value import costed_plan, predict_plan
from peerloom.kit.plan_model.stage_costs import StageCosts
from peerloom.worker.tasks.emulated import FORWARD_PART

WIDTH, LAYERS, WARM_UP = 256, 8, 2
PREDICTED = "the prediction"


def task_arguments(batch: int, compute_ms: float, steps: int) -> dict[str, str]:
    """Of a job with so many steps after the warm-up, whose batches take `compute_ms` of computing in all."""
    return {
        "parameters": str(LAYERS * WIDTH * WIDTH),
        "layers": str(LAYERS),
        "sample_ms": str(compute_ms / batch),
        "samples": str(batch * (WARM_UP + steps)),
    }


def predicted_ms(
    batch: int,
    compute_ms: float,
    bits_per_s: float,
    delay_ms: float,
    slots: int,
    micro_batches: int,
    order: str,
    *,
    is_sharded: bool = False,
) -> float:
    """A step as `peerloom plan explain` would predict it, of as many layers on each slot."""
    layer_s = compute_ms / 1000 / batch / LAYERS
    layer = ModelLayer("", WIDTH * WIDTH, FORWARD_PART * layer_s, (1 - FORWARD_PART) * layer_s, 4 * WIDTH, 0)
    network = PlanNetwork.even(slots, bits_per_s, 2 * delay_ms / 1000)
    alike = tuple(PlanSlot(str(number), 1, 1e12) for number in range(slots))
    setting = PlanSetting((layer,) * LAYERS, alike, network, batch)
    each = LAYERS // slots
    stages = tuple(PlanStage(number * each, (number + 1) * each, (number,)) for number in range(slots))
    costed = costed_plan(PlacedPlan(stages, micro_batches, order, is_sharded), setting, StageCosts(setting))
    assert costed is not None, "each slot has samples"
    return 1000 * predict_plan(costed, setting).step_s


def step_beside(
    title: str, how: str, ours: list[float], rival: str, others: list[float], goal: Goal | None
) -> Measurement:
    """A step's milliseconds in a cell of this title."""
    name = f"{title}: a step by {how} beside {rival}"
    return measurement(name, "ms", ours, goal=goal, rival=rival, rival_samples=others)
