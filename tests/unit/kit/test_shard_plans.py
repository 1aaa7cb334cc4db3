"""A model in shards, reckoned by hand: when its units arrive, what its slots need, and where it is cut."""

from dataclasses import replace

import pytest
from plan_samples import FAST, ROOM, layer, slot

from peerloom.kit.plan_model.model_layers import layers_of_document
from peerloom.kit.plan_model.placed_plan import SHARDED, PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_reasons import report_of
from peerloom.kit.plan_model.plan_search import choose_plan
from peerloom.kit.plan_model.plan_setting import PlanNetwork, PlanSetting
from peerloom.kit.plan_model.plan_value import CostedPlan, costed_plan, predict_plan
from peerloom.kit.plan_model.shard_plans import shard_plans, sharded_on
from peerloom.kit.plan_model.stage_costs import StageCosts
from peerloom.kit.shard_travel import piece_bytes

MBIT_S = 1e6
# 1 M bytes, which take a second at 8 Mbit/s; 1 s there and 2 s back for a sample.
UNIT = layer(parameters=250_000, kept_bytes=1000)
PAIR = PlanSetting((UNIT,) * 3, (slot(),) * 2, PlanNetwork.even(2, 8 * MBIT_S, 0.1), 4)


def costed(setting: PlanSetting, *slots: int) -> CostedPlan:
    found = costed_plan(sharded_on(setting, slots), setting, StageCosts(setting))
    assert found is not None
    return found


def test_values_come_while_the_unit_before_is_computed() -> None:
    """Two samples each: 2 s a unit forward, 4 s backward; a second and 0.1 s of delay for a unit's values.

    The first is there at 1.1 s, the others while units are computed: forward until 7.1, backward until 19.1,
    and the first unit's gradients are with their owner 1.1 s later.
    """
    found = predict_plan(costed(PAIR, 0, 1), PAIR)
    assert found.step_s == pytest.approx(20.2)
    assert found.finished_per_s == pytest.approx(4 / 20.2)
    forward, backward = found.simulated.passes[:2]
    assert (forward.end_s, backward.end_s) == (pytest.approx(7.1), pytest.approx(19.1))


def test_two_units_are_on_their_way_while_one_is_computed() -> None:
    """With 2.5 s of delay all three are there at 3.5, 4.5 and 5.5 s; one ahead, the last would be at 9.

    Forward from 3.5 to 9.5, backward until 21.5, and the first unit's gradients are there at 25.
    """
    far = replace(PAIR, network=PlanNetwork.even(2, 8 * MBIT_S, 2.5))
    assert predict_plan(costed(far, 0, 1), far).step_s == pytest.approx(25)


def test_a_worker_between_passes_a_unit_on_piece_by_piece() -> None:
    """Of 1 MB a piece has 65,536 bytes: the last of three workers has a unit 0.065536 s after a second.

    A sample each: forward from 1.265536 on, where each unit's values come a second after those before, so
    that the third one is forward at 4.265536; backward for 6 s, and the first's gradients 1.265536 later.
    """
    three = replace(PAIR, slots=(slot(),) * 3, batch=3, network=PlanNetwork.even(3, 8 * MBIT_S, 0.1))
    found = predict_plan(costed(three, 0, 1, 2), three)
    assert found.step_s == pytest.approx(1.265536 + 3 + 6 + 1.265536)


@pytest.mark.parametrize(
    ("unit", "piece"), [(1, 1 << 16), (1 << 20, 1 << 17), (1_500_000, 1 << 17), (1 << 30, 1 << 20)]
)
def test_a_piece_is_an_eighth_of_a_unit_within_limits(unit: int, piece: int) -> None:
    assert piece_bytes(unit) == piece


def test_on_a_slow_line_all_wait_for_it() -> None:
    """At a tenth of the rate a unit takes 10 s. Values go five times and gradients three, without a pause."""
    slow = replace(PAIR, network=PlanNetwork.even(2, 0.8 * MBIT_S, 0.1))
    found = predict_plan(costed(slow, 0, 1), slow)
    assert found.step_s == pytest.approx(80.1)
    assert found.finished_per_s == pytest.approx(found.costed.most_per_s)
    assert report_of(found, slow).binds.startswith("the ways between the slots: at twice its speed")


