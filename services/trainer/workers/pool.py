"""One job's workers: the newest state of each, and what the job tells them.

What the workers themselves say comes through `WorkerSessions`; every change of a state wakes the runner,
which then decides what to do next.
"""

import asyncio
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace

from peerloom.kit.clock import Clock
from peerloom.kit.ownership import voter
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.nodes.evidence_outbox import Witness
from peerloom.services.trainer.workers.failure_detector import HeartbeatHistory
from peerloom.services.trainer.workers.session_router import SessionRouter
from peerloom.services.trainer.workers.slot_measures import SlotMeasures
from peerloom.services.trainer.workers.stage_reports import steps_of_stages
from peerloom.services.trainer.workers.state import (
    Contact,
    Finished,
    Lost,
    Meeting,
    Silent,
    Starting,
    WorkerState,
    Working,
)
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    EndWorker,
    ProgressRecorded,
    SaveState,
    Worker,
    WorkerSessionResponse,
)

# If the trainer looks at the clock less often than this, it was stopped or starved itself.
OWN_PAUSE_S = 0.5


@dataclass
class _Tracked:
    state: WorkerState
    heartbeats: HeartbeatHistory = field(default_factory=HeartbeatHistory)
    is_agent_away: bool = False  # or was, and hasn't told of this worker since


