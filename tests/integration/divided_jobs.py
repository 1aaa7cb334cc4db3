"""Jobs whose model is divided, on a system with a spare slot, and whose workers are killed in turn."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from worker_processes import workers_of

from peerloom import Client, Embedded, GenerationFormed, Job, JobEvent, JobResult, StateChanged, StepCommitted

JOB_LIMIT_S = 150.0
BATCH = 32


@contextmanager
def started_system(folder: Path) -> Iterator[tuple[Embedded, Client]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "0.3")
        with Embedded(folder, (1, 1, 1, 1)) as embedded, Client(embedded.address) as client:
            yield embedded, client


def trained(
    client: Client,
    plan: str,
    disturb: Callable[[Job, JobEvent], None] = lambda job, event: None,
    epochs: int = 4,
) -> tuple[list[JobEvent], Job, JobResult]:
    """A job's events, its last status and its result; `disturb` hears of each event."""
    handle = client.train("digits", plan=plan, epochs=epochs, requests=4, max_workers=4, seed=3)
    events = []
    for event in handle.watch():
        events.append(event)
        disturb(handle.status(), event)
    result = handle.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    status = handle.status()
    assert status.ledger is not None
    assert status.ledger.is_exact, status.ledger.verdict
    return events, status, result


def kill(embedded: Embedded, job: Job, *ranks: int) -> None:
    """Kills the workers of these ranks."""
    living = [worker for worker in job.workers if not worker.ended and worker.stage is not None]
    nodes = [next(w.node_name for w in living if w.rank == rank) for rank in ranks]
    for process in [process for node in nodes for process in workers_of(embedded.pids[node])]:
        process.kill()


class Killer:
    """Kills the workers of some ranks, one after the other, each some steps after all others found together.

    Events may come long after what they tell of: only a generation that is formed after a kill shows that.
    """

    STEPS_BETWEEN = 8

    def __init__(self, embedded: Embedded, ranks: list[int]) -> None:
        self.left, self.formed, self.steps = ranks, 0, 0
        self._embedded, self._kills = embedded, 0

    def hear(self, job: Job, event: JobEvent) -> None:
        if isinstance(event, GenerationFormed):
            self.formed, self.steps = self.formed + 1, 0
        self.steps += isinstance(event, StepCommitted)
        if self.left and self.formed > self._kills and self.steps == self.STEPS_BETWEEN:
            self._kills = self.formed
            kill(self._embedded, job, self.left.pop(0))


def check_no_step_is_lost(embedded: Embedded, client: Client, plan: str) -> list[str]:
    """Whoever is killed, the model is that of a job that nothing disturbed; why the job's state changed."""
    _, _, undisturbed = trained(client, plan)
    killer = Killer(embedded, [1, 0, 2])
    events, status, result = trained(client, plan, killer.hear)
    assert not killer.left
    assert killer.formed >= 4
    whys = [event.reason for event in events if isinstance(event, StateChanged)]
    assert sum("which kept its shadow" in why for why in whys) >= 3, whys
    assert status.ledger is not None
    # A step that rank 0 told of, and died before another had made it, is made again.
    assert status.ledger.discarded_samples <= 3 * BATCH
    assert result.model is not None
    assert undisturbed.model is not None
    assert result.model.digest == undisturbed.model.digest, "not a bit of its parameters differs"
    return whys
