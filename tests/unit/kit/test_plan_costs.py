"""What a stage takes and needs, reckoned by hand; layers from documents and from well-known forms."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from plan_samples import FAST, layer, slot

from peerloom.errors import InvalidArgumentError
from peerloom.kit.plan_model.known_models import known_model
from peerloom.kit.plan_model.model_layers import layers_of_document
from peerloom.kit.plan_model.pipeline_order import GPIPE, ONE_F_ONE_B
from peerloom.kit.plan_model.placed_plan import DATA, HYBRID, PIPELINE, SINGLE, PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_setting import PlanNetwork, PlanSetting, PlanSlot
from peerloom.kit.plan_model.plan_value import PlanPrediction, costed_plan, predict_plan
from peerloom.kit.plan_model.stage_costs import StageCosts, shares_by_speed
from peerloom.kit.sync_model.access_links import AccessLink


def setting(layers: int = 2, slots: int = 2, batch: int = 4) -> PlanSetting:
    return PlanSetting((layer(),) * layers, (slot(),) * slots, PlanNetwork.even(slots, FAST), batch)


def predicted(
    chosen: PlanSetting, *stages: PlanStage, micro_batches: int = 1, order: str = ONE_F_ONE_B
) -> PlanPrediction:
    costed = costed_plan(PlacedPlan(stages, micro_batches, order), chosen, StageCosts(chosen))
    assert costed is not None
    return predict_plan(costed, chosen)


def test_a_plan_has_a_kind() -> None:
    one, wide = PlanStage(0, 2, (0,)), PlanStage(0, 2, (0, 1))
    first, second = PlanStage(0, 1, (0,)), PlanStage(1, 2, (1, 2))
    kinds = [
        PlacedPlan(stages, 1, GPIPE).kind
        for stages in ((one,), (wide,), (first, PlanStage(1, 2, (1,))), (first, second))
    ]
    assert kinds == [SINGLE, DATA, PIPELINE, HYBRID]


def test_one_slot_computes_all_samples_one_after_the_other() -> None:
    """4 samples of two layers of 3 s, and 0.1 s for each of the two passes; at a quarter of the speed."""
    one = replace(setting(slots=1), pass_overhead_s=0.1)
    assert predicted(one, PlanStage(0, 2, (0,))).step_s == pytest.approx(24.2)
    slow = replace(one, slots=(slot(speed=0.25),))
    assert predicted(slow, PlanStage(0, 2, (0,)), micro_batches=2).step_s == pytest.approx(96.4)


def test_a_wide_stage_shares_samples_by_speed_and_sums_its_gradients() -> None:
    """10 samples: 8 at speed 1 take 24 s, 2 at a quarter of it as long.

    4 MB around a ring of two at 8 Mbit/s: two rounds, each half the bytes in 2 s and a round trip of 0.2 s.
    """
    chosen = replace(
        setting(layers=1, batch=10),
        layers=(layer(parameters=1_000_000),),
        slots=(slot(), slot(speed=0.25)),
        network=PlanNetwork.even(2, 8e6, 0.1),
    )
    found = predicted(chosen, PlanStage(0, 1, (0, 1)))
    assert found.costed.stages[0].shares == (8, 2)
    assert found.costed.stages[0].sum_s == pytest.approx(4.4)
    assert found.step_s == pytest.approx(28.4)


def test_a_boundary_moves_each_sample_to_who_has_it_next() -> None:
    """Two slots with 2 samples each to one slot, which gets all 4: 4 x 1 MB at 8 Mbit/s, then 0.1 s."""
    chosen = replace(
        setting(slots=3), layers=(layer(output_bytes=1e6), layer()), network=PlanNetwork.even(3, 8e6, 0.1)
    )
    costs = StageCosts(chosen)
    way = costs.between(PlanStage(0, 1, (0, 1)), PlanStage(1, 2, (2,)), 4)
    assert way == pytest.approx((4.0, 0.1, 4.0, 0.1))
    even = replace(chosen, slots=(slot(),) * 4, network=PlanNetwork.even(4, 8e6, 0.1))
    way = StageCosts(even).between(PlanStage(0, 1, (0, 1)), PlanStage(1, 2, (2, 3)), 4)
    assert way == pytest.approx((2.0, 0.1, 2.0, 0.1))


def test_rates_and_delays_are_of_the_way_that_a_message_takes() -> None:
    links = [AccessLink(8e6, 80e6), AccessLink(16e6, 4e6)]
    network = PlanNetwork.of_access(links, [0.1, 0.02])
    assert (network.bits_per_s[0][1], network.bits_per_s[1][0]) == (4e6, 16e6)
    assert network.delay_s[0][1] == pytest.approx(0.12)
    together = PlanNetwork.of_access(links, [0.1, 0.02], ["here", "here"])
    assert together.delay_s[0][1] == 0
    assert together.bits_per_s[0][1] > 1e10


def test_a_slot_without_a_sample_is_no_plan() -> None:
    chosen = replace(setting(batch=2), slots=(slot(), slot(speed=0.25)))
    plan = PlacedPlan((PlanStage(0, 2, (0, 1)),), 1, GPIPE)
    assert costed_plan(plan, chosen, StageCosts(chosen)) is None


def test_memory_holds_state_and_the_activations_in_flight() -> None:
    """100 parameters of 4 + 4 + 8 bytes, and 10 bytes a sample; 8 micro-batches of 2 samples, 2 stages."""
    chosen = replace(setting(batch=16), layers=(layer(parameters=100, kept_bytes=10),) * 2)
    stages = PlanStage(0, 1, (0,)), PlanStage(1, 2, (1,))
    needed = [
        [one.needed_bytes for one in predicted(chosen, *stages, micro_batches=8, order=order).costed.memory]
        for order in (ONE_F_ONE_B, GPIPE)
    ]
    assert needed == [[1600 + 40, 1600 + 20], [1600 + 160, 1600 + 160]]


def test_what_is_missing_is_told_of_the_slot_that_lacks_most() -> None:
    chosen = replace(
        setting(batch=4),
        layers=(layer(parameters=100, kept_bytes=10),),
        slots=(slot(memory_bytes=1500), slot(memory_bytes=1610)),
    )
    costed = costed_plan(PlacedPlan((PlanStage(0, 1, (0, 1)),), 1, GPIPE), chosen, StageCosts(chosen))
    assert costed is not None
    assert costed.memory[0] == (0, 1620, 120)
    assert costed.missing_bytes == 120


def test_interruptions_cost_half_a_step_the_regrouping_and_an_only_slots_state() -> None:
    """Every 100 s on the average a break: 12 s of a step of 24 s, 1 s, and half the 60 s from copy to copy.

    With another slot at 8 Mbit/s also the way of 100 parameters of 16 bytes: 1.6 ms.
    """
    chosen = replace(setting(slots=1), slots=(slot(interruption_s=100),))
    found = predicted(chosen, PlanStage(0, 2, (0,)))
    assert found.finished_per_s == pytest.approx(4 / 24 / 1.43)
    other = replace(
        chosen,
        slots=(slot(interruption_s=100), slot()),
        layers=(layer(parameters=100), layer()),
        network=PlanNetwork.even(2, 8e6),
    )
    assert predicted(other, PlanStage(0, 2, (0,))).finished_per_s == pytest.approx(4 / 24 / 1.430016)


def test_who_has_a_twin_loses_no_state() -> None:
    """A step of 12 s on two slots, each of which breaks off once in 100 s: 2 / 100 x (6 + 1)."""
    chosen = replace(setting(), slots=(slot(interruption_s=100),) * 2)
    assert predicted(chosen, PlanStage(0, 2, (0, 1))).finished_per_s == pytest.approx(4 / 12 / 1.14)


@given(some.integers(1, 12), some.lists(some.sampled_from([0.25, 0.5, 1.0, 3.0]), min_size=1, max_size=3))
def test_no_other_shares_end_earlier(samples: int, speeds: list[float]) -> None:
    def end_s(shares: tuple[int, ...]) -> float:
        return max(share / speed for share, speed in zip(shares, speeds, strict=True))

    found = shares_by_speed(samples, speeds)
    assert sum(found) == samples
    every = itertools.product(range(samples + 1), repeat=len(speeds))
    assert end_s(found) == min(end_s(one) for one in every if sum(one) == samples)


def test_layers_are_read_from_a_document() -> None:
    document = [
        {"name": "first", "parameters": 10, "forward_operations": 4e9, "output_bytes": 8},
        {"forward_s": 1, "backward_s": 1.5, "kept_bytes": 3},
    ]
    first, second = layers_of_document(document, 2e9)
    assert (first.name, first.parameters, first.forward_s, first.backward_s) == ("first", 10, 2.0, 4.0)
    assert (first.output_bytes, first.kept_bytes) == (8, 8)
    assert (second.name, second.backward_s, second.kept_bytes) == ("1", 1.5, 3)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "JSON list"),
        ([3], "Layer 0 is 3"),
        ([{"forward": 1}], "unknown key 'forward'. Did you mean forward_s"),
        ([{"parameters": 1}], "neither forward_s nor forward_operations"),
        ([{"forward_s": 1, "forward_operations": 1}], "both"),
        ([{"forward_s": -1}], "at least 0"),
        ([{"forward_s": "1"}], "a number"),
        ([{"forward_s": 1, "parameters": 1.5}], "a whole number"),
    ],
)
def test_a_document_that_is_wrong_is_told_where(document: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        layers_of_document(document, 1e9)


def test_a_transformers_layers_follow_from_its_sizes() -> None:
    """Width 64, 16 symbols, 100 in the vocabulary, 16 bits a value: one head.

    A block: 12 x 4096 + 13 x 64 parameters, 24 x 16 x 4096 + 4 x 256 x 64 operations, and 16 x 64 x 34 +
    5 x 256 bytes kept.
    """
    layers = known_model("transformer:2:64:16:100", 1e6, 2)
    assert [one.name for one in layers] == ["embedding", "block 0", "block 1", "output"]
    block = layers[1]
    assert block.parameters == 49_984
    assert block.forward_s == pytest.approx(1.638400)
    assert block.backward_s == 2 * block.forward_s
    assert block.kept_bytes == 36_096
    assert block.output_bytes == 2048
    assert [layers[0].parameters, layers[3].parameters] == [116 * 64, 6400]


def test_linear_layers_follow_from_their_widths() -> None:
    first, second = known_model("mlp:10:20:5", 100)
    assert (first.parameters, first.forward_s, first.output_bytes, first.kept_bytes) == (220, 4.0, 80, 40)
    assert (second.parameters, second.output_bytes) == (105, 20)


@pytest.mark.parametrize(
    "model", ["digit", "mlp:3", "mlp:3:x", "transformer:3", "transformer:0:64", "transformer:²:64"]
)
def test_a_model_that_is_not_known_is_refused(model: str) -> None:
    with pytest.raises(InvalidArgumentError):
        known_model(model, 1e9)


@pytest.mark.parametrize(
    "changes",
    [
        {"slots": ()},
        {"layers": ()},
        {"batch": 0},
        {"value_bytes": -1},
        {"snapshot_s": -1},
        {"network": PlanNetwork.even(3, 1e6)},
        {"layers": (layer(0, 0),)},
    ],
)
def test_a_setting_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        replace(setting(), **changes)


@pytest.mark.parametrize("wrong", [{"speed": 0}, {"memory_bytes": -1}, {"interruption_s": 0}])
def test_a_slot_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match="of slot"):
        PlanSlot("slot", **{"speed": 1, "memory_bytes": 1, **wrong})


def test_a_link_that_cannot_be_is_refused() -> None:
    for rate, delay_s in ((0.0, 0.0), (1e6, -1.0)):
        with pytest.raises(InvalidArgumentError):
            PlanNetwork(((1.0, rate), (rate, 1.0)), ((0.0, delay_s), (delay_s, 0.0)))
