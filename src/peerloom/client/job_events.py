"""A job's events over streams that break: each event once, in order, until the job has ended.

The trainer keeps a log of each job and numbers it. A watch asks for what follows the last number it saw;
when the stream breaks it asks again, after a pause that doubles from 0.1 s to 2 s, and drops what it has
seen. Once nothing was heard for the whole of its patience, the last error comes out. A watch is over when a
stream ends with the event of a final state (a job that was resumed has others before); or, when that event
lies before the point it began from, when a stream that was opened after the job's end was known brings
nothing more.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from peerloom.client.conversions.events import event_of
from peerloom.client.conversions.jobs import state_of
from peerloom.client.remote_services import Services
from peerloom.client.types import FINAL_STATES, JobEvent, StateChanged
from peerloom.errors import CancelledError, DeadlineError, PeerloomError, UnavailableError
from peerloom.kit.backoff import Backoff
from peerloom.kit.clock import Clock
from peerloom.v1.trainer_pb2 import GetJobRequest, WatchJobRequest

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
# How a stream ends that says nothing about the job: the trainer stopped, was killed, or can't be reached.
STREAM_LOST = (UnavailableError, DeadlineError, CancelledError)


class Patience:
    """How long to go on with a service that is away: `limit_s` seconds from the first error on."""

    def __init__(
        self, limit_s: float, clock: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._limit_s, self._clock, self._sleep = limit_s, clock, sleep
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._lost_at_s: float | None = None

    def heard(self) -> None:
        """Something arrived: the stream stands."""
        self._lost_at_s = None
        self._backoff.succeeded()

    async def pause(self, error: PeerloomError | None = None) -> None:
        """Pauses before the next attempt. Raises the `error` that made it necessary at the limit."""
        if error is not None:
            now_s = self._clock.monotonic_s()
            if self._lost_at_s is None:
                self._lost_at_s = now_s
            if now_s - self._lost_at_s >= self._limit_s:
                raise error
        await self._sleep(self._backoff.next_pause_s())


async def watch_job(
    services: Services, job_id: str, after: int, patience_s: float, clock: Clock
) -> AsyncGenerator[JobEvent, None]:
    """All events after the sequence number `after`.

    Raises UnavailableError when the trainer is away for `patience_s`, NotFoundError for an unknown job.
    """
    seen, ended, is_final, is_lost, patience = after, False, False, False, Patience(patience_s, clock)
    while True:
        before = seen
        try:
            if is_lost:  # of a job to which nothing happens no stream would tell that the trainer is back
                ended, is_lost = await _has_ended(services, job_id), False
                patience.heard()
            request = WatchJobRequest(job_id=job_id, after_sequence=seen)
            async with aclosing(services.trainer.stream(lambda stub: stub.WatchJob, request)) as messages:
                async for message in messages:
                    patience.heard()
                    if message.sequence <= seen:
                        continue
                    seen, event = message.sequence, event_of(message)
                    if event is not None:
                        yield event
                    is_final = isinstance(event, StateChanged) and event.is_final
            if is_final or (ended and seen == before):
                return
            ended = await _has_ended(services, job_id)
            await patience.pause()
        except STREAM_LOST as error:
            is_lost = True
            await patience.pause(_job_goes_on(error, job_id))


async def _has_ended(services: Services, job_id: str) -> bool:
    answer = await services.trainer.call(lambda stub: stub.GetJob, GetJobRequest(job_id=job_id))
    return state_of(answer.job.state) in FINAL_STATES


def _job_goes_on(error: UnavailableError | DeadlineError | CancelledError, job_id: str) -> UnavailableError:
    message = f"{error.message} {job_id} isn't lost: it goes on when the trainer is back."
    return UnavailableError(message, reason=error.reason, metadata=error.metadata)
