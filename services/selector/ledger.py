"""Changes: first the database, then memory, then the answer. A caller that gives up stops none of it."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from peerloom.kit.clock import Clock
from peerloom.kit.database import SqlThread
from peerloom.kit.logs import get_logger
from peerloom.services.selector.columns import NodeColumns
from peerloom.services.selector.evidence import Evidence
from peerloom.services.selector.roster import Cursor, NodeEvent
from peerloom.services.selector.store import Change, SelectorStore

_log = get_logger()


class Ledger:
    """The one way to change what the selector knows: keeps `columns` equal to what the database holds."""

    def __init__(self, sql: SqlThread, store: SelectorStore, columns: NodeColumns, clock: Clock) -> None:
        self._sql = sql
        self._store = store
        self._columns = columns
        self._clock = clock
        self._under_way: set[asyncio.Task[Change]] = set()

    async def load(self) -> Cursor:
        """Fills the columns; returns how far the registry's log was read."""
        loaded = await self._sql.run(self._store.load)
        self._remember(loaded.change)
        return loaded.cursor

    async def report(self, evidence: Sequence[Evidence]) -> int:
        """Applies facts, all or none; returns how many were new. Raises when storing fails."""
        change = await self._apply(self._sql.run(self._store.report, evidence, self._clock.wall_s))
        return change.applied

    async def follow(self, events: Sequence[NodeEvent]) -> None:
        """Applies events of the registry and moves the cursor. Raises when storing fails."""
        await self._apply(self._sql.run(self._store.follow, events, self._clock.wall_s))

    async def start_again(self) -> None:
        """Nodes are unknown until another log tells of them; beliefs stay. Raises when storing fails."""
        await self._apply(self._sql.run(self._store.start_again))

    async def close(self) -> None:
        """Waits until all that is under way is in memory too."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _apply(self, stored: Coroutine[Any, Any, Change]) -> Change:
        # Shielded: a caller whose deadline passes between commit and here must not leave memory behind.
        task = asyncio.create_task(self._store_then_remember(stored))
        self._under_way.add(task)
        task.add_done_callback(self._finish)
        return await asyncio.shield(task)

    async def _store_then_remember(self, stored: Coroutine[Any, Any, Change]) -> Change:
        change = await stored
        self._remember(change)
        return change

    def _remember(self, change: Change) -> None:
        for entry in change.entries:
            self._columns.put(entry)
        for node_id, (standing, track) in change.records.items():
            self._columns.set_record(node_id, standing, track)

    def _finish(self, task: asyncio.Task[Change]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.warning("change_not_stored", reason=str(task.exception()))
