"""What shadows would need beside a plan. Layers and slots are invented, and all is reckoned by hand."""

from peerloom.kit.plan_model.model_layers import ModelLayer
from peerloom.kit.plan_model.pipeline_order import GPIPE
from peerloom.kit.plan_model.placed_plan import PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_setting import PlanNetwork, PlanSetting, PlanSlot
from peerloom.kit.plan_model.plan_value import PlanPrediction, costed_plan, predict_plan
from peerloom.kit.plan_model.shadow_room import shadow_needs
from peerloom.kit.plan_model.stage_costs import StageCosts

PARAMETERS = 1_000_000


def placed(memory_bytes: float, bits_per_s: float) -> tuple[PlanPrediction, PlanSetting]:
    """Two stages of a million parameters each; a step takes about a second."""
    layer = ModelLayer("", PARAMETERS, 0.1, 0.2, 4, 0)
    slots = tuple(PlanSlot(f"slot-{number}", 1, memory_bytes) for number in range(2))
    setting = PlanSetting((layer, layer), slots, PlanNetwork.even(2, bits_per_s, 0), 2)
    plan = PlacedPlan((PlanStage(0, 1, (0,)), PlanStage(1, 2, (1,))), 2, GPIPE)
    costed = costed_plan(plan, setting, StageCosts(setting))
    assert costed is not None, "each slot has samples"
    return predict_plan(costed, setting), setting


def test_shadows_need_three_states_more_and_their_way() -> None:
    """12 bytes a parameter for its own past, 12 for its ward, 12 of changes; 32 Mbit at 1 Gbit/s."""
    found, setting = placed(60e6, 1e9)
    needs = shadow_needs(found, setting)
    assert needs.is_worth
    takes = "each stage's gradients travel for up to 32 ms a step"
    assert needs.reason == f"on: up to 36 MB more a slot, and {takes}"


def test_they_are_off_where_a_slot_lacks_the_room() -> None:
    """16 bytes a parameter for the stage itself and 36 are 52 MB, but for the activations."""
    needs = shadow_needs(*placed(40e6, 1e9))
    assert not needs.is_worth
    assert needs.reason.startswith("off: they need 36 MB more on slot-1, where 12 MB of it are missing")


def test_they_are_off_where_a_step_is_too_short_for_their_way() -> None:
    needs = shadow_needs(*placed(60e6, 1e6))
    assert not needs.is_worth
    assert needs.reason.startswith("off: each stage's gradients travel for up to 32 s a step, which takes")
