"""A job whose gradients travel as two thin matrices, one of whose workers is killed in the middle of it."""

from pathlib import Path

import pytest
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import GenerationFormed, StepCommitted, WorkerLost

EPOCHS, STRUCK_AT = 6, 20
LIMIT_S = 120.0
pytestmark = pytest.mark.timeout(240)


def test_a_killed_worker_costs_no_step_and_its_successor_finds_the_directions(tmp_path: Path) -> None:
    """That all ranks have the same parameters at the end is a condition of success."""
    with Embedded(tmp_path, (1, 1, 1)) as system, Client(system.address) as client:
        job = client.train("digits", requests=3, epochs=EPOCHS, seed=3, sync="codec=powersgd:2")
        steps, sizes, lost = list[StepCommitted](), list[int](), 0
        for event in job.watch():
            lost += isinstance(event, WorkerLost)
            if isinstance(event, GenerationFormed):
                sizes.append(len(event.workers))
            if isinstance(event, StepCommitted):
                steps.append(event)
                if event.step == STRUCK_AT:
                    workers_of(system.pids["node-1"])[0].kill()
        result = job.result(LIMIT_S)
        assert result.succeeded, result.reason
        found = job.status()
    assert [step.step for step in steps] == list(range(1, EPOCHS * 45 + 1))
    assert lost == 1
    assert (sizes[0], min(sizes[1:])) == (3, 2)
    assert found.ledger is not None
    assert (found.ledger.is_exact, found.ledger.discarded_samples) == (True, 0)
    assert found.spec.sync == "schedule=wfbp,topology=ring,codec=powersgd:2"
    # 32 x 144 and 10 x 128 are factored: 2 columns of 42 rows first, beside 202 other values, then of 272;
    # and the loss. Of three ranks each sends two thirds of what is summed, twice.
    messages = ((2 * 42 + 202) * 4, 2 * 272 * 4, 4)
    assert steps[0].communicated_bytes == sum(4 * size // 3 for size in messages)
    assert (result.metric or 0) > 0.9
