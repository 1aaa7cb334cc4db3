"""Changes of the catalog: first the database, then memory, then the answer; also when its caller gives up."""

from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from peerloom.errors import PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.database import SqlThread
from peerloom.kit.logs import get_logger
from peerloom.kit.settling import ask_until_known, is_in_doubt
from peerloom.kit.tasks import ShieldedWork
from peerloom.services.selector.belief.evidence_report import Evidence
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.entries import Cursor, NodeEvent
from peerloom.services.selector.store import CatalogChange, LoadedCatalog, SelectorStore

_log = get_logger()


class CatalogWriter:
    """The one way to change what the selector knows: keeps `columns` equal to what the database holds.

    `counted` is how many facts of each kind were new since this process began, `delay_s` how long after it
    happened the registry's newest event was applied, by both machines' clocks.
    """

    def __init__(self, sql: SqlThread, store: SelectorStore, columns: NodeColumns, clock: Clock) -> None:
        self._sql = sql
        self._store = store
        self._columns = columns
        self._clock = clock
        self._work = ShieldedWork()
        self.counted: Counter[int] = Counter()
        self.delay_s = 0.0

    async def load(self) -> Cursor:
        """Fills the columns; returns how far the registry's log was read."""
        loaded = await self._sql.run(self._store.load)
        self._remember(loaded.change)
        return loaded.cursor

    async def report(self, evidence: Sequence[Evidence]) -> int:
        """Applies reported facts, all or none; returns how many were new. Raises when storing fails."""
        change = await self._apply(self._sql.run(self._store.report, evidence, self._clock.wall_s))
        return change.applied

    async def follow(self, events: Sequence[NodeEvent]) -> None:
        """Applies events of the registry and moves the cursor. Raises when storing fails."""
        await self._apply(self._sql.run(self._store.follow, events, self._clock.wall_s))
        self.delay_s = max(0.0, self._clock.wall_s() - events[-1].time_s)

    async def start_again(self) -> None:
        """Makes nodes unknown until another log tells of them; beliefs stay. Raises when storing fails."""
        await self._apply(self._sql.run(self._store.start_again))

    async def close(self) -> None:
        """Waits until all changes under way are in memory too."""
        await self._work.wait_all()

    async def _apply(self, stored: Coroutine[Any, Any, CatalogChange]) -> CatalogChange:
        # Shielded: a caller whose deadline passes between commit and here must not leave memory behind.
        return await self._work.finish(self._store_then_remember(stored))

    async def _store_then_remember(self, stored: Coroutine[Any, Any, CatalogChange]) -> CatalogChange:
        try:
            change = await stored
        except PeerloomError as error:
            _log.warning("change_not_stored", reason=error.message)
            if is_in_doubt(error):
                await self._reload()
            raise
        self._remember(change)
        self.counted.update(change.kinds)
        return change

    async def _reload(self) -> None:
        loaded: LoadedCatalog = await ask_until_known(self._sql.run, self._store.settled_load)
        here = {entry.node_id for entry in loaded.change.entries}
        gone = [node_id for node_id in self._columns.node_ids if node_id and node_id not in here]
        self._remember(replace(loaded.change, forgotten=gone))

    def _remember(self, change: CatalogChange) -> None:
        for node_id in change.forgotten:
            self._columns.forget(node_id)
        for entry in change.entries:
            self._columns.put(entry)
        for node_id, (reputation, track) in change.records.items():
            self._columns.set_record(node_id, reputation, track)
