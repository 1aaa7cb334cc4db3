"""Jobs of three workers, one at a third of the speed, one of which is killed: each sample counts once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import StaleStep, StepCommitted, WorkerLost
from peerloom.kit.sample_ranges import joined, others, why_not_apart

EPOCHS, SAMPLES, STEPS, STRUCK_AT = 5, 1437, 45, 20
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, Path]]:
    """A system whose workers may read a folder."""
    folder = tmp_path_factory.mktemp("stale")
    (folder / "data").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        with Embedded(folder / "state", (1, 1, 1), data_roots=(folder / "data",)) as started:
            yield started, folder / "data"


@pytest.mark.parametrize(("sync", "bound"), [("ssp:2", 2), ("backup=0.6", 0)])
def test_each_sample_counts_once_an_epoch_though_one_is_slow_and_one_dies(
    system: tuple[Embedded, Path], sync: str, bound: int
) -> None:
    """By the trainer's ledger, and by what its events say; parts are never older than the bound."""
    started, folder = system
    slow = folder / "slow"
    slow.write_text("")
    with Client(started.address) as client:
        job = client.train(
            "slow_worker_task:SlowWorker",
            requests=3,
            min_workers=2,
            max_workers=3,
            epochs=EPOCHS,
            sync=sync,
            arguments={"slow": str(slow)},
        )
        told: list[StaleStep] = []
        lost = 0
        for event in job.watch():
            lost += isinstance(event, WorkerLost)
            if isinstance(event, StepCommitted):
                assert event.stale is not None
                told.append(event.stale)
                if event.step == 1:
                    slow.write_text(str(workers_of(started.pids["node-2"])[0].pid))
                if event.step == STRUCK_AT:
                    workers_of(started.pids["node-1"])[0].kill()
        result = job.result(120)
        found = job.status().ledger
    assert result.succeeded, result.reason  # that all workers have the same parameters is a condition of it
    assert lost == 1
    assert found is not None
    assert found.is_exact, found.verdict
    assert len(told) == EPOCHS * STEPS
    for first in range(0, len(told), STEPS):
        check_epoch(told[first : first + STEPS], first, bound)


def check_epoch(told: list[StaleStep], first: int, bound: int) -> None:
    """The parts that its steps took cover the epoch, each position once; `first` steps came before."""
    counted: list[tuple[int, int]] = []
    for step, each in enumerate(told, first):
        assert joined(counted) == each.counted
        for push in each.pushes:
            if push.verdict != "refused":
                assert 0 <= step - push.version == push.age <= bound
                counted += push.samples
    assert why_not_apart(counted, SAMPLES) == ""
    assert others(counted, SAMPLES) == ()
