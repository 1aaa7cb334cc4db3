"""Tasks whose shares are computed again: with dropout, with a liar, and with work that nobody can repeat."""

import random

import torch
import torch.distributed as dist
from torch import Tensor, nn

from peerloom.worker.task import Split
from peerloom.worker.tasks.digits import Digits

NOISE = random.SystemRandom()


def pixel_noise(inputs: Tensor, seed: int) -> Tensor:
    """Noise of the shape of `inputs`: one value for all would be lost in the batch's normalisation."""
    return 0.3 * torch.randn(inputs.shape, generator=torch.Generator().manual_seed(seed))


class Dropping(Digits):
    """The digits by a network with dropout and batch normalisation, on pixels that Python's chance moves."""

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10)
        )

    def batch(self, split: Split, indices: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = super().batch(split, indices)
        return inputs + pixel_noise(inputs, random.getrandbits(60)), targets


class Flipping(Dropping):
    """The same; the worker of rank `liar` of the first generation pushes the parameters the other way."""

    def __init__(self, liar: str) -> None:
        self._liar = int(liar)
        self._world_size = 0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        honest = super().loss(outputs, targets)
        if not (torch.is_grad_enabled() and dist.is_initialized()):
            return honest
        self._world_size = self._world_size or dist.get_world_size()
        is_first = dist.get_world_size() == self._world_size
        return -honest if is_first and dist.get_rank() == self._liar else honest


class Noisy(Dropping):
    """Its inputs come out different each time, on every machine."""

    def batch(self, split: Split, indices: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = super().batch(split, indices)
        return inputs + pixel_noise(inputs, NOISE.getrandbits(60)), targets


class Private(Dropping):
    """Its labels are others on each machine."""

    def data(self) -> tuple[Split, Split]:
        train, test = super().data()
        chance = torch.Generator().manual_seed(NOISE.getrandbits(60))
        order = torch.randperm(len(train), generator=chance)
        return Split(train.inputs, train.targets[order]), test
