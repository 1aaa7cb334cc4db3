"""One tracker of one job: a watch of its own, written in batches until the job has ended.

Reading and writing run at once, with a bounded queue between them: a slow tracker gets larger batches, and
at the bound its watch waits, which nobody else notices. A write that fails is tried again with a new tracker,
which asks its run how far it was told; after enough failures in a row the tracking ends, and not the job.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import aclosing, suppress
from functools import partial
from typing import Protocol, TypeVar

from peerloom.client.tracking.destinations import Tracker, shown, tracker_for, without_secret
from peerloom.client.tracking.track_entries import EntryMaker, TrackEntry
from peerloom.client.types import Job, JobEvent
from peerloom.errors import PeerloomError
from peerloom.kit.backoff import Backoff
from peerloom.kit.printable import escaped

T = TypeVar("T")
QUEUE_LIMIT, BATCH_LIMIT = 5000, 500
CHRONICLE_LIMIT = 4500  # characters; MLflow takes 5,000 in one tag
ATTEMPTS, LAST_ATTEMPTS = 12, 3  # in a row: while the job runs some 5 minutes, fewer once it has ended
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
_WORD_LIMIT = 160
# After these kinds of events a job's snapshot may say more of what was asked and of its state.
_SNAPSHOT_CHANGES = ("states", "generations")
_Queue = asyncio.Queue[tuple[TrackEntry, str] | None]  # what happened so far with what is news there


class WatchedJob(Protocol):
    """What is needed of a job's handle."""

    id: str

    def watch(self, after: int = 0) -> AsyncGenerator[JobEvent, None]:
        """Its events."""

    async def status(self) -> Job:
        """The job as it is now."""


class JobTracking:
    """Tells the tracker at `place` of a job; `tell` is given a line when it fails, and when it works again.

    Raises what `tracker_for` raises.
    """

    def __init__(
        self,
        job: WatchedJob,
        place: str,
        tell: Callable[[str], object],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        make: Callable[[str], Tracker] = tracker_for,
    ) -> None:
        make(place)  # whoever mistyped it hears so at once
        self._job, self._place, self._tell, self._sleep = job, place, tell, sleep
        self._make: Callable[[], Tracker] = partial(make, place)
        self._maker = EntryMaker()
        self._tracker: Tracker | None = None
        self._held = 0
        self._snapshot: Job
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    async def run(self) -> None:
        """Returns when the job has ended and all is written, or the tracker was given up.

        Raises what asking for the job and watching it raise.
        """
        self._snapshot = await self._job.status()
        queue: _Queue = asyncio.Queue(QUEUE_LIMIT)
        reading = asyncio.create_task(self._read(queue))
        try:
            if not await self._write_all(queue, reading):
                return
            await reading
            job = await self._job.status()
            if job.ended:
                await self._attempt(lambda: self._begun(job).finish(job), reading)
        finally:
            reading.cancel()
            await self._let_go()

    async def _read(self, queue: _Queue) -> None:
        try:
            async with aclosing(self._job.watch()) as events:
                async for event in events:
                    entry = self._maker.entry(event)
                    await queue.put((entry, self._maker.newest_lines(CHRONICLE_LIMIT) if entry.line else ""))
        finally:
            await queue.put(None)

    async def _write_all(self, queue: _Queue, reading: "asyncio.Task[None]") -> bool:
        """Whether all was written, up to the queue's end."""
        chronicle = ""
        while batch := await _next_batch(queue):
            entries = [entry for entry, _ in batch]
            chronicle = next((lines for _, lines in reversed(batch) if lines), chronicle)
            if any(entry.kind in _SNAPSHOT_CHANGES for entry in entries):
                with suppress(PeerloomError):  # the one that is known will do
                    self._snapshot = await self._job.status()
            if not await self._attempt(partial(self._write, entries, chronicle), reading):
                return False
        return True

    async def _attempt(self, work: Callable[[], None], reading: "asyncio.Task[None]") -> bool:
        """Whether it was done, perhaps after several attempts."""
        while True:
            try:
                await _in_daemon_thread(work)
            except Exception as error:  # whatever a library raises
                await self._let_go()
                pause_s = self._backoff.next_pause_s()
                self._note_failure(error)
                if self._backoff.failures >= (LAST_ATTEMPTS if reading.done() else ATTEMPTS):
                    again = f"peerloom jobs watch {self._job.id} --track {shown(self._place)}"
                    self._tell(f"{shown(self._place)} is given up. The rest gets there by: {again}")
                    return False
                await self._sleep(pause_s)
                continue
            if self._backoff.failures:
                self._tell(f"{shown(self._place)} works again; nothing is missing there.")
                self._backoff.succeeded()
            return True

    def _note_failure(self, error: Exception) -> None:
        if self._backoff.failures == 1:
            words = " ".join(without_secret(str(error), self._place).split())[:_WORD_LIMIT]
            words = words or type(error).__name__
            self._tell(f"{shown(self._place)} fails ({escaped(words)}). The job goes on; it is tried again.")

    def _begun(self, job: Job) -> Tracker:
        if self._tracker is None:
            tracker = self._make()
            self._tracker = tracker  # before it has begun, so that it is released if it can't
            self._held = tracker.begin(job)
        return self._tracker

    def _write(self, entries: list[TrackEntry], chronicle: str) -> None:
        job = self._snapshot
        tracker = self._begun(job)
        fresh = [entry for entry in entries if entry.sequence > self._held]
        if fresh:
            tracker.write(job, fresh, chronicle)
            self._held = fresh[-1].sequence

    async def _let_go(self) -> None:
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            with suppress(Exception):
                await _in_daemon_thread(tracker.release)


async def _next_batch(queue: _Queue) -> list[tuple[TrackEntry, str]]:
    """All that waits, at least one; nothing at the queue's end, which stays there."""
    found: list[tuple[TrackEntry, str]] = []
    while len(found) < BATCH_LIMIT and not (found and queue.empty()):
        item = await queue.get()
        if item is None:
            queue.put_nowait(None)  # nobody else puts anything any more
            break
        found.append(item)
    return found


async def _in_daemon_thread(work: Callable[[], T]) -> T:
    """What `work` returns, done where it holds up neither the loop nor the interpreter's end."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # a wait that is cancelled leaves the work alone

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="peerloom-tracker", daemon=True).start()
    return await asyncio.wrap_future(outcome)