def test_the_slowest_slot_and_the_largest_part_of_the_batch_hold_the_others_up() -> None:
    """Five samples are 3 and 2: of three units 9 s and 18 s, at half the speed 2 samples take 12 and 24."""
    uneven = replace(PAIR, batch=5, network=PlanNetwork.even(2, FAST))
    assert predict_plan(costed(uneven, 0, 1), uneven).step_s == pytest.approx(27)
    slow = replace(uneven, slots=(slot(), slot(0.5)))
    assert predict_plan(costed(slow, 0, 1), slow).step_s == pytest.approx(36)
    assert [stage.shares for stage in costed(slow, 0, 1).stages] == [(3,), (2,)]


def test_a_slot_holds_its_shard_and_for_a_moment_others_units() -> None:
    """16 bytes a parameter of its own, seven times a unit of 1 MB, and 3 kB for each of two samples."""
    found = costed(PAIR, 1, 0)
    assert found.plan.stages == (PlanStage(0, 2, (1,)), PlanStage(2, 3, (0,)))
    assert [one.needed_bytes for one in found.memory] == [8e6 + 7e6 + 6e3, 4e6 + 7e6 + 6e3]
    tight = replace(PAIR, slots=(slot(memory_bytes=10e6), slot(memory_bytes=14e6)))
    assert costed(tight, 1, 0).missing_bytes == pytest.approx(1.006e6)


def test_layers_are_cut_by_memory_and_not_by_speed() -> None:
    """Twelve units; beside what others' take one slot has three times as much left as the other."""
    layers = (UNIT,) * 12
    slots = (slot(4.0, 7.036e6 + 16e6), slot(1.0, 7.036e6 + 48e6))
    setting = PlanSetting(layers, slots, PlanNetwork.even(2, FAST), 5)
    assert [stage.first for stage in sharded_on(setting, (0, 1)).stages] == [0, 3]
    assert [stage.first for stage in sharded_on(setting, (1, 0)).stages] == [0, 9]


def test_what_the_slots_of_a_stage_could_not_share_is_in_no_shard() -> None:
    for odd in (replace(UNIT, is_narrow=True), replace(UNIT, is_tied=True)):
        setting = replace(PAIR, layers=(UNIT, odd))
        assert not list(shard_plans(setting))
        assert costed_plan(sharded_on(setting, (0, 1)), setting, StageCosts(setting)) is None
    lonely = replace(PAIR, batch=1)
    assert not list(shard_plans(lonely)), "the second slot would have no sample"
    entry = {"parameters": 4, "forward_s": 0.1, "is_tied": True}
    assert layers_of_document([entry], 1.0)[0].is_tied


def test_a_model_that_no_slot_holds_goes_in_shards_where_a_pipeline_would_idle() -> None:
    """The first of eight layers costs as much as 25 others: no stages are even, and 32 MB fit no slot.

    Two samples each, of 32 and 64 s.
    """
    layers = (layer(25, 50, 250_000), *(UNIT,) * 7)
    setting = PlanSetting(layers, (slot(memory_bytes=24e6),) * 2, PlanNetwork.even(2, FAST), 4)
    found = choose_plan(setting)
    assert found.chosen.plan == PlacedPlan(found.chosen.plan.stages, 2, "gpipe", is_sharded=True)
    assert found.chosen.step_s == pytest.approx(192)
    report = report_of(found.chosen, setting)
    assert (report.kind, report.stages[0].held) == (SHARDED, 1)
    assert report.stages[0].idle_ratio == pytest.approx(0, abs=1e-6)
    assert "the computing: at twice its speed" in report.binds
    assert [one.plan.kind for one in found.others] == ["pipeline"]


def test_each_choice_of_slots_is_looked_at_once() -> None:
    three = replace(
        PAIR, slots=(slot(), slot(), slot(memory_bytes=ROOM / 2)), network=PlanNetwork.even(3, FAST)
    )
    found = [plan.slots for plan in shard_plans(three)]
    assert len(found) == len(set(found)) == 6 + 6, "two of three, and three, in each order"
