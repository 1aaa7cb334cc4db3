"""When a pipeline's stages begin, go on from a checkpoint, and leave. Workers are invented."""

from dataclasses import replace

from peerloom.kit.parallel_plan import parse_plan
from peerloom.services.trainer.generations import decision_types as g
from peerloom.services.trainer.generations.pipeline_decisions import (
    Begin,
    StageDivision,
    begin_pipeline,
    by_stage,
    called,
    decide_pipeline,
    division_of,
    near_each_other,
)
from peerloom.services.trainer.generations.stage_states import GoBack, GoOn
from peerloom.services.trainer.workers.decisions import Limits
from peerloom.services.trainer.workers.slot_measures import SlotMeasures
from peerloom.services.trainer.workers.state import (
    Departure,
    Finished,
    Idle,
    Leaving,
    Lost,
    Phase,
    Starting,
    WorkerState,
    Working,
)
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.trainer_pb2 import Job, NodeAnswer, Worker, WorkerFinished

LIMITS = Limits(60, 15, 1, min_workers=2, max_workers=2)
STOPPED, GONE = Idle(is_member=True), Lost(is_member=True)
DONE = Finished(WorkerFinished())
WITH_MODEL = Finished(WorkerFinished(model=Artifact(digest="a" * 64)))


def workers(*phases: Phase, step: int = 0) -> list[WorkerState]:
    """w0, w1, ... in these phases, with so many steps."""
    return [WorkerState(f"w{i}", phase, step=step) for i, phase in enumerate(phases)]


def decide(*states: WorkerState, generation: int = 1) -> g.Decision | Begin:
    return decide_pipeline(states, generation, LIMITS, 0.0)


def test_it_begins_when_all_of_its_stages_are_there() -> None:
    assert isinstance(decide(*workers(Idle(), Starting(0.0)), generation=0), g.Wait)
    assert isinstance(decide(*workers(Idle()), generation=0), g.Hold)
    began = decide(*workers(Idle(), Idle()), generation=0)
    assert began == Begin(("w0", "w1"))
    form = begin_pipeline(("w0", "w1"), 0, None)
    assert form == g.Form(("w0", "w1"), 0, 0, "2 stages begin from the beginning")


def test_a_stage_that_is_lost_ends_the_generation_and_its_place_is_waited_for() -> None:
    assert isinstance(decide(*workers(Working(), GONE, step=9)), g.Abort)
    held = decide(*workers(STOPPED, GONE, step=9))
    assert isinstance(held, g.Hold)
    assert "1 of at least 2" in held.reason


def test_with_the_replacement_all_go_on_from_the_checkpoint_or_begin_anew() -> None:
    """What the living one has made counts for nothing: the other stage's part of it is lost."""
    states = [replace(workers(STOPPED, step=9)[0], left_at_step=3), workers(GONE, Idle())[1]]
    assert decide(*states) == Begin(("w0", "w1"))
    assert begin_pipeline(("w0", "w1"), 1, 5) == g.Form(
        ("w0", "w1"), 5, 0, "2 stages go on from the checkpoint of step 5", from_checkpoint=True
    )
    assert begin_pipeline(("w0", "w1"), 1, None).reason == "2 stages go on from the beginning"


def test_a_job_that_loses_all_of_its_workers_waits_for_others() -> None:
    assert isinstance(decide(*workers(GONE, GONE)), g.Hold)
    assert isinstance(decide(*workers(Lost(), Lost()), generation=0), g.Fail)


def test_who_has_to_go_leaves_at_a_boundary_with_all_and_is_let_go_then() -> None:
    leaves = Departure(leave_by_s=None)
    going, staying = workers(Working(), Working(), step=9)
    said = decide(replace(going, departure=leaves), staying)
    assert isinstance(said, g.Abort)
    assert said.is_polite
    idle = [replace(each, departure=leaves) for each in workers(STOPPED, step=9)]
    other = replace(workers(STOPPED, step=9)[0], worker_id="w1")
    assert isinstance(decide(*idle, replace(other, phase=Leaving(0.0))), g.Wait)
    assert decide(*idle, other) == g.Dismiss(("w0",), "its node asked it to leave")


def test_a_spare_worker_is_let_go() -> None:
    assert isinstance(decide(*workers(Working(), Working(), Idle())), g.Dismiss)
    assert isinstance(decide(*workers(STOPPED, STOPPED, Idle())), g.Dismiss)


def test_spare_workers_wait_and_take_a_lost_stages_place() -> None:
    spares = replace(LIMITS, max_workers=3)
    waits = decide_pipeline(workers(Working(), Working(), Idle()), 1, spares, 0.0)
    assert isinstance(waits, g.Wait)
    many = decide_pipeline(workers(Working(), Working(), Idle(), Idle()), 1, spares, 0.0)
    assert many == g.Dismiss(("w2",), "the job has all the workers it can use")
    goes_on = decide_pipeline(workers(STOPPED, GONE, Idle()), 1, spares, 0.0)
    assert goes_on == Begin(("w0", "w2"))
    begins = decide_pipeline(workers(Idle(), Idle(), Idle()), 0, spares, 0.0)
    assert begins == Begin(("w0", "w1"))


