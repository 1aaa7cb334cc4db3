"""Fetching models and checkpoints, leaving copies, and keeping just what a job's record names."""

import asyncio
from typing import Any

import pytest
from trainer_room import Room, ranked, until, worker

from peerloom.errors import DataLossError, UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.models.checkpoints import CheckpointKeeper
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.trainer_pb2 import Checkpoint, NodeAnswer, StepProgress, WorkerFinished

MODEL = "f" * 64


def offered(step: int) -> Checkpoint:
    return Checkpoint(step=step, artifact=Artifact(digest=f"{step:064x}"))


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def record(room: Room) -> JobRecord:
    """A job with a worker on each of three nodes, at step 30."""
    record = room.new_record(task="another:Task")  # which isn't evaluated
    record.step_committed(StepProgress(step=30, epoch=1, samples=10))
    for number, name in enumerate(("ada", "bob", "cyd"), 1):
        record.answered(NodeAnswer(node=ranked(name), accepted_slots=1))
        record.workers_added([worker(number, name)])
    return record


def held(room: Room) -> list[str]:
    return sorted(digest for digest, _ in room.files.holds)


async def test_a_model_is_fetched_from_its_holder_and_copied_to_all_who_stayed(
    room: Room, record: JobRecord
) -> None:
    record.worker_lost("worker-3", "it died")
    finished = WorkerFinished(model=Artifact(digest=MODEL), training_s=4.0, samples=200)
    await room.collector.collect(record, "worker-1", finished, room.witness(record))
    assert room.transfers.taken == [("ada", MODEL)]
    assert room.transfers.given == [("bob", MODEL)]
    result = record.job.result
    assert (result.model.digest, list(result.model_nodes)) == (MODEL, ["ada", "bob"])
    assert (result.samples_per_s, result.model_path) == (50.0, f"/artifacts/{MODEL}")


async def test_a_job_on_one_node_leaves_a_copy_with_another_who_bears_no_blame(
    room: Room, record: JobRecord
) -> None:
    for number in (2, 3):
        record.worker_dismissed(f"worker-{number}", "not needed")
    room.transfers.refusing = {"eve"}
    finished = WorkerFinished(model=Artifact(digest=MODEL))
    record.take_change()
    await room.collector.collect(record, "worker-1", finished, room.witness(record))
    assert list(record.job.result.model_nodes) == ["ada"]
    change = record.take_change()
    assert change is not None
    assert change.evidence == []


async def test_who_can_t_take_a_copy_of_its_job_s_model_is_to_blame(room: Room, record: JobRecord) -> None:
    room.transfers.refusing = {"cyd"}
    finished = WorkerFinished(model=Artifact(digest=MODEL))
    record.take_change()
    await room.collector.collect(record, "worker-1", finished, room.witness(record))
    assert list(record.job.result.model_nodes) == ["ada", "bob"]
    change = record.take_change()
    assert change is not None
    assert [fact.node_id for fact in change.evidence] == ["node-cyd"]


async def test_a_checkpoint_is_kept_here_and_with_a_second_node(room: Room, record: JobRecord) -> None:
    await room.collector.keep_checkpoint(record, "worker-2", offered(10))
    assert room.transfers.taken == [("bob", offered(10).artifact.digest)]
    checkpoint = record.job.checkpoint
    assert (checkpoint.step, list(checkpoint.nodes)) == (10, ["bob", "ada"])


async def test_the_newest_two_checkpoints_are_held_for_the_job_and_no_others(
    room: Room, record: JobRecord
) -> None:
    for step in (10, 20, 30):
        await room.collector.keep_checkpoint(record, "worker-1", offered(step))
    assert held(room) == [offered(step).artifact.digest for step in (20, 30)]
    keeper = CheckpointKeeper(record, room.collector, ManualClock())
    keeper.refused(offered(30).artifact.digest, "it is damaged")
    assert held(room) == [offered(20).artifact.digest]
    room.collector.begin_holding(record)  # as after a restart of the trainer, and harmless before one
    assert held(room) == [offered(20).artifact.digest]
    room.collector.end_holding(record)
    assert held(room) == []


