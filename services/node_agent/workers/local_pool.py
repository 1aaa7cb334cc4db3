"""The pool of this node's workers: started in reserved slots, watched, ended; and who is told of it."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from peerloom.errors import AlreadyExistsError, PeerloomError, UnavailableError
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.workers.job_trainers import JobTrainer, JobTrainers
from peerloom.services.node_agent.workers.slots import Reservation, SlotTable
from peerloom.services.node_agent.workers.starter import WorkerHandle, WorkerStarter
from peerloom.services.node_agent.workers.worker_folders import WorkerFolders
from peerloom.services.node_agent.workers.worker_logs import LogFolder
from peerloom.worker.assignment import Assignment, Work

T = TypeVar("T")
_log = get_logger()
_JOBS_REMEMBERED = 100
_TRIM_INTERVAL_S = 1.0
# How a worker ended: with status 0, with another, by a signal, or because it used too much of this node.
EXITS = OK, ERROR, SIGNAL, LIMIT = "ok", "error", "signal", "limit"


@dataclass
class PooledWorker:
    """One worker of a job. `exit_code` is None while it runs; negative: the signal that killed it.

    `why_ended` is what is known of its end besides. `secret` is what it proves itself to the trainer with,
    and `identity` the PEM file of its certificate.
    """

    worker_id: str
    job_id: str
    slot: int
    process: WorkerHandle
    log_path: Path
    folder: Path
    secret: str = field(repr=False)
    identity: str = ""
    exit_code: int | None = None
    why_ended: str = ""


@dataclass(frozen=True)
class PoolEvent:
    """A worker started, or ended."""

    worker: PooledWorker
    ended: bool


@dataclass
class _JobWorkers:
    workers: dict[str, PooledWorker] = field(default_factory=dict)
    events: list[PoolEvent] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, event: PoolEvent) -> None:
        self.events.append(event)
        self.changed.set()
        self.changed = asyncio.Event()

    @property
    def running(self) -> list[PooledWorker]:
        return [worker for worker in self.workers.values() if worker.exit_code is None]


class LocalWorkerPool:
    """Turns reservations into workers. `assign` makes a worker's assignment of what only the agent knows.

    `certify` puts a certificate for a worker (its id) of a job into its folder, and says where. `started` and
    `ended` count workers since this process began, those that ended by how (see EXITS).
    """

    def __init__(
        self,
        slots: SlotTable,
        starter: WorkerStarter,
        logs: LogFolder,
        folders: WorkerFolders,
        assign: Callable[[PooledWorker, Work], Assignment],
        certify: Callable[[Path, str, str], Awaitable[str]],
    ) -> None:
        self._slots, self._starter, self._logs = slots, starter, logs
        self._assign, self._certify = assign, certify
        self._folders = folders
        self._jobs: OrderedDict[str, _JobWorkers] = OrderedDict()
        self.trainers = JobTrainers()
        self.started = 0
        self.ended: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failures: asyncio.Queue[BaseException] = asyncio.Queue()
        self._starting, self._being_started = asyncio.Lock(), ""
        self._closed = asyncio.Event()

    async def start(
        self, reservation_id: str, secrets: Mapping[str, str], now_s: float
    ) -> list[PooledWorker]:
        """Starts one worker in each reserved slot; a repeat gets those started before. Goes on if cancelled.

        `secrets` has each worker's id, with what it proves itself to the trainer with.
        Raises what `SlotTable.start` raises, AlreadyExistsError for a worker that the job has had, and
        FailedPreconditionError when a process can't be started; then none of them runs.
        """
        starting = self._start(reservation_id, secrets, now_s)
        return await asyncio.shield(self._own(asyncio.create_task(starting)))

    async def stop(self, job_id: str, grace_s: float, only: Set[str] = frozenset()) -> int:
        """Ends a job's workers and frees its slots; returns how many were running. Goes on if cancelled.

        Of `only` some of the workers, by id, the others and what is reserved stay as they are; of all, those
        that are being started end too.
        """
        return await asyncio.shield(self._own(asyncio.create_task(self._stop(job_id, grace_s, only))))

    def end_soon(self, worker: PooledWorker, grace_s: float) -> "asyncio.Task[None]":
        """Begins to end a worker, by force after `grace_s` seconds; the task returns when it is gone."""
        return self._own(asyncio.create_task(self._end(worker, grace_s)))

    async def watch(self, job_id: str) -> AsyncIterator[PoolEvent | None]:
        """Each start and end of the job's workers until the pool is closed; None after the past ones."""
        job = self._job(job_id)
        seen = len(job.events)
        for event in [*job.events, None]:
            yield event
        while True:
            while seen < len(job.events):
                yield job.events[seen]
                seen += 1
            if self._closed.is_set() and not job.running:
                return
            await job.changed.wait()

    def unwatched(self) -> list[str]:
        """The jobs with workers that run, and of which no trainer hears."""
        running = [job_id for job_id, job in self._jobs.items() if job.running]
        return [job_id for job_id in running if not self.trainers.is_watched(job_id)]

    async def follow(self, job_id: str, trainer: JobTrainer) -> None:
        """Sends the job's workers to this trainer. Raises as `JobTrainers.follow` and `JobTrainers.tell`."""
        self.trainers.follow(job_id, trainer)
        running = self._jobs[job_id].running if job_id in self._jobs else []
        await asyncio.to_thread(self.trainers.tell, job_id, [worker.folder for worker in running])

    def running(self) -> list[PooledWorker]:
        """All workers that run, of each job in the order of their start."""
        return [worker for job in self._jobs.values() for worker in job.running]

    def is_running(self, job_id: str) -> bool:
        """Whether the job has a worker that runs."""
        return job_id in self._jobs and bool(self._jobs[job_id].running)

    def outgrown_by(self, job_id: str) -> str:
        """What a worker of this job was ended for that used too much of this node; empty if none was."""
        workers = self._jobs[job_id].workers.values() if job_id in self._jobs else ()
        return next((worker.why_ended for worker in workers if worker.why_ended), "")

    async def keep(self) -> None:
        """Keeps the running workers' output short, until cancelled.

        Raises what ended one of the pool's own tasks, if that was no error to be told to a caller.
        """
        while True:
            failure = await _within(_TRIM_INTERVAL_S, self._failures)
            if failure is not None:
                raise failure
            for worker in self.running():
                try:
                    await asyncio.to_thread(self._logs.trim, worker.log_path)
                except PeerloomError as error:
                    _log.warning("log_not_trimmed", worker_id=worker.worker_id, reason=error.message)

    async def close(self, grace_s: float) -> None:
        """Ends all workers, then the watches."""
        self._closed.set()
        await asyncio.gather(*(self._end(worker, grace_s) for worker in self.running()))
        for job in self._jobs.values():
            job.changed.set()
        await asyncio.to_thread(self._folders.clear)

    async def _start(
        self, reservation_id: str, secrets: Mapping[str, str], now_s: float
    ) -> list[PooledWorker]:
        worker_ids = tuple(secrets)
        async with self._starting:
            if self._closed.is_set():
                raise UnavailableError("This node is being stopped and starts no workers.", reason="STOPPING")
            held, repeated = self._slots.start(reservation_id, worker_ids, now_s)
            job = self._job(held.job_id)
            if repeated:
                return [job.workers[worker_id] for worker_id in worker_ids if worker_id in job.workers]
            started: list[PooledWorker] = []
            self._being_started = held.job_id
            try:
                _refuse_known(held.job_id, job, worker_ids)
                for (worker_id, secret), slot in zip(secrets.items(), held.slots, strict=True):
                    started.append(await self._start_one(held, worker_id, secret, slot))
            except PeerloomError:
                self._slots.undo(held, len(started))
                await asyncio.gather(*(worker.process.stop(0) for worker in started))
                raise
            finally:
                self._being_started = ""
            return started

    async def _stop(self, job_id: str, grace_s: float, only: Set[str]) -> int:
        if not only:
            self._slots.cancel(job_id)
            if self._being_started == job_id:
                async with self._starting:  # else its workers would begin after their job's end
                    pass
        running = self._jobs[job_id].running if job_id in self._jobs else []
        running = [worker for worker in running if not only or worker.worker_id in only]
        ending = [self.end_soon(worker, grace_s) for worker in running]
        await asyncio.gather(*ending)
        return len(running)

    async def _start_one(self, held: Reservation, worker_id: str, secret: str, slot: int) -> PooledWorker:
        job_id = held.job_id
        running = {worker.job_id for worker in self.running()}
        log_path = await asyncio.to_thread(self._logs.prepare, job_id, worker_id, running)
        folder = await asyncio.to_thread(self._folders.make, worker_id)
        identity = await self._certify(folder, worker_id, job_id)
        process = await self._starter.start(brings_code=bool(held.work.code_digest))
        worker = PooledWorker(worker_id, job_id, slot, process, log_path, folder, secret, identity)
        process.assign(self._assign(worker, held.work))
        job = self._job(job_id)
        job.workers[worker_id] = worker
        try:
            await asyncio.to_thread(self.trainers.tell, job_id, [folder])
        except PeerloomError:
            del job.workers[worker_id]
            await process.stop(0)
            raise
        job.tell(PoolEvent(worker, ended=False))
        self.started += 1
        self._own(asyncio.create_task(self._wait(worker, job)))
        _log.info("worker_started", job_id=job_id, worker_id=worker_id, slot=slot, pid=process.pid)
        return worker

    async def _wait(self, worker: PooledWorker, job: _JobWorkers) -> None:
        await worker.process.ended.wait()
        worker.exit_code, worker.why_ended = worker.process.exit_code, worker.process.why_ended
        self.ended[_exit_of(worker)] += 1
        self._slots.end(worker.slot)
        job.tell(PoolEvent(worker, ended=True))
        ids = {"job_id": worker.job_id, "worker_id": worker.worker_id}
        _log.info("worker_ended", **ids, exit_code=worker.exit_code, why=worker.why_ended)
        await asyncio.to_thread(self._folders.remove, worker.folder)

    async def _end(self, worker: PooledWorker, grace_s: float) -> None:
        await worker.process.stop(grace_s)
        job = self._job(worker.job_id)
        while worker.exit_code is None:
            await job.changed.wait()

    def _job(self, job_id: str) -> _JobWorkers:
        """The record of a job; the oldest that don't run are forgotten."""
        job = self._jobs.setdefault(job_id, _JobWorkers())
        for old in list(self._jobs)[:-_JOBS_REMEMBERED]:
            if old != job_id and not self._jobs[old].running:
                del self._jobs[old]
        return job

    def _own(self, task: "asyncio.Task[T]") -> "asyncio.Task[T]":
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PeerloomError):
            self._failures.put_nowait(error)


async def _within(limit_s: float, failures: "asyncio.Queue[BaseException]") -> BaseException | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            return await failures.get()
    return None


def _refuse_known(job_id: str, job: _JobWorkers, worker_ids: Sequence[str]) -> None:
    for worker_id in worker_ids:
        if worker_id in job.workers:
            raise AlreadyExistsError(f"The job {job_id} has had a worker {worker_id} here. Choose a new id.")


def _exit_of(worker: PooledWorker) -> str:
    if worker.why_ended:
        return LIMIT
    code = worker.exit_code or 0
    return OK if code == 0 else SIGNAL if code < 0 else ERROR
