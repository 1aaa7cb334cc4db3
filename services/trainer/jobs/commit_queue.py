"""The one writer that makes all live jobs' records and events durable, in one transaction at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from peerloom.kit import tracing
from peerloom.kit.backoff import Backoff
from peerloom.kit.clock import Clock
from peerloom.kit.database import SqlThread
from peerloom.kit.evidence import EvidenceReporter
from peerloom.kit.logs import get_logger
from peerloom.kit.settling import is_in_doubt
from peerloom.services.trainer.jobs.event_log import EventLog
from peerloom.services.trainer.jobs.job_spans import JobSpans
from peerloom.services.trainer.jobs.job_tally import JobTally
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.store import Change, TrainerStore
from peerloom.v1.trainer_pb2 import Job, WatchJobResponse

_log = get_logger()
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
# From one write to the next where only steps wait: raising it takes less from the training beside it, and
# watchers see steps later.
GATHER_S = 0.2
_Taken = tuple[EventLog, Change]
READ_BATCH = 100  # a watcher that reads slowly takes the next ones from the database when it is ready


class CommitQueue:
    """All live jobs' records, and their writer; the reporter hears when evidence was stored.

    `tally` counts what was committed.
    """

    def __init__(
        self,
        store: TrainerStore,
        sql: SqlThread,
        clock: Clock,
        reporter: EvidenceReporter,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._sql = sql
        self._clock = clock
        self._reporter = reporter
        self._sleep = sleep
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._wake = asyncio.Event()
        self._pressing = asyncio.Event()  # something waits that isn't routine
        self._begun_s = -GATHER_S  # when the last write was
        self._writing = asyncio.Lock()  # two writers could make a later event durable before an earlier one
        self._live: dict[str, JobRecord] = {}
        self._in_doubt: list[_Taken] = []  # a write whose answer was lost
        self._spans: dict[str, JobSpans] = {}  # of live jobs that are traced
        self.tally = JobTally()

    def open(self, job: Job, last_sequence: int) -> JobRecord:
        """Begins to keep a job's record; it isn't open already."""
        assert job.job_id not in self._live, "a record has one writer"
        log = EventLog(job, last_sequence, self._clock, self._woken)
        record = JobRecord(job, log, self._clock)
        self._live[job.job_id] = record
        if tracing.is_on():
            self._spans[job.job_id] = JobSpans(job)
        return record

    def live(self) -> list[JobRecord]:
        """The records that are open now."""
        return list(self._live.values())

    async def close(self, record: JobRecord) -> None:
        """Writes the rest of a job, then forgets its record; its watchers see the end."""
        while not record.log.is_written:
            await self.write_once()
        del self._live[record.job_id]
        self._spans.pop(record.job_id, None)
        await record.log.notify()

    async def wake_watchers(self) -> None:
        """Lets all watchers look again, e.g. whether the server stops."""
        for record in list(self._live.values()):
            await record.log.notify()

    def _woken(self, is_routine: bool) -> None:
        self._wake.set()
        if not is_routine:
            self._pressing.set()

    async def write_forever(self) -> None:
        """Writes whatever is appended, until cancelled; tries again when storage fails."""
        while True:
            await self._wake.wait()
            await self._gather()
            self._wake.clear()
            self._pressing.clear()
            self._begun_s = self._clock.monotonic_s()
            await self.write_once()

    async def _gather(self) -> None:
        """Returns when something pressing waits, or GATHER_S after the last write."""
        left_s = self._begun_s + GATHER_S - self._clock.monotonic_s()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left_s)):
                await self._pressing.wait()

    async def write_once(self) -> None:
        """Writes what was appended in one transaction; what fails goes into the next one after a pause."""
        async with self._writing:
            taken = self._in_doubt or self._take()
            if not taken:
                return
            try:
                await self._write([change for _, change in taken])
            except Exception as error:
                _log.error("commit_failed", reason=str(error), jobs=len(taken))
                self._keep_for_later(taken, error)
                await self._sleep(self._backoff.next_pause_s())
                return
            if self._in_doubt:
                self._in_doubt = []
                self._woken(is_routine=False)  # what was appended meanwhile is not among it
            self._backoff.succeeded()
            for log, change in taken:
                self.tally.note(change.events)
                self._tell_spans(change)
                await log.confirm(change)
        if any(change.evidence for _, change in taken):
            self._reporter.wake()

    def _take(self) -> list[_Taken]:
        return [(r.log, c) for r in self._live.values() if (c := r.take_change()) is not None]

    async def _write(self, changes: list[Change]) -> None:
        is_made = bool(self._in_doubt) and await self._sql.run(self._store.was_written, changes)
        if not is_made:
            await self._sql.run(self._store.write, changes)

    def _keep_for_later(self, taken: list[_Taken], error: Exception) -> None:
        # Whether a commit was made whose answer was lost is asked before anything else is written: as it was,
        # since what comes later tells nothing about it.
        if self._in_doubt or is_in_doubt(error):
            self._in_doubt = taken
            self._woken(is_routine=False)
            return
        for log, change in taken:
            log.put_back(change)

    def _tell_spans(self, change: Change) -> None:
        if (spans := self._spans.get(change.job.job_id)) is not None:
            for told in spans.note(change.job, change.events, self._clock.wall_s()):
                tracing.tell(told)

    async def watch(
        self, job_id: str, after: int, stopping: asyncio.Event
    ) -> AsyncIterator[WatchJobResponse]:
        """A job's events after a sequence number, then live; ends with the job or the server."""
        while True:
            record = self._live.get(job_id)
            events = record.log.recent(after) if record is not None else None
            if events is None:
                events = await self._sql.run(self._store.read_events, job_id, after, READ_BATCH)
            for event in events:
                after = event.sequence
                yield event
            if events:
                continue
            if record is None or stopping.is_set():
                return
            if record.log.durable.sequence <= after and self._live.get(job_id) is record:
                await self._wait_for_more(record, after, stopping)

    async def _wait_for_more(self, record: JobRecord, after: int, stopping: asyncio.Event) -> None:
        def is_over() -> bool:
            gone = self._live.get(record.job_id) is not record
            return gone or stopping.is_set() or record.log.durable.sequence > after

        async with record.log.changed:
            await record.log.changed.wait_for(is_over)
