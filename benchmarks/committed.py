"""The steps that a job has committed, as its events tell of them."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from peerloom.client.jobs import JobHandle
from peerloom.client.types import GenerationFormed, JobEvent, StateChanged, StepCommitted


def committed_steps(
    job: JobHandle,
    formed: Callable[[GenerationFormed], None] | None = None,
    enough: Callable[[list[StepCommitted]], bool] | None = None,
) -> list[StepCommitted]:
    """All of them, in order, once the job has ended; ends the program when that was no success.

    `formed` is told of each generation at once; the job is cancelled once `enough` holds for its steps.
    """
    committed: list[StepCommitted] = []
    cancelled = False
    for event in job.watch():
        if isinstance(event, GenerationFormed) and formed is not None:
            formed(event)
        if isinstance(event, StepCommitted):
            committed.append(event)
            if enough is not None and not cancelled and enough(committed):
                cancelled = True
                job.cancel()
        wanted = ("succeeded", "cancelled") if cancelled else ("succeeded",)
        if isinstance(event, StateChanged) and event.is_final and event.state not in wanted:
            raise SystemExit(f"the job ended as {event}: {[str(one) for one in job.status().answers]}")
    return committed


@contextmanager
def cancelled_at_end_of_input(job: JobHandle) -> Iterator[None]:
    """Cancels the job when standard input ends; the block ends after that, so its client has to stay open."""

    def end() -> None:
        sys.stdin.read()
        job.cancel()

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    yield
    ending.join()


def seconds_between(first: StepCommitted, last: StepCommitted) -> float:
    """By the trainer's clock."""
    return stamp_s(last) - stamp_s(first)


def stamp_s(event: JobEvent) -> float:
    """When it happened, in seconds since the epoch, by the trainer's clock."""
    assert event.time is not None, "the trainer stamps each event"
    return event.time.timestamp()
