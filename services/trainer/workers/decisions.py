"""How long to wait for each of a job's workers: pure functions of their states and a given time."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from peerloom.kit.limits import MAX_SPEED_GFLOPS
from peerloom.services.trainer.workers.reports import last_words
from peerloom.services.trainer.workers.state import (
    Finished,
    Leaving,
    Silent,
    Starting,
    WorkerState,
    Working,
)

# A worker gathers its steps for so long: nobody acts on one at once, and they aren't written more often.
REPORT_INTERVAL_S = 0.2
_REASON_CHARACTERS = 400
# Only from these do we expect signs of life at a known pace.
OBSERVED = (Working, Leaving)
# What a worker tells of its computing earns it so many times the patience of a start, to leave a generation.
_MOST_STARTS = 10
# Waiting for these is patient: they load, compute a long step, or are frozen and may come back.
_PATIENT = (Starting, Leaving, Silent)


@dataclass(frozen=True)
class Limits:
    """How long to wait, in seconds: for a worker to start, leave or speak again; for one whose session broke;
    for one whose agent is away too. And the fewest workers to go on with, and the most to use.

    `meets_beside`: the backend lets a generation meet while the one before it works. `batch_size` samples
    are the most that a worker computes before it answers.
    """

    start_timeout_s: float
    reconnect_timeout_s: float
    agent_timeout_s: float
    min_workers: int
    max_workers: int = 2**24
    meets_beside: bool = True
    batch_size: int = 0


def away_deadline(worker: WorkerState, limits: Limits) -> float | None:
    """When a worker that is away counts as lost; None while nobody waits for it."""
    since_s = worker.awaited_since_s
    if since_s is None:
        return None
    if worker.contact.is_agent_away:
        return since_s + limits.agent_timeout_s
    if not isinstance(worker.phase, _PATIENT):
        return since_s + limits.reconnect_timeout_s
    batch_s = worker.contact.sample_s * limits.batch_size if isinstance(worker.phase, Leaving) else 0.0
    return since_s + limits.start_timeout_s + min(batch_s, _MOST_STARTS * limits.start_timeout_s)


def next_deadline(workers: Sequence[WorkerState], limits: Limits, now_s: float) -> float | None:
    """When time alone changes what is to be done; None when it never does."""
    leave = [w.departure.leave_by_s for w in workers if w.departure and not w.departure.is_due(now_s)]
    away = [away_deadline(w, limits) for w in workers]
    quiet = [w.contact.quiet_at_s for w in workers if isinstance(w.phase, OBSERVED)]
    meet = [w.phase.meeting.by_s for w in workers if isinstance(w.phase, Working) and w.phase.meeting]
    return min((d for d in [*away, *quiet, *meet, *leave] if d is not None), default=None)


def has_passed(deadline_s: float | None, now_s: float) -> bool:
    """Whether there is a deadline, and it is over."""
    return deadline_s is not None and now_s >= deadline_s


@dataclass(frozen=True)
class NodeWork:
    """What a node did in a job to its end: so many slots, each at this speed (0: none could tell)."""

    slots: int
    speed_gflops: float


def work_of_nodes(workers: Sequence[WorkerState]) -> dict[str, NodeWork]:
    """What each node with a worker that finished did, by node id; its speed is the mean of its workers'."""
    nodes = dict.fromkeys(w.node_id for w in workers if isinstance(w.phase, Finished))
    return {node_id: _work_of([w for w in workers if w.node_id == node_id]) for node_id in nodes}


def _work_of(workers: Sequence[WorkerState]) -> NodeWork:
    speeds = [word.training_gflops for word in last_words(workers)]
    sound = [speed for speed in speeds if 0 < speed < MAX_SPEED_GFLOPS]
    slots = sum(isinstance(w.phase, Finished) for w in workers)
    return NodeWork(slots, fmean(sound) if sound else 0.0)


def how_it_ended(exit_code: int, reason: str = "") -> str:
    """An exit status in words; negative ones are signals. `reason`: what its node knows of it, at most 400
    characters of it.
    """
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with status {exit_code}"
    return f"its process {how}{': ' if reason else ''}{reason[:_REASON_CHARACTERS]}"
