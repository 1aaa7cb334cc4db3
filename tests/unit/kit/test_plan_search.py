"""The best plan: that of an exhaustive search in small settings, a bounded search in large ones."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from plan_samples import FAST, ROOM, drawn_setting, layer, slot

from peerloom.errors import InvalidArgumentError, ResourceExhaustedError
from peerloom.kit.plan_model.pipeline_order import GPIPE, ONE_F_ONE_B, PIPELINE_ORDERS, ZB_H1
from peerloom.kit.plan_model.placed_plan import DATA, HYBRID, PIPELINE, SHARDED, SINGLE, PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_search import MOST_EVALUATED, MOST_SIMULATED, PlanChoice, choose_plan
from peerloom.kit.plan_model.plan_setting import PlanNetwork, PlanSetting
from peerloom.kit.plan_model.plan_space import all_plans
from peerloom.kit.plan_model.plan_value import costed_plan, predict_plan
from peerloom.kit.plan_model.shard_plans import sharded_on
from peerloom.kit.plan_model.stage_costs import StageCosts

ROUNDING = 1 + 1e-9


def every_plan(setting: PlanSetting) -> Iterator[PlacedPlan]:
    """All there are, listed without regard to slots that are alike: each slot has a stage or none."""
    layers, slots = len(setting.layers), range(len(setting.slots))
    for stages in range(1, min(layers, len(slots)) + 1):
        for places in itertools.product(range(stages + 1), repeat=len(slots)):
            groups = [tuple(one for one in slots if places[one] == stage) for stage in range(stages)]
            if not all(groups):
                continue
            for cuts in itertools.combinations(range(1, layers), stages - 1):
                edges = (0, *cuts, layers)
                cut = tuple(PlanStage(edges[one], edges[one + 1], groups[one]) for one in range(stages))
                for count in range(1, setting.batch + 1):
                    if setting.batch % count == 0:
                        yield from (PlacedPlan(cut, count, order) for order in PIPELINE_ORDERS)


def every_sharded(setting: PlanSetting) -> Iterator[PlacedPlan]:
    """All choices of two slots or more, in all orders."""
    slots = range(len(setting.slots))
    for count in range(2, min(len(setting.layers), len(slots), setting.batch) + 1):
        yield from (sharded_on(setting, chosen) for chosen in itertools.permutations(slots, count))


def best_of_all(setting: PlanSetting) -> float:
    """Samples a second of the best plan that fits; 0 without any."""
    costs, best = StageCosts(setting), 0.0
    for plan in itertools.chain(every_plan(setting), every_sharded(setting)):
        costed = costed_plan(plan, setting, costs)
        if costed is not None and not costed.missing_bytes:
            best = max(best, predict_plan(costed, setting).finished_per_s)
    return best


def finished(setting: PlanSetting) -> float:
    try:
        return choose_plan(setting).chosen.finished_per_s
    except ResourceExhaustedError:
        return 0.0


small_layers = some.builds(
    layer,
    some.floats(0.1, 3),
    some.floats(0.1, 6),
    some.integers(0, 1000),
    some.sampled_from([0.0, 100.0, 5000.0]),
    some.sampled_from([0.0, 200.0, 2000.0]),
)
small_layers = some.builds(
    lambda one, is_narrow: replace(one, is_narrow=is_narrow),
    small_layers,
    some.sampled_from([False, False, False, True]),
)
small_slots = some.builds(
    slot,
    some.sampled_from([0.25, 0.5, 1.0]),
    some.sampled_from([10_000.0, 20_000.0, ROOM]),
    some.sampled_from([math.inf, 1000.0, 50.0]),
)


@some.composite
def small_settings(draw: some.DrawFn) -> PlanSetting:
    """Up to four layers and three slots, which may be alike or not, as may their links."""
    slots = draw(some.lists(small_slots, min_size=1, max_size=3))
    if draw(some.booleans()):
        slots = [slots[0]] * len(slots)
    cell = some.tuples(some.sampled_from([8e3, 8e4, 8e6]), some.sampled_from([0.0, 0.5]))
    count = len(slots)
    cells = [[draw(cell) for _ in range(count)] for _ in range(count)]
    if draw(some.booleans()):
        cells = [[cells[0][0]] * count] * count
    network = PlanNetwork(
        tuple(tuple(rate for rate, _ in row) for row in cells),
        tuple(tuple(delay_s for _, delay_s in row) for row in cells),
    )
    layers = draw(some.lists(small_layers, min_size=1, max_size=4))
    batch = draw(some.sampled_from([1, 4, 6]))
    return PlanSetting(tuple(layers), tuple(slots), network, batch, pass_overhead_s=0.05)


@settings(max_examples=60)
@given(small_settings())
def test_a_small_setting_gets_the_best_plan_of_all(setting: PlanSetting) -> None:
    best = best_of_all(setting)
    if not best:
        with pytest.raises(ResourceExhaustedError):
            choose_plan(setting)
        return
    found = choose_plan(setting)
    assert found.is_best_of_all
    assert found.chosen.finished_per_s == pytest.approx(best, rel=1e-9)
    assert not found.chosen.costed.missing_bytes


@settings(max_examples=30)
@given(small_settings(), some.floats(1, 100), some.floats(0, 1))
def test_faster_links_and_more_room_are_never_worse(
    setting: PlanSetting, factor: float, nearness: float
) -> None:
    before, network = finished(setting), setting.network
    rates = tuple(tuple(rate * factor for rate in row) for row in network.bits_per_s)
    delays = tuple(tuple(delay_s * nearness for delay_s in row) for row in network.delay_s)
    assert finished(replace(setting, network=PlanNetwork(rates, network.delay_s))) * ROUNDING >= before
    assert finished(replace(setting, network=PlanNetwork(network.bits_per_s, delays))) * ROUNDING >= before
    roomy = tuple(replace(one, memory_bytes=one.memory_bytes * factor) for one in setting.slots)
    assert finished(replace(setting, slots=roomy)) * ROUNDING >= before


@settings(max_examples=20)
@given(small_settings())
def test_a_plan_that_is_listed_twice_or_not_at_all_is_none(setting: PlanSetting) -> None:
    """Where no slots are alike, the list is that of the exhaustive search; else a part of it."""
    listed, every = list(all_plans(setting, tuple(PIPELINE_ORDERS))), set(every_plan(setting))
    assert len(set(listed)) == len(listed)
    assert set(listed) <= every
    speeds = (1.0, 0.5, 0.25)
    unlike = replace(
        setting, slots=tuple(replace(one, speed=speeds[n]) for n, one in enumerate(setting.slots))
    )
    assert set(all_plans(unlike, tuple(PIPELINE_ORDERS))) == every


def even_setting(slots: int, layers: int = 10, rate: float = FAST) -> PlanSetting:
    return PlanSetting((layer(),) * layers, (slot(),) * slots, PlanNetwork.even(slots, rate), 20)


def shape(found: PlanChoice) -> list[tuple[int, int, int]]:
    return [(stage.first, stage.end, len(stage.slots)) for stage in found.chosen.plan.stages]


def test_a_slot_of_a_quarter_of_the_speed_gets_a_quarter_of_the_layers() -> None:
    """Sums of gradients would take for ever, so it's a pipeline: 8 layers at speed 1, 2 at a quarter."""
    setting = replace(
        even_setting(2, rate=1e3),
        layers=(layer(parameters=10**6),) * 10,
        slots=(slot(), slot(speed=0.25)),
    )
    found = choose_plan(setting)
    assert found.chosen.plan.kind == PIPELINE
    layers = {stage.slots[0]: stage.end - stage.first for stage in found.chosen.plan.stages}
    assert layers == {0: 8, 1: 2}


