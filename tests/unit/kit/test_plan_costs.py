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
from peerloom.kit.plan_model.pipeline_order import GPIPE, ONE_F_ONE_B, PassKind
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


def test_slots_with_the_whole_model_share_samples_by_speed_and_sum_their_gradients() -> None:
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


def test_a_micro_batch_goes_from_whose_turn_it_is_to_whose_turn_it_is_next() -> None:
    """4 samples of 1 MB: 4 s at 8 Mbit/s, half of it at 16. Slots 0 and 1, then 2, 3 and 4."""
    rates = tuple(tuple(16e6 if (i, j) == (1, 2) else 8e6 for j in range(5)) for i in range(5))
    delays = tuple(tuple(0.1 * i for _ in range(5)) for i in range(5))
    chosen = replace(
        setting(slots=5), layers=(layer(output_bytes=1e6), layer()), network=PlanNetwork(rates, delays)
    )
    ways = StageCosts(chosen).between(PlanStage(0, 1, (0, 1)), PlanStage(1, 2, (2, 3, 4)), 4)
    # Of micro-batches 0 to 5: 0 to 2, 1 to 3, 0 to 4, 1 to 2, 0 to 3, 1 to 4.
    assert [way.there_s for way in ways] == [4, 4, 4, 2, 4, 4]
    assert [way.back_s for way in ways] == [4] * 6
    assert [way.there_delay_s for way in ways] == pytest.approx([0, 0.1] * 3)
    assert [way.back_delay_s for way in ways] == pytest.approx([0.2, 0.3, 0.4] * 2)


def test_a_pipeline_of_widths_2_and_1_takes_turns_and_then_sums() -> None:
    """Layers of 2 + 4 s a sample and of 1 + 2 s; four micro-batches of a sample, messages of 1 s, no delay.

    Slots 0 and 1 are forward with 0 and 1 from 0 to 2, with 2 and 3 from 2 to 4. Slot 2 gets 0 and 1 at once,
    so at 4: F0 4-5, B0 5-7, F1 7-8, B1 8-10, F2 10-11, B2 11-13, F3 13-14, B3 14-16.
    Gradients are back a second later: B0 8-12, B1 11-15, B2 14-18, B3 17-21. Then 100,000 values of 4 bytes:
    each slot gives the other half of them, and gets half of the sums, at 8 Mbit/s 0.2 s each.
    """
    chosen = replace(
        setting(slots=3, batch=4),
        layers=(layer(2, 4, 100_000, output_bytes=1e6), layer(1, 2)),
        network=PlanNetwork.even(3, 8e6),
    )
    found = predicted(chosen, PlanStage(0, 1, (0, 1)), PlanStage(1, 2, (2,)), micro_batches=4)
    assert found.costed.stages[0].sum_s == pytest.approx(0.4)
    backward = {
        (one.stage, one.micro_batch): one.end_s
        for one in found.simulated.passes
        if one.kind is PassKind.BACKWARD
    }
    assert backward == {
        (0, 0): 12,
        (0, 1): 15,
        (0, 2): 18,
        (0, 3): 21,
        (1, 0): 7,
        (1, 1): 10,
        (1, 2): 13,
        (1, 3): 16,
    }
    assert found.step_s == pytest.approx(21.4)


def test_a_slow_slot_makes_as_many_turns_as_a_fast_one() -> None:
    """Slot 1 has a quarter of the speed: 2 x 12 s, while slot 0 takes 2 x 3 s."""
    chosen = replace(setting(slots=3, batch=4), slots=(slot(), slot(speed=0.25), slot()))
    chosen = replace(chosen, layers=(layer(), layer(0, 0)))
    found = predicted(chosen, PlanStage(0, 1, (0, 1)), PlanStage(1, 2, (2,)), micro_batches=4, order=GPIPE)
    assert found.step_s == pytest.approx(24)


def test_the_sum_of_a_wide_stage_counts_the_busiest_slot_and_the_farthest_way() -> None:
    """Three slots: each sends 2 x 4 kB twice; slot 2 sends at 16 kbit/s, which takes it 2 x 2 s.

    Each of the exchanges of the values, and of who has them, ends 0.5 s after that.
    """
    rates = tuple(tuple(16e3 if i == 2 else 64e3 for _ in range(4)) for i in range(4))
    delays = tuple(tuple(0.5 if {i, j} == {0, 2} else 0.1 for j in range(4)) for i in range(4))
    chosen = replace(
        setting(slots=4), layers=(layer(parameters=3000), layer()), network=PlanNetwork(rates, delays)
    )
    found = predicted(chosen, PlanStage(0, 1, (0, 1, 2)), PlanStage(1, 2, (3,)), micro_batches=4)
    assert found.costed.stages[0].sum_s == pytest.approx(2 * (2 * 2 + 2 * 0.5))


def test_a_wide_stage_holds_the_activations_of_its_turns() -> None:
    """Two slots of 1,600 bytes of state each; of 4 micro-batches of 2 samples GPipe holds two in each.

    1F1B goes ahead by three: slot 0 holds two of them at most, slot 1 two as well, from the second on.
    """
    chosen = replace(setting(slots=3, batch=8), layers=(layer(parameters=100, kept_bytes=10),) * 2)
    stages = PlanStage(0, 1, (0, 1)), PlanStage(1, 2, (2,))
    needed = [
        [one.needed_bytes for one in predicted(chosen, *stages, micro_batches=4, order=order).costed.memory]
        for order in (ONE_F_ONE_B, GPIPE)
    ]
    assert needed == [[1600 + 40, 1600 + 20], [1600 + 40, 1600 + 80]]


def test_who_would_have_no_turn_or_may_take_none_is_no_plan() -> None:
    chosen = setting(slots=3)
    stages = PlanStage(0, 1, (0, 1)), PlanStage(1, 2, (2,))
    alone = replace(chosen, layers=(replace(layer(), is_narrow=True), layer()))
    assert costed_plan(PlacedPlan(stages, 2, GPIPE), chosen, StageCosts(chosen)) is not None
    assert costed_plan(PlacedPlan(stages, 1, GPIPE), chosen, StageCosts(chosen)) is None
    assert costed_plan(PlacedPlan(stages, 2, GPIPE), alone, StageCosts(alone)) is None
    other = PlanStage(0, 1, (0,)), PlanStage(1, 2, (1, 2))
    assert costed_plan(PlacedPlan(other, 2, GPIPE), alone, StageCosts(alone)) is not None
    data = PlacedPlan((PlanStage(0, 2, (0, 1)),), 1, GPIPE)
    assert costed_plan(data, alone, StageCosts(alone)) is not None, "all hold all of it, and share samples"


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
        {"forward_s": 1, "backward_s": 1.5, "kept_bytes": 3, "is_narrow": True},
    ]
    first, second = layers_of_document(document, 2e9)
    assert (first.name, first.parameters, first.forward_s, first.backward_s) == ("first", 10, 2.0, 4.0)
    assert (first.output_bytes, first.kept_bytes) == (8, 8)
    assert (second.name, second.backward_s, second.kept_bytes) == ("1", 1.5, 3)
    assert (first.is_narrow, second.is_narrow) == (False, True)


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
        ([{"forward_s": 1, "is_narrow": 1}], "true or false"),
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
