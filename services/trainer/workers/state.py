"""One worker of a job as the trainer sees it: a phase, and what that phase carries.

A worker is Starting until it has loaded the task, then Idle (it waits for a generation), Working in the
current one, Leaving once told to leave it until it answers, Silent when its signs of life stopped though
its session stands, Finished with its last step, or Lost for good. One that was Silent and speaks again is
Idle: it was only slow. A state never changes: what happens to a worker gives the next state, and the pool
keeps the newest one. `is_member` says that a worker was there when the current generation was formed.
All times are monotonic seconds of the trainer's clock.
"""

from dataclasses import dataclass, replace

from peerloom.v1.trainer_pb2 import WorkerFinished


@dataclass(frozen=True)
class Starting:
    """Its process starts and loads the task; `heard_s` is when it was started or last gave a sign of life."""

    heard_s: float


@dataclass(frozen=True)
class Idle:
    """It waits for a generation; `away_since_s` is since when its session is broken, None while it stands."""

    is_member: bool = False
    away_since_s: float | None = None


@dataclass(frozen=True)
class Meeting:
    """The generation that meets beside the training of the one before: until `by_s` at most.

    `has_met`: this worker is connected to all others of it.
    """

    by_s: float
    has_met: bool = False


@dataclass(frozen=True)
class Working:
    """It belongs to the current generation; `is_ready`: it has that one's state.

    `meeting` while that generation meets beside the training; `away_since_s` as in Idle.
    """

    is_ready: bool = True
    meeting: Meeting | None = None
    away_since_s: float | None = None


@dataclass(frozen=True)
class Leaving:
    """It was told to leave its generation and has not answered since `since_s`."""

    since_s: float
    is_member: bool = True


@dataclass(frozen=True)
class Silent:
    """It shows no sign of life since `since_s`; it hears that it was left behind when it wakes."""

    since_s: float
    is_member: bool = True


@dataclass(frozen=True)
class Finished:
    """It has made its last step, and what it said then; one of them holds the model."""

    said: WorkerFinished

    @property
    def has_model(self) -> bool:
        """Whether the final model lies with this worker's agent."""
        return bool(self.said.model.digest)


@dataclass(frozen=True)
class Lost:
    """It will not come back; `said` is its last word if it had finished."""

    is_member: bool = False
    said: WorkerFinished | None = None


Phase = Starting | Idle | Working | Leaving | Silent | Finished | Lost


