"""Which plan a job takes by what invented workers tell: 1e9 operations a second, four equal parts of a model.

A sample's forward pass takes a part 10 ms, its backward pass twice as long: 120 ms for the whole model.
"""

import pytest

from peerloom.kit.parallel_plan import parse_plan
from peerloom.kit.plan_model.pipeline_order import is_split
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.services.trainer.generations import plan_decisions as p
from peerloom.services.trainer.generations.plan_measures import (
    SurveyedWorker,
    is_assumed,
    parts_of,
    planned_batch,
    setting_of,
    who_lacks_room,
)
from peerloom.services.trainer.generations.plan_pace import PlanPace
from peerloom.services.trainer.jobs.plan_entries import without_unfit
from peerloom.services.trainer.workers.slot_measures import RUNTIME_BYTES
from peerloom.v1.trainer_pb2 import Job, MeasuredLink, ModelPart, StepProgress, Worker, WorkerPrepared

MB = 10**6
TAKEN = int(RUNTIME_BYTES)
# 1 M parameters are 16 MB with gradients and moments; layer 1 of each part has nothing to train.
PARTS = [
    ModelPart(
        first_layer=2 * n,
        end_layer=2 * n + 2,
        parameters=MB,
        forward_operations=1e7,
        output_bytes=1000,
        kept_bytes=1000,
    )
    for n in range(4)
]

HALVES = [
    ModelPart(
        first_layer=4 * n,
        end_layer=4 * n + 4,
        parameters=2 * MB,
        forward_operations=2e7,
        output_bytes=1000,
        kept_bytes=2000,
    )
    for n in range(2)
]


def worker(number: int, free_bytes: int = 1000 * MB, lent_bytes: int = 0, node: str = "") -> SurveyedWorker:
    free_bytes += TAKEN
    said = WorkerPrepared(speed_gflops=1.0, parts=PARTS, free_bytes=free_bytes, used_bytes=10 * MB)
    return SurveyedWorker(f"w{number}", node or f"n{number}", node or f"n{number}", said, 0.9, lent_bytes)


def links(*pairs: tuple[int, int], bits_per_s: float) -> dict[tuple[str, str], MeasuredLink]:
    link = MeasuredLink(delay_s=0.001, sent_bits_per_s=bits_per_s, received_bits_per_s=bits_per_s)
    return {(f"w{one}", f"w{other}"): link for one, other in pairs}


def options(workers: list[SurveyedWorker], bits_per_s: float = 0.0) -> p.PlanOptions:
    known = links((0, 1), bits_per_s=bits_per_s) if bits_per_s else {}
    return p.options_of(setting_of(workers, 8, SyncScheme(), known, 10.0))


def test_plan_data_is_taken_where_the_model_fits_and_is_as_fast() -> None:
    found = options([worker(0), worker(1)], bits_per_s=1e10)
    best = p.best_of(found)
    assert best is found.data
    assert found.pipeline is not None
    assert best is not None
    assert not best.plan.is_divided


def test_over_a_slow_link_a_pipeline_is_faster_and_shown_as_jobs_take_it() -> None:
    """A pipeline sends 8 kB each way a step, data 16 MB: at 10 Mbit/s over ten seconds."""
    workers = [worker(0), worker(1)]
    found = options(workers, bits_per_s=1e7)
    best = p.best_of(found)
    assert best is not None
    assert best is found.pipeline
    setting = setting_of(workers, 8, SyncScheme(), links((0, 1), bits_per_s=1e7), 10.0)
    plan = p.job_plan(best, setting, PARTS)
    assert plan.starts == (4,), "the second stage begins with the third part, which is layer 4"
    assert parse_plan("plan", str(plan)) == plan
    assert found.data is not None
    told = p.why_taken(best, found, setting)
    assert told.startswith("plan data would make steps of 1")
    stages = p.message_of(best, setting, PARTS).stages
    assert [(s.first_layer, s.last_layer, list(s.nodes)) for s in stages] == [
        (0, 3, [setting.slots[best.plan.slots[0]].name]),
        (4, 7, [setting.slots[best.plan.slots[1]].name]),
    ]
    # 8 samples of a half: 8 x 60 ms, and 3 x M passes that cost 2 ms each.
    assert is_split(plan.order)
    assert stages[0].computing_s == pytest.approx(0.48 + 3 * plan.micro_batches * 0.002)


def wide_options() -> tuple[p.PlanOptions, PlanSetting]:
    """Two slow nodes and one of twice their speed; 40 MB each, for half of the model, which is a part."""
    workers = [worker(number, 40 * MB) for number in range(3)]
    for one in workers:
        one.said.ClearField("parts")
        one.said.parts.extend(HALVES)
    workers[1].said.speed_gflops = 2.0
    setting = setting_of(workers, 32, SyncScheme(), {}, 10.0)
    return p.options_of(setting), setting