def test_where_sums_are_free_all_slots_share_the_samples() -> None:
    found = choose_plan(even_setting(4))
    assert found.chosen.plan.kind == DATA
    assert shape(found) == [(0, 10, 4)]
    assert found.chosen.plan.micro_batches == 1
    assert found.chosen.step_s == pytest.approx(10 * 3 * 5)


def test_slots_that_only_delay_are_left_out() -> None:
    found = choose_plan(replace(even_setting(3, rate=1.0), layers=(layer(0.001, 0.002, 1000, 100.0),) * 4))
    assert found.chosen.plan.kind == SINGLE
    assert [one.plan.kind for one in found.others if one.plan.kind != SINGLE]


def test_a_model_larger_than_a_slot_is_cut_where_it_fits() -> None:
    """Ten layers of 1,600 bytes, two slots with room for five of them: the only plan without a wide stage."""
    setting = replace(
        even_setting(2), layers=(layer(parameters=100),) * 10, slots=(slot(memory_bytes=8000),) * 2
    )
    found = choose_plan(setting)
    assert shape(found) == [(0, 5, 1), (5, 10, 1)]
    assert [one.plan.kind for one in found.too_large] == [SINGLE, DATA, SHARDED], "400 bytes four times more"
    assert found.with_more_memory is not None
    assert found.with_more_memory.plan.kind == DATA
    assert found.with_more_memory.costed.missing_bytes == 8000


