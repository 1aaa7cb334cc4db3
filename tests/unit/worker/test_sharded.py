"""Data that can only be read in order: each sample of an epoch once, whoever reads it, mostly in sequence."""

from collections.abc import Iterator
from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_broken_step import new_group, train
from torch import Tensor, nn

import peerloom
from peerloom.errors import InvalidArgumentError
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.schedule import Schedule, samples_of, split_batch
from peerloom.worker.sharded import Sharded, StreamedSamples
from peerloom.worker.task import Samples, Split, Task, load_data
from peerloom.worker.training import Training

CPU = torch.device("cpu")


class Letters(Sharded):
    """Samples (epoch, shard, number); notes each time that a shard is opened."""

    def __init__(self, shard_samples: list[int]) -> None:
        super().__init__(shard_samples)
        self.opened: list[tuple[int, int, int]] = []

    def read(self, shard: int, epoch: int, first: int) -> Iterator[tuple[int, int, int]]:
        self.opened.append((epoch, shard, first))
        return ((epoch, shard, number) for number in count(first))


def test_shards_take_turns_and_a_batch_is_put_in_their_order() -> None:
    """Turns of 3 shards with 3, 1 and 2 samples: 0 1 2, 0 2, 0; cut into batches of four and two."""
    streamed = StreamedSamples(Letters([3, 1, 2]), 4)
    assert [streamed[number][1:] for number in range(6)] == [(0, 0), (0, 1), (1, 0), (2, 0), (0, 2), (2, 1)]
    assert streamed[6] == (1, 0, 0), "the next epoch"
    assert streamed.order(1).tolist() == [6, 7, 8, 9, 10, 11]


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=9),
    st.integers(1, 40),
    st.lists(st.integers(1, 9), max_size=3),
)
def test_each_sample_of_an_epoch_is_used_once_by_whatever_shares(
    lengths: list[int], batch: int, shares: list[int]
) -> None:
    shares = [1, *shares]
    readers = [StreamedSamples(Letters(lengths), batch) for _ in shares]
    schedule = Schedule(sum(lengths), batch, 2, seed=1)
    used = []
    for step in range(schedule.total_steps):
        first, end = schedule.bounds(step)
        counts = split_batch(end - first, shares)
        for rank, reader in enumerate(readers):
            numbers = samples_of(reader.order(schedule.epoch_of(step))[first:end], counts, rank)
            used += [reader[number] for number in numbers.tolist()]
    everything = [(e, s, n) for e in range(2) for s, own in enumerate(lengths) for n in range(own)]
    assert sorted(used) == everything


def test_a_worker_reads_shards_of_its_own_in_sequence() -> None:
    """Eight shards, two a batch each; the second of two equal workers opens the last four, once."""
    letters = Letters([100] * 8)
    reader, schedule = StreamedSamples(letters, 16), Schedule(800, 16, 1, seed=1)
    for step in range(schedule.total_steps):
        first, end = schedule.bounds(step)
        for number in samples_of(reader.order(0)[first:end], [8, 8], 1).tolist():
            assert reader[number]
    assert letters.opened == [(0, shard, 0) for shard in range(4, 8)]


def test_another_share_goes_on_where_the_lost_worker_was() -> None:
    letters = Letters([1000, 1000])
    reader = StreamedSamples(letters, 2)
    assert [reader[number][2] for number in (0, 2, 4)] == [0, 1, 2]
    assert reader[1801][1:] == (1, 900), "it has taken over the other shard, late"
    assert reader[1803][1:] == (1, 901)
    assert reader[1801][1:] == (1, 900), "a broken step comes again"
    assert letters.opened == [(0, 0, 0), (0, 1, 900), (0, 1, 900)]
    assert reader[0] == (0, 0, 0), "who has no share goes on reading in sequence"
    assert reader[6][1:] == (0, 3)
    assert letters.opened[3:] == []


def test_a_shard_that_ends_too_early_is_named_and_so_are_lengths_that_cannot_be() -> None:
    class Short(Letters):
        def read(self, shard: int, epoch: int, first: int) -> Iterator[tuple[int, int, int]]:
            return iter([(epoch, shard, number) for number in range(first, 3)])

    reader = StreamedSamples(Short([2, 5]), 7)
    with pytest.raises(InvalidArgumentError, match=r"samples of shard 1 is 3.*the 5 that shard_samples says"):
        assert [reader[number] for number in range(7)]
    for lengths in ([], [0], [2.5]):
        with pytest.raises(InvalidArgumentError, match="shard_samples"):
            Letters(lengths)  # type: ignore[arg-type]  # on purpose


class Lines(Sharded):
    """Two shards of points on both sides of a line."""

    def read(self, shard: int, epoch: int, first: int) -> Iterator[tuple[Tensor, int]]:
        points = torch.randn(12, 3, generator=torch.Generator().manual_seed(shard))
        return ((point, int(point.sum() > 0)) for point in points[first:])


class Sides(Task):
    batch_size = 4
    epochs = 2

    def model(self) -> nn.Module:
        return nn.Linear(3, 2)

    def data(self) -> tuple[Sharded, Samples]:
        return Lines([12, 8]), Split(torch.eye(3), torch.ones(3, dtype=torch.int64))


def spec(**changes: str) -> JobSpec:
    return JobSpec(epochs=2, batch_size=4, learning_rate=0.1, seed=7, **changes)  # type: ignore[arg-type]  # texts


def test_a_task_and_a_loop_come_to_the_same_of_shards() -> None:
    training = Training(Sides(), spec(), CPU)
    group = new_group(1)
    train(training, group)
    group.close()
    assert (training.state.step, training.schedule.samples) == (10, 20)

    torch.manual_seed(7)
    model = nn.Linear(3, 2)
    with peerloom.elastic() as run:
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        for points, sides in run.batches(Lines([12, 8]), batch_size=4, epochs=2):
            run.step(nn.functional.cross_entropy(model(points), sides))
    torch.testing.assert_close(list(training.state.model.parameters()), list(model.parameters()))


def test_shards_are_for_training_and_not_for_pipelines() -> None:
    class Tested(Sides):
        def data(self) -> tuple[Sharded, Samples]:
            return Lines([12, 8]), Lines([12, 8])  # type: ignore[return-value]  # on purpose

    with pytest.raises(InvalidArgumentError, match="as test samples a Lines"):
        load_data(Tested())
    with pytest.raises(InvalidArgumentError, match="Sharded"):
        PipelineTraining(Sides(), spec(plan="pipeline=2"), CPU)
