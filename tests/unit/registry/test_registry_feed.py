"""Watching: from a sequence on, then live, without gaps, whether from the ring or the database."""

import asyncio
from typing import Any

import pytest

from peerloom.errors import InvalidArgumentError, UnavailableError
from peerloom.services.registry.events.feed import Feed
from peerloom.services.registry.events.transition_queue import TransitionQueue
from peerloom.services.registry.membership.node_records import Event
from peerloom.v1.registry_pb2 import NODE_EVENT_KIND_REGISTERED

LIMIT_S = 60.0


def events(first: int, last: int) -> list[Event]:
    """Events numbered `first` to `last`."""
    return [Event(n, NODE_EVENT_KIND_REGISTERED, 0.0, "", 0.0, b"") for n in range(first, last + 1)]


def feed_of(
    stored: list[Event], past: int | None = None, ring_events: int = 8, page: int = 1000
) -> tuple[Feed, list[int]]:
    """A feed over a log whose first `past` events are old, and the cursors at which it read the log."""
    reads: list[int] = []

    async def read_past(after: int, limit: int) -> list[Event]:
        reads.append(after)
        return [event for event in stored if event.sequence > after][: min(limit, page)]

    return Feed(len(stored) if past is None else past, read_past, ring_events), reads


async def numbers(feed: Feed, after: int) -> list[int]:
    """What exists now beyond a cursor."""
    return [event.sequence async for event in feed.follow(after, stop_at_present=True)]


async def test_the_past_comes_whole_and_then_the_stream_stops_at_present() -> None:
    feed, _ = feed_of(events(1, 1000))
    assert await numbers(feed, 0) == list(range(1, 1001))
    assert await numbers(feed, 1000) == []


async def test_new_events_come_from_memory() -> None:
    feed, reads = feed_of([])
    feed.publish(events(1, 5))
    assert await numbers(feed, 2) == [3, 4, 5]
    assert reads == []


async def test_a_cursor_that_fell_out_of_the_ring_is_served_from_the_log() -> None:
    stored = events(1, 20)
    feed, reads = feed_of(stored, past=10, ring_events=8, page=5)
    feed.publish(stored[10:])
    assert await numbers(feed, 0) == list(range(1, 21))
    assert reads == [0, 5, 10]


async def test_a_cursor_beyond_the_newest_is_refused_and_told_so() -> None:
    feed, _ = feed_of(events(1, 3))
    with pytest.raises(InvalidArgumentError, match="after_sequence is 4, but must be at most 3, the newest"):
        await numbers(feed, 4)


async def test_a_past_cut_short_by_the_registrys_end_does_not_look_whole() -> None:
    feed, _ = feed_of(events(1, 20), ring_events=8, page=5)
    past = feed.follow(0, stop_at_present=True)
    assert (await anext(past)).sequence == 1
    feed.close()
    with pytest.raises(UnavailableError, match="being stopped"):
        [event async for event in past]
    with pytest.raises(UnavailableError, match="being stopped"):
        await numbers(feed, 3)
    assert await numbers(feed, 20) == []


async def test_live_watchers_get_each_event_once_until_the_feed_closes() -> None:
    feed, _ = feed_of(events(1, 2))
    got: list[int] = []
    arrived = asyncio.Event()

    async def watch() -> None:
        async for event in feed.follow(0, stop_at_present=False):
            got.append(event.sequence)
            if event.sequence in (2, 4, 5):
                arrived.set()

    async with asyncio.timeout(LIMIT_S):
        watching = asyncio.create_task(watch())
        for first, last in ((3, 4), (5, 5)):
            await arrived.wait()
            arrived.clear()
            feed.publish(events(first, last))
        await arrived.wait()
        feed.close()
        await watching
    assert got == [1, 2, 3, 4, 5]


async def test_changes_that_wait_together_share_one_commit(registry: Any) -> None:
    batches: list[int] = []
    append = registry.core.store.append

    def counting(transitions: Any, after: int) -> Any:
        batches.append(len(transitions))
        return append(transitions, after)

    registry.core.store.append = counting
    await asyncio.gather(*(registry.register(f"n{number}") for number in range(50)))
    assert sum(batches) == 50
    assert len(batches) <= 3


async def test_a_failed_commit_reaches_all_who_waited_and_the_next_one_works() -> None:
    feed, _ = feed_of([])
    failing = [UnavailableError("no disk")]

    class Log:
        def append(self, transitions: Any, after: int) -> list[Event]:
            if failing:
                raise failing.pop()
            return events(after + 1, after + len(transitions))

    async def run(function: Any, *args: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args)

    applied: list[str] = []
    commits = TransitionQueue(Log(), run, feed)  # type: ignore[arg-type]  # only append is called
    transitions: Any = [object()]
    writing = asyncio.create_task(commits.write_forever())
    results = await asyncio.gather(
        commits.commit(transitions, lambda: applied.append("a")),
        commits.commit(transitions, lambda: applied.append("b")),
        return_exceptions=True,
    )
    assert [str(result) for result in results] == ["no disk", "no disk"]
    await commits.commit(transitions, lambda: applied.append("c"))
    assert applied == ["c"]
    assert feed.newest == 1
    writing.cancel()
    await asyncio.wait([writing])


async def test_nobody_waits_for_ever_when_the_commits_end() -> None:
    """Neither who was being written, nor who waited behind, nor who comes after; a crash is raised."""
    feed, _ = feed_of([])
    gate = asyncio.Event()

    async def run(function: Any, *args: Any) -> Any:
        await gate.wait()
        return events(1, 1)

    def crash() -> None:
        raise ZeroDivisionError

    class Log:
        append = None

    commits = TransitionQueue(Log(), run, feed)  # type: ignore[arg-type]  # nothing of it is called
    transitions: Any = [object()]
    writing = asyncio.create_task(commits.write_forever())
    asked = [asyncio.create_task(commits.commit(transitions, crash))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked.append(asyncio.create_task(commits.commit(transitions, crash)))
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(ZeroDivisionError):
        await writing
    asked.append(asyncio.create_task(commits.commit(transitions, crash)))
    for change in asked:
        with pytest.raises(UnavailableError, match="about to stop"):
            await change
