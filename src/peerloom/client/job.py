"""A handle on one job, without async."""

from collections.abc import Iterator
from pathlib import Path

from peerloom.client.async_job import AsyncJobHandle
from peerloom.client.loop_thread import LoopThread
from peerloom.client.types import Job, JobEvent, JobResult, LogLine


class JobHandle:
    """One job in the trainer. Dropping the handle leaves the job alone; `Client.job` makes another.

    Ctrl-C in any method ends the wait and leaves the job running.
    """

    def __init__(self, core: AsyncJobHandle, loop: LoopThread, owner: object) -> None:
        self._core = core
        self._loop = loop
        # A client that is collected closes its lines; it must outlive its handles.
        self._owner = owner

    @property
    def id(self) -> str:
        """The job's id, "job-" and 12 hexadecimal digits."""
        return self._core.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def status(self) -> Job:
        """The job as it is now."""
        return self._loop.run(self._core.status())

    def watch(self, after: int = 0) -> Iterator[JobEvent]:
        """All events after the sequence number `after`, then live until the job has ended.

        A line that breaks, or a trainer that restarts, makes no gap and no repeat. Leaving early leaves the
        job running. Raises UnavailableError when the trainer is away for longer than the client's patience.
        """
        yield from self._loop.iterate(self._core.watch(after))

    def result(self, timeout_s: float | None = None) -> JobResult:
        """How the job ended, and what it left; waits for the end, at most `timeout_s` seconds.

        A job that ended badly is an answer too: see `JobResult.succeeded` and `raise_for_state`. Raises
        DeadlineError when the time is over; the job goes on then.
        """
        return self._loop.run(self._core.result(timeout_s))

    def cancel(self) -> Job:
        """Ends the job; does nothing to one that has ended. Its state is final once its workers are gone."""
        return self._loop.run(self._core.cancel())

    def resume(self) -> Job:
        """Goes on with a job that ended without a model, from its newest checkpoint.

        Raises FailedPreconditionError when it runs, has succeeded or has no checkpoint.
        """
        return self._loop.run(self._core.resume())

    def logs(self, *, follow: bool = False, tail: int = 0) -> Iterator[LogLine]:
        """What the job's workers printed; at most the last `tail` lines of each (0: all that is kept).

        With `follow`, goes on until the job ends. Raises UnavailableError when the line breaks.
        """
        yield from self._loop.iterate(self._core.logs(follow=follow, tail=tail))

    def fetch_model(self, path: str | Path) -> Path:
        """Writes the final model (safetensors) to `path`, a file or a folder; returns the file's path.

        Raises FailedPreconditionError when the job has no model (yet), DataLossError when it is damaged.
        """
        return self._loop.run(self._core.fetch_model(path))
