"""Handles on one job: as coroutines, and without async."""

import asyncio
import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from peerloom.client.artifacts import fetch_folder
from peerloom.client.conversions.jobs import job_of, log_line_of
from peerloom.client.job_events import watch_job
from peerloom.client.loop_thread import LoopThread, SyncFace, blocking, blocking_iterator
from peerloom.client.model_files import SHARD_BYTES, fetch_model
from peerloom.client.remote_services import Services
from peerloom.client.tracking.job_tracking import JobTracking
from peerloom.client.types import Job, JobEvent, JobResult, LogLine
from peerloom.client.types.artifacts import ModelFormat
from peerloom.errors import DeadlineError, FailedPreconditionError
from peerloom.kit.checks import check_range
from peerloom.kit.clock import Clock, SystemClock
from peerloom.kit.parallel_plan import asked_plan
from peerloom.v1.trainer_pb2 import (
    CancelJobRequest,
    GetJobLogsRequest,
    GetJobRequest,
    ResumeJobRequest,
)

_CANCEL_S = 60.0  # the answer comes when the workers have ended, which on a busy node takes seconds


class AsyncJobHandle:
    """One job in the trainer. Dropping the handle leaves the job alone; `AsyncClient.job` makes another."""

    def __init__(self, services: Services, job_id: str, patience_s: float, clock: Clock) -> None:
        self.id = job_id
        self._services = services
        self._patience_s, self._clock = patience_s, clock
        self._seen = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def status(self) -> Job:
        """The job as it is now."""
        answer = await self._services.trainer.call(lambda stub: stub.GetJob, GetJobRequest(job_id=self.id))
        return job_of(answer.job)

    async def watch(self, after: int = 0) -> AsyncGenerator[JobEvent, None]:
        """All events after the sequence number `after`, then live until the job has ended.

        A stream that breaks, or a trainer that restarts, makes no gap and no repeat. Leaving early leaves the
        job running. Raises UnavailableError when the trainer is away for longer than the client's patience.
        """
        async with aclosing(
            watch_job(self._services, self.id, after, self._patience_s, self._clock)
        ) as events:
            async for event in events:
                self._seen = max(self._seen, event.sequence)
                yield event

    async def result(self, timeout_s: float | None = None) -> JobResult:
        """How the job ended, and what it left; waits for the end, at most `timeout_s` seconds.

        A job that ended badly is an answer too: see `JobResult.succeeded` and `raise_for_state`. Raises
        DeadlineError when the time is over; the job goes on then.
        """
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await self._ended_result()
        except TimeoutError:
            if not limit.expired():
                raise
        raise DeadlineError(
            f"{self.id} hadn't ended after {timeout_s:g} s. It goes on: call result() again to wait longer, "
            "or cancel() to end it.",
            reason="JOB_STILL_RUNNING",
            metadata={"job_id": self.id},
        )

    async def cancel(self) -> Job:
        """Ends the job; does nothing to one that has ended. Its state is final once its workers are gone."""
        answer = await self._services.trainer.call(
            lambda stub: stub.CancelJob, CancelJobRequest(job_id=self.id), _CANCEL_S
        )
        return job_of(answer.job)

    async def resume(self, *, plan: str = "") -> Job:
        """Goes on with a job that ended without a model, from its newest checkpoint.

        `plan` is another one than the job's own, as `Client.train` takes it. Raises FailedPreconditionError
        when it runs, has succeeded or has no checkpoint, InvalidArgumentError for a plan that it can't have.
        """
        if plan:
            asked_plan("plan", plan)
        request = ResumeJobRequest(job_id=self.id, plan=plan)
        answer = await self._services.trainer.call(lambda stub: stub.ResumeJob, request)
        return job_of(answer.job)

    async def logs(self, *, follow: bool = False, tail: int = 0) -> AsyncGenerator[LogLine, None]:
        """What the job's workers printed; at most the last `tail` lines of each (0: all that is kept).

        With `follow`, goes on until the job ends. Raises UnavailableError when the stream breaks.
        """
        check_range("tail", tail, 0, 2**32 - 1)
        request = GetJobLogsRequest(job_id=self.id, follow=follow, tail_lines=tail)
        async with aclosing(self._services.trainer.stream(lambda stub: stub.GetJobLogs, request)) as lines:
            async for line in lines:
                yield log_line_of(line)

    async def fetch_model(
        self,
        path: str | Path,
        *,
        format: ModelFormat = "safetensors",
        shard_bytes: int = SHARD_BYTES,
        checkpoint: bool = False,
    ) -> Path:
        """Writes the final model to `path`, as `Client.fetch_model` does; returns where it lies.

        Raises FailedPreconditionError when the job has no model (yet), or with `checkpoint` none of those,
        DataLossError when it is damaged.
        """
        return await fetch_model(self._services, self.id, path, format, shard_bytes, checkpoint)

    async def fetch_files(self, folder: str | Path) -> Path:
        """Writes what a script had in its working folders, with its code, to a new `folder`.

        It is as it was last stored: at the end of each start, and now and then before. Raises
        FailedPreconditionError when nothing is, InvalidArgumentError for a folder that exists.
        """
        digest = (await self.status()).files
        if not digest:
            raise FailedPreconditionError(
                f"{self.id} has left no files: it is no script, or its rank 0 wrote nothing where it ran.",
                reason="NO_FILES",
            )
        return await fetch_folder(self._services, digest, folder)

    async def track(self, *places: str, tell: Callable[[str], object] = warnings.warn) -> None:
        """Tells experiment trackers of the job until it has ended; whoever does so again repeats nothing.

        A place is tensorboard:DIR, mlflow:URI or wandb:PROJECT[?mode=offline]. One that fails is tried again,
        at last given up, and `tell` gets a line of it; the job goes on. Raises InvalidArgumentError for
        another form, FailedPreconditionError where a tracker's library is missing.
        """
        trackings = [JobTracking(self, place, tell) for place in dict.fromkeys(places)]
        await asyncio.gather(*(tracking.run() for tracking in trackings))

    async def _ended_result(self) -> JobResult:
        while True:
            job = await self.status()
            if job.result is not None:
                return job.result
            async for _ in self.watch(self._seen):
                pass


class JobHandle(SyncFace[AsyncJobHandle]):
    """One job in the trainer. Dropping the handle leaves the job alone; `Client.job` makes another.

    Ctrl-C in any method ends the wait and leaves the job running.
    """

    def __init__(self, core: AsyncJobHandle, loop: LoopThread, owner: object) -> None:
        super().__init__(core, loop)
        # A client that is collected closes its channels; it must outlive its handles.
        self._owner = owner

    @property
    def id(self) -> str:
        """The job's id, "job-" and 12 hexadecimal digits."""
        return self._core.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def show(self) -> None:
        """Shows the job in a notebook's cell until it ends: its loss, its metric, who was lost and joined.

        The curve is drawn anew as events come; what is left is a picture without scripts. Raises
        FailedPreconditionError outside of IPython.
        """
        from peerloom.client.notebook.live_display import show_events

        show_events(self.id, self.watch(), SystemClock())

    status = blocking(AsyncJobHandle.status)
    watch = blocking_iterator(AsyncJobHandle.watch)
    result = blocking(AsyncJobHandle.result)
    cancel = blocking(AsyncJobHandle.cancel)
    resume = blocking(AsyncJobHandle.resume)
    logs = blocking_iterator(AsyncJobHandle.logs)
    fetch_model = blocking(AsyncJobHandle.fetch_model)
    fetch_files = blocking(AsyncJobHandle.fetch_files)
    track = blocking(AsyncJobHandle.track)