def test_activations_in_flight_decide_the_order() -> None:
    """Twenty micro-batches: GPipe would hold 20 x 100 bytes a stage, 1F1B holds 200 and 100."""
    setting = replace(
        even_setting(2, layers=2),
        layers=(layer(parameters=100, kept_bytes=100),) * 2,
        slots=(slot(memory_bytes=1900),) * 2,
    )
    found = choose_plan(setting, (GPIPE, ONE_F_ONE_B))
    assert (found.chosen.plan.order, found.chosen.plan.micro_batches) == (ONE_F_ONE_B, 20)
    split = choose_plan(setting)
    assert split.chosen.plan.order == ZB_H1, "it holds 200 in both stages, which have room for them"
    assert split.chosen.step_s < found.chosen.step_s
    with pytest.raises(ResourceExhaustedError):
        choose_plan(setting, (GPIPE,))


def test_stages_may_have_different_widths() -> None:
    """A first layer three times as heavy, with sums for free on one host only: three slots, then one.

    Its 400 kB of parameters would take for ever to the fourth slot. The three take turns, so that a step has
    at least three micro-batches.
    """
    slow, fast = 1e4, FAST
    rates = tuple(tuple(fast if max(i, j) < 3 or i == j else slow for j in range(4)) for i in range(4))
    delays = ((0.0,) * 4,) * 4
    setting = PlanSetting(
        (layer(3, 6, 100_000), layer(1, 2, 100_000)), (slot(),) * 4, PlanNetwork(rates, delays), 12
    )
    found = choose_plan(setting)
    assert found.chosen.plan.kind == HYBRID
    assert [stage.slots for stage in found.chosen.plan.stages] == [(0, 1, 2), (3,)]
    assert found.chosen.plan.micro_batches >= 3


def test_two_slow_slots_take_turns_beside_a_fast_one() -> None:
    """A first layer as heavy as the second, which a slot of speed 1 computes; two of speed 1/2 the first one.

    No slot has room for both. Two layers of 1 + 2 s: with a slow slot alone a step would take twice as long.
    """
    layers = (layer(parameters=100),) * 2
    slots = (slot(0.5, 1700), slot(1.0, 1700), slot(0.5, 1700))
    found = choose_plan(PlanSetting(layers, slots, PlanNetwork.even(3, FAST), 12))
    assert [len(stage.slots) for stage in found.chosen.plan.stages] in ([2, 1], [1, 2])
    wide = next(stage for stage in found.chosen.plan.stages if len(stage.slots) == 2)
    assert wide.slots == (0, 2)
    narrow = next(one for one in found.others if one.plan.kind == PIPELINE)
    assert narrow.step_s > 1.5 * found.chosen.step_s


