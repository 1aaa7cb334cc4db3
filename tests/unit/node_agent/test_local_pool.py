"""The pool of workers with scripted ones: what is started, told, ended, and whose failure is seen."""

import asyncio
from pathlib import Path

import pytest
from agent_parts import LIMIT_S, WORK, ScriptedWorker, World, secrets_of

from peerloom.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError, UnavailableError
from peerloom.services.node_agent.workers.worker_folders import WorkerFolders


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def events(world: World, count: int, job_id: str = "job-1") -> list[tuple[str, bool, int | None]]:
    """The first `count` events of the job: worker, whether it ended, and how."""
    seen: list[tuple[str, bool, int | None]] = []
    async with asyncio.timeout(LIMIT_S):
        async for event in world.pool.watch(job_id):
            if event is not None:
                seen.append((event.worker.worker_id, event.ended, event.worker.exit_code))
            if len(seen) == count:
                break
    return seen


async def test_who_watches_hears_when_all_that_there_was_is_told(world: World) -> None:
    await world.start("a", "b")
    watch = world.pool.watch("job-1")
    async with asyncio.timeout(LIMIT_S):
        told = [await anext(watch) for _ in range(3)]
        assert [event and event.worker.worker_id for event in told] == ["a", "b", None]
        assert await anext(world.pool.watch("job-2")) is None
        world.starter.workers[1].end(0)
        last = await anext(watch)
    assert last is not None
    assert (last.worker.worker_id, last.ended) == ("b", True)


async def test_each_reserved_slot_gets_a_worker_with_its_assignment(world: World, tmp_path: Path) -> None:
    workers = await world.start("a", "b")
    told = [worker.assignment for worker in workers]
    assert [(each.worker_id, each.slot, each.job_id) for each in told if each] == [
        ("a", 0, "job-1"),
        ("b", 1, "job-1"),
    ]
    assert told[0] is not None
    assert (told[0].work, told[0].log_path) == (WORK, str(tmp_path / "job-1" / "a.log"))
    assert world.slots.free(0.0) == [2]


async def test_each_worker_has_a_folder_of_its_own_that_goes_with_it(world: World) -> None:
    first, second = await world.start("a", "b")
    assert first.assignment is not None
    assert second.assignment is not None
    folders = [Path(each.assignment.folder) for each in (first, second) if each.assignment]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700, 0o700]
    (folders[0] / "inputs").mkdir()
    (folders[0] / "inputs" / "data").write_text("unpacked")
    first.end(-9)
    async with asyncio.timeout(LIMIT_S):
        while folders[0].exists():  # noqa: ASYNC110  # nobody tells when a folder has gone
            await asyncio.sleep(0)
    assert folders[1].exists()
    await world.pool.close(6.0)
    assert not folders[1].exists()


async def test_what_a_killed_agents_workers_left_goes_when_the_next_begins(tmp_path: Path) -> None:
    left = WorkerFolders(tmp_path / "workers").make("a")
    (left / "data").write_text("unpacked")
    WorkerFolders(tmp_path / "workers")
    assert not left.exists()


async def test_an_end_frees_the_slot_and_is_told_with_its_status_to_late_watchers_too(world: World) -> None:
    [worker] = await world.start("a")
    worker.end(3)
    for _ in range(2):
        assert (await events(world, 2))[1] == ("a", True, 3)
    assert world.slots.free(0.0) == [0, 1, 2]
    assert not world.pool.is_running("job-1")


async def test_a_repeated_start_starts_nothing(world: World) -> None:
    held = world.slots.reserve("job-1", "request-1", WORK, 1, 0, 0.0, 30.0)
    first = await world.pool.start(held.reservation_id, secrets_of("a"), 0.0)
    second = await world.pool.start(held.reservation_id, secrets_of("a"), 0.0)
    assert [worker.worker_id for worker in first] == [worker.worker_id for worker in second] == ["a"]
    assert len(world.starter.workers) == 1


async def test_without_a_reservation_or_after_its_time_nothing_is_started(world: World) -> None:
    held = world.slots.reserve("job-1", "request-1", WORK, 1, 0, 0.0, 30.0)
    for reservation_id, now_s in (("unknown", 0.0), (held.reservation_id, 30.0)):
        with pytest.raises(NotFoundError):
            await world.pool.start(reservation_id, secrets_of("a"), now_s)
    assert world.starter.workers == []


