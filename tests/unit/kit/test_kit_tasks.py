"""Background tasks have an owner: one that ends too early is told of with its cause; others end in order."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from peerloom.errors import NotFoundError, UnavailableError
from peerloom.kit.tasks import BackgroundTaskError, BackgroundTasks, ShieldedWork, Work


class Owner:
    """Background tasks, and an event that is set once one has ended."""

    def __init__(self, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self.told = asyncio.Event()
        self.tasks = BackgroundTasks(self.told.set, sleep)


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise ZeroDivisionError("by nothing")


async def come_back() -> None:
    pass


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await for_ever()


@pytest.mark.parametrize(
    ("work", "how"),
    [(fail, "failed: by nothing"), (come_back, "returned"), (cancel_itself, "was cancelled")],
)
async def test_a_task_that_ends_too_early_is_told_of_and_raised_at_the_end(work: Work, how: str) -> None:
    owner = Owner()
    with capture_logs() as logs:
        other = owner.tasks.start("other", for_ever)
        owner.tasks.start("measuring", work)
        async with asyncio.timeout(60):
            await owner.told.wait()
    assert [(log["event"], log["task"], log["how"]) for log in logs] == [
        ("background_task_ended", "measuring", how)
    ]
    assert set(owner.tasks.running) == {"other"}
    with pytest.raises(BackgroundTaskError, match=f"'measuring' {how}"):
        await owner.tasks.close()
    assert other.cancelled()


async def test_tasks_that_live_until_the_end_are_cancelled_and_awaited_without_a_word() -> None:
    owner, cleaned = Owner(), asyncio.Event()

    async def clean_up() -> None:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    with capture_logs() as logs:
        owner.tasks.start("cleaning", clean_up)
        await asyncio.sleep(0)
        await owner.tasks.close()
    assert (cleaned.is_set(), owner.told.is_set(), logs) == (True, False, [])


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC])
async def test_a_task_outlives_a_lack_of_files_or_disk_and_says_so(number: int) -> None:
    pauses, works, gate = list[float](), asyncio.Event(), [OSError(number, "none left"), None]

    async def note(pause_s: float) -> None:
        pauses.append(pause_s)

    async def open_files() -> None:
        if (error := gate.pop(0)) is not None:
            raise UnavailableError("the folder can't be used") from error
        works.set()
        await for_ever()

    owner = Owner(note)
    with capture_logs() as logs:
        owner.tasks.start("measuring", open_files)
        async with asyncio.timeout(60):
            await works.wait()
    assert (pauses, owner.told.is_set(), set(owner.tasks.running)) == ([1.0], False, {"measuring"})
    assert [(log["event"], log["task"]) for log in logs] == [("background_task_interrupted", "measuring")]
    await owner.tasks.close()


async def test_a_task_may_return_once_the_stop_began_or_when_it_was_said_so() -> None:
    owner = Owner()
    await owner.tasks.start("warming", come_back, may_return=True)
    owner.tasks.allow_ends()
    await owner.tasks.start("ending streams", come_back)
    await owner.tasks.close()
    assert not owner.told.is_set()


async def test_a_failure_during_the_stop_is_still_a_failure() -> None:
    owner = Owner()

    async def fail_when_cancelled() -> None:
        try:
            await for_ever()
        finally:
            raise ZeroDivisionError("too late")

    owner.tasks.start("leaving", fail_when_cancelled)
    await asyncio.sleep(0)
    with pytest.raises(BackgroundTaskError, match="too late"):
        await owner.tasks.close()


async def test_work_is_finished_whether_or_not_its_asker_waits() -> None:
    work, gate, done = ShieldedWork(), asyncio.Event(), []

    async def change() -> None:
        await gate.wait()
        done.append("changed")

    asker = asyncio.create_task(work.finish(change()))
    await asyncio.sleep(0)
    asker.cancel()
    await asyncio.wait([asker])
    gate.set()
    await work.wait_all()
    assert (asker.cancelled(), done) == (True, ["changed"])


async def test_an_asker_who_waits_gets_the_result_or_the_error() -> None:
    work = ShieldedWork()

    async def refuse() -> None:
        raise NotFoundError("no such node")

    with capture_logs() as logs, pytest.raises(NotFoundError):
        await work.finish(refuse())
    assert logs == []


async def test_a_crash_that_nobody_waits_for_is_logged() -> None:
    work = ShieldedWork()
    with capture_logs() as logs:
        work.start(fail())
        await work.wait_all()
        await asyncio.sleep(0)
    assert [log["event"] for log in logs] == ["shielded_work_crashed"]
