"""The line to the trainer: a thread of its own that the training can't starve.

What the trainer must not miss is kept here until the trainer says that it is stored, and sent again
after the line was broken: the progress of recent steps, and the worker's last word on its generation.
Training goes on without the line.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from peerloom.errors import PeerloomError
from peerloom.kit.channel import Peer
from peerloom.kit.logs import get_logger
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    Checkpoint,
    ConfigureGeneration,
    EndWorker,
    EpochProgress,
    PrepareWorker,
    SaveState,
    StepProgress,
    WorkerBeat,
    WorkerHello,
    WorkerLeaving,
    WorkerSessionRequest,
    WorkerSessionResponse,
    WorkerStaying,
)
from peerloom.v1.trainer_pb2_grpc import TrainerServiceStub
from peerloom.worker.assignment import Assignment

_log = get_logger()
Command = PrepareWorker | ConfigureGeneration | SaveState | EndWorker
OnAbort = Callable[[AbortGeneration], None]
OnBeside = Callable[[ConfigureGeneration], None]
# A worker that isn't rank 0 reports nothing, but must be able to if rank 0 dies before it could.
PROGRESS_KEPT = 20_000  # some 10 MB; at 100 steps a second the trainer may be away for three minutes
RECONNECT_MIN_S, RECONNECT_MAX_S = 0.05, 2.0
LEAVING_TIMEOUT_S = 1.0  # who was asked to leave, and finds no trainer to hand over to, goes without


class Session:
    """Talks to the trainer. `commands` yields what the training thread must do next.

    `on_abort` is called in the session's thread the moment the trainer asks to leave a generation, so
    that it can unblock the training thread; generation 0 means whichever it is. `on_beside` is called there
    too, for a generation that is to meet beside the training; it comes as a command as well.
    """

    def __init__(
        self,
        assignment: Assignment,
        on_abort: OnAbort,
        on_beside: OnBeside = lambda config: None,
        orphan_timeout_s: float = 600.0,
    ) -> None:
        self.commands: queue.Queue[Command] = queue.Queue()
        self.newest_generation = 0  # that the trainer announced; it may still wait among the commands
        self._assignment = assignment
        self._on_abort = on_abort
        self._on_beside = on_beside
        self._orphan_timeout_s = orphan_timeout_s
        self._lock = threading.RLock()  # a signal may interrupt its holder and need it
        self._progress: deque[WorkerSessionRequest] = deque(maxlen=PROGRESS_KEPT)
        self._standing: WorkerSessionRequest | None = None
        self._leaving: WorkerSessionRequest | None = None
        self._position = (0, 0)  # committed step, generation
        self._compute_s_per_sample = 0.0
        self._beat_interval_s = 0.0
        self._beaten_s = 0.0
        self._reports = False
        self._loop = asyncio.new_event_loop()
        self._outbox: asyncio.Queue[WorkerSessionRequest] | None = None
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)

    def start(self) -> None:
        """Begins to connect; returns at once."""
        self._thread.start()

    def set_position(self, step: int, generation: int) -> None:
        """What to say of ourselves when the line must be opened anew."""
        self._position = (step, generation)

    def set_speed(self, compute_s_per_sample: float) -> None:
        """What the beats say of this worker's speed."""
        self._compute_s_per_sample = compute_s_per_sample

    def set_reporting(self, reports: bool) -> None:
        """Whether this worker is the one that reports progress; it then sends what is not yet stored."""
        with self._lock:
            self._reports = reports
            pending = list(self._progress) if reports else []
        for message in pending:
            self._post(message)

    def report(self, progress: StepProgress | EpochProgress) -> None:
        """Keeps a step's or epoch's progress until it is stored; sends it if this worker reports."""
        is_step = isinstance(progress, StepProgress)
        message = WorkerSessionRequest(step=progress) if is_step else WorkerSessionRequest(epoch=progress)  # type: ignore[arg-type]  # each arm has its type
        with self._lock:
            self._progress.append(message)
            reports = self._reports
        if reports:
            self._post(message)

    def report_checkpoint(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is stored with our agent. If the line is broken just now, the next one will do."""
        self._post(WorkerSessionRequest(checkpoint=checkpoint))

    def answer(self, message: WorkerSessionRequest) -> None:
        """Says what is of no use over the next line, where the trainer asks anew: nothing has to be kept."""
        self._post(message)

    def say(self, message: WorkerSessionRequest) -> None:
        """The worker's last word on its generation (ready, aborted, finished, failed)."""
        with self._lock:
            self._standing = message
        self._post(message)

    def leave(self, reason: str, grace_s: float) -> None:
        """Says that this worker was asked to leave its node; said again whenever the line is opened.

        `grace_s` is how long it may wait for a replacement.
        """
        self._leaving = WorkerSessionRequest(leaving=WorkerLeaving(reason=reason, grace_s=grace_s))
        self._post(self._leaving)

    def stay(self) -> None:
        """Takes `leave` back."""
        self._leaving = None
        self._post(WorkerSessionRequest(staying=WorkerStaying()))

    def _post(self, message: WorkerSessionRequest) -> None:
        def put() -> None:
            if self._outbox is not None:
                self._outbox.put_nowait(message)

        with suppress(RuntimeError):  # the line has ended for good, and its loop with it
            self._loop.call_soon_threadsafe(put)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._keep_connected())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _show_life(self) -> None:
        # An answer, not a clock's tick: so a line that doesn't carry the trainer's words is silent both ways.
        now_s = self._loop.time()
        if self._outbox is not None and now_s - self._beaten_s > self._beat_interval_s / 2:
            self._beaten_s = now_s
            step, speed = self._position[0], self._compute_s_per_sample
            beat = WorkerBeat(committed_step=step, compute_s_per_sample=speed)
            self._outbox.put_nowait(WorkerSessionRequest(beat=beat))

    async def _keep_connected(self) -> None:
        pause_s, away_since = RECONNECT_MIN_S, self._loop.time()
        trainer = Peer(
            TrainerServiceStub, "trainer", self._assignment.trainer_address, self._assignment.tls_ca
        )
        while True:
            try:
                async for response in trainer.stream("WorkerSession", self._requests()):
                    pause_s, away_since = RECONNECT_MIN_S, self._loop.time()
                    self._handle(response)
                reason = "the trainer closed the line"
            except PeerloomError as error:
                reason = error.message
            self._outbox = None
            await _end_others()
            away_s = self._loop.time() - away_since
            _log.warning("line_broken", reason=reason, away_s=round(away_s, 1))
            if away_s > self._patience_s():
                self._on_abort(AbortGeneration(reason="the trainer is gone"))
                self.commands.put(EndWorker(reason=f"no trainer for {away_s:.0f} s"))
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RECONNECT_MAX_S)

    def _patience_s(self) -> float:
        """How long this worker goes on without a trainer; handing over is what the owner gave time for."""
        leaving = self._leaving
        if leaving is None:
            return self._orphan_timeout_s
        return LEAVING_TIMEOUT_S + leaving.leaving.grace_s

    async def _requests(self) -> AsyncIterator[WorkerSessionRequest]:
        step, generation = self._position
        outbox: asyncio.Queue[WorkerSessionRequest] = asyncio.Queue()
        with self._lock:
            # From here on every post lands in the new outbox, after what is said first.
            pending = [*self._progress] if self._reports else []
            last_words = [word for word in (self._standing, self._leaving) if word is not None]
            self._outbox = outbox
        yield WorkerSessionRequest(
            hello=WorkerHello(
                worker_id=self._assignment.worker_id,
                job_id=self._assignment.job_id,
                accelerator_kind=self._assignment.accelerator_kind,
                committed_step=step,
                generation=generation,
            )
        )
        for message in pending:
            yield message
        for message in last_words:
            yield message
        while True:
            yield await outbox.get()

    def _handle(self, response: WorkerSessionResponse) -> None:
        kind = response.WhichOneof("message")
        if kind == "recorded":
            self._forget(response.recorded.step, response.recorded.epoch)
            self._show_life()
        elif kind == "abort":
            _log.info("abort_received", generation=response.abort.generation, reason=response.abort.reason)
            self._on_abort(response.abort)
        elif kind == "prepare":
            self._beat_interval_s = response.prepare.beat_interval_s
            self.commands.put(response.prepare)
        elif kind == "configure":
            with self._lock:
                self._standing = None
            self._configure(response.configure)
        elif kind == "save":
            self.commands.put(response.save)
        elif kind == "end":
            self._on_abort(AbortGeneration(reason=response.end.reason))
            self.commands.put(response.end)

    def _configure(self, config: ConfigureGeneration) -> None:
        if config.beside:
            self._on_beside(config)
        else:
            self.newest_generation = config.generation
            # Whoever still forms an older one would wait, e.g. for the store of a trainer that died.
            self._on_abort(AbortGeneration(reason=f"generation {config.generation} takes its place"))
        self.commands.put(config)

    def _forget(self, step: int, epoch: int) -> None:
        with self._lock:
            kept = [
                message
                for message in self._progress
                if (message.step.step > step if message.HasField("step") else message.epoch.epoch > epoch)
            ]
            self._progress.clear()
            self._progress.extend(kept)


async def _end_others() -> None:
    """Ends gRPC's tasks, which would wait for ever for what we say next over a line that is broken."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