@dataclass(frozen=True)
class Departure:
    """A node wants its worker to leave by `leave_by_s` (None: at once); it waits for a replacement till then.

    `save_asked_s`: when it was asked to store its state, None when it was not.
    """

    leave_by_s: float | None = None
    reason: str = ""
    save_asked_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether the worker need not wait for a replacement any more."""
        return self.leave_by_s is None or now_s >= self.leave_by_s


@dataclass(frozen=True)
class Contact:
    """How well a worker can be heard now.

    `quiet_at_s` is when its pause becomes suspicious, None while that can't be told; `is_agent_away`: its
    node's agent can't be reached either, or hasn't told of it since; `sample_s`: of computing, 0: unknown.
    """

    quiet_at_s: float | None = None
    is_agent_away: bool = False
    sample_s: float = 0.0


@dataclass(frozen=True)
class WorkerState:
    """A worker's phase, the last committed step it told of, and whether its node wants it to leave."""

    worker_id: str
    phase: Phase
    step: int = 0
    departure: Departure | None = None
    contact: Contact = Contact()
    node_id: str = ""
    left_at_step: int | None = None  # where others went on without it; None while it goes with them
    owner: str = ""  # of its node, by its certificate; "": there is none
    accelerator_kind: str = ""  # "cuda" or "cpu", as it says itself
    is_tls: bool | None = None  # whether its gradients travel by TLS, or in the clear; None: it hasn't said
    held: tuple[tuple[int, int], ...] = ()  # of which stages it has the states of which steps, when let go

    @property
    def is_member(self) -> bool:
        """Whether it was there when the current generation was formed."""
        match self.phase:
            case Working() | Finished():
                return True
            case Idle(is_member=was) | Leaving(is_member=was) | Silent(is_member=was) | Lost(is_member=was):
                return was
        return False

    @property
    def is_left_behind(self) -> bool:
        """Whether others go on without it, and make steps again that it has made."""
        return isinstance(self.phase, Silent) or not self.is_member

    @property
    def is_void(self) -> bool:
        """Whether its state has steps that others, who were without them, have begun to make again."""
        return self.left_at_step is not None and self.step > self.left_at_step

    @property
    def is_departing(self) -> bool:
        """Whether its node wants it to leave."""
        return self.departure is not None

    def is_due(self, now_s: float) -> bool:
        """Whether it has to leave without waiting for a replacement."""
        return self.departure is not None and self.departure.is_due(now_s)

    @property
    def is_ready(self) -> bool:
        """Whether it works and has its generation's state."""
        return isinstance(self.phase, Working) and self.phase.is_ready

    @property
    def meeting(self) -> Meeting | None:
        """The meeting that it is in beside the training."""
        return self.phase.meeting if isinstance(self.phase, Working) else None

    @property
    def has_model(self) -> bool:
        """Whether it has finished and holds the final model."""
        return isinstance(self.phase, Finished) and self.phase.has_model

    @property
    def awaited_since_s(self) -> float | None:
        """Since when the trainer waits for it to start, come back, leave or speak; None if it doesn't."""
        match self.phase:
            case Starting(heard_s=since_s) | Leaving(since_s=since_s) | Silent(since_s=since_s):
                return since_s
            case Idle(away_since_s=away_since_s) | Working(away_since_s=away_since_s):
                return away_since_s
        return None

    def connected(self, step: int, generation: int, newest: int, is_tls: bool = False) -> "WorkerState":
        """It said hello: its state has `step` steps, and it works in `generation` (0: in none)."""
        state = replace(self, step=max(self.step, step), is_tls=is_tls)
        match self.phase:
            case Starting() | Lost():
                return state
            case Leaving() | Silent() if generation:
                return state  # the word that it left comes next
            case Idle() | Working() if generation == newest:
                return replace(state, phase=replace(self.phase, away_since_s=None))
            case Finished() if generation == newest:
                return state
        # It waits for a generation; its last word, which comes next, may say more.
        return replace(state, phase=Idle(self.is_member))

    def disconnected(self, now_s: float) -> "WorkerState":
        """Its session broke; it may come back."""
        match self.phase:
            case Leaving():
                return replace(self, phase=replace(self.phase, since_s=now_s))
            case Idle(away_since_s=None) | Working(away_since_s=None):
                return replace(self, phase=replace(self.phase, away_since_s=now_s))
        return self

    def reached(self, step: int) -> "WorkerState":
        """It told of a committed step."""
        return self if step <= self.step else replace(self, step=step)

    def loading(self, now_s: float) -> "WorkerState":
        """It gave a sign of life: while it starts, it may load for as long as it lives."""
        return replace(self, phase=Starting(now_s)) if isinstance(self.phase, Starting) else self

    def prepared(self) -> "WorkerState":
        """It has loaded the task."""
        return replace(self, phase=Idle()) if isinstance(self.phase, Starting) else self

    def is_let_go_by(self, generation: int, newest: int) -> bool:
        """Whether it is idle after leaving `generation`: not if it enters the newest, another one, next."""
        return not isinstance(self.phase, Working) or generation == newest

    def let_go(self, step: int, held: tuple[tuple[int, int], ...] = ()) -> "WorkerState":
        """It left its generation, with a state of `step` steps."""
        return replace(self, phase=Idle(self.is_member), step=step, held=held)

    def began(self, away_since_s: float | None, meeting: Meeting | None) -> "WorkerState":
        """It belongs to the generation that begins, or that meets beside the training."""
        phase = Working(is_ready=False, meeting=meeting, away_since_s=away_since_s)
        return replace(self, phase=phase, left_at_step=None, held=())

    def met(self) -> "WorkerState":
        """It is connected to all others of the generation that meets."""
        match self.phase:
            case Working(meeting=Meeting() as meeting):
                return replace(self, phase=replace(self.phase, meeting=replace(meeting, has_met=True)))
        return self

    def ready(self) -> "WorkerState":
        """It has its generation's state."""
        if isinstance(self.phase, Working):
            return replace(self, phase=replace(self.phase, is_ready=True))
        return self

    def entered(self) -> "WorkerState":
        """The generation that met beside the training is the one that works now."""
        phase = self.phase
        return replace(self, phase=replace(phase, meeting=None)) if isinstance(phase, Working) else self

    def left_out(self, first_step: int) -> "WorkerState":
        """A generation that goes on from `first_step` was formed without it."""
        left_at = first_step if self.left_at_step is None else min(first_step, self.left_at_step)
        phase = Idle() if isinstance(self.phase, Finished) else self.phase
        if isinstance(phase, Idle | Leaving | Silent | Lost):
            return replace(self, phase=replace(phase, is_member=False), left_at_step=left_at)
        return self

    def told_to_leave(self, now_s: float, is_left_behind: bool = False) -> "WorkerState":
        """It was told to leave its generation; `is_left_behind`: the others enter the next one without it."""
        return replace(self, phase=Leaving(now_s, self.is_member and not is_left_behind))

    def fell_silent(self, now_s: float) -> "WorkerState":
        """It is left behind: it shows no sign of life."""
        return replace(self, phase=Silent(now_s, self.is_member))

    def finished(self, said: WorkerFinished, total_steps: int) -> "WorkerState":
        """It has made its last step."""
        return replace(self, phase=Finished(said), step=total_steps)

    def lost(self) -> "WorkerState":
        """It will not come back."""
        return replace(self, phase=Lost(self.is_member, getattr(self.phase, "said", None)))

    def departing(self, grace_s: float, reason: str, now_s: float) -> "WorkerState":
        """Its node wants it to leave within `grace_s` seconds; said again, the earlier time holds."""
        known = self.departure or Departure(now_s + grace_s)
        by_s = None if known.leave_by_s is None else min(now_s + grace_s, known.leave_by_s)
        return replace(self, departure=replace(known, leave_by_s=by_s, reason=reason))

    def staying(self) -> "WorkerState":
        """Its node lets it stay after all."""
        return replace(self, departure=None)

    def hurried(self) -> "WorkerState":
        """No replacement is to be had for it: if it wants to leave, it need not wait any longer."""
        return replace(self, departure=self.departure and replace(self.departure, leave_by_s=None))

    def asked_to_save(self, now_s: float) -> "WorkerState":
        """It was asked to store its state before it leaves."""
        assert self.departure is not None, "only who departs is asked to store its state"
        return replace(self, departure=replace(self.departure, save_asked_s=now_s))
