"""Committed events on their way to watchers.

The newest events lie in one ring; a watcher has a cursor and no queue, so a slow one costs no memory but the
page that it is at: once the ring has moved on, it reads from the database again. When the log has forgotten
events that the watcher hasn't seen, it is told to start anew.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice

from peerloom.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.services.registry.membership.node_records import Event

RING_EVENTS = 4096
PAGE_EVENTS = 32  # of at most 5 kB each
WATCHER_LIMIT = 1000

ReadPast = Callable[[int, int], Awaitable[list[Event]]]


class Feed:
    """The event log as watchers read it.

    `newest` is the last committed sequence number; of the events up to `forgotten` only the newest of each
    node is there. `published` counts the events of each kind since this process began, `watchers` who follows
    now.
    """

    def __init__(
        self, newest: int, read_past: ReadPast, ring_events: int = RING_EVENTS, forgotten: int = 0
    ) -> None:
        self.newest = newest
        self.forgotten = forgotten
        self.watchers = 0
        self.published: Counter[int] = Counter()
        self._read_past = read_past
        self._ring: deque[Event] = deque(maxlen=ring_events)
        self._changed = asyncio.Event()
        self._closed = False

    def publish(self, events: Sequence[Event]) -> None:
        """Tells of events that were just committed, in order."""
        assert events[0].sequence == self.newest + 1, "the log has no gaps"
        self._ring.extend(events)
        self.published.update(event.kind for event in events)
        self.newest = events[-1].sequence
        self._wake()

    def forget(self, through: int) -> None:
        """Notes that the log has forgotten events up to and with this number."""
        self.forgotten = max(self.forgotten, through)
        while self._ring and self._ring[0].sequence <= through:
            self._ring.popleft()

    def close(self) -> None:
        """Ends all `follow`s."""
        self._closed = True
        self._wake()

    async def follow(self, after: int, *, stop_at_present: bool) -> AsyncIterator[Event]:
        """All events beyond `after`, then live ones until `close`; or only what exists now.

        Raises InvalidArgumentError for a cursor that lies beyond the newest event, FailedPreconditionError
        when events beyond it are forgotten, ResourceExhaustedError above 1000 watchers, and UnavailableError
        when `close` comes before all that exists was told: such an end would look like the whole.
        """
        if after > self.newest:
            limit = f"at most {self.newest}, the newest sequence of this registry"
            raise InvalidArgumentError.of_field("after_sequence", after, limit)
        if 0 < after < self.forgotten:
            raise _forgotten(after, self.forgotten)
        if self.watchers >= WATCHER_LIMIT:
            limit = f"{WATCHER_LIMIT:,} watchers follow this registry, its limit; try again later."
            raise ResourceExhaustedError(limit, reason="WATCHER_LIMIT")
        self.watchers += 1
        try:
            async for event in self._follow(after, stop_at_present=stop_at_present):
                yield event
        finally:
            self.watchers -= 1

    async def _follow(self, after: int, *, stop_at_present: bool) -> AsyncIterator[Event]:
        present, forgotten = self.newest, self.forgotten
        while not self._closed and not (stop_at_present and after >= present):
            page = await self._page(after)
            if after < self.forgotten != forgotten:  # events went while this watcher was still before them
                raise _forgotten(after, self.forgotten)
            for event in page:
                yield event
                after = event.sequence
            while after == self.newest and not stop_at_present and not self._closed:
                await self._changed.wait()
        if stop_at_present and after < present:
            raise UnavailableError("The registry is being stopped; ask again when it is back.")

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


def _forgotten(after: int, forgotten: int) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"The registry has forgotten events after {after}, up to {forgotten}. Start anew with "
        "after_sequence 0, which tells of every node.",
        reason="EVENTS_FORGOTTEN",
        metadata={"forgotten_sequence": str(forgotten)},
    )
