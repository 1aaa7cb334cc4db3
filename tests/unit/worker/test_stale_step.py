"""Steps of older gradients without a network: each worker is a thread, and rows and sums meet in memory."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from means_task import Means
from rounds_in_memory import Memory, MemorySync
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.sample_ranges import others
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.stale.stale_step import StaleStepMade, make_stale_step
from peerloom.worker.stale.stale_training import StaleTraining
from peerloom.worker.task import Task

LIMIT_S = 60
SAMPLES, BATCH, RATE = 22, 4, 0.1
pytestmark = pytest.mark.timeout(2 * LIMIT_S)


class Samples(Means):
    samples = SAMPLES


class Broken(Samples):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        raise ValueError("no loss today")


class Normalised(Samples):
    def model(self) -> nn.Module:
        return nn.BatchNorm1d(1).double()


class Rows:
    """Where rows meet."""

    def __init__(self, ranks: int) -> None:
        self._said: list[list[float]] = [[] for _ in range(ranks)]
        self._all = threading.Barrier(ranks, timeout=LIMIT_S)

    def exchange(self, rank: int, own: list[float]) -> list[list[float]]:
        self._said[rank] = own
        self._all.wait()
        said = list(self._said)
        self._all.wait()
        return said


class Seat:
    def __init__(self, rank: int, ranks: int, generation: int) -> None:
        self.rank, self.world_size, self.generation = rank, ranks, generation
        self.node_ids = [f"node-{number}" for number in range(ranks)]

    def leaves_after(self, step: int) -> bool:
        return False

    def check(self, step: int | None = None) -> None:
        pass


@contextmanager
def workers(sync: str, ranks: int, task: type[Task] = Samples) -> Iterator[list[StaleTraining]]:
    spec = JobSpec(epochs=1, batch_size=BATCH, learning_rate=RATE, seed=5, sync=sync)
    made = [StaleTraining(task(), spec, torch.device("cpu")) for _ in range(ranks)]
    try:
        yield made
    finally:
        for each in made:
            each.computer.close()


def train(made: list[StaleTraining], generation: int, first: int, end: int) -> list[list[StaleStepMade]]:
    """The steps from `first` to before `end` by all workers; what each has made, in turn."""
    ranks = len(made)
    rows, memory = Rows(ranks), Memory(ranks)

    def work(rank: int) -> list[StaleStepMade]:
        training, seat = made[rank], Seat(rank, ranks, generation)
        sync = MemorySync(training.exchanged, memory, rank)
        told = []
        for step in range(first, end):
            told.append(
                make_stale_step(training, seat, sync, step, lambda own: rows.exchange(rank, own))  # type: ignore[arg-type]  # what it needs of a group and a synchroniser
            )
            training.state.updater.step()
            memory.all_are_there.wait()
        return told

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(work, range(ranks)))


def weight_of(training: StaleTraining) -> float:
    return next(training.state.model.parameters()).item()


@pytest.mark.parametrize("sync", ["ssp:0", "ssp:1", "ssp:3", "asp", "ssp:1,late=weighted", "backup=0.6"])
def test_parameters_are_what_the_pushes_that_were_told_make_of_them(sync: str) -> None:
    """Each part is computed again by hand, of the version that it says; all ranks come to the same bits."""
    with workers(sync, 3) as made:
        told = train(made, 1, 0, 6)
        order = made[0].order(0)
        assert len({weight_of(each) for each in made}) == 1
        w = [0.0]
        for step, each in enumerate(told[0]):
            gradient = 0.0
            taken = [push for push in each.told.pushes if push.verdict != "refused"]
            whole = sum(used.end - used.first for push in taken for used in push.samples)
            for push in taken:
                assert push.version + push.age == step
                targets = [
                    float(order[at]) + 1 for used in push.samples for at in range(used.first, used.end)
                ]
                gradient += push.weight * sum(w[push.version] - target for target in targets) / whole
            assert whole == (BATCH if step < 5 else 2)
            assert sum(each.counts) == whole
            w.append(w[-1] - RATE * gradient)
        assert weight_of(made[0]) == pytest.approx(w[-1], rel=1e-12)
        assert others(made[0].counted.ranges, SAMPLES) == ()
        if sync.startswith("ssp:"):
            ages = [push.age for each in told[0] for push in each.told.pushes]
            assert max(ages) <= int(sync[4])


def test_in_a_smaller_group_what_has_not_counted_is_cut_anew() -> None:
    """What was handed out and lost with a worker is handed out again, and nothing twice."""
    with workers("asp", 3) as made:
        train(made, 1, 0, 2)
        left = made[:2]
        told = train(left, 2, 2, 6)
        assert all(others(each.counted.ranges, SAMPLES) == () for each in left)
        assert len({weight_of(each) for each in left}) == 1
        assert [sum(each.counts) for each in told[0]] == [4, 4, 4, 2]


def test_what_has_counted_travels_with_the_state() -> None:
    with workers("asp", 2) as made, workers("asp", 1) as (fresh,):
        train(made, 1, 0, 3)
        fresh.state.from_bytes(made[0].state.to_bytes())
        assert fresh.counted.ranges == made[0].counted.ranges
        fresh.computer.publish(3)


def test_what_the_task_raises_comes_out() -> None:
    with workers("asp", 1, Broken) as made, pytest.raises(ValueError, match="no loss today"):
        train(made, 1, 0, 1)


def test_batch_normalisation_is_refused() -> None:
    with (
        pytest.raises(InvalidArgumentError, match="Take GroupNorm or LayerNorm"),
        workers("asp", 1, Normalised),
    ):
        pass
