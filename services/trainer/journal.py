"""A job's record and event log in memory, and the one writer that makes them durable.

Events get their sequence number when they are noted; nobody sees them before they are written. What is
noted while a write is under way goes into the next one, so a fast job costs no more writes than the
disk can make (group commit).
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from peerloom.kit.clock import Clock, to_timestamp
from peerloom.kit.database import SqlThread
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.store import Change, TrainerStore
from peerloom.v1.selector_pb2 import Evidence
from peerloom.v1.trainer_pb2 import Job, WatchJobResponse

_log = get_logger()
RETRY_S = 1.0
READ_BATCH = 500


class JobJournal:
    """One job's record. `job` may be changed by its runner only; `note` says what changed."""

    def __init__(self, job: Job, last_sequence: int, clock: Clock, wake: Callable[[], None]) -> None:
        self.job = job
        self.written_sequence = last_sequence
        self.written_step: int = job.progress.step
        self.written_epoch: int = job.progress.epoch
        self.last_step_s = 0.0
        self.changed = asyncio.Condition()
        self._sequence = last_sequence
        self._pending: Change | None = None
        self._clock = clock
        self._wake = wake

    def note(self, event: WatchJobResponse | None = None, evidence: list[Evidence] | None = None) -> None:
        """Adds an event (its time and number are set here) and evidence to the next write."""
        if self._pending is None:
            self._pending = Change(self.job)
        if event is not None:
            self._sequence += 1
            event.sequence, event.job_id = self._sequence, self.job.job_id
            event.time.CopyFrom(to_timestamp(self._clock.wall_s()))
            self._pending.events.append(event)
        self._pending.evidence.extend(evidence or [])
        self._wake()

    def take_pending(self) -> Change | None:
        """What is to be written now, with a copy of the job as it is."""
        change, self._pending = self._pending, None
        if change is not None:
            snapshot = Job()
            snapshot.CopyFrom(self.job)
            change.job = snapshot
        return change

    @property
    def has_pending(self) -> bool:
        """Whether anything is not yet written."""
        return self._pending is not None or self.written_sequence < self._sequence

    def put_back(self, change: Change) -> None:
        """Returns what couldn't be written to the front of the next write."""
        if self._pending is not None:
            change.events.extend(self._pending.events)
            change.evidence.extend(self._pending.evidence)
        self._pending = change

    async def wait_written(self) -> None:
        """Returns once all that was noted so far is durable."""
        target = self._sequence
        async with self.changed:
            await self.changed.wait_for(lambda: self.written_sequence >= target)


class Journals:
    """All live jobs' journals and their writer."""

    def __init__(self, store: TrainerStore, sql: SqlThread, clock: Clock) -> None:
        self._store = store
        self._sql = sql
        self._clock = clock
        self._wake = asyncio.Event()
        self._live: dict[str, JobJournal] = {}
        self.on_written: Callable[[JobJournal], None] = lambda journal: None

    def open(self, job: Job, last_sequence: int) -> JobJournal:
        """Begins to keep a job's journal."""
        journal = JobJournal(job, last_sequence, self._clock, self._wake.set)
        self._live[job.job_id] = journal
        return journal

    def get(self, job_id: str) -> JobJournal | None:
        """The journal of a live job."""
        return self._live.get(job_id)

    async def close(self, job_id: str) -> None:
        """Writes the rest of a job that has ended, then forgets it; its watchers see the end."""
        journal = self._live[job_id]
        while journal.has_pending:
            await self.write_once()
        del self._live[job_id]
        await self._wake_watchers([journal])

    async def wake_watchers(self) -> None:
        """Lets all watchers look again, e.g. whether the server stops."""
        await self._wake_watchers(list(self._live.values()))

    async def _wake_watchers(self, journals: list[JobJournal]) -> None:
        for journal in journals:
            async with journal.changed:
                journal.changed.notify_all()

    async def write_forever(self) -> None:
        """Writes whatever is noted, until cancelled; tries again when storage fails."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.write_once()

    async def write_once(self) -> None:
        """Writes all that is pending in one transaction."""
        taken = [(j, c) for j in self._live.values() if (c := j.take_pending()) is not None]
        if not taken:
            return
        try:
            await self._sql.run(self._store.write, [change for _, change in taken])
        except Exception as error:
            _log.error("journal_write_failed", reason=str(error), jobs=len(taken))
            for journal, change in taken:
                journal.put_back(change)
            await asyncio.sleep(RETRY_S)
            self._wake.set()
            return
        for journal, change in taken:
            await self._announce(journal, change)

    async def _announce(self, journal: JobJournal, change: Change) -> None:
        if change.events:
            journal.written_sequence = change.events[-1].sequence
        journal.written_step = change.job.progress.step
        journal.written_epoch = change.job.progress.epoch
        await self._wake_watchers([journal])
        self.on_written(journal)

    async def watch(
        self, job_id: str, after: int, stopping: asyncio.Event
    ) -> AsyncIterator[WatchJobResponse]:
        """A job's events after a sequence number, then live; ends with the job or the server."""
        while True:
            journal = self.get(job_id)
            events = await self._sql.run(self._store.read_events, job_id, after, READ_BATCH)
            for event in events:
                after = event.sequence
                yield event
            if len(events) == READ_BATCH:
                continue
            if journal is None or stopping.is_set():
                return
            if journal.written_sequence <= after and self.get(job_id) is journal:
                await self._wait_for_more(journal, after, stopping)

    async def _wait_for_more(self, journal: JobJournal, after: int, stopping: asyncio.Event) -> None:
        def is_over() -> bool:
            gone = self.get(journal.job.job_id) is not journal
            return gone or stopping.is_set() or journal.written_sequence > after

        async with journal.changed:
            await journal.changed.wait_for(is_over)
