"""A job's events over lines that break: each event once, in order, until the job has ended.

The trainer keeps a log of each job and numbers it. A watch asks for what follows the last number it saw; when
the line breaks it asks again, and drops what it has seen. It is over when a line ends with the event of a
final state (a job that was resumed has others before); or, when that event lies before the point it began
from, when a line that was opened after the job's end was known brings nothing more.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from peerloom.client.conversions.events import event_of
from peerloom.client.conversions.jobs import state_of
from peerloom.client.patience import Patience
from peerloom.client.services import Services
from peerloom.client.types import FINAL_STATES, JobEvent, StateChanged
from peerloom.errors import CancelledError, DeadlineError, UnavailableError
from peerloom.v1.trainer_pb2 import GetJobRequest, WatchJobRequest

# How a line ends that says nothing about the job: the trainer stopped, was killed, or can't be reached.
LINE_LOST = (UnavailableError, DeadlineError, CancelledError)


async def watch_job(
    services: Services, job_id: str, after: int, patience_s: float
) -> AsyncGenerator[JobEvent, None]:
    """All events after the sequence number `after`.

    Raises UnavailableError when the trainer is away for `patience_s`, NotFoundError for an unknown job.
    """
    seen, ended, is_final, patience = after, False, False, Patience(patience_s)
    while True:
        before = seen
        try:
            request = WatchJobRequest(job_id=job_id, after_sequence=seen)
            async with aclosing(services.stream("trainer", "WatchJob", request)) as messages:
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
            await patience.wait(None)
        except LINE_LOST as error:
            await patience.wait(_job_goes_on(error, job_id))


async def _has_ended(services: Services, job_id: str) -> bool:
    answer = await services.call("trainer", "GetJob", GetJobRequest(job_id=job_id))
    return state_of(answer.job.state) in FINAL_STATES


def _job_goes_on(error: UnavailableError | DeadlineError | CancelledError, job_id: str) -> UnavailableError:
    message = f"{error.message} {job_id} isn't lost: it goes on when the trainer is back."
    return UnavailableError(message, reason=error.reason, metadata=error.metadata)