class WorkerPool:
    """All workers of one job. `changed` is set at each change of a state that may ask for a decision."""

    def __init__(self, record: JobRecord, router: SessionRouter, witness: Witness, clock: Clock) -> None:
        self.slots = SlotMeasures()
        self.failure = ""  # why no worker can go on with this job, anywhere
        self.last_loss = ""
        self.someone_departs = asyncio.Event()
        self.given_up: asyncio.Queue[str] = asyncio.Queue()  # workers whose processes may live on
        self._record = record
        self._router = router
        self._witness = witness
        self._clock = clock
        self._tracked: dict[str, _Tracked] = {}
        self._looked_s = clock.monotonic_s()
        self._changed = asyncio.Event()

    # What is known

    def states(self) -> list[WorkerState]:
        """Every worker as the decisions see it, without those lost in an earlier generation."""
        self._forgive_own_pause()
        return [self._seen(tracked) for tracked in self._tracked.values()]

    def state_of(self, worker_id: str) -> WorkerState | None:
        """The newest state of a worker; None for one that isn't here, or not any more."""
        tracked = self._tracked.get(worker_id)
        return None if tracked is None else tracked.state

    def owner_of(self, worker_id: str) -> str:
        """Who has one vote with all workers of theirs; without certificates each node is its own."""
        state = self.state_of(worker_id)
        return voter(self._record.worker(worker_id).node_id, state.owner if state is not None else "")

    def held_by(self, worker_id: str) -> tuple[tuple[int, int], ...]:
        """Of which stages a member of the generation that broke has the states of which steps."""
        state = self.state_of(worker_id)
        if state is None or not state.is_member:
            return ()
        return steps_of_stages(state.phase.said.held) if isinstance(state.phase, Finished) else state.held

    def count(self) -> int:
        """Workers that are there or are coming, without those that want to go."""
        states = [tracked.state for tracked in self._tracked.values()]
        return sum(not isinstance(s.phase, Lost | Silent) and not s.is_departing for s in states)

    async def wait_for_change(self, limit_s: float | None) -> None:
        """Returns at the next change, or after `limit_s` seconds."""
        limit_s = OWN_PAUSE_S / 2 if limit_s is None else min(limit_s, OWN_PAUSE_S / 2)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        self._changed.clear()

    # What the job decides

    def add(self, workers: Iterable[Worker]) -> None:
        """These workers were started and will come."""
        now_s = self._clock.monotonic_s()
        for worker in workers:
            starting = WorkerState(worker.worker_id, Starting(now_s), node_id=worker.node_id)
            self._tracked[worker.worker_id] = _Tracked(starting)
        self._changed.set()

    def resume(self) -> None:
        """After a restart of the trainer: those who lived may be working or starting, and will come back."""
        job, now_s = self._record.job, self._clock.monotonic_s()
        for worker in [worker for worker in job.workers if not worker.ended]:
            is_member = worker.generation == job.generation
            phase = Working(away_since_s=now_s) if is_member else Starting(now_s)
            left_at = None if is_member else int(job.progress.step)
            state = WorkerState(worker.worker_id, phase, left_at_step=left_at, node_id=worker.node_id)
            self._tracked[worker.worker_id] = _Tracked(state)

    def end_grace(self) -> None:
        """No replacement is to be had for those who want to go: they need not wait any longer."""
        states = [tracked.state for tracked in self._tracked.values()]
        if not any(isinstance(s.phase, Starting) and not s.is_departing for s in states):
            for state in states:
                self._put(state.hurried())
            self._changed.set()

    def ask_to_save(self, worker_id: str, reason: str) -> None:
        """This worker, which departs, shall store its state as a checkpoint."""
        self._put(self._tracked[worker_id].state.asked_to_save(self._clock.monotonic_s()))
        self.send(worker_id, WorkerSessionResponse(save=SaveState(reason=reason)))

    def begin_generation(
        self, worker_ids: Sequence[str], first_step: int, meets_within_s: float | None
    ) -> None:
        """These work at once from `first_step` on, or after they have met; those lost are forgotten."""
        now_s = self._clock.monotonic_s()
        self._tracked = {i: t for i, t in self._tracked.items() if not isinstance(t.state.phase, Lost)}
        if meets_within_s is None:
            for tracked in self._tracked.values():
                self._put(tracked.state.left_out(first_step))
        for worker_id in worker_ids:
            away_since_s = None if self._router.is_connected(worker_id) else now_s
            meeting = None if meets_within_s is None else Meeting(now_s + meets_within_s)
            self._put(self._tracked[worker_id].state.began(away_since_s, meeting))

    def enter_generation(self, leave: AbortGeneration) -> list[str]:
        """All have met: those who work get `leave`, the word to leave their generation for the next.

        Returns who enters it; the others are left behind.
        """
        working = [t.state for t in self._tracked.values() if isinstance(t.state.phase, Working)]
        for state in working:
            if state.meeting:
                self._put(state.entered())
            else:
                self._put(state.told_to_leave(self._clock.monotonic_s(), is_left_behind=True))
            self.send(state.worker_id, WorkerSessionResponse(abort=leave))
        self._changed.set()
        return [state.worker_id for state in working if state.meeting]

    def leave(self, worker_ids: Iterable[str], abort: AbortGeneration) -> None:
        """Tells these to leave the generation."""
        for worker_id in worker_ids:
            self._put(self._tracked[worker_id].state.told_to_leave(self._clock.monotonic_s()))
            self.send(worker_id, WorkerSessionResponse(abort=abort))
        self._changed.set()

    def leave_behind(self, worker_ids: Iterable[str], abort: AbortGeneration) -> None:
        """These show no sign of life; they hear that their generation is over when they wake."""
        for worker_id in worker_ids:
            self._put(self._tracked[worker_id].state.fell_silent(self._clock.monotonic_s()))
            self.send(worker_id, WorkerSessionResponse(abort=abort))
        self._changed.set()

    def dismiss(self, worker_ids: Iterable[str], reason: str) -> None:
        """These leave with our thanks: it is no loss and no evidence."""
        for worker_id in worker_ids:
            departure = self._tracked.pop(worker_id).state.departure
            self._record.worker_dismissed(worker_id, (departure and departure.reason) or reason)
            self.send(worker_id, WorkerSessionResponse(end=EndWorker(reason=reason)))

    def lose(self, worker_id: str, reason: str, *, is_unfit: bool = False) -> None:
        """This worker will not come back; `is_unfit`: nor is its node asked again, and not to blame."""
        tracked = self._tracked.get(worker_id)
        if tracked is None or isinstance(tracked.state.phase, Lost):
            return
        tracked.heartbeats.stop()
        self._put(tracked.state.lost())
        self._record.worker_lost(worker_id, reason, is_unfit=is_unfit)
        worker = self._record.worker(worker_id)
        self.last_loss = f"{worker_id} on {worker.node_name}: {reason}"
        # A node that is gone with its agent was interrupted; the registry tells of that, once.
        if not (is_unfit or tracked.state.is_departing or tracked.is_agent_away):
            self._witness.unfinished(worker.node_id, f"{worker_id} was lost: {reason}")
        self._changed.set()

    def give_up_on(self, worker_id: str, reason: str) -> None:
        """This worker was waited for in vain; what is left of it has no more use of its slot."""
        self.lose(worker_id, reason)
        self.given_up.put_nowait(worker_id)

    def refuse(self, worker_id: str, reason: str, *, is_unfit: bool = False) -> None:
        """This worker says what can't be true, or that it `is_unfit`: it is lost, and told to end."""
        self.lose(worker_id, reason, is_unfit=is_unfit)
        self.send(worker_id, WorkerSessionResponse(end=EndWorker(reason=reason)))

    def expel(self, node_id: str, reason: str) -> None:
        """The workers on this node lied: they are told to end, and the others go on without them."""
        for worker_id, tracked in self._tracked.items():
            if tracked.state.node_id != node_id or isinstance(tracked.state.phase, Lost):
                continue
            tracked.heartbeats.stop()
            self._put(tracked.state.lost())
            self._record.worker_dismissed(worker_id, reason)
            self.last_loss = f"{worker_id} on {self._record.worker(worker_id).node_name}: {reason}"
            self.send(worker_id, WorkerSessionResponse(end=EndWorker(reason=reason)))
        self._changed.set()

    def agent_away(self, node_id: str, but: Set[str] = frozenset()) -> None:
        """A node's agent can't be reached, or has none of its workers `but` those."""
        for worker_id, tracked in self._tracked.items():
            if tracked.state.node_id == node_id and worker_id not in but and not tracked.is_agent_away:
                tracked.is_agent_away = True
                self._changed.set()

    def agent_told(self, worker_id: str) -> None:
        """A worker's agent tells of it: one that was started anew has none of those before."""
        tracked = self._tracked.get(worker_id)
        if tracked is not None and tracked.is_agent_away:
            tracked.is_agent_away = False
            self._changed.set()

    # What a worker says

    def heard(self, worker_id: str) -> None:
        """A worker gave a sign of life."""
        self._tracked[worker_id].heartbeats.beat(self._clock.monotonic_s())

    def stopped_hearing(self, worker_id: str) -> None:
        """A worker's session broke; it may come back."""
        tracked = self._tracked.get(worker_id)
        if tracked is not None:
            tracked.heartbeats.stop()
            self.become(tracked.state.disconnected(self._clock.monotonic_s()))

    def note(self, state: WorkerState) -> None:
        """A worker is in this state now, which asks for no decision."""
        self._put(state)

    def become(self, state: WorkerState) -> None:
        """A worker is in this state now; the runner decides anew."""
        self._put(state)
        self._changed.set()

    def fail(self, reason: str) -> None:
        """No worker can go on with this job."""
        self.failure = reason
        self._changed.set()

    # What the workers are told

    def send(self, worker_id: str, message: WorkerSessionResponse) -> None:
        """Says something to a worker, if its session stands."""
        self._router.send(worker_id, message)

    def ask_for_signs(self) -> None:
        """Speaks to all workers; each answers with a sign of life, if its session carries both ways."""
        for worker_id in self._tracked:
            self._router.ask(worker_id, self.recorded())

    def send_recorded(self) -> None:
        """Tells all workers what is stored, so that they may forget it."""
        for worker_id in self._tracked:
            self.send(worker_id, self.recorded())

    def recorded(self) -> WorkerSessionResponse:
        """The message that says which step and epoch are stored."""
        durable = self._record.log.durable
        return WorkerSessionResponse(recorded=ProgressRecorded(step=durable.step, epoch=durable.epoch))

    def _put(self, state: WorkerState) -> None:
        self._tracked[state.worker_id].state = state

    def _seen(self, tracked: _Tracked) -> WorkerState:
        sample_s = self.slots.sample_s(tracked.state.worker_id)
        contact = Contact(tracked.heartbeats.quiet_at_s(), tracked.is_agent_away, sample_s)
        return replace(tracked.state, contact=contact)

    def _forgive_own_pause(self) -> None:
        # If the trainer was stopped, the signs of life of that time still wait in its sockets.
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s > OWN_PAUSE_S:
            for tracked in self._tracked.values():
                tracked.heartbeats.restart(now_s)
        self._looked_s = now_s
