"""One job's event log in memory: numbers what happens, and knows how much of it is durable.

Nobody sees an event before it is written. What is appended while a write is under way goes into the next
one, so a fast job costs no more writes than the disk can make (group commit). The newest durable events stay
in memory for those who follow the job.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from peerloom.kit.clock import Clock, to_timestamp
from peerloom.services.trainer.store import Change
from peerloom.v1.selector_pb2 import Evidence
from peerloom.v1.trainer_pb2 import Job, WatchJobResponse

NO_SECRETS: Mapping[str, str] = MappingProxyType({})
RECENT_EVENTS = 100  # more spares watchers that fall behind a look into the database, at some kB a job each


@dataclass(frozen=True)
class Durable:
    """What of a job is written: its last event's number, step and epoch, and how often it was written."""

    sequence: int
    step: int
    epoch: int
    writes: int = 0


class EventLog:
    """Numbers one job's events, and keeps what is to be written next; calls `wake` when there is something.

    `wake` hears whether all that waits is routine, which may gather for a while. Only the job's record
    appends; only the commit queue takes.
    """

    def __init__(self, job: Job, last_sequence: int, clock: Clock, wake: Callable[[bool], None]) -> None:
        self.durable = Durable(last_sequence, job.progress.step, job.progress.epoch)
        self.changed = asyncio.Condition()
        self._job_id = job.job_id
        self._sequence, self._newest_s = last_sequence, 0.0
        self._appended = self._taken = self._written = 0
        self._events: list[WatchJobResponse] = []
        self._recent: deque[WatchJobResponse] = deque(maxlen=RECENT_EVENTS)
        self._evidence: list[Evidence] = []
        self._secrets: dict[str, str] = {}
        self._clock = clock
        self._wake = wake

    def append(
        self,
        event: WatchJobResponse | None = None,
        evidence: Iterable[Evidence] = (),
        secrets: Mapping[str, str] = NO_SECRETS,
        *,
        age_s: float = 0.0,
        is_routine: bool = False,
    ) -> None:
        """Puts a change of the record, its event (numbered and timed here) and evidence in the next write.

        It happened `age_s` seconds ago, but not before the event before it. `secrets` of workers, by id, go
        there too: they are no part of the record, which clients may see. Without an event the change itself
        is written all the same. Nobody acts on what `is_routine`.
        """
        self._appended += 1
        if event is not None:
            self._sequence += 1
            event.sequence, event.job_id = self._sequence, self._job_id
            now_s = self._clock.wall_s()
            self._newest_s = max(now_s - age_s, min(self._newest_s, now_s))
            event.time.CopyFrom(to_timestamp(self._newest_s))
            self._events.append(event)
        self._evidence.extend(evidence)
        self._secrets.update(secrets)
        self._wake(is_routine)

    @property
    def is_written(self) -> bool:
        """Whether all that was appended so far is durable."""
        return self._written >= self._appended

    @property
    def waiting(self) -> int:
        """How much was appended and isn't durable yet."""
        return self._appended - self._written

    def take(self, job: Job) -> Change | None:
        """What is to be written now, with `job` as it is now; None when there is nothing new."""
        if self._taken >= self._appended:
            return None
        self._taken = self._appended
        change = Change(job, self._events, self._evidence, self._secrets)
        self._events, self._evidence, self._secrets = [], [], {}
        return change

    def put_back(self, change: Change) -> None:
        """Returns what couldn't be written to the front of the next write."""
        self._taken = self._written
        self._events = [*change.events, *self._events]
        self._evidence = [*change.evidence, *self._evidence]
        self._secrets = {**change.secrets, **self._secrets}
        self._wake(False)

    async def confirm(self, change: Change) -> None:
        """What was taken last is durable: those who wait for it go on."""
        self._written = self._taken
        self._recent.extend(change.events)
        sequence = change.events[-1].sequence if change.events else self.durable.sequence
        progress = change.job.progress
        self.durable = Durable(sequence, progress.step, progress.epoch, self.durable.writes + 1)
        await self.notify()

    def recent(self, after: int) -> list[WatchJobResponse] | None:
        """The durable events after a sequence number, in order; None where older ones are among them."""
        if after >= self.durable.sequence:
            return []
        if not self._recent or self._recent[0].sequence > after + 1:
            return None
        return [event for event in self._recent if event.sequence > after]

    async def notify(self) -> None:
        """Lets all who wait look again."""
        async with self.changed:
            self.changed.notify_all()

    async def wait_written(self) -> None:
        """Returns once all that was appended so far is durable."""
        target = self._appended
        if self._written < target:
            self._wake(False)
        async with self.changed:
            await self.changed.wait_for(lambda: self._written >= target)

    async def wait_write(self, seen: int) -> int:
        """Returns how often the job was written, once that is more than the `seen` times."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.durable.writes > seen)
        return self.durable.writes
