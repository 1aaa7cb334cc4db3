"""The order of an epoch's samples, which a newcomer draws before the others wait for its first step."""

import torch
from torch import Tensor, nn

from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.task import Split, Task
from peerloom.worker.training import Training


class Points(Task):
    """Ten samples, thus five steps of two in each epoch."""

    def model(self) -> nn.Module:
        return nn.Linear(1, 2)

    def data(self) -> tuple[Split, Split]:
        split = Split(torch.zeros(10, 1), torch.zeros(10, dtype=torch.long))
        return split, split


class Counting(Training):
    """Notes of which epochs the order was drawn."""

    drawn: list[int]

    def order_of(self, epoch: int) -> Tensor:
        self.drawn.append(epoch)
        return super().order_of(epoch)


def counting(step: int) -> Counting:
    spec = JobSpec(epochs=3, batch_size=2, learning_rate=0.1, seed=7)
    training = Counting(Points(), spec, torch.device("cpu"))
    training.drawn = list[int]()
    training.state.step = step
    return training


def test_a_newcomer_draws_the_order_of_the_epoch_that_it_enters_once() -> None:
    """After 7 steps of 5 an epoch the others are in the second one."""
    training = counting(step=0)
    training.draw_ahead(7)
    assert training.drawn == [1]
    assert torch.equal(training.order(1), training.schedule.order(1))
    assert training.drawn == [1]


def test_nothing_is_drawn_for_who_was_there_nor_beyond_the_last_step() -> None:
    for made, others in ((7, 7), (8, 7), (0, 0), (0, 15)):
        training = counting(made)
        training.draw_ahead(others)
        assert training.drawn == []
