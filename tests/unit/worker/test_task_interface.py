"""Aim: the defaults of the interface are right for each sample, whatever kind of data set a task gives."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_broken_step import new_group, train
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from peerloom.errors import InvalidArgumentError
from peerloom.v1.trainer_pb2 import EpochProgress, JobSpec
from peerloom.worker.task import Samples, Split, Task, load_data, sample_losses, sample_scores
from peerloom.worker.training import Training

INPUTS = torch.arange(12.0).view(6, 2)
TARGETS = torch.tensor([0, 1, 2, 0, 1, 2])
SPLIT = Split(INPUTS, TARGETS)


class Small(Task):
    """The least that a task can be, with the data given."""

    samples: tuple[Samples, Samples] = (SPLIT, SPLIT)

    def model(self) -> nn.Module:
        return nn.Linear(2, 3)

    def data(self) -> tuple[Samples, Samples]:
        return self.samples


class Wrong(Small):
    """Forgets that loss and metric are per sample."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    def metric(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.argmax(dim=1, keepdim=True) == targets[:, None]


def outputs() -> Tensor:
    return torch.randn(6, 3, generator=torch.Generator().manual_seed(1))


def test_the_mean_of_the_losses_is_torchs_mean() -> None:
    losses = sample_losses(Small(), outputs(), TARGETS)
    assert losses.shape == (6,)
    torch.testing.assert_close(losses.mean(), functional.cross_entropy(outputs(), TARGETS))


def test_unequal_parts_of_a_batch_add_up_to_the_gradient_of_the_whole() -> None:
    task = Small()
    torch.manual_seed(3)
    model = task.model()
    functional.cross_entropy(model(INPUTS), TARGETS).backward()
    whole = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    for part in (torch.tensor([0]), torch.tensor([1, 2]), torch.tensor([3, 4, 5])):
        inputs, targets = task.batch(SPLIT, part)
        (sample_losses(task, model(inputs), targets).sum() / 6).backward()
    parts = [parameter.grad for parameter in model.parameters()]
    torch.testing.assert_close(parts, whole)


def test_the_metric_is_one_where_the_largest_output_is_the_target() -> None:
    scores = sample_scores(Small(), torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0]]), torch.tensor([1, 2]))
    assert scores.tolist() == [1.0, 0.0]


def test_a_loss_that_is_a_mean_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidArgumentError, match=r"Wrong\.loss\(\) gave .* shape \[\].*reduction='none'"):
        sample_losses(Wrong(), outputs(), TARGETS)


def test_a_metric_of_another_shape_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"Wrong\.metric\(\) gave .* shape \[6, 1\]"):
        sample_scores(Wrong(), outputs(), TARGETS)


def test_the_optimiser_is_sgd_with_momentum() -> None:
    optimiser = Small().optimiser(nn.Linear(2, 3).parameters(), 0.25)
    assert isinstance(optimiser, torch.optim.SGD)
    assert (optimiser.defaults["lr"], optimiser.defaults["momentum"]) == (0.25, 0.9)


@pytest.mark.parametrize(
    "samples",
    [SPLIT, TensorDataset(INPUTS, TARGETS), [(INPUTS[i], int(TARGETS[i])) for i in range(6)]],
    ids=["split", "tensor-data-set", "any-map-style"],
)
def test_a_batch_is_the_same_from_every_kind_of_data_set(samples: Samples) -> None:
    inputs, targets = Small().batch(samples, torch.tensor([4, 0, 4]))
    assert inputs.tolist() == [[8.0, 9.0], [0.0, 1.0], [8.0, 9.0]]
    assert targets.tolist() == [1, 0, 1]
    assert targets.dtype == torch.int64


def test_a_split_is_a_map_style_data_set() -> None:
    assert len(SPLIT) == 6
    inputs, target = SPLIT[2]
    assert (inputs.tolist(), int(target)) == ([4.0, 5.0], 2)


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [(INPUTS, TARGETS[:5]), (torch.tensor(1.0), torch.tensor(1))],
    ids=["lengths", "0-d"],
)
def test_a_split_of_unequal_lengths_is_refused(inputs: Tensor, targets: Tensor) -> None:
    with pytest.raises(InvalidArgumentError, match=r"inputs \[n"):
        Split(inputs, targets)


def test_good_data_are_passed_on() -> None:
    assert load_data(Small()) == (SPLIT, SPLIT)


def stream() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (SPLIT, "must return two data sets"),
        ((SPLIT,), "must return two data sets"),
        ((stream(), SPLIT), "as training samples a generator, which has no length"),
        ((SPLIT, Split(INPUTS[:0], TARGETS[:0])), "no test samples"),
    ],
    ids=["no-pair", "one", "stream", "empty"],
)
def test_data_that_cannot_be_trained_on_are_refused(samples: object, message: str) -> None:
    task = Small()
    task.samples = samples  # type: ignore[assignment]  # a wrong one on purpose
    with pytest.raises(InvalidArgumentError, match=message):
        load_data(task)


def test_the_task_of_the_page_is_trained() -> None:
    page = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text()
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    task = names["Pairs"]()
    spec = JobSpec(epochs=2, batch_size=64, learning_rate=task.learning_rate, seed=1)
    training, group, scores = Training(task, spec, torch.device("cpu")), new_group(1), []
    train(
        training, group, lambda told: scores.append(told.metric) if isinstance(told, EpochProgress) else None
    )
    group.close()
    assert training.state.step == 20
    assert scores[1] > 0.7, "six seeds gave 0.875 to 0.984"


def test_the_example_of_the_docstring_is_a_whole_task() -> None:
    assert Task.__doc__ is not None
    code = Task.__doc__.partition("every node:\n")[2].partition("Arguments of a job")[0]
    names: dict[str, Any] = {}
    exec(textwrap.dedent(code), names)
    task = names["Lines"](slope="0.3")
    train, test = load_data(task)
    inputs, targets = task.batch(train, torch.arange(4))
    assert sample_losses(task, task.model()(inputs), targets).shape == (4,)
    assert (len(train), len(test), task.epochs) == (800, 200, 5)