async def test_a_checkpoint_that_can_t_be_fetched_leaves_the_older_one(room: Room, record: JobRecord) -> None:
    await room.collector.keep_checkpoint(record, "worker-1", offered(10))
    room.transfers.refusing = {"ada"}
    with pytest.raises(UnavailableError):
        await room.collector.keep_checkpoint(record, "worker-1", offered(20))
    assert record.job.checkpoint.step == 10
    assert held(room) == [offered(10).artifact.digest]


async def test_of_the_checkpoints_that_wait_the_newest_is_kept(room: Room, record: JobRecord) -> None:
    keeper = CheckpointKeeper(record, room.collector, ManualClock())
    keeper.offered("worker-1", offered(10))
    keeper.offered("worker-1", offered(11))
    keeping = asyncio.create_task(keeper.keep_forever())
    await until(lambda: record.job.HasField("checkpoint"))
    assert record.job.checkpoint.step == 11
    keeper.offered("worker-1", offered(12))
    await keeper.settle()
    assert record.job.checkpoint.step == 12
    keeper.offered("worker-1", offered(12))
    await keeper.settle()
    assert record.job.previous_checkpoint.step == 11, "the same again is passed over"
    keeping.cancel()


async def test_after_a_slow_move_only_the_checkpoint_of_one_that_departs_is_moved_at_once(
    room: Room, record: JobRecord
) -> None:
    clock, take = ManualClock(), room.transfers.take

    async def take_slowly(*arguments: Any) -> Artifact:
        clock.advance(100)
        return await take(*arguments)

    room.transfers.take = take_slowly  # type: ignore[method-assign]  # a link that a checkpoint fills
    keeper = CheckpointKeeper(record, room.collector, clock)
    keeping = asyncio.create_task(keeper.keep_forever())
    keeper.offered("worker-1", offered(10))
    await until(lambda: record.job.checkpoint.step == 10)
    keeper.offered("worker-1", offered(11))
    for _ in range(100):
        await asyncio.sleep(0)
    keeper.offered("worker-1", offered(12), is_pressing=True)
    await until(lambda: record.job.checkpoint.step == 12)
    assert [digest for _, digest in room.transfers.taken] == [
        offered(step).artifact.digest for step in (10, 12)
    ]
    keeping.cancel()


async def test_a_keeper_that_is_stopped_in_the_middle_holds_nothing(room: Room, record: JobRecord) -> None:
    """It was about to give a copy to a second node; the record never named the checkpoint."""
    begun = asyncio.Event()

    async def give(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    room.transfers.give = give  # type: ignore[method-assign]  # it takes for ever here
    keeping = asyncio.create_task(room.collector.keep_checkpoint(record, "worker-1", offered(10)))
    await begun.wait()
    assert held(room) == [offered(10).artifact.digest]
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    assert held(room) == []
    assert not record.job.HasField("checkpoint")


async def test_a_checkpoint_reaches_each_node_once_and_who_can_t_get_it_is_named(
    room: Room, record: JobRecord
) -> None:
    record.workers_added([worker(4, "ada")])
    record.checkpoint_kept(offered(10))
    room.transfers.refusing = {"cyd"}
    ids = [f"worker-{number}" for number in range(1, 5)]
    failed = await room.collector.distribute_checkpoint(record, record.job.checkpoint, ids)
    assert failed == {"worker-3": "it could not be given the checkpoint: cyd is away"}
    assert sorted(name for name, _ in room.transfers.given) == ["ada", "bob"]


async def test_a_damaged_checkpoint_is_fetched_from_a_node_that_kept_one(
    room: Room, record: JobRecord
) -> None:
    kept = offered(10)
    kept.nodes.extend(["ada", "bob"])
    record.checkpoint_kept(kept)
    room.files.damaged, room.transfers.refusing = {kept.artifact.digest}, {"ada"}
    await room.collector.distribute_checkpoint(record, record.job.checkpoint, ["worker-3"])
    assert room.transfers.taken == [("bob", kept.artifact.digest)]
    room.transfers.refusing = {"ada", "bob"}
    with pytest.raises(DataLossError, match="no node has a sound copy"):
        await room.collector.distribute_checkpoint(record, record.job.checkpoint, ["worker-3"])
