"""A job's workers as the trainer sees them: keeps the facts that the decisions are made from."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from peerloom.kit.channel import Peer
from peerloom.kit.clock import Clock
from peerloom.services.trainer.evidence import Witness
from peerloom.services.trainer.hub import Hub
from peerloom.services.trainer.journal import JobJournal
from peerloom.services.trainer.mate import Mate, how_it_ended
from peerloom.services.trainer.members import Member, Phase
from peerloom.services.trainer.progress import note_epoch, note_prepared, note_step
from peerloom.services.trainer.silence import BEAT_INTERVAL_S
from peerloom.v1.node_agent_pb2 import WatchWorkersRequest
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    Checkpoint,
    EndWorker,
    PrepareWorker,
    ProgressRecorded,
    SaveState,
    WatchJobResponse,
    Worker,
    WorkerBeat,
    WorkerLost,
    WorkerPrepared,
    WorkerSessionRequest,
    WorkerSessionResponse,
)

# If we look at the clock less often than this, we were stopped or starved ourselves.
OWN_PAUSE_S = 0.5


class Crew:
    """All workers of one job. Hears their sessions and their agents; each change wakes the runner."""

    def __init__(self, journal: JobJournal, hub: Hub, witness: Witness, clock: Clock) -> None:
        self.permanent_failure = ""
        self.checkpoint_interval_s = 0.0
        self.on_checkpoint: Callable[[str, Checkpoint], None] = lambda worker_id, checkpoint: None
        self.on_refused: Callable[[str, str], None] = lambda digest, reason: None
        self.last_loss = ""
        self._journal = journal
        self._hub = hub
        self._witness = witness
        self._clock = clock
        self._mates: dict[str, Mate] = {}
        self._nodes_away: set[str] = set()
        self._looked_s = clock.monotonic_s()
        self._changed, self.someone_departs = asyncio.Event(), asyncio.Event()

    def add(self, workers: Iterable[Worker]) -> None:
        """These workers were started and will come."""
        for worker in workers:
            self._journal.job.workers.append(worker)
            self._mates[worker.worker_id] = Mate(worker, Phase.STARTING, self._clock.monotonic_s())
            hello = self._hub.hello_of(worker.worker_id)
            if hello is not None:  # it was faster than the answers of the other nodes
                self.session_opened(hello)
        self._changed.set()

    def resume(self) -> None:
        """After a restart of ours: those who lived then may be working or starting, and will come back."""
        job, now_s = self._journal.job, self._clock.monotonic_s()
        for worker in [worker for worker in job.workers if not worker.ended]:
            is_member = worker.generation == job.generation
            phase = Phase.WORKING if is_member else Phase.STARTING
            self._mates[worker.worker_id] = Mate(worker, phase, now_s, is_in_generation=is_member)

    def members(self) -> list[Member]:
        """What the decision needs to know."""
        self._forgive_own_pause()
        return [mate.as_member(mate.worker.node_id in self._nodes_away) for mate in self._mates.values()]

    def speeds(self) -> dict[str, float]:
        """Seconds of computing a sample for each worker that has measured it."""
        return {i: m.compute_s_per_sample for i, m in self._mates.items() if m.compute_s_per_sample > 0}

    def count(self) -> int:
        """Workers that are there or are coming, without those that want to go."""
        gone = (Phase.LOST, Phase.SILENT)
        return sum(1 for m in self._mates.values() if m.phase not in gone and not m.is_departing)

    def end_grace(self) -> None:
        """No replacement is to be had for those who want to go: they need not wait any longer."""
        if not any(m.phase is Phase.STARTING and not m.is_departing for m in self._mates.values()):
            for mate in self._mates.values():
                mate.leave_by_s = None
            self._changed.set()

    def ask_to_save(self, worker_id: str, reason: str) -> None:
        """This worker shall store its state as a checkpoint."""
        self._mates[worker_id].save_asked_s = self._clock.monotonic_s()
        self._hub.send(worker_id, WorkerSessionResponse(save=SaveState(reason=reason)))

    def _forgive_own_pause(self) -> None:
        # If we were stopped, the signs of life of that time still wait in our sockets.
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s > OWN_PAUSE_S:
            for mate in self._mates.values():
                mate.pulse.restart(now_s)
        self._looked_s = now_s

    async def wait_for_change(self, limit_s: float | None) -> None:
        """Returns at the next change, or after `limit_s` seconds."""
        limit_s = OWN_PAUSE_S / 2 if limit_s is None else min(limit_s, OWN_PAUSE_S / 2)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        self._changed.clear()

    def begin_generation(self, worker_ids: Iterable[str], meets_within_s: float | None) -> list[Worker]:
        """These work, ranked in this order, at once or after they have met; those lost are forgotten."""
        now_s = self._clock.monotonic_s()
        meets_by_s = None if meets_within_s is None else now_s + meets_within_s
        self._mates = {i: mate for i, mate in self._mates.items() if mate.phase is not Phase.LOST}
        for mate in self._mates.values():
            mate.is_in_generation &= meets_by_s is not None  # they belong to the one that works
        workers = []
        for rank, worker_id in enumerate(worker_ids):
            away_since_s = None if self._hub.is_connected(worker_id) else now_s
            self._mates[worker_id].begin(away_since_s, meets_by_s)
            record = self._record(worker_id)
            record.rank, record.generation = rank, self._journal.job.generation
            workers.append(record)
        return workers

    def leave(self, worker_ids: Iterable[str], abort: AbortGeneration, phase: Phase = Phase.LEAVING) -> None:
        """Tells these to leave the generation; those that are SILENT hear it when they wake."""
        for worker_id in worker_ids:
            mate = self._mates[worker_id]
            mate.phase, mate.away_since_s = phase, self._clock.monotonic_s()
            self._hub.send(worker_id, WorkerSessionResponse(abort=abort))
        self._changed.set()

    def dismiss(self, worker_ids: Iterable[str], reason: str) -> None:
        """These leave with our thanks: it is no loss and no evidence."""
        for worker_id in worker_ids:
            mate = self._mates.pop(worker_id)
            record = self._record(worker_id)
            record.ended, record.end_reason = True, mate.leave_reason or reason
            self._hub.send(worker_id, WorkerSessionResponse(end=EndWorker(reason=reason)))
        self._journal.note()

    def lose(self, worker_id: str, reason: str) -> None:
        """This worker will not come back."""
        mate = self._mates.get(worker_id)
        if mate is None or mate.phase is Phase.LOST:
            return
        mate.phase, mate.away_since_s = Phase.LOST, None
        mate.pulse.stop()
        record = self._record(worker_id)
        record.ended, record.end_reason = True, reason
        self.last_loss = f"{worker_id} on {record.node_name}: {reason}"
        self._journal.note(WatchJobResponse(worker_lost=WorkerLost(worker=record, reason=reason)))
        # A node that is gone with its agent was interrupted; the registry tells of that, once.
        if not mate.is_departing and record.node_id not in self._nodes_away:
            self._witness.unfinished(record.node_id, f"{worker_id} was lost: {reason}")
        self._changed.set()

    async def follow(self, agent: Peer, node_id: str) -> None:
        """Hears from an agent which of the job's processes end. Raises UnavailableError."""
        request = WatchWorkersRequest(job_id=self._journal.job.job_id)
        async for event in agent.stream("WatchWorkers", request):
            self._set_away(node_id, False)
            mate = self._mates.get(event.worker.worker_id)
            if event.ended and mate is not None and mate.phase is not Phase.FINISHED:
                self.lose(event.worker.worker_id, how_it_ended(event.exit_code))

    def lose_sight(self, node_id: str) -> None:
        """A node's agent can't be reached."""
        self._set_away(node_id, True)

    def _set_away(self, node_id: str, is_away: bool) -> None:
        if is_away != (node_id in self._nodes_away):
            (self._nodes_away.add if is_away else self._nodes_away.discard)(node_id)
            self._changed.set()

    @property
    def mates(self) -> list[Mate]:
        """All that is known of each worker, for reading."""
        return list(self._mates.values())

    def session_opened(self, request: WorkerSessionRequest) -> None:
        """A worker said hello: for the first time, or again after its line broke."""
        hello = request.hello
        mate = self._mates.get(hello.worker_id)
        if mate is None or mate.phase is Phase.LOST:
            if any(w.ended and w.worker_id == hello.worker_id for w in self._journal.job.workers):
                over = EndWorker(reason="the job went on without it")
                self._hub.send(hello.worker_id, WorkerSessionResponse(end=over))
            return
        mate.step = max(mate.step, hello.committed_step)
        prepare = PrepareWorker(
            spec=self._journal.job.spec,
            beat_interval_s=BEAT_INTERVAL_S,
            checkpoint_interval_s=self.checkpoint_interval_s,
        )
        self._hub.send(hello.worker_id, WorkerSessionResponse(prepare=prepare))
        if mate.phase in (Phase.LEAVING, Phase.SILENT) and hello.generation:
            abort = AbortGeneration(generation=hello.generation, reason="the generation is broken")
            self._hub.send(hello.worker_id, WorkerSessionResponse(abort=abort))
        elif mate.phase is not Phase.STARTING:
            if hello.generation != self._journal.job.generation:
                # It waits for a generation; its standing word, which comes next, may say more.
                mate.phase = Phase.IDLE
            mate.away_since_s = None
        self._hub.send(hello.worker_id, self._recorded())
        self._changed.set()

    def session_message(self, worker_id: str, request: WorkerSessionRequest) -> None:
        """A worker said something."""
        mate = self._mates.get(worker_id)
        if mate is None or mate.phase is Phase.LOST:
            return
        mate.pulse.beat(self._clock.monotonic_s())
        kind = request.WhichOneof("message")
        if kind not in ("step", "epoch", "beat", "checkpoint"):
            self._changed.set()
        match kind:
            case "step":
                mate.step = max(mate.step, request.step.step)
                note_step(self._journal, request.step, self._clock)
            case "epoch":
                note_epoch(self._journal, request.epoch)
            case "beat":
                self._note_beat(mate, request.beat)
            case "checkpoint":
                self.on_checkpoint(worker_id, request.checkpoint)
            case "prepared":
                self._note_prepared(mate, request.prepared)
            case "aborted" if mate.is_let_go_by(request.aborted.generation, self._journal.job.generation):
                mate.phase, mate.step = Phase.IDLE, request.aborted.committed_step
                mate.away_since_s = None
                if request.aborted.refused_checkpoint:
                    self.on_refused(request.aborted.refused_checkpoint, request.aborted.reason)
            case "met" if request.met.generation == self._journal.job.generation:
                mate.has_met = True
            case "ready" if request.ready.generation == self._journal.job.generation:
                mate.is_ready = True
            case "leaving":
                mate.note_leaving(request.leaving, self._clock.monotonic_s())
                self.someone_departs.set()
            case "staying":
                mate.is_departing, mate.leave_by_s = False, None
            case "finished" if request.finished.generation == self._journal.job.generation:
                mate.phase, mate.finished = Phase.FINISHED, request.finished
                mate.step, mate.away_since_s = self._journal.job.progress.total_steps, None
            case "failed":
                self._note_failure(worker_id, request.failed.reason, request.failed.is_permanent)

    def session_closed(self, worker_id: str) -> None:
        """A worker's line broke; it may come back."""
        mate = self._mates.get(worker_id)
        if mate is not None:
            mate.pulse.stop()
            if mate.away_since_s is None or mate.phase is Phase.LEAVING:
                mate.away_since_s = self._clock.monotonic_s()
            self._changed.set()

    def ask_for_signs(self) -> None:
        """Speaks to all workers; each answers with a sign of life, if the line carries both ways."""
        for worker_id in self._mates:
            self._hub.ask(worker_id, self._recorded())

    def send_recorded(self) -> None:
        """Tells all workers what is stored, so that they may forget it."""
        for worker_id in self._mates:
            self._hub.send(worker_id, self._recorded())

    def _recorded(self) -> WorkerSessionResponse:
        recorded = ProgressRecorded(step=self._journal.written_step, epoch=self._journal.written_epoch)
        return WorkerSessionResponse(recorded=recorded)

    def _note_beat(self, mate: Mate, beat: WorkerBeat) -> None:
        mate.step = max(mate.step, beat.committed_step)
        mate.compute_s_per_sample = beat.compute_s_per_sample
        if mate.phase is Phase.STARTING:
            mate.away_since_s = self._clock.monotonic_s()  # it lives, and may load for as long as it takes

    def _note_prepared(self, mate: Mate, prepared: WorkerPrepared) -> None:
        note_prepared(self._journal, prepared)
        if mate.phase is Phase.STARTING:
            mate.phase, mate.away_since_s = Phase.IDLE, None

    def _note_failure(self, worker_id: str, reason: str, is_permanent: bool) -> None:
        if is_permanent:
            record = self._record(worker_id)
            self.permanent_failure = f"{worker_id} on {record.node_name}: {reason}"
            self._changed.set()
        else:
            self.lose(worker_id, reason)

    def _record(self, worker_id: str) -> Worker:
        return next(w for w in self._journal.job.workers if w.worker_id == worker_id)
