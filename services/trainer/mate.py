"""One worker as the trainer sees it."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from peerloom.services.trainer.members import Member, Phase
from peerloom.services.trainer.silence import Pulse
from peerloom.v1.trainer_pb2 import Worker, WorkerFinished, WorkerLeaving

SPEED_LIMIT_GFLOPS = 1e9  # beyond it the number is wrong, not the machine strong


@dataclass
class Mate:
    """What is known of one worker; `away_since_s` is monotonic, None while nobody waits for it."""

    worker: Worker
    phase: Phase
    away_since_s: float | None
    step: int = 0
    is_in_generation: bool = False
    is_ready: bool = True
    meets_by_s: float | None = None
    has_met: bool = False
    is_departing: bool = False
    leave_by_s: float | None = None
    leave_reason: str = ""
    save_asked_s: float | None = None
    compute_s_per_sample: float = 0.0
    finished: WorkerFinished | None = None
    pulse: Pulse = field(default_factory=Pulse)

    def as_member(self, is_agent_away: bool) -> Member:
        """What the decision needs to know of it."""
        return Member(
            worker_id=self.worker.worker_id,
            phase=self.phase,
            step=self.step,
            is_in_generation=self.is_in_generation,
            is_ready=self.is_ready,
            meets_by_s=self.meets_by_s,
            has_met=self.has_met,
            is_departing=self.is_departing,
            leave_by_s=self.leave_by_s,
            save_asked_s=self.save_asked_s,
            has_model=self.finished is not None and bool(self.finished.model.digest),
            away_since_s=self.away_since_s,
            is_agent_away=is_agent_away,
            quiet_at_s=self.pulse.quiet_at_s(),
        )

    def is_let_go_by(self, generation: int, newest: int) -> bool:
        """Whether it is idle after leaving `generation`: not if it enters the newest, another one, next."""
        return self.phase is not Phase.WORKING or generation == newest

    def begin(self, away_since_s: float | None, meets_by_s: float | None) -> None:
        """It belongs to the generation that begins, or that meets beside the training until `meets_by_s`."""
        self.phase, self.finished, self.away_since_s = Phase.WORKING, None, away_since_s
        self.is_in_generation, self.is_ready = True, False
        self.meets_by_s, self.has_met = meets_by_s, False

    def note_leaving(self, leaving: WorkerLeaving, now_s: float) -> None:
        """Its node wants it to leave; said again, the earlier time holds."""
        leave_by_s: float | None = now_s + leaving.grace_s
        if self.is_departing:
            leave_by_s = None if self.leave_by_s is None else min(now_s + leaving.grace_s, self.leave_by_s)
        self.is_departing, self.leave_by_s, self.leave_reason = True, leave_by_s, leaving.reason


def parameter_digests(mates: Iterable[Mate]) -> set[str]:
    """The different final parameters there are; one if all is well."""
    return {mate.finished.parameters_digest for mate in mates if mate.finished}


def finish_of(mates: Iterable[Mate], worker_id: str) -> WorkerFinished:
    """What a worker said at its end."""
    said = next(mate.finished for mate in mates if mate.worker.worker_id == worker_id)
    assert said is not None, "only a worker that has finished holds the model"
    return said


def nodes_that_finished(mates: Iterable[Mate]) -> list[str]:
    """Nodes with a worker that finished, each once, in order."""
    return list(dict.fromkeys(mate.worker.node_id for mate in mates if mate.phase is Phase.FINISHED))


def slots_of_node(mates: Iterable[Mate], node_id: str) -> int:
    """How many of the node's workers finished."""
    return sum(mate.worker.node_id == node_id and mate.phase is Phase.FINISHED for mate in mates)


def speed_of_node(mates: Iterable[Mate], node_id: str) -> float:
    """Speed of one of the node's slots in the job, the mean of its workers', in 1e9 operations a second; 0:
    none could tell.
    """
    told = [m.finished.training_gflops for m in mates if m.worker.node_id == node_id and m.finished]
    speeds = [speed for speed in told if 0 < speed < SPEED_LIMIT_GFLOPS]
    return statistics.fmean(speeds) if speeds else 0.0


def how_it_ended(exit_code: int) -> str:
    """An exit status in words; negative ones are signals."""
    if exit_code < 0:
        return f"its process was killed by signal {-exit_code}"
    return f"its process ended with status {exit_code}"
