"""A share that is computed again gives the gradient of the first time, and changes nothing."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.batches import call_model
from peerloom.worker.step_chance import kept_chance
from peerloom.worker.step_share import share_of
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.robust.recomputing import difference, gradients_of
from peerloom.worker.task import Split, Task
from peerloom.worker.training import Training

COUNTS = [5, 2, 9]


class Dropping(Task):
    """A network with dropout, batch normalisation and a buffer that counts, on moved pixels."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), Counting(), nn.Dropout(0.5), nn.Linear(8, 3))

    def data(self) -> tuple[Split, Split]:
        inputs = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
        split = Split(inputs, inputs.argmax(1) % 3)
        return split, split

    def batch(self, split: Split, indices: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = super().batch(split, indices)
        moved = [random.gauss(0.0, 1.0) + np.random.standard_normal() for _ in range(len(inputs))]
        return inputs + torch.tensor(moved, dtype=torch.float32)[:, None], targets


class Counting(nn.Module):
    """Its outputs depend on how often it was called, as spectral normalisation's do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return inputs * self.calls


class Named(Dropping):
    """The same, with an input that the model takes by name, and logits that it names."""

    def model(self) -> nn.Module:
        return Naming(*super().model().children())

    def batch(self, split: Split, indices: Tensor) -> tuple[dict[str, Tensor], Tensor]:  # type: ignore[override]
        inputs, targets = super().batch(split, indices)
        return {"pixels": inputs}, targets


class Naming(nn.Sequential):
    """Its input and its output have names."""

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        return {"logits": super().forward(pixels)}


@pytest.fixture(params=[Dropping, Named])
def training(request: pytest.FixtureRequest) -> Training:
    spec = JobSpec(epochs=1, batch_size=16, learning_rate=0.1, seed=3, robust="auto")
    training = Training(request.param(), spec, torch.device("cpu"))
    training.state.model.train()
    return training


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.named_buffers()}


@pytest.mark.parametrize("rank", range(len(COUNTS)))
def test_the_gradient_of_a_share_comes_out_again_to_the_last_bit(training: Training, rank: int) -> None:
    model, share = training.state.model, share_of(training, 1, COUNTS, rank)
    assert len(share.indices) == COUNTS[rank]
    before = buffers_of(model)
    share.loss(training, partial(call_model, model)).backward()
    sent = [parameter.grad.clone() for parameter in model.parameters()]
    after = buffers_of(model)
    python, numpy, torchs = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    with kept_chance(training.device):
        found = gradients_of(model, before, lambda forward: share.loss(training, forward))
    assert all(torch.equal(found[p], g) for p, g in zip(model.parameters(), sent, strict=True))
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), sent, strict=True))
    assert all(torch.equal(value, after[name]) for name, value in model.named_buffers())
    assert random.getstate() == python
    assert np.random.get_state()[1].tolist() == numpy
    assert torch.equal(torch.get_rng_state(), torchs)


def test_another_rank_or_step_gives_something_else(training: Training) -> None:
    model = training.state.model
    before = buffers_of(model)

    def gradients(step: int, rank: int) -> list[Tensor]:
        share = share_of(training, step, COUNTS, rank)
        return list(gradients_of(model, before, lambda forward: share.loss(training, forward)).values())

    assert difference(gradients(0, 0), gradients(0, 0), 0.0) == 0.0
    assert difference(gradients(0, 1), gradients(0, 0), 0.0) > 0.1
    assert difference(gradients(1, 0), gradients(0, 0), 0.0) > 0.1


def test_parts_follow_the_order_and_strides_of_a_bucket() -> None:
    """A bucket of 6 + 1 values, padded to 8 for two ranks; the first parameter's lie column by column."""
    first, second = torch.zeros(2, 3), torch.zeros(1)
    layout = Layout(7, ((first, torch.Size([2, 3]), (1, 2), 1), (second, torch.Size([1]), (1,), 0)))
    gradients = {first: torch.tensor([[1.0, 2, 3], [4, 5, 6]]), second: torch.tensor([7.0])}
    assert layout.part(gradients, 0, 2).tolist() == [7.0, 1, 4, 2]
    assert layout.part(gradients, 1, 2).tolist() == [5.0, 3, 6, 0]
