"""The stream to the trainer: a thread of its own that the training can't starve.

What the trainer must not miss is kept here until the trainer says that it is stored, and sent again
after the stream was broken: the progress of recent steps, and the worker's last word on its generation.
Training goes on without the stream.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable

from peerloom.errors import PeerloomError, PermissionDeniedError
from peerloom.kit.backoff import Backoff
from peerloom.kit.logs import get_logger
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    Checkpoint,
    ConfigureGeneration,
    EndWorker,
    OrderAudits,
    PrepareWorker,
    SaveState,
    StageShadow,
    WorkerBeat,
    WorkerHello,
    WorkerLeaving,
    WorkerSessionRequest,
    WorkerSessionResponse,
    WorkerStaying,
)
from peerloom.worker.assignment import Assignment
from peerloom.worker.leading_trainer import leading_trainer, leave_deposed
from peerloom.worker.progress_reports import ProgressReports
from peerloom.worker.session_ground import SessionGround
from peerloom.worker.store_entries import EntriesByGeneration

_log = get_logger()
Command = PrepareWorker | ConfigureGeneration | SaveState | EndWorker
OnAbort = Callable[[AbortGeneration], None]
OnFormAhead = Callable[[ConfigureGeneration], None]
# A trainer that was started again can't lead its workers until they are back, so each tries again after some
# 4 % of the time that it was away. Raising the longest pause spares one that is away for long many callers.
RECONNECT_FIRST_S, RECONNECT_LONGEST_S, RECONNECT_GROWTH = 0.1, 2.0, 1.03
LEAVING_TIMEOUT_S = 1.0  # who was asked to leave, and finds no trainer to hand over to, goes without


class TrainerSession:
    """Talks to the trainer. `commands` yields what the training thread must do next.

    `on_abort` is called in the session's thread the moment the trainer asks to leave a generation, so
    that it can unblock the training thread; generation 0 means whichever it is. `on_form_ahead` is called
    there too, for a generation that is to be formed ahead, while the training goes on; it comes as a command
    as well. So is `on_order`, for a node that is to be audited. With `is_tls` its collectives travel by TLS,
    and it takes part in no others.
    """

    def __init__(
        self,
        assignment: Assignment,
        on_abort: OnAbort,
        on_form_ahead: OnFormAhead = lambda config: None,
        on_order: Callable[[OrderAudits], None] = lambda order: None,
        orphan_timeout_s: float = 600.0,
        is_tls: bool = False,
        ground: SessionGround | None = None,
    ) -> None:
        self.commands: queue.Queue[Command] = queue.Queue()
        # The newest that the trainer announced, and told to leave: they may still wait among the commands.
        self._announced = self._aborted = 0
        self.entries = EntriesByGeneration(lambda entry: self.answer(WorkerSessionRequest(entry=entry)))
        self._assignment = assignment
        self._is_tls = is_tls
        self._on_abort = on_abort
        self._on_form_ahead = on_form_ahead
        self._on_order = on_order
        self._orphan_timeout_s = orphan_timeout_s
        self._lock = threading.RLock()  # a signal may interrupt its holder and need it
        self._last_word: WorkerSessionRequest | None = None
        self._leaving: WorkerSessionRequest | None = None
        self.measured: WorkerSessionRequest | None = None  # said again to a trainer that was started anew
        self._position = (0, 0)  # committed step, generation
        self._compute_s_per_sample, self._audits = 0.0, 0
        self._shadow: StageShadow | None = None
        self._beat_interval_s = 0.0
        self._beaten_s = 0.0
        self._is_over = False
        self._ground = ground or SessionGround()
        self._loop = self._ground.loop
        self.progress = ProgressReports(self._loop, self._put)
        self._outbox: asyncio.Queue[WorkerSessionRequest] | None = None
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)

    def start(self) -> None:
        """Begins to connect; returns at once."""
        self._thread.start()

    def set_position(self, step: int, generation: int) -> None:
        """What to say of ourselves when the stream must be opened anew."""
        self._position = (step, generation)

    def set_work(self, compute_s_per_sample: float, audits: int) -> None:
        """What the beats say of this worker's speed, and of the audits that it has made."""
        self._compute_s_per_sample, self._audits = compute_s_per_sample, audits

    def set_shadow(self, shadow: StageShadow | None) -> None:
        """What the beats say of the copy that this worker keeps of another stage."""
        self._shadow = shadow

    def report_checkpoint(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is stored with our agent. If the stream is broken just now, the next one will do.

        The steps that it contains come first.
        """
        self.progress.tell_all()
        self.progress.tell_before(WorkerSessionRequest(checkpoint=checkpoint))

    def answer(self, message: WorkerSessionRequest) -> None:
        """Says what the trainer asks for anew over the next stream, so that nothing has to be kept."""
        self.progress.tell_before(message)

    def say(self, message: WorkerSessionRequest) -> None:
        """The worker's last word on its generation (ready, aborted, finished, failed)."""
        with self._lock:
            self._last_word = message
        self.progress.tell_before(message)

    def leave(self, reason: str, grace_s: float) -> None:
        """Says, whenever the stream is opened, that it was asked to leave; it may wait `grace_s` seconds."""
        self._leaving = WorkerSessionRequest(leaving=WorkerLeaving(reason=reason, grace_s=grace_s))
        self.progress.tell_before(self._leaving)

    def is_leaving(self) -> bool:
        """Whether this worker was asked to leave its node."""
        return self._leaving is not None

    def why_over(self, generation: int) -> str:
        """Why a generation is over before this worker has entered it; "" while it isn't.

        `on_abort` reaches those alone that this worker has entered.
        """
        if self._is_over:
            return "this worker ends"
        if generation < self._announced:
            return "a newer generation takes its place"
        return "the trainer told its workers to leave it" if generation <= self._aborted else ""

    def stay(self) -> None:
        """Takes `leave` back."""
        self._leaving = None
        self.progress.tell_before(WorkerSessionRequest(staying=WorkerStaying()))

    def _put(self, message: WorkerSessionRequest) -> None:
        if self._outbox is not None:
            self._outbox.put_nowait(message)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._keep_connected())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _show_life(self) -> None:
        # An answer, not a clock's tick: a stream that doesn't carry the trainer's words is silent both ways.
        now_s = self._loop.time()
        if self._outbox is not None and now_s - self._beaten_s > self._beat_interval_s / 2:
            self._beaten_s = now_s
            step, speed, audits = self._position[0], self._compute_s_per_sample, self._audits
            beat = WorkerBeat(committed_step=step, compute_s_per_sample=speed, audits=audits)
            if self._shadow is not None:
                beat.shadow.CopyFrom(self._shadow)
            self._outbox.put_nowait(WorkerSessionRequest(beat=beat))

    async def _keep_connected(self) -> None:
        backoff = Backoff(RECONNECT_FIRST_S, RECONNECT_LONGEST_S, growth=RECONNECT_GROWTH)
        away_since, told = self._loop.time(), ""
        while True:
            # A new channel each time: one that has failed waits ever longer between attempts of its own.
            trainer = self._ground.dial(self._assignment).trainer(leading_trainer(self._assignment))
            following = asyncio.create_task(leave_deposed(self._assignment, trainer))
            try:
                async for response in trainer.converse(trainer.stub.WorkerSession, self._requests()):
                    backoff.succeeded()
                    away_since, told = self._loop.time(), ""
                    self._handle(response)
                reason = "the trainer closed the stream"
            except PermissionDeniedError as error:
                self._end(f"the trainer refuses this worker: {error.message}")
                reason = error.message
            except PeerloomError as error:
                reason = error.message
            self._outbox = None
            following.cancel()
            # Of gRPC, which would wait for what we say next over a broken stream.
            await self._ground.end_left()
            await trainer.close()
            if self._is_over:
                return
            away_s = self._loop.time() - away_since
            if reason != told:
                _log.warning("stream_broken", reason=reason, away_s=round(away_s, 1))
                told = reason
            if away_s > self._patience_s():
                self._end(f"no trainer for {away_s:.0f} s")
                return
            await asyncio.sleep(backoff.next_pause_s())

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
            pending = self.progress.pending()
            last_words = [
                word for word in (self._last_word, self._leaving, self.measured) if word is not None
            ]
            self._outbox = outbox
        yield WorkerSessionRequest(
            hello=WorkerHello(
                worker_id=self._assignment.worker_id,
                job_id=self._assignment.job_id,
                accelerator_kind=self._assignment.accelerator_kind,
                committed_step=step,
                generation=generation,
                is_tls=self._is_tls,
                secret=self._assignment.secret,
            )
        )
        for message in (*pending, *last_words):
            yield message
        for entry in self.entries.own():
            yield WorkerSessionRequest(entry=entry)
        while True:
            yield await outbox.get()

    def _handle(self, response: WorkerSessionResponse) -> None:
        kind = response.WhichOneof("message")
        if kind == "recorded":
            self.progress.forget(response.recorded.step, response.recorded.epoch)
            self._show_life()
        elif kind == "abort":
            _log.info("abort_received", generation=response.abort.generation, reason=response.abort.reason)
            self._aborted = max(self._aborted, response.abort.generation)
            self._on_abort(response.abort)
        elif kind == "prepare":
            self._beat_interval_s = response.prepare.beat_interval_s
            self.progress.interval_s = response.prepare.report_interval_s
            self.commands.put(response.prepare)
        elif kind == "configure":
            with self._lock:
                self._last_word = None
            self._configure(response.configure)
        elif kind == "entry":
            self.entries.of(response.entry.generation).heard(response.entry)
        elif kind == "order_audits":
            self._on_order(response.order_audits)
        elif kind == "save":
            self.commands.put(response.save)
        elif kind == "end":
            self._end(response.end.reason)

    def _end(self, reason: str) -> None:
        self._is_over = True
        self._on_abort(AbortGeneration(reason=reason))
        self.commands.put(EndWorker(reason=reason))

    def _configure(self, config: ConfigureGeneration) -> None:
        self.entries.begin(config.generation)
        if config.beside:
            self._on_form_ahead(config)
        else:
            self._announced = config.generation
            # Whoever still forms an older one would wait, e.g. for the store of a trainer that died.
            self._on_abort(AbortGeneration(reason=f"generation {config.generation} takes its place"))
        self.commands.put(config)