def test_a_layer_that_is_narrow_has_one_slot() -> None:
    """As above, but the slow slots may not take turns at either layer."""
    layers = (replace(layer(parameters=100), is_narrow=True),) * 2
    slots = (slot(0.5, 1700), slot(1.0, 1700), slot(0.5, 1700))
    found = choose_plan(PlanSetting(layers, slots, PlanNetwork.even(3, FAST), 12))
    assert found.chosen.plan.kind == PIPELINE
    assert HYBRID not in {one.plan.kind for one in found.others}


def test_who_breaks_off_often_is_left_out() -> None:
    """A second slot would halve a step of 600 s, but breaks off each minute."""
    steady = even_setting(2)
    often = replace(steady, slots=(slot(), slot(interruption_s=60)))
    assert choose_plan(steady).chosen.plan.slots == (0, 1)
    assert choose_plan(often).chosen.plan.slots == (0,)


def test_what_is_missing_is_said() -> None:
    setting = replace(even_setting(2), layers=(layer(parameters=100, kept_bytes=10),) * 10)
    tiny = replace(setting, slots=(slot(memory_bytes=1000),) * 2)
    with pytest.raises(ResourceExhaustedError, match=r"layer 0 \(layer\) alone needs 1\.61 kB.*610 B") as one:
        choose_plan(tiny)
    assert one.value.metadata["missing_bytes"] == "610"
    little = replace(setting, slots=(slot(memory_bytes=5000),) * 2)
    with pytest.raises(ResourceExhaustedError, match=r"all 2 slots together have 10 kB: 6\.1 kB are missing"):
        choose_plan(little)
    uneven = replace(setting, slots=(slot(memory_bytes=14_400), slot(memory_bytes=1_700)))
    with pytest.raises(ResourceExhaustedError, match="the nearest that was found lacks 90 B on slot"):
        choose_plan(uneven)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="did you mean gpipe"):
        choose_plan(even_setting(2), ("gpip",))


@pytest.mark.parametrize("seed", range(6))
def test_the_bounded_search_comes_near_the_best(seed: int) -> None:
    """Within a tenth in these draws; the list that it may not use is searched through beside it."""
    random = Random(seed)
    layers, slots = random.choice([(5, 3), (7, 3), (4, 4)])
    setting = drawn_setting(random, layers, slots, 8)
    best, bounded = choose_plan(setting), choose_plan(setting, most_listed=0)
    assert best.is_best_of_all
    assert not bounded.is_best_of_all
    assert bounded.chosen.finished_per_s >= 0.9 * best.chosen.finished_per_s


def test_a_large_setting_is_searched_within_bounds() -> None:
    """A hundred layers on sixteen unequal slots, none of which would hold the model."""
    setting = drawn_setting(Random(1), 100, 16, 32)
    found = choose_plan(setting)
    assert not found.is_best_of_all
    assert found.evaluated <= MOST_EVALUATED
    assert found.simulated <= MOST_SIMULATED + 100
    assert not found.chosen.costed.missing_bytes
    stages = found.chosen.plan.stages
    assert [stage.first for stage in stages] == [0, *(stage.end for stage in stages[:-1])]
    assert stages[-1].end == 100
    assert len(set(found.chosen.plan.slots)) == len(found.chosen.plan.slots)


def test_a_tight_setting_is_mended_step_by_step() -> None:
    """64 equal layers, room for two on the first slot and for nine on each other: every slot is needed."""
    setting = drawn_setting(Random(2), 64, 8, 8)
    layers = tuple(replace(one, parameters=1000, kept_bytes=0.0) for one in setting.layers)
    slots = tuple(replace(one, memory_bytes=16_000 * (9 if n else 2)) for n, one in enumerate(setting.slots))
    found = choose_plan(replace(setting, layers=layers, slots=slots))
    assert not found.chosen.costed.missing_bytes
    assert len(found.chosen.plan.slots) == 8
