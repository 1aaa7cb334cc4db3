"""Aim: whichever stage's worker is killed, the job goes on with the next step, and its model is the same.

Method: one embedded system with a spare slot; a job that nothing disturbs, and jobs whose workers are killed.
"""

from collections.abc import Callable, Iterator

import pytest
from worker_processes import workers_of

from peerloom import Client, Embedded, GenerationFormed, Job, JobEvent, JobResult, StateChanged, StepCommitted

JOB_LIMIT_S = 150.0
BATCH = 32
# Named starts: slots that seem to differ would be given other parts, and those add up in another order.
PLAN = "pipeline=3:7"
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, Client]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "0.3")
        folder = tmp_path_factory.mktemp("system")
        with Embedded(folder, (1, 1, 1, 1)) as embedded, Client(embedded.address) as client:
            yield embedded, client


def trained(
    client: Client,
    disturb: Callable[[Job, int], None] = lambda job, step: None,
    plan: str = PLAN,
    epochs: int = 4,
) -> tuple[list[JobEvent], Job, JobResult]:
    """A job's events, its last status and its result; `disturb` hears of each step."""
    handle = client.train("digits", plan=plan, epochs=epochs, requests=4, max_workers=4, seed=3)
    events = []
    for event in handle.watch():
        events.append(event)
        if isinstance(event, StepCommitted):
            disturb(handle.status(), event.step)
    result = handle.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    status = handle.status()
    assert status.ledger is not None
    assert status.ledger.is_exact, status.ledger.verdict
    return events, status, result


def kill(embedded: Embedded, job: Job, *stages: int) -> None:
    """Kills the workers of these stages."""
    living = [worker for worker in job.workers if not worker.ended and worker.stage is not None]
    nodes = [next(w.node_name for w in living if w.rank == stage) for stage in stages]
    for process in [process for node in nodes for process in workers_of(embedded.pids[node])]:
        process.kill()


def test_each_stage_may_die_and_no_step_is_lost(system: tuple[Embedded, Client]) -> None:
    embedded, client = system
    _, _, undisturbed = trained(client)
    left = {10: 1, 25: 0, 40: 2}

    def disturb(job: Job, step: int) -> None:
        due = [at for at in left if at <= step]
        if due:
            kill(embedded, job, left.pop(due[0]))

    events, status, result = trained(client, disturb)
    formed = [event for event in events if isinstance(event, GenerationFormed)]
    assert len(formed) >= 4
    assert not left
    assert status.ledger is not None
    # A step that rank 0 told of, and died before another had made it, is made again.
    assert status.ledger.discarded_samples <= 3 * BATCH
    whys = [event.reason for event in events if isinstance(event, StateChanged)]
    assert sum("which kept its shadow" in why for why in whys) >= 3, whys
    assert result.model is not None
    assert undisturbed.model is not None
    assert result.model.digest == undisturbed.model.digest, "not a bit of its parameters differs"


def test_two_neighbours_at_once_send_all_back_to_the_checkpoint(system: tuple[Embedded, Client]) -> None:
    """Each stage's shadow lies with the next stage, as all are on nodes of their own."""
    embedded, client = system
    is_done = False

    def disturb(job: Job, step: int) -> None:
        nonlocal is_done
        if not is_done and job.checkpoint_step:
            is_done = True
            kill(embedded, job, 0, 1)

    events, _, _ = trained(client, disturb)
    whys = [event.reason for event in events if isinstance(event, StateChanged)]
    assert any("the state of stage 0 is gone" in why and "from the checkpoint" in why for why in whys), whys


def test_a_node_that_drains_costs_no_step(system: tuple[Embedded, Client]) -> None:
    _, client = system
    drained = ""

    def disturb(job: Job, step: int) -> None:
        nonlocal drained
        if step >= 20 and not drained:
            drained = next(w.node_name for w in job.workers if w.rank == 1 and w.stage is not None)
            client.drain(drained)

    try:
        events, status, _ = trained(client, disturb)
    finally:
        client.drain(drained, undo=True)
    assert len([event for event in events if isinstance(event, GenerationFormed)]) >= 2
    assert status.ledger is not None
    assert status.ledger.discarded_samples == 0


def test_shadows_are_shown_and_can_be_off(system: tuple[Embedded, Client]) -> None:
    _, client = system
    seen = []

    def disturb(job: Job, step: int) -> None:
        seen.append([w.shadow for w in job.workers if w.shadow is not None])

    trained(client, disturb, epochs=2)
    assert max(len(each) for each in seen) == 3
    kept = {one.stage: one for one in next(each for each in seen if len(each) == 3)}
    assert sorted(kept) == [0, 1, 2]
    assert all(one.size_bytes > 0 and not one.why_not for one in kept.values())
    seen.clear()
    _, status, _ = trained(client, disturb, f"{PLAN},shadow=off", 1)
    assert status.spec.plan.endswith("shadow=off")
    assert not any(seen)