async def test_a_worker_that_the_job_has_had_is_refused_and_costs_no_slot(world: World) -> None:
    [worker] = await world.start("a")
    worker.end(0)
    await events(world, 2)
    with pytest.raises(AlreadyExistsError):
        await world.start("a")
    assert world.slots.free(0.0) == [0, 1, 2]


async def test_when_one_cannot_be_started_none_of_them_runs(tmp_path: Path) -> None:
    world = World(tmp_path, room=1)
    with pytest.raises(FailedPreconditionError):
        await world.start("a", "b")
    assert world.starter.workers[0].told == ["stop (0 s)"]
    assert (await events(world, 2))[1] == ("a", True, -15)
    assert world.slots.free(0.0) == [0, 1, 2]


async def test_stopping_a_job_ends_its_workers_and_frees_what_it_holds_but_not_others(world: World) -> None:
    [mine] = await world.start("a")
    [other] = await world.start("b", job_id="job-2")
    world.slots.reserve("job-1", "request-9", WORK, 1, 0, 0.0, 30.0)
    assert world.slots.free(0.0) == []
    assert await world.pool.stop("job-1", 5.0) == 1
    assert (mine.told, other.told) == (["stop (5 s)"], [])
    assert world.slots.free(0.0) == [0, 2]
    assert await world.pool.stop("job-1", 5.0) == 0


async def test_stopping_a_job_ends_the_worker_that_is_being_started(world: World) -> None:
    """A job that is cancelled while it looks for a replacement would leave it in its slot."""
    held = world.slots.reserve("job-1", "request-1", WORK, 1, 0, 0.0, 30.0)
    world.status.beat_due.clear()
    starting = asyncio.create_task(world.pool.start(held.reservation_id, secrets_of("a"), 0.0))
    await world.status.beat_due.wait()  # the slot is taken, the worker isn't there yet
    assert world.starter.workers == []
    assert await world.pool.stop("job-1", 5.0) == 1
    assert (await starting)[0].worker_id == "a"
    assert world.starter.workers[0].told == ["stop (5 s)"]
    assert world.slots.free(0.0) == [0, 1, 2]


async def test_one_worker_can_be_ended_without_the_others_of_its_job(world: World) -> None:
    [one, other] = await world.start("a", "b")
    world.slots.reserve("job-1", "request-9", WORK, 1, 0, 0.0, 30.0)
    assert await world.pool.stop("job-1", 5.0, {"a", "unknown"}) == 1
    assert (one.told, other.told) == (["stop (5 s)"], [])
    assert world.slots.free(0.0) == [0]


async def test_a_start_goes_on_when_its_caller_gives_up(world: World) -> None:
    held = world.slots.reserve("job-1", "request-1", WORK, 1, 0, 0.0, 30.0)
    world.status.beat_due.clear()
    starting = asyncio.create_task(world.pool.start(held.reservation_id, secrets_of("a"), 0.0))
    await world.status.beat_due.wait()  # the slot is taken, the worker isn't there yet
    assert world.starter.workers == []
    starting.cancel()
    assert (await events(world, 1))[0] == ("a", False, None)


async def test_closing_ends_all_workers_and_watches_and_nothing_starts_any_more(world: World) -> None:
    await world.start("a", "b")
    watching = asyncio.create_task(events(world, 9))
    await world.pool.close(6.0)
    async with asyncio.timeout(LIMIT_S):
        seen = await watching
    assert sorted(name for name, ended, _ in seen if ended) == ["a", "b"]
    held = world.slots.reserve("job-2", "request-7", WORK, 1, 0, 0.0, 30.0)
    with pytest.raises(UnavailableError):
        await world.pool.start(held.reservation_id, secrets_of("c"), 0.0)


async def test_whoever_keeps_the_pool_sees_what_ended_one_of_its_own_tasks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that can't be ended is a fault of the agent, not of a caller that has left long ago."""
    await world.start("a")

    async def fail(worker: ScriptedWorker, grace_s: float) -> None:
        raise OSError("no such process group")

    monkeypatch.setattr(ScriptedWorker, "stop", fail)
    keeping = asyncio.create_task(world.pool.keep())
    world.pool.end_soon(world.pool.running()[0], 1.0)
    with pytest.raises(OSError, match="no such process group"):
        async with asyncio.timeout(LIMIT_S):
            await keeping
