"""Aim: who dies breaks a step by site, swaps or chosen servers as any other, and the survivors make it again.

Method: real workers, two on node-1 and one on node-2; the first of the two is killed, which leads its site or
is a server.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import GenerationFormed, JobEvent, StepCommitted, WorkerLost

LIMIT_S = 120.0
EPOCHS, STEPS_PER_EPOCH, STRUCK_AT = 5, 45, 20
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Embedded]:
    """One for each: who was killed on a node is evidence, and a slot may still be in use."""
    with Embedded(tmp_path, (2, 1)) as started:
        yield started


def process_of(system: Embedded, worker_id: str) -> psutil.Process:
    """A worker on node-1."""
    [found] = [
        process
        for process in workers_of(system.pids["node-1"])
        if worker_id in Path(os.readlink(f"/proc/{process.pid}/fd/1")).name
    ]
    return found


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ("topology=hierarchy:node-1/node-2,codec=int8", "topology=hierarchy:node-1/node-2,codec=int8"),
        ("topology=doubling", "topology=doubling,codec=none"),
        ("topology=ps:node-1,codec=int8", "topology=ps:node-1,codec=int8"),
    ],
)
def test_a_killed_leader_or_server_costs_no_step(system: Embedded, asked: str, used: str) -> None:
    events: list[JobEvent] = []
    with Client(system.address) as client:
        job = client.train("digits", requests=2, epochs=EPOCHS, sync=asked)
        leader = ""
        for event in job.watch():
            events.append(event)
            if isinstance(event, GenerationFormed) and not leader:
                by_node = [worker.id for worker in event.workers if worker.node_name == "node-1"]
                leader = by_node[0] if by_node else ""
            if isinstance(event, StepCommitted) and event.step == STRUCK_AT:
                process_of(system, leader).kill()
        result, status = job.result(LIMIT_S), job.status()
    assert result.succeeded, result.reason
    assert leader in [event.worker.id for event in events if isinstance(event, WorkerLost)]
    assert status.spec.sync == f"schedule=wfbp,{used}"
    steps = [event.step for event in events if isinstance(event, StepCommitted)]
    assert steps == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    assert status.ledger is not None
    assert status.ledger.is_exact, status.ledger.verdict
    assert (result.metric or 0) > 0.9
