"""Aim: whichever stage's worker is killed, the job goes on with the next step, and its model is the same.

Method: one embedded system with a spare slot; a job that nothing disturbs, and jobs whose workers are killed.
"""

from collections.abc import Iterator

import pytest
from divided_jobs import check_no_step_is_lost, kill, started_system, trained

from peerloom import Client, Embedded, GenerationFormed, Job, JobEvent, StateChanged, StepCommitted

# Named starts: slots that seem to differ would be given other parts, and those add up in another order.
PLAN = "pipeline=3:7,order=zb-h2"
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, Client]]:
    with started_system(tmp_path_factory.mktemp("system")) as started:
        yield started


def test_each_stage_may_die_and_no_step_is_lost(system: tuple[Embedded, Client]) -> None:
    check_no_step_is_lost(*system, PLAN)


def test_two_neighbours_at_once_send_all_back_to_the_checkpoint(system: tuple[Embedded, Client]) -> None:
    """Each stage's shadow lies with the next stage, as all are on nodes of their own."""
    embedded, client = system
    is_done = False

    def disturb(job: Job, event: JobEvent) -> None:
        nonlocal is_done
        if not is_done and job.checkpoint_step and isinstance(event, StepCommitted):
            is_done = True
            kill(embedded, job, 0, 1)

    events, _, _ = trained(client, PLAN, disturb)
    whys = [event.reason for event in events if isinstance(event, StateChanged)]
    assert any("the state of stage 0 is gone" in why and "from the checkpoint" in why for why in whys), whys


def test_a_node_that_drains_costs_no_step(system: tuple[Embedded, Client]) -> None:
    _, client = system
    drained = ""

    def disturb(job: Job, event: JobEvent) -> None:
        nonlocal drained
        if isinstance(event, StepCommitted) and event.step >= 20 and not drained:
            drained = next(w.node_name for w in job.workers if w.rank == 1 and w.stage is not None)
            client.drain(drained)

    try:
        events, status, _ = trained(client, PLAN, disturb)
    finally:
        client.drain(drained, undo=True)
    assert len([event for event in events if isinstance(event, GenerationFormed)]) >= 2
    assert status.ledger is not None
    assert status.ledger.discarded_samples == 0


def test_shadows_are_shown_and_can_be_off(system: tuple[Embedded, Client]) -> None:
    _, client = system
    seen = []

    def disturb(job: Job, event: JobEvent) -> None:
        if isinstance(event, StepCommitted):
            seen.append([w.shadow for w in job.workers if w.shadow is not None])

    trained(client, PLAN, disturb, epochs=2)
    assert max(len(each) for each in seen) == 3
    kept = {one.stage: one for one in next(each for each in seen if len(each) == 3)}
    assert sorted(kept) == [0, 1, 2]
    assert all(one.size_bytes > 0 and not one.why_not for one in kept.values())
    seen.clear()
    _, status, _ = trained(client, f"{PLAN},shadow=off", disturb, 1)
    assert status.spec.plan.endswith("shadow=off")
    assert not any(seen)
