"""Changes on their way into the database: those that wait together are committed together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peerloom.errors import UnavailableError
from peerloom.services.registry.feed import Feed
from peerloom.services.registry.records import Transition
from peerloom.services.registry.store import RunSql, Store

BATCH_CHANGES = 128
WAITING_LIMIT = 50_000


@dataclass(frozen=True)
class _Change:
    transitions: Sequence[Transition]
    apply: Callable[[], None]
    done: asyncio.Future[None]


class Ledger:
    """Commits changes in order. A change is applied to memory and told only after its commit."""

    def __init__(self, store: Store, run_sql: RunSql, feed: Feed) -> None:
        self._store = store
        self._run_sql = run_sql
        self._feed = feed
        self._waiting: deque[_Change] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def commit(self, transitions: Sequence[Transition], apply: Callable[[], None]) -> None:
        """Makes one or more transitions durable together, calls `apply`, then tells the watchers.

        Raises what storage raises, and then nothing has changed; UnavailableError when too many wait.
        """
        if len(self._waiting) >= WAITING_LIMIT:
            raise UnavailableError(f"{WAITING_LIMIT:,} changes wait for the disk; try again.", reason="BUSY")
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Change(transitions, apply, done))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
        await done

    async def _write_all(self) -> None:
        while self._waiting:
            count = min(BATCH_CHANGES, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            transitions = [transition for change in batch for transition in change.transitions]
            try:
                events = await self._run_sql(self._store.append, transitions, self._feed.newest)
            except Exception as error:  # whatever it was, those who wait must hear of it
                for change in batch:
                    if not change.done.done():
                        change.done.set_exception(error)
                continue
            for change in batch:
                change.apply()
            self._feed.publish(events)
            for change in batch:
                if not change.done.done():
                    change.done.set_result(None)