def test_slow_slots_take_turns_at_a_stage_beside_a_fast_one() -> None:
    found, setting = wide_options()
    best = p.best_of(found)
    assert best is not None
    assert best.plan.is_divided
    plan = p.job_plan(best, setting, HALVES)
    assert sorted(plan.widths) == [1, 2]
    assert parse_plan("plan", str(plan)) == plan
    wide = plan.widths.index(2)
    assert best.plan.stages[wide].slots == (0, 2)
    assert f"; stage {wide} has several workers, who take turns" in p.why_taken(best, found, setting)
    told = p.message_of(best, setting, HALVES).stages
    assert list(told[wide].nodes) == ["n0", "n2"]
    # 32 samples x 60 ms of each stage, over two slots of speed 1 or one of 2, and three passes of 2 ms.
    turns = plan.micro_batches // 2
    assert is_split(plan.order)
    assert told[wide].computing_s == pytest.approx(16 * 0.06 + turns * 3 * 0.002)
    assert told[1 - wide].computing_s == pytest.approx(16 * 0.06 + plan.micro_batches * 3 * 0.002)
    again = p.divided_on(setting, plan, HALVES, best.plan.slots)
    assert again is not None
    assert again.step_s == pytest.approx(best.step_s)
    assert p.divided_on(setting, plan, HALVES, best.plan.slots[:2]) is None, "it needs three workers"


def test_shards_are_taken_where_stages_would_idle_and_the_line_is_fast() -> None:
    """Two slots of a node, and seven parts of 16 MB: no room for 112, and stages of 4 and 3 parts.

    Of 32 samples 16 each take 16 x 7 x 30 ms in shards, and passes of seven parts 2 ms each, there and back.
    """
    workers = [worker(n, 2 * 100 * MB + TAKEN, node="n") for n in range(2)]
    for one in workers:
        one.said.ClearField("parts")
        one.said.parts.extend(PARTS[:1] * 7)
        for number, part in enumerate(one.said.parts):
            part.first_layer, part.end_layer = 2 * number, 2 * number + 2
    setting = setting_of(workers, 32, SyncScheme(), {}, 10.0)
    found = p.options_of(setting)
    assert (found.data, found.pipeline is None, found.shards is None) == (None, False, False)
    best = p.best_of(found)
    assert best is found.shards
    assert best is not None
    assert best.step_s == pytest.approx(3.36 + 14 * 0.002, rel=0.01)
    parts = parts_of(workers)
    plan = p.job_plan(best, setting, parts)
    assert str(plan) == "sharded=8:,shadow=off", "who could keep them is on the same node"
    assert p.why_taken(best, found, setting).startswith(
        "plan data doesn't fit: layers 0 to 6 would need 112 MB on n, 12.2 MB more than it has; the best "
        "pipeline would make steps of 3.86 s;"
    )
    told = p.message_of(best, setting, parts)
    assert [(one.first_layer, one.last_layer) for one in told.stages] == [(0, 7), (8, 13)]
    again = p.divided_on(setting, plan, parts, best.plan.slots)
    assert again is not None
    assert again.step_s == pytest.approx(best.step_s)
    for one in workers:
        one.said.parts[2].is_tied = True
    assert p.options_of(setting_of(workers, 32, SyncScheme(), {}, 10.0)).shards is None


def test_a_part_with_buffers_has_a_stage_of_one_worker() -> None:
    _, setting = wide_options()
    workers = [worker(0, 40 * MB), worker(1, 40 * MB), worker(2, 40 * MB)]
    for one in workers:
        one.said.ClearField("parts")
        one.said.parts.extend(HALVES)
        for part in one.said.parts:
            part.is_narrow = True
    narrow = setting_of(workers, 32, SyncScheme(), {}, 10.0)
    assert [layer.is_narrow for layer in narrow.layers] == [True] * 2
    assert not any(layer.is_narrow for layer in setting.layers)
    best = p.best_of(p.options_of(narrow))
    assert best is not None
    assert not best.plan.ranks.is_wide


def test_where_the_model_fits_no_slot_it_is_cut() -> None:
    """64 MB in all; a slot has 40 MB of what is lent: 114, less 10 that its worker uses, and 64 more."""
    found = options([worker(0, lent_bytes=114 * MB), worker(1, lent_bytes=114 * MB)])
    assert found.data is None
    assert found.why_no_data == "doesn't fit: layers 0 to 3 would need 64 MB on n0, 24 MB more than it has"
    best = p.best_of(found)
    assert best is found.pipeline
    assert best is not None


def test_no_fit_says_what_is_missing_and_where() -> None:
    found = options([worker(0, free_bytes=30 * MB), worker(1, free_bytes=30 * MB)])
    assert p.best_of(found) is None
    told = p.why_none(found)
    assert "the model needs 64 MB with one sample, and all 2 slots together have 60 MB" in told
    assert "4 MB are missing" in told


