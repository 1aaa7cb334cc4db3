"""Nodes are drained in the middle of a job: it loses nothing, and nobody counts it as an interruption."""

from pathlib import Path

import pytest

from peerloom import Client, Embedded
from peerloom.client.types import GenerationFormed, JobEvent, StateChanged, StepCommitted, WorkerLost

JOB_LIMIT_S = 150.0
EPOCHS, LONG = 20, 60  # alone, a worker trains fast
DRAINED_AT = 20
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _is_quick_to_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain is heard with the next beat; a newcomer may be long in coming."""
    monkeypatch.setenv("PEERLOOM_REGISTRY_HEARTBEAT_INTERVAL_S", "0.1")
    monkeypatch.setenv("PEERLOOM_NODE_HANDOVER_GRACE_S", "60")


def check_nothing_lost(client: Client, events: list[JobEvent], epochs: int) -> None:
    """Every step once and in order; no worker was lost, no session interrupted."""
    steps = [event.step for event in events if isinstance(event, StepCommitted)]
    assert steps == list(range(1, epochs * 45 + 1))
    assert not [event for event in events if isinstance(event, WorkerLost)]
    assert client.interruptions() == []


def test_a_drained_node_is_replaced_before_its_worker_leaves(tmp_path: Path) -> None:
    """Two workers on two of three nodes: there are never fewer, and the drained node has none at the end."""
    with Embedded(tmp_path, (1, 1, 1)) as system, Client(system.address) as client:
        job = client.train("digits", requests=3, epochs=EPOCHS, max_workers=2)
        events: list[JobEvent] = []
        drained = ""
        for event in job.watch():
            events.append(event)
            if isinstance(event, StepCommitted) and event.step == DRAINED_AT:
                drained = job.status().workers[0].node_name
                client.drain(drained)
        result = job.result(JOB_LIMIT_S)
        assert result.succeeded, result.reason
        check_nothing_lost(client, events, EPOCHS)
        formed = [event for event in events if isinstance(event, GenerationFormed)]
        assert {len(event.workers) for event in formed} == {2}
        assert len(formed) == 2
        assert drained in {worker.node_name for worker in formed[0].workers}
        assert drained not in {worker.node_name for worker in formed[1].workers}
        facts = [update.evidence for update in client.belief_history(drained) if update.evidence]
        assert "unfinished" not in [fact.kind for fact in facts]


def test_the_last_node_is_drained_and_the_job_waits_with_all_that_it_has_done(tmp_path: Path) -> None:
    """Nobody can take over: the state is stored, and taken up again at the same step when the drain ends."""
    with Embedded(tmp_path, (1,)) as system, Client(system.address) as client:
        job = client.train("digits", requests=1, epochs=LONG)
        events: list[JobEvent] = []
        for event in job.watch():
            events.append(event)
            if isinstance(event, StepCommitted) and event.step == DRAINED_AT:
                client.drain("node-1")
            if isinstance(event, StateChanged) and event.state == "waiting" and "checkpoint" in event.reason:
                client.drain("node-1", undo=True)
        result = job.result(JOB_LIMIT_S)
        assert result.succeeded, result.reason
        check_nothing_lost(client, events, LONG)
        formed = [event.first_step for event in events if isinstance(event, GenerationFormed)]
        assert len(formed) == 2
        assert formed[1] > DRAINED_AT
