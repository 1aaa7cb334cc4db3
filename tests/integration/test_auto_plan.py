"""Aim: a job whose plan the trainer chooses is cut where no slot has room, and goes on under other plans.

Method: an embedded system whose owners lend so little memory that the model needs two slots. A stage's
worker is killed; later the job is cancelled, and resumed under a plan of three stages. Another model of as
many bytes has five dear layers, which three stages divide unevenly: shards all compute.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from worker_processes import workers_of

from peerloom import Client, Embedded, Job, PlanChosen, StepCommitted, WorkerLost
from peerloom.errors import InvalidArgumentError

JOB_LIMIT_S = 150.0
LENT_BYTES = 212_000_000  # of which a worker takes some 100 MB itself, while the model needs 128 MB
EPOCHS = 10
STEPS = EPOCHS * 16  # many more than are taken until it is cancelled, however late its watcher hears of them
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Embedded, Client]]:
    # Each checkpoint takes memory for as long as it is written, and its owner may look just then.
    monkeypatch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "2")
    monkeypatch.setenv("PEERLOOM_NODE_MEMORY_LIMIT_BYTES", str(LENT_BYTES))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    with Embedded(tmp_path, (1, 1, 1)) as system, Client(system.address) as opened:
        yield system, opened


def has_measured(job: Job) -> bool:
    plan = job.status().plan
    return plan is not None and plan.measured_step_s is not None


def living(job: Job) -> int:
    """Workers that have not ended: a replacement that is just asked for may hold its slot a moment longer."""
    return sum(not worker.ended for worker in job.status().workers)


def test_a_model_that_fits_no_slot_is_cut_and_goes_on_under_another_plan(
    client: tuple[Embedded, Client],
) -> None:
    system, opened = client
    task = {"parameters": "8000000", "layers": "8", "sample_ms": "1", "samples": "256"}
    job = opened.train(
        "emulated", arguments=task, plan="auto", epochs=EPOCHS, batch_size=16, requests=3, seed=3
    )
    chosen: list[PlanChosen] = []
    killed, lost = "", ""
    for event in job.watch():
        if isinstance(event, PlanChosen):
            chosen.append(event)
        elif isinstance(event, WorkerLost):
            lost = event.worker.id
        elif isinstance(event, StepCommitted) and not killed and job.status().checkpoint_step is not None:
            victim = next(worker for worker in job.status().workers if worker.rank == 1 and worker.stage)
            killed = victim.id
            workers_of(system.pids[victim.node_name])[0].kill()
        elif isinstance(event, StepCommitted) and lost and has_measured(job) and living(job) == 3:
            job.cancel()
    assert lost == killed
    status = job.status()
    assert status.state == "cancelled", status.reason
    first = chosen[0]
    assert first.plan.startswith("pipeline="), first
    assert first.former == ""
    assert "plan data doesn't fit" in first.reason
    taken = status.plan
    assert taken is not None
    assert taken.plan == chosen[-1].plan
    assert taken.predicted is not None
    assert all(stage.needed_bytes <= stage.memory_bytes for stage in taken.predicted.stages)
    assert taken.measured_step_s is not None, "what was predicted is told beside what is measured"
    with pytest.raises(InvalidArgumentError, match="plan"):
        job.resume(plan="pipline=3")
    # Twelve micro-batches of a sample or two would read and write all gradients twelve times a step.
    resumed = job.resume(plan="pipeline=3,micro_batches=3,shadow=off")
    assert (resumed.spec.plan, resumed.plan) == ("pipeline=3,micro_batches=3,shadow=off", None)
    result = job.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    ended = job.status()
    assert {w.stage.number for w in ended.workers if w.stage is not None} == {0, 1, 2}
    assert ended.progress is not None
    assert ended.progress.step == STEPS
    assert ended.ledger is not None
    assert ended.ledger.is_exact, ended.ledger.verdict


def test_a_model_whose_stages_would_be_uneven_is_trained_in_shards(client: tuple[Embedded, Client]) -> None:
    """Five layers: the dearest of three stages computes two of them, and each shard as much as 1.7."""
    _, opened = client
    task = {"parameters": "8000000", "layers": "5", "samples": "48"}
    job = opened.train(
        "slow_slots:Slow",
        arguments=task,
        plan="auto",
        epochs=1,
        batch_size=6,
        requests=3,
        min_workers=3,
        seed=3,
    )
    result = job.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    status = job.status()
    assert status.plan is not None
    assert status.plan.plan.startswith("sharded="), status.plan
    assert "plan data doesn't fit" in status.plan.reason
    assert status.plan.predicted is not None
    assert all(stage.needed_bytes <= stage.memory_bytes for stage in status.plan.predicted.stages)
    held = sorted((w.stage.first_layer, w.stage.end_layer) for w in status.workers if w.stage is not None)
    assert len(held) == 3
    assert held[0][0] == 0
    assert all(one[1] == two[0] for one, two in pairwise(held))
    assert status.progress is not None
    assert status.progress.step == 8
    assert status.ledger is not None
    assert status.ledger.is_exact, status.ledger.verdict
