"""How long a broken stream is opened again: pauses up to a ceiling, then the error itself."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import cast

import pytest

from peerloom.client.job_events import FIRST_PAUSE_S, LONGEST_PAUSE_S, Patience, watch_job
from peerloom.client.remote_services import Services
from peerloom.errors import UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.v1.trainer_pb2 import (
    GetJobRequest,
    GetJobResponse,
    Job,
    JobState,
    StateChange,
    WatchJobRequest,
    WatchJobResponse,
)


class Waits:
    """A patience of 60 s whose pauses take time of its own clock."""

    def __init__(self) -> None:
        self.clock, self.pauses_s = ManualClock(), list[float]()
        self.patience = Patience(60.0, self.clock, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.clock.advance(seconds)


async def test_pauses_grow_up_to_two_seconds_until_something_is_heard() -> None:
    waits = Waits()
    for _ in range(8):
        await waits.patience.pause(UnavailableError("gone"))
    assert FIRST_PAUSE_S / 2 <= waits.pauses_s[0] <= FIRST_PAUSE_S
    assert LONGEST_PAUSE_S / 2 <= waits.pauses_s[-1] <= LONGEST_PAUSE_S
    waits.patience.heard()
    await waits.patience.pause(UnavailableError("gone"))
    assert waits.pauses_s[-1] <= FIRST_PAUSE_S


async def test_it_gives_up_sixty_seconds_after_the_first_error() -> None:
    waits, error = Waits(), UnavailableError("gone")
    while waits.clock.monotonic_s() < 60:
        await waits.patience.pause(error)
    with pytest.raises(UnavailableError) as caught:
        await waits.patience.pause(error)
    assert caught.value is error
    assert 60 <= waits.clock.monotonic_s() < 60 + LONGEST_PAUSE_S


async def test_a_stream_that_ends_without_an_error_is_never_given_up() -> None:
    waits = Waits()
    for _ in range(100):
        await waits.patience.pause()
    assert waits.clock.monotonic_s() > 60


async def test_without_patience_the_first_error_comes_out() -> None:
    error = UnavailableError("gone")
    with pytest.raises(UnavailableError) as caught:
        await Patience(0.0, ManualClock()).pause(error)
    assert caught.value is error


class BreakingTrainer:
    """Two streams break, the second after so long without any news of the job; the third tells its end."""

    def __init__(self, clock: ManualClock, quiet_s: float) -> None:
        self.clock, self.quiet_s = clock, quiet_s
        self.streams = 0

    async def stream(self, _: object, request: WatchJobRequest) -> AsyncGenerator[WatchJobResponse, None]:
        self.streams += 1
        if self.streams == 2:
            self.clock.advance(self.quiet_s)
        if self.streams < 3:
            raise UnavailableError("the line broke")
        change = StateChange(state=JobState.JOB_STATE_SUCCEEDED)
        yield WatchJobResponse(sequence=request.after_sequence + 1, job_id="job-1", state_change=change)

    async def call(self, _: object, request: GetJobRequest) -> GetJobResponse:
        state = JobState.JOB_STATE_SUCCEEDED if self.streams == 3 else JobState.JOB_STATE_RUNNING
        return GetJobResponse(job=Job(job_id=request.job_id, state=state))


async def test_patience_begins_anew_with_each_loss_however_quiet_the_job_was() -> None:
    clock = ManualClock()
    services = cast("Services", SimpleNamespace(trainer=BreakingTrainer(clock, quiet_s=1000.0)))
    async with asyncio.timeout(30):
        events = [event async for event in watch_job(services, "job-1", 5, 60.0, clock)]
    assert [event.sequence for event in events] == [6]