def test_slots_of_one_node_share_its_memory_and_need_no_link() -> None:
    both = [worker(0, free_bytes=164 * MB, node="n"), worker(1, free_bytes=164 * MB, node="n")]
    setting = setting_of(both, 8, SyncScheme(), {}, 10.0)
    assert [slot.memory_bytes for slot in setting.slots] == [50 * MB, 50 * MB]
    assert not is_assumed(both, {})
    apart = [worker(0), worker(1)]
    assert is_assumed(apart, {})
    assert not is_assumed(apart, links((1, 0), bits_per_s=1e8))


def test_who_lacks_room_for_the_whole_model() -> None:
    """64 MB, and 4 of 8 samples of 4 kB."""
    roomy, tight = worker(0), worker(1, free_bytes=64 * MB + 15_000)
    assert who_lacks_room([roomy, tight], 8, 16.0) == {"w1"}
    assert who_lacks_room([roomy, worker(1, free_bytes=64 * MB + 16_000)], 8, 16.0) == set()
    assert who_lacks_room([], 8, 16.0) == set()


def test_a_model_that_can_not_be_cut_is_trained_whole_or_not_at_all() -> None:
    whole = p.options_of(setting_of([worker(0), worker(1)], 8, SyncScheme(), {}, 10.0), "it is one layer")
    assert (whole.pipeline, whole.why_no_pipeline) == (None, "it is one layer")
    assert p.best_of(whole) is whole.data
    uncounted = ModelPart(end_layer=1, parameters=MB)
    said = WorkerPrepared(speed_gflops=1.0, parts=[uncounted], free_bytes=1000 * MB)
    alone = SurveyedWorker("w0", "n0", "n0", said)
    [layer] = setting_of([alone], 8, SyncScheme(), {}, 10.0).layers
    assert layer.forward_s == pytest.approx(0.002), "2 operations a parameter, where none are counted"
    assert parts_of([alone, worker(1)]) == [uncounted]


def test_a_move_has_to_gain_more_than_it_costs() -> None:
    slow, fast = options([worker(0), worker(1)], 1e7).data, options([worker(0), worker(1)]).data
    assert slow is not None
    assert fast is not None
    assert p.pays(slow, fast, 1000, 0.0, 8)
    assert not p.pays(slow, fast, 0, 0.0, 8), "no step is left to gain by"
    assert not p.pays(slow, fast, 1000, 1e9, 8), "what is lost is more"
    assert not p.pays(fast, fast, 1_000_000, 0.0, 8)
    assert p.pays(None, slow, 1, 1e9, 8), "the plan in use can't go on"


def test_the_plan_in_use_is_looked_at_with_other_workers() -> None:
    setting = setting_of([worker(0), worker(1, free_bytes=20 * MB)], 8, SyncScheme(), {}, 10.0)
    # Three parts need 48 MB and one 16 MB, with 8 kB of activations.
    assert p.divided_on(setting, parse_plan("plan", "pipeline=6:,micro_batches=4"), PARTS, [0, 1])
    assert p.divided_on(setting, parse_plan("plan", "pipeline=6:,micro_batches=4"), PARTS, [1, 0]) is None
    assert p.divided_on(setting, parse_plan("plan", "pipeline=5:"), PARTS, [0, 1]) is None, "within a part"
    assert p.divided_on(setting, parse_plan("plan", "pipeline=2:4"), PARTS, [0, 1]) is None
    assert p.data_on(setting, [0]) is not None
    assert p.data_on(setting, [0, 1]) is None


def test_a_batch_is_planned_for_with_many_divisors() -> None:
    assert [planned_batch(samples) for samples in (1, 61, 64, 100, 1009)] == [1, 61, 64, 96, 1008]


def test_steps_are_told_after_each_eighth_without_the_first_two() -> None:
    pace, told = PlanPace(), []
    for number in range(1, 20):
        step_s = 100.0 if number <= 2 else float(number)
        told.append(pace.median_s(StepProgress(generation=1, step_s=step_s)))
    assert [value for value in told if value is not None] == [6.5, 10.5]
    assert (told.index(6.5), told.index(10.5)) == (9, 17)
    assert pace.median_s(StepProgress(generation=2, step_s=1.0)) is None


def test_who_waits_for_nodes_says_which_lack_memory() -> None:
    assert without_unfit("waiting", Job(workers=[Worker(node_name="ada")])) == "waiting"
    lacking = [Worker(node_name=name, unfit=True) for name in ("dan", "ada", "cyd", "bob", "ada", "eve")]
    told = without_unfit("waiting", Job(workers=lacking))
    assert told == "waiting; not asked again, as they can't do it: ada, bob, cyd and 2 more"
