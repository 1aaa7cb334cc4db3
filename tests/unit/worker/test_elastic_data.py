"""A loop's data: a DataLoader's sampler, its last batch, and its processes, alone and after a break."""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_broken_step import new_group, train
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import peerloom
from peerloom.errors import InvalidArgumentError
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.elastic import hosting
from peerloom.worker.elastic.epoch_order import digest_of
from peerloom.worker.elastic.samples import loop_data
from peerloom.worker.elastic.script_training import ScriptTraining
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.schedule import shuffled

COUNT = 10
NUMBERS = TensorDataset(torch.arange(COUNT))


class Turning(Sampler[int]):
    """All samples in order, each epoch from the next one on."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([(number + self.epoch) % COUNT for number in range(COUNT)])

    def __len__(self) -> int:
        return COUNT


class Noted(Dataset[tuple[int, float, int]]):
    """Each sample with a number of chance, and the process that read it."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[int, float, int]:
        worker = torch.utils.data.get_worker_info()
        return index, float(torch.rand(())), -1 if worker is None else worker.id


def walked(loader: DataLoader[Any], epochs: int = 1, **settings: Any) -> list[list[Tensor]]:
    """The batches that a loop gives."""
    model, batches = nn.Linear(1, 1), []
    with peerloom.elastic(seed=9, **settings) as run:
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for batch in run.batches(loader, epochs=epochs):
            batches.append(batch)
            run.step(model(torch.ones(1)).mean())
    return batches


def numbered(batch: list[Tensor]) -> list[list[float]]:
    return [each.tolist() for each in batch]


def numbers(batches: list[list[Tensor]]) -> list[list[int]]:
    return [batch[0].tolist() for batch in batches]


def test_a_sampler_gives_the_epochs_order() -> None:
    loader = DataLoader(NUMBERS, batch_size=4, sampler=Turning())
    expected = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [1, 2, 3, 4], [5, 6, 7, 8], [9, 0]]
    assert numbers(walked(loader, epochs=2)) == expected
    assert numbers(walked(DataLoader(NUMBERS, batch_size=5))) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_batch_sampler_gives_the_batches() -> None:
    batches = BatchSampler(SequentialSampler(range(6)), 4, drop_last=False)
    assert numbers(walked(DataLoader(NUMBERS, batch_sampler=batches))) == [[0, 1, 2, 3], [4, 5]]
    own = DataLoader(NUMBERS, batch_sampler=[[1, 2, 3], [7, 8, 9]])
    assert numbers(walked(own, epochs=2)) == [[1, 2, 3], [7, 8, 9]] * 2


def test_chance_of_a_sampler_is_that_of_job_and_epoch_and_the_scripts_own_stays_as_it_was() -> None:
    order = loop_data(
        DataLoader(NUMBERS, batch_size=4, sampler=WeightedRandomSampler([1.0] * COUNT, 20)), None, None
    ).order
    assert order is not None
    before = torch.get_rng_state()
    first, again, other = order.of(0, 9), order.of(0, 9), order.of(1, 9)
    assert torch.equal(torch.get_rng_state(), before)
    assert len(first) == 20
    assert digest_of(first) == digest_of(again) != digest_of(other)


def test_the_last_batch_may_be_dropped() -> None:
    loader = DataLoader(NUMBERS, batch_size=4, shuffle=True, drop_last=True)
    expected = [shuffled(COUNT, 9, epoch)[first : first + 4].tolist() for epoch in (0, 1) for first in (0, 4)]
    assert numbers(walked(loader, epochs=2)) == expected


@pytest.mark.timeout(60)
def test_processes_read_what_this_one_would_with_chance_of_the_jobs_seed() -> None:
    def loader(processes: int) -> DataLoader[Any]:
        return DataLoader(Noted(), batch_size=4, shuffle=True, num_workers=processes)

    alone, one, two = (walked(loader(count), epochs=2, micro_batch=2) for count in (0, 1, 2))
    assert numbers(alone) == numbers(one) == numbers(two)
    assert [batch[1].tolist() for batch in one] == [batch[1].tolist() for batch in two]
    assert len({float(each) for batch in one for each in batch[1]}) == 20, "no number comes twice"
    assert {int(each) for batch in two for each in batch[2]} == {0, 1}
    assert {int(each) for batch in alone for each in batch[2]} == {-1}


@pytest.mark.timeout(60)
def test_without_locks_the_same_is_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise PermissionError(13, "Permission denied")

    loader = DataLoader(Noted(), batch_size=4, shuffle=True, num_workers=1)
    expected = walked(loader)
    monkeypatch.setattr("multiprocessing.Lock", refused)
    here = walked(loader)
    assert [batch[:2] for batch in map(numbered, here)] == [batch[:2] for batch in map(numbered, expected)]
    assert {int(each) for batch in here for each in batch[2]} == {-1}


@pytest.fixture
def no_host() -> Iterator[None]:
    yield
    hosting._hosts.clear()


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("no_host")
def test_what_was_read_ahead_is_thrown_away_after_a_break() -> None:
    """Five steps of two; the third breaks while its loss is computed."""
    first, second = new_group(1), new_group(2)
    batches: list[tuple[list[int], list[float]]] = []
    before = multiprocessing.active_children()

    def script() -> None:
        model = nn.Linear(1, 1)
        with peerloom.elastic() as run:
            run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            loader = DataLoader(Noted(), batch_size=2, shuffle=True, num_workers=1)
            for index, chance, _ in run.batches(loader):
                batches.append((index.tolist(), chance.tolist()))
                if len(batches) == 3:
                    first.break_from_outside("a peer fell silent")
                run.step(model(torch.ones(1)).mean())

    task = hosting.host_script(script, torch.device("cpu"))
    spec = JobSpec(epochs=1, batch_size=2, learning_rate=0.1, seed=9)
    training = ScriptTraining(task, spec, torch.device("cpu"))
    with pytest.raises(GenerationBrokenError):
        train(training, first)
    train(training, second)
    first.close()
    assert batches[2] == batches[3], "the step comes again, with its chance"
    assert sorted(index for each, _ in batches[:2] + batches[3:] for index in each) == list(range(COUNT))
    assert multiprocessing.active_children() == before, "those that read have ended with the loop"


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(COUNT))


class Shrinking(Turning):
    def __iter__(self) -> Iterator[int]:
        return iter(range(COUNT - self.epoch))


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(NUMBERS, batch_size=None), "without batches"),
        (DataLoader(Endless(), batch_size=2), "Endless.*Sharded"),
        (DataLoader(NUMBERS, batch_sampler=[]), "without a batch"),
        (DataLoader(NUMBERS, batch_sampler=[[1], [2, 3]]), r"\[1, 2\].*1 in each but the last"),
        (DataLoader(NUMBERS, batch_size=2, sampler=[3, 10]), "from 3 to 10.*the data set's 10"),
        (DataLoader(NUMBERS, batch_size=5, sampler=Shrinking()), "sampler's epoch 2 .*9 samples.*10"),
    ],
)
def test_what_a_loader_must_be_is_said(loader: DataLoader[Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        walked(loader, epochs=2)
