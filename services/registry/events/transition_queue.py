"""Transitions on their way into the database: those that wait together are committed together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peerloom.errors import UnavailableError
from peerloom.kit.settling import ask_until_known, is_in_doubt
from peerloom.services.registry.events.feed import Feed
from peerloom.services.registry.membership.node_records import Event, Transition
from peerloom.services.registry.store import RunSql, Store

BATCH_CHANGES = 128
WAITING_LIMIT = 50_000


@dataclass(frozen=True)
class _Change:
    transitions: Sequence[Transition]
    apply: Callable[[], None]
    done: asyncio.Future[None]


class TransitionQueue:
    """Commits changes of nodes in order. A change reaches memory and watchers only after its commit.

    Where a commit's answer is lost, all wait until the database says whether it was made.
    """

    def __init__(self, store: Store, run_sql: RunSql, feed: Feed) -> None:
        self._store = store
        self._run_sql = run_sql
        self._feed = feed
        self._waiting: deque[_Change] = deque()
        self._has_waiting = asyncio.Event()
        self._is_open = True

    @property
    def waiting(self) -> int:
        """How many changes wait to be committed."""
        return len(self._waiting)

    async def commit(self, transitions: Sequence[Transition], apply: Callable[[], None]) -> None:
        """Makes one or more transitions durable together, calls `apply`, then tells the watchers.

        Raises what storage raises, and then nothing has changed; UnavailableError when too many wait.
        """
        if len(self._waiting) >= WAITING_LIMIT:
            raise UnavailableError(f"{WAITING_LIMIT:,} changes wait for the disk; try again.", reason="BUSY")
        if not self._is_open:
            raise _stopping()
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Change(transitions, apply, done))
        self._has_waiting.set()
        await done

    async def write_forever(self) -> None:
        """Commits whatever waits, until cancelled; nobody is left waiting then.

        Raises what applying a change raises: memory is then no longer what the database holds.
        """
        batch: list[_Change] = []
        try:
            while True:
                await self._has_waiting.wait()
                self._has_waiting.clear()
                while self._waiting:
                    count = min(BATCH_CHANGES, len(self._waiting))
                    batch = [self._waiting.popleft() for _ in range(count)]
                    await self._write(batch)
        finally:
            self._is_open = False
            _refuse([*batch, *self._waiting], _stopping())

    async def _write(self, batch: Sequence[_Change]) -> None:
        transitions = [transition for change in batch for transition in change.transitions]
        try:
            events = await self._append(transitions)
        except Exception as error:  # whatever it was, those who wait must hear of it
            _refuse(batch, error)
            return
        for change in batch:
            change.apply()
        self._feed.publish(events)
        for change in batch:
            if not change.done.done():
                change.done.set_result(None)

    async def _append(self, transitions: Sequence[Transition]) -> list[Event]:
        after = self._feed.newest
        try:
            events: list[Event] = await self._run_sql(self._store.append, transitions, after)
        except UnavailableError as error:
            if not is_in_doubt(error):
                raise
            ask = self._store.settled_after
            events = await ask_until_known(self._run_sql, ask, after, len(transitions))
            if not events:
                raise
        return events


def _refuse(changes: Sequence[_Change], error: Exception) -> None:
    for change in changes:
        if not change.done.done():
            change.done.set_exception(error)


def _stopping() -> UnavailableError:
    return UnavailableError("The registry is about to stop; ask it again.", reason="STOPPING")
