"""Aim: emulated compute waits what it says, layer by layer, and changes no number of the training."""

from pathlib import Path

import pytest
import torch
from torch import nn

from peerloom.errors import InvalidArgumentError
from peerloom.worker.task import Task, sample_losses
from peerloom.worker.tasks.cifar10 import Cifar10
from peerloom.worker.tasks.emulated import Emulated, Paced
from peerloom.worker.tasks.mnist import Mnist


def test_each_layer_waits_a_third_forward_and_two_backward_before_its_gradient() -> None:
    waits: list[float] = []
    first, second = (Paced(nn.Linear(4, 4), seconds, waits.append) for seconds in (0.3, 0.6))
    ready: list[tuple[str, int]] = []
    for name, layer in (("first", first), ("second", second)):
        weight = layer.layer.weight
        assert isinstance(weight, nn.Parameter)
        weight.register_post_accumulate_grad_hook(lambda _, name=name: ready.append((name, len(waits))))
    nn.Sequential(first, second)(torch.ones(2, 4)).sum().backward()
    assert waits == pytest.approx([0.2, 0.4, 0.4, 0.4, 0.2, 0.2])  # two samples: 0.6 s and 1.2 s
    assert ready == [("second", 4), ("first", 6)]


def test_gradients_are_those_of_the_layers_without_the_waiting() -> None:
    task = Emulated(parameters="2000", layers="5", sample_ms="0", samples="6")
    torch.manual_seed(1)
    model = task.model()
    assert isinstance(model, nn.Sequential)
    plain = nn.Sequential(*(one.layer if isinstance(one, Paced) else one for one in model))
    train, test = task.data()
    for network in (model, plain):
        network.zero_grad()
        sample_losses(task, network(train.inputs), train.targets).sum().backward()
        found = torch.cat([one.grad.flatten() for one in network.parameters() if one.grad is not None])
        assert found.norm() > 0
        if network is model:
            waited = found.clone()
    assert torch.equal(found, waited)
    assert len(test) == 8


def test_the_model_has_about_as_many_parameters_as_it_was_asked_for() -> None:
    counts = [
        sum(one.numel() for one in Emulated(parameters=asked, layers="10").model().parameters())
        for asked in ("6000", "1000000")
    ]
    assert (Emulated().micro_batch, Emulated(micro_batch="16").micro_batch) == (None, 16)
    # Ten layers of 24 x 24 + 24 and one of 24 x 10 + 10; of 316 x 316 + 316 and 316 x 10 + 10.
    assert counts == [6_250, 1_004_890]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"parameters": "99"}, "parameters is '99', but must be a whole number from 100 to"),
        ({"layers": "0"}, "layers is '0'"),
        ({"sample_ms": "nan"}, "sample_ms is 'nan', but must be a number from 0 to"),
        ({"sample_ms": "-1"}, "sample_ms is '-1'"),
        ({"sample_ms": "soon"}, "sample_ms is 'soon'"),
        ({"samples": "1e3"}, "samples is '1e3'"),
        ({"step_ms": "-1"}, "step_ms is '-1'"),
        ({"micro_batch": "0"}, "micro_batch is '0'"),
        ({"like": "resnet"}, "like is 'resnet', but must be one of mnist, cifar10"),
        ({"like": "mnist", "layers": "3"}, "like=mnist says which layers"),
    ],
)
def test_what_can_not_be_is_refused(arguments: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Emulated(**arguments)
    assert said in caught.value.message


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_a_model_like_another_has_each_of_its_parameters(name: str, tmp_path: Path) -> None:
    original: Task = Mnist(str(tmp_path)) if name == "mnist" else Cifar10(str(tmp_path))
    task = Emulated(like=name, sample_ms="0", samples="3")
    counts = [one.numel() for one in task.model().parameters()]
    assert counts == [one.numel() for one in original.model().parameters()]
    train, _ = task.data()
    assert task.model()(train.inputs).shape == (3, 10)


def test_each_layer_of_a_model_like_another_waits_its_part_of_a_step() -> None:
    """MNIST's layers have 230,400, 819,200, 36,864 and 720 of 1,087,184 multiplications a sample."""
    model = Emulated(like="mnist", sample_ms="1087.184", step_ms="400").model()
    paced = [one for one in model.modules() if isinstance(one, Paced)]
    assert [one.sample_s for one in paced] == pytest.approx([0.2304, 0.8192, 0.036864, 0.00072])
    assert [one.step_s for one in paced] == pytest.approx([0.1] * 4)
    waits: list[float] = []
    Paced(nn.Linear(4, 4), 0.3, waits.append, step_s=0.9)(torch.ones(2, 4)).sum().backward()
    assert waits == pytest.approx([0.5, 0.5, 0.5])


def test_the_gradient_of_the_inputs_alone_waits_for_nothing_else() -> None:
    waits: list[float] = []
    entered = torch.ones(2, 4, requires_grad=True)
    left = Paced(nn.Linear(4, 4), 0.3, waits.append)(entered)
    torch.autograd.grad([left.sum()], [entered])
    assert waits == pytest.approx([0.2, 0.2])
