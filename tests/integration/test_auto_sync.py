"""Aim: a job with `--sync auto` changes its method while it trains, whatever happens just then.

Method: real workers on loopback. `slow_ring_task` makes the all-reduce as slow as the links that it has them
measure, and with `near_nodes_task` they measure fast ones. That all ranks have the same parameters at the end
is a condition of success.
"""

import os
import signal
from pathlib import Path

import pytest
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import GenerationFormed, JobEvent, StepCommitted, SyncChanged, WorkerLost
from peerloom.kit.sync_auto import FIRST_ROUNDS
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import SyncMethod

LIMIT_S = 150.0
STEPS_PER_EPOCH = 45
RING, ROUNDS = str(SyncMethod()), str(FIRST_ROUNDS)
pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize(
    ("quality", "task", "epochs", "first"),
    [("exact", "slow_ring_task:SlowRing", 6, RING), ("relaxed", "near_nodes_task:NearNodes", 20, ROUNDS)],
)
def test_a_change_survives_a_killed_worker_and_a_killed_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quality: str, task: str, epochs: int, first: str
) -> None:
    """A worker dies while all meet to change, and the trainer after the first step by another method.

    With "relaxed" it comes from rounds of local steps, which save nothing among near nodes.
    """
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    events: list[JobEvent] = []
    changed = ""
    with Embedded(tmp_path, (1, 1, 1)) as system, Client(system.address, patience_s=LIMIT_S) as client:
        job = client.train(
            task,
            requests=3,
            max_workers=3,
            epochs=epochs,
            sync=f"auto,quality={quality}",
        )
        for event in job.watch():
            events.append(event)
            if isinstance(event, SyncChanged) and not changed:
                changed = event.method
                [worker] = workers_of(system.pids["node-3"])
                worker.kill()
            follows = events[-2:-1] and isinstance(events[-2], GenerationFormed) and events[-2].sync != first
            if isinstance(event, StepCommitted) and follows:
                os.kill(system.pids["trainer"], signal.SIGKILL)
        result = job.result(LIMIT_S)
        assert result.succeeded, result.reason
        found = job.status()
    assert parse_sync("sync", changed).is_exact
    assert parse_sync("sync", changed).needs_mesh or quality == "relaxed"
    formed = [event.sync for event in events if isinstance(event, GenerationFormed)]
    assert formed[0] == first
    assert changed in formed
    last_first = max(place for place, method in enumerate(formed) if method == first)
    assert last_first < formed.index(changed), "who is started anew goes on with the method in the record"
    assert [event for event in events if isinstance(event, WorkerLost)]
    steps = [event.step for event in events if isinstance(event, StepCommitted)]
    assert steps == list(range(1, epochs * STEPS_PER_EPOCH + 1))
    assert found.ledger is not None
    assert found.ledger.is_exact, found.ledger.verdict
    assert found.spec.sync == f"auto,quality={quality}"
    assert found.sync is not None
    assert (found.sync.method, found.sync.changes) == (formed[-1], len(set(formed)) - 1)
