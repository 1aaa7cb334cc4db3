"""A step that breaks after its backward pass leaves nothing behind: it is done again as if it were new."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from peerloom.v1.trainer_pb2 import ConfigureGeneration, EpochProgress, JobSpec, StepProgress
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.joining.participants import Joining
from peerloom.worker.loop import train_generation
from peerloom.worker.store_entries import StoreEntries
from peerloom.worker.task import Split, Task
from peerloom.worker.training import Training


class Line(Task):
    """Eight points, two a batch; `on_batch` is called with each batch's number, inside its step."""

    def __init__(self, on_batch: Callable[[int], None] = lambda number: None) -> None:
        self.batches = 0
        self.on_batch = on_batch

    def model(self) -> nn.Module:
        return nn.Linear(3, 2)

    def data(self) -> tuple[Split, Split]:
        points = torch.arange(24.0).reshape(8, 3)
        split = Split(points / 24, (points[:, 0] > 9).long())
        return split, split

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.batches += 1
        self.on_batch(self.batches)
        return super().loss(outputs, targets)


def trained(task: Line, groups: list[Group]) -> Training:
    spec = JobSpec(epochs=2, batch_size=2, learning_rate=0.1, seed=7)
    training = Training(task, spec, torch.device("cpu"))
    for group in groups[:-1]:
        with pytest.raises(GenerationBrokenError):
            train(training, group)
    train(training, groups[-1])
    return training


def train(
    training: Training,
    group: Group,
    report: Callable[[StepProgress | EpochProgress], None] = lambda progress: None,
) -> None:
    joining, balance = Joining(group, training.state), Balance([1], is_fixed=True)
    auditor = Auditor(lambda message: None)
    train_generation(training, group, joining, balance, report, lambda step: None, auditor)


def new_group(generation: int) -> Group:
    return Group(
        ConfigureGeneration(generation=generation, world_size=1),
        torch.device("cpu"),
        StoreEntries(generation, lambda entry: None),
    )


def test_a_broken_step_leaves_no_gradient_to_the_next_generation() -> None:
    """The third step breaks while it is under way; the result equals that of a run without a break."""
    first, second = new_group(1), new_group(2)

    def break_third(number: int) -> None:
        if number == 3:
            first.break_from_outside("a peer fell silent")

    undisturbed = trained(Line(), [new_group(1)])
    broken = trained(Line(break_third), [first, second])
    first.close()
    assert broken.state.step == undisturbed.state.step == 8
    assert broken.state.parameters_digest() == undisturbed.state.parameters_digest()
