"""What is durable, in which order, and what happens when storage fails."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from trainer_room import DEADLINE_S, InPlaceSql, Room, ranked

from peerloom.errors import UnavailableError
from peerloom.kit.database_errors import OUTCOME_UNKNOWN
from peerloom.services.trainer.jobs import commit_queue
from peerloom.services.trainer.jobs.event_log import RECENT_EVENTS
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.store import Change
from peerloom.v1.trainer_pb2 import JobState, NodeAnswer, StepProgress, WatchJobResponse

RUNNING = JobState.JOB_STATE_RUNNING


class StoppedSql(InPlaceSql):
    """SQL that is under way for as long as a test wants."""

    def __init__(self, room: Room) -> None:
        super().__init__(room.database)
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()

    async def run(self, function: Callable[..., object], *args: object, **kwargs: object) -> object:  # type: ignore[override]  # nothing here cares for the types
        self.begun.set()
        await self.goes_on.wait()
        return await super().run(function, *args, **kwargs)


async def test_what_is_appended_together_is_written_in_one_transaction() -> None:
    room = Room()
    one, other = room.new_record("job-1"), room.new_record("job-2")
    one.state_changed(RUNNING, "it runs")
    one.answered(NodeAnswer(node=ranked("ada")))
    other.state_changed(RUNNING, "it runs too")
    await room.queue.write_once()
    assert room.kinds_written("job-1") == ["state_change", "answer"]
    assert room.kinds_written("job-2") == ["state_change"]
    assert (one.log.durable.writes, one.log.durable.sequence, one.log.is_written) == (1, 2, True)


async def test_what_comes_while_a_write_is_under_way_goes_into_the_next() -> None:
    room = Room()
    sql = room.queue._sql = StoppedSql(room)
    record = room.new_record()
    record.state_changed(RUNNING, "it runs")
    writing = asyncio.create_task(room.queue.write_once())
    await sql.begun.wait()
    record.step_committed(StepProgress(step=1))
    assert record.log.durable.sequence == 0, "nobody is told before it is written"
    sql.goes_on.set()
    await writing
    assert (record.log.durable.sequence, record.log.durable.step) == (1, 0)
    assert not record.log.is_written
    await room.queue.write_once()
    assert (record.log.durable.sequence, record.log.durable.step) == (2, 1)


async def test_a_storage_that_fails_loses_nothing_and_keeps_the_order() -> None:
    """Three writes fail; what is appended meanwhile comes after what couldn't be written."""
    room = Room()
    record = room.new_record()
    room.store.failures = 3
    for number in range(1, 5):
        record.step_committed(StepProgress(step=number))
        await room.queue.write_once()
        assert record.log.durable.step == (number if number == 4 else 0)
    assert room.kinds_written() == ["step"] * 4
    assert [event.step.step for event in room.store.read_events("job-1", 0, 10)] == [1, 2, 3, 4]
    assert len(room.pauses) == 3
    assert 0 < room.pauses[0] <= 0.1
    assert max(room.pauses) <= 0.4, "they double from 0.1 s"


async def test_two_who_write_at_once_take_turns() -> None:
    """The first write fails; the second must not overtake what it was to write."""
    room = Room()
    record = room.new_record()
    room.store.failures = 1
    record.step_committed(StepProgress(step=1))
    first = asyncio.create_task(room.queue.write_once())
    await asyncio.sleep(0)
    record.step_committed(StepProgress(step=2))
    await asyncio.gather(first, room.queue.close(record))
    assert [event.step.step for event in room.store.read_events("job-1", 0, 10)] == [1, 2]
    _, last_sequence = room.store.find_job("job-1")
    assert last_sequence == 2


async def test_who_waits_for_a_write_goes_on_when_all_before_is_durable() -> None:
    room = Room()
    record = room.new_record()
    record.traffic_recorded(record.job.traffic)  # a change without an event counts as well
    waiting = asyncio.create_task(record.log.wait_written())
    await asyncio.sleep(0)
    assert not waiting.done()
    await room.queue.write_once()
    await waiting
    assert record.log.durable.writes == 1


async def test_evidence_is_reported_once_it_is_stored() -> None:
    room = Room()
    record = room.new_record()
    room.witness(record).unfinished("node-ada", "it refused work")
    reporting = asyncio.create_task(room.reporter.report_forever())
    await room.reporter.flush(DEADLINE_S)
    assert room.neighbours.evidence == [], "what isn't stored could be told twice"
    await room.queue.write_once()
    await room.reporter.flush(DEADLINE_S)
    assert [fact.node_id for fact in room.neighbours.evidence] == ["node-ada"]
    assert list(room.evidence_kept()) == []
    reporting.cancel()


