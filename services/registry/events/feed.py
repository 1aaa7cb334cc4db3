"""Committed events on their way to watchers.

The newest events lie in one ring; a watcher has a cursor and no queue, so a slow one costs no memory:
once the ring has moved on, it reads from the database again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice

from peerloom.errors import InvalidArgumentError
from peerloom.services.registry.membership.node_records import Event

RING_EVENTS = 4096
PAGE_EVENTS = 256

ReadPast = Callable[[int, int], Awaitable[list[Event]]]


class Feed:
    """The event log as watchers read it. `newest` is the last committed sequence number."""

    def __init__(self, newest: int, read_past: ReadPast, ring_events: int = RING_EVENTS) -> None:
        self.newest = newest
        self._read_past = read_past
        self._ring: deque[Event] = deque(maxlen=ring_events)
        self._changed = asyncio.Event()
        self._closed = False

    def publish(self, events: Sequence[Event]) -> None:
        """Tells of events that were just committed, in order."""
        assert events[0].sequence == self.newest + 1, "the log has no gaps"
        self._ring.extend(events)
        self.newest = events[-1].sequence
        self._wake()

    def close(self) -> None:
        """Ends all `follow`s."""
        self._closed = True
        self._wake()

    async def follow(self, after: int, *, stop_at_present: bool) -> AsyncIterator[Event]:
        """All events beyond `after`, then live ones until `close`; or only what exists now.

        Raises InvalidArgumentError for a cursor that lies beyond the newest event.
        """
        if after > self.newest:
            limit = f"at most {self.newest}, the newest sequence of this registry"
            raise InvalidArgumentError.of_field("after_sequence", after, limit)
        present = self.newest
        while not self._closed and not (stop_at_present and after >= present):
            for event in await self._page(after):
                yield event
                after = event.sequence
            while after == self.newest and not stop_at_present and not self._closed:
                await self._changed.wait()

    async def _page(self, after: int) -> list[Event]:
        oldest = self.newest - len(self._ring) + 1
        if after + 1 < oldest:
            return await self._read_past(after, PAGE_EVENTS)
        start = after + 1 - oldest
        return list(islice(self._ring, start, start + PAGE_EVENTS))

    def _wake(self) -> None:
        # Who waits now is woken; who comes later waits for the next change.
        self._changed.set()
        self._changed = asyncio.Event()
