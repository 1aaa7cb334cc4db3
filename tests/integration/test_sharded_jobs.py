"""Aim: a model in shards trains over real nodes as one process does, and whoever is killed no step is lost.

Method: one embedded system with a spare slot; a job that nothing disturbs, and jobs whose workers are killed.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from worker_processes import workers_of

from peerloom import Client, Embedded, GenerationFormed, Job, JobEvent, JobResult, StateChanged, StepCommitted
from peerloom.errors import InvalidArgumentError

JOB_LIMIT_S = 150.0
BATCH = 32
# Named starts: slots that seem to differ would be given other parts, and be told so.
PLAN = "sharded=3:7"
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, Client]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "0.3")
        folder = tmp_path_factory.mktemp("system")
        with Embedded(folder, (1, 1, 1, 1)) as embedded, Client(embedded.address) as client:
            yield embedded, client


def trained(
    client: Client, disturb: Callable[[Job, JobEvent], None] = lambda job, event: None, plan: str = PLAN
) -> tuple[list[JobEvent], Job, JobResult]:
    """A job's events, its last status and its result; `disturb` hears of each event."""
    handle = client.train("digits", plan=plan, epochs=3, requests=4, max_workers=4, seed=3)
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
            rank = self.left.pop(0)
            living = [worker for worker in job.workers if not worker.ended and worker.stage is not None]
            node = next(worker.node_name for worker in living if worker.rank == rank)
            for process in workers_of(self._embedded.pids[node]):
                process.kill()


def test_each_worker_may_die_and_no_step_is_lost(system: tuple[Embedded, Client]) -> None:
    embedded, client = system
    _, _, undisturbed = trained(client)
    killer = Killer(embedded, [1, 0, 2])
    events, status, result = trained(client, killer.hear)
    assert not killer.left
    assert killer.formed >= 4
    assert status.ledger is not None
    # A step that rank 0 told of, and died before another had made it, is made again.
    assert status.ledger.discarded_samples <= 3 * BATCH
    whys = [event.reason for event in events if isinstance(event, StateChanged)]
    assert "3 shards begin from the beginning" in whys
    assert sum("which kept its shadow" in why for why in whys) >= 3, whys
    assert result.model is not None
    assert undisturbed.model is not None
    assert result.model.digest == undisturbed.model.digest, "not a bit of its parameters differs"


def test_it_goes_on_from_where_a_pipeline_ended(system: tuple[Embedded, Client]) -> None:
    """Files have one form, whatever the plan was; each worker holds its shard, all have computed."""
    _, client = system
    _, _, first = trained(client, plan="pipeline=2")
    assert first.model is not None
    handle = client.train(
        "digits", plan="sharded=2", epochs=1, requests=4, initial_model=first.model.digest, seed=4
    )
    result = handle.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    assert result.metric is not None
    assert first.metric is not None
    assert result.metric > first.metric - 0.1
    status = handle.status()
    assert status.spec.plan == "sharded=2"
    held = sorted((w.stage.first_layer, w.stage.end_layer) for w in status.workers if w.stage is not None)
    assert held[0][0] == 0
    assert held[-1][1] == 8
    assert all(one[1] == two[0] for one, two in pairwise(held))


def test_what_it_can_not_be_is_refused_with_the_reason(system: tuple[Embedded, Client]) -> None:
    _, client = system
    with pytest.raises(InvalidArgumentError, match="without micro_batches"):
        client.train("digits", plan="sharded=2,micro_batches=4")
    with pytest.raises(InvalidArgumentError, match="sync"):
        client.train("digits", plan="sharded=2", sync="ring")
    result = client.train("digits", plan="sharded=7", requests=7).result(JOB_LIMIT_S)
    assert result.state in ("no_compute", "failed")
