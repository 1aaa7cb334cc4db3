"""Aim: stages of several workers train as one process does, and one of two that is killed costs no step.

Method: one embedded system with a spare slot; jobs of several widths, one of whose workers is killed.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from worker_processes import workers_of

from peerloom import Client, Embedded, Job, JobEvent, StateChanged, StepCommitted
from peerloom.kit.parallel_plan import parse_plan

JOB_LIMIT_S = 200.0
BATCH, KILLED_AT = 32, 10
# Named starts: slots that seem to differ would be given other parts, and those add up in another order.
PLAN = "pipeline=3:,widths=2/1,micro_batches=8"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, Client]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        patch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "0.3")
        folder = tmp_path_factory.mktemp("system")
        lent = [tmp_path_factory.getbasetemp()]
        with Embedded(folder, (1, 1, 1, 1), data_roots=lent) as embedded, Client(embedded.address) as client:
            yield embedded, client


def trained(
    client: Client,
    folder: Path,
    plan: str,
    disturb: Callable[[Job], None] = lambda job: None,
    task: str = "digits",
    **more: Any,
) -> tuple[list[JobEvent], Job, dict[str, Tensor]]:
    """A job's events, its last status and its model; `disturb` hears once, after some steps."""
    handle = client.train(task, plan=plan, epochs=1, requests=4, seed=3, **more)
    events, is_disturbed = [], False
    for event in handle.watch():
        events.append(event)
        if isinstance(event, StepCommitted) and event.step >= KILLED_AT and not is_disturbed:
            is_disturbed = True
            disturb(handle.status())
    result = handle.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    status = handle.status()
    assert status.ledger is not None
    assert status.ledger.is_exact, status.ledger.verdict
    return events, status, load_file(handle.fetch_model(folder / "model.safetensors"))


def check_near(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, rtol=0, atol=1e-5), name


def test_stages_of_several_workers_train_what_one_process_trains(
    system: tuple[Embedded, Client], tmp_path: Path
) -> None:
    """45 steps; the state of the stage with two workers is in both, and needs no shadow."""
    _, client = system
    _, _, expected = trained(client, tmp_path, "data", max_workers=1)
    seen: list[Job] = []
    for widths in ("2/1", "1/2"):
        plan = f"pipeline=3:,widths={widths},micro_batches=8"
        _, status, found = trained(client, tmp_path, plan, seen.append)
        check_near(found, expected)
        stages = sorted(str(worker.stage) for worker in status.workers if worker.stage is not None)
        assert sum("worker 2 of 2" in stage for stage in stages) == 1
        assert len(stages) == 3
    narrow = [1, 0]
    kept = [{w.shadow.stage for w in job.workers if w.shadow is not None} for job in seen]
    assert kept == [{stage} for stage in narrow]


def test_neither_widths_nor_the_cut_change_what_dropout_draws(
    system: tuple[Embedded, Client], tmp_path: Path
) -> None:
    _, client = system
    plans = ("pipeline=4:", "pipeline=4:,widths=1/2", "pipeline=2:6,widths=1/2/1")
    found = [
        trained(client, tmp_path, f"{plan},micro_batches=6", task="held_task:Dropping")[2] for plan in plans
    ]
    check_near(found[1], found[0])
    check_near(found[2], found[0])


@pytest.mark.parametrize(("rank", "said"), [(1, "stage 0 has that of 0"), (2, "stage 1 by that of")])
def test_a_killed_worker_is_replaced_without_a_checkpoint(
    system: tuple[Embedded, Client], tmp_path: Path, rank: int, said: str
) -> None:
    """Rank 1 is one of two of its stage; the stage of rank 2 has a shadow."""
    embedded, client = system
    gate = tmp_path / "gate"

    def kill(job: Job) -> None:
        victim = next(w for w in job.workers if w.rank == rank and w.stage is not None and not w.ended)
        [process] = workers_of(embedded.pids[victim.node_name])
        process.kill()
        gate.touch()

    _, _, expected = trained(client, tmp_path, PLAN)
    held = {"task": "held_task:Held", "arguments": {"gate": str(gate)}, "max_workers": 4}
    events, status, found = trained(client, tmp_path, PLAN, kill, **held)
    whys = [event.reason for event in events if isinstance(event, StateChanged)]
    assert any(said in why and "2 stages on 3 workers go on from step" in why for why in whys), whys
    assert not any("go on from the" in why for why in whys), whys
    assert status.ledger is not None
    # A step that rank 0 told of, and some had yet to make, is made again.
    assert status.ledger.discarded_samples <= BATCH
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_the_trainer_chooses_widths_by_what_workers_tell(
    system: tuple[Embedded, Client], tmp_path: Path
) -> None:
    """Data would add up 4.2 million gradients a step; the first layer costs twice as much as the second."""
    _, client = system
    _, status, found = trained(
        client, tmp_path, "auto", task="uneven_task:Uneven", batch_size=64, min_workers=3, max_workers=3
    )
    assert status.plan is not None
    assert "stage 0 has several workers, who take turns" in status.plan.reason
    plan = parse_plan("plan", status.plan.plan)
    assert plan.widths == (2, 1)
    held = [worker.stage for worker in status.workers if worker.stage is not None]
    assert sorted((stage.number, stage.turn, stage.workers) for stage in held) == [
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 1),
    ]
    assert status.plan.predicted is not None
    assert [len(stage.nodes) for stage in status.plan.predicted.stages] == [2, 1]
    assert found["4.weight"].isfinite().all()