async def test_a_record_has_one_writer() -> None:
    room = Room()
    record = room.new_record()
    with pytest.raises(AssertionError, match="one writer"):
        room.queue.open(record.job, 0)
    await room.queue.close(record)
    room.queue.open(record.job, 0)


async def follow(room: Room, after: int, stopping: asyncio.Event) -> list[WatchJobResponse]:
    return [event async for event in room.queue.watch("job-1", after, stopping)]


async def test_a_watch_has_every_event_once_and_ends_with_the_job() -> None:
    room, stopping = Room(), asyncio.Event()
    record = room.new_record()
    record.state_changed(RUNNING, "it runs")
    await room.queue.write_once()
    from_start = asyncio.create_task(follow(room, 0, stopping))
    later = asyncio.create_task(follow(room, 1, stopping))
    for number in range(1, 4):
        record.step_committed(StepProgress(step=number))
        await room.queue.write_once()
    record.ended(JobState.JOB_STATE_FAILED, "it broke")
    await room.queue.close(record)
    assert [event.sequence for event in await from_start] == [1, 2, 3, 4, 5]
    assert [event.sequence for event in await later] == [2, 3, 4, 5]


async def test_a_watch_ends_when_the_trainer_stops() -> None:
    room, stopping = Room(), asyncio.Event()
    record: JobRecord = room.new_record()
    record.state_changed(RUNNING, "it runs")
    await room.queue.write_once()
    watching = asyncio.create_task(follow(room, 0, stopping))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not watching.done()
    stopping.set()
    await room.queue.wake_watchers()
    assert [event.sequence for event in await watching] == [1]


async def test_what_came_while_an_outcome_was_in_doubt_is_written_too() -> None:
    """The round that asks about a lost answer writes nothing else, so another one has to follow."""
    room = Room()
    record, write = room.new_record(), room.store.write

    def lose_answer(changes: Sequence[Change]) -> None:
        room.store.write = write  # type: ignore[method-assign]  # once
        record.step_committed(StepProgress(step=1))
        raise UnavailableError("the connection broke", reason=OUTCOME_UNKNOWN)

    room.store.write = lose_answer  # type: ignore[method-assign]  # as above
    record.state_changed(RUNNING, "it runs")
    writing = asyncio.create_task(room.queue.write_forever())
    async with asyncio.timeout(DEADLINE_S), record.log.changed:
        await record.log.changed.wait_for(lambda: record.log.durable.step == 1)
    writing.cancel()
    assert room.kinds_written("job-1") == ["state_change", "step"]


async def test_steps_gather_until_something_presses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast job's steps would each be a write, on the processors that train."""
    monkeypatch.setattr(commit_queue, "GATHER_S", 3600.0)
    room = Room()
    record = room.new_record()
    writing = asyncio.create_task(room.queue.write_forever())
    record.state_changed(RUNNING, "it runs")
    await record.log.wait_written()
    for step in (1, 2, 3):
        record.step_committed(StepProgress(step=step))
        await asyncio.sleep(0)
    assert record.log.durable.step == 0
    record.answered(NodeAnswer(node=ranked("ada")))
    async with asyncio.timeout(DEADLINE_S):
        await record.log.wait_write(1)
    assert room.kinds_written("job-1") == ["state_change", "step", "step", "step", "answer"]
    assert record.log.durable.writes == 2
    record.step_committed(StepProgress(step=4))
    async with asyncio.timeout(DEADLINE_S):
        await record.log.wait_written()  # who waits doesn't wait for more steps
    writing.cancel()
    assert record.log.durable.step == 4


async def test_who_follows_a_job_needs_the_database_for_old_events_only() -> None:
    room = Room()
    record, stopping, looks = room.new_record(), asyncio.Event(), list[int]()
    read = room.store.read_events

    def count(job_id: str, after: int, limit: int) -> list[WatchJobResponse]:
        looks.append(after)
        return read(job_id, after, limit)

    room.store.read_events = count  # type: ignore[method-assign]  # reads as before, and is counted
    for step in range(1, RECENT_EVENTS + 3):
        record.step_committed(StepProgress(step=step))
    await room.queue.write_once()
    stopping.set()
    seen = [event.sequence for event in await follow(room, 0, stopping)]
    assert seen == list(range(1, RECENT_EVENTS + 3))
    assert looks == [0], "what came after the first batch is in memory"
    assert [event.sequence for event in await follow(room, 100, stopping)] == [101, 102]
    assert looks == [0]