def test_a_spare_worker_lets_one_go_that_departs() -> None:
    spares = replace(LIMITS, max_workers=3)
    going, staying, spare = workers(Working(), Working(), Idle())
    going = replace(going, departure=Departure(leave_by_s=60.0))
    said = decide_pipeline([going, staying, spare], 1, spares, 0.0)
    assert isinstance(said, g.Abort)
    assert said.is_polite


def test_with_living_states_it_goes_on_from_them() -> None:
    form = begin_pipeline(("a", "b"), 1, 30, StageDivision((1, 2)), GoOn(34, (0, 0), "from step 34"))
    assert form == g.Form(("a", "b"), 34, 0, "2 stages go on from step 34", state_sources=(0, 0))
    back = begin_pipeline(("a", "b"), 1, 30, states=GoBack("stage 1 is gone"))
    assert back.reason == "2 stages go on from the checkpoint of step 30, as stage 1 is gone"


def test_it_is_complete_when_all_stages_have_finished() -> None:
    assert isinstance(decide(*workers(WITH_MODEL, Working())), g.Wait)
    assert decide(*workers(WITH_MODEL, DONE)) == g.Complete("w0", "all workers have finished")
    made_again = decide(*workers(GONE, DONE, Idle()))
    assert isinstance(made_again, Begin), "the model was lost with the one that had it"


def test_who_lives_keeps_its_stage() -> None:
    assert by_stage(("a", "b", "c"), {"c": 0, "a": 1}) == ("c", "a", "b")
    assert by_stage(("a", "b"), {"a": 5, "b": 1}) == ("a", "b"), "stage 5 is none of two"
    assert by_stage(("a", "b"), {}) == ("a", "b")
    assert begin_pipeline(("a",), 1, 0).from_checkpoint, "a checkpoint of step 0 is one"


def test_stages_and_workers_are_told_where_they_differ() -> None:
    form = begin_pipeline(("a", "b", "c"), 1, 30, states=GoOn(34, (1, 1, 2), "from step 34"), stages=2)
    assert form.reason == "2 stages on 3 workers go on from step 34"
    assert form.state_sources == (1, 1, 2)


def test_stages_are_as_large_as_their_slots_are_fast_and_shards_as_these_have_memory() -> None:
    """Two slots of 1 and 4 GFLOP/s take turns at one stage; 936 MB are left of 1,000, of the lent 564 500."""
    job = Job(
        workers=[Worker(worker_id=name, node_id=f"node-{name}") for name in "abc"],
        answers=[NodeAnswer(accepted_slots=1, slot_memory_bytes=564 * 10**6)],
    )
    job.answers[0].node.node_id = "node-b"
    slots = SlotMeasures()
    for name, gflops in (("a", 1.0), ("b", 4.0), ("c", 1.0)):
        slots.computed(name, 1 / gflops)
    wide = parse_plan("plan", "pipeline=2,widths=2/1")
    assert division_of(job, ("a", "b", "c"), wide, slots) == StageDivision((5_000, 2_500)), (
        "no memory was told"
    )
    for name in "abc":
        slots.has_memory(name, 1_000 * 10**6, 0)
    rooms = (500 * 10**6, 936 * 10**6)
    assert division_of(job, ("a", "b", "c"), wide, slots) == StageDivision((5_000, 2_500), rooms)
    shards = division_of(job, ("a", "b", "c"), parse_plan("plan", "sharded=3"), slots)
    assert shards == StageDivision((10_000, 5_342, 10_000)), "500 / 936"


def test_workers_of_one_node_follow_each_other() -> None:
    workers = [Worker(worker_id=name, node_id=node) for name, node in zip("abcd", "mnmn", strict=True)]
    assert near_each_other(Job(workers=workers), ("b", "a", "c", "d")) == ["b", "d", "a", "c"]


def test_layers_in_pieces_are_cut_alike() -> None:
    plan = parse_plan("plan", "pipeline=2,tensor=2")
    slots = SlotMeasures()
    for name, speed in zip("abcd", (1.0, 9.0, 1.0, 9.0), strict=True):
        slots.computed(name, 1 / speed)
    assert division_of(Job(), tuple("abcd"), plan, slots) == StageDivision()
    form = begin_pipeline(tuple("abcd"), 0, None, stages=4, parts_of=called(plan))
    assert form.reason == "4 pieces begin from the beginning"


def test_a_cut_by_speeds_is_told() -> None:
    form = begin_pipeline(("a", "b"), 1, 30, StageDivision((10_000, 2_500)))
    assert form.stage_shares == (10_000, 2_500)
    shards = begin_pipeline(("a", "b"), 0, None, StageDivision((10_000, 2_500)), parts_of="shards")
    assert shards.reason == (
        "2 shards begin from the beginning, with parts of the model by the memory of their slots, 80 : 20"
    )
    assert form.reason == (
        "2 stages go on from the checkpoint of step 30, with parts of the model by the speeds of their "
        "slots, 80 : 20"
    )
