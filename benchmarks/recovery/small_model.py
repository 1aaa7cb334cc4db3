"""The model and the data that all sides of the recovery benchmark train: torch and nothing else."""

import torch
from torch import Tensor, nn

FEATURES, CLASSES, WIDTH, POOL = 784, 10, 256, 4096
WORKERS, BATCH, LEARNING_RATE, SEED = 5, 320, 0.001, 7


def make_model() -> nn.Module:
    """A perceptron of 270 thousand parameters, whose step takes a few milliseconds."""
    return nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
    )


def make_pool() -> tuple[Tensor, Tensor]:
    """Inputs [4096, 784] and targets [4096]; sample i of a longer set is i modulo 4096."""
    chance = torch.Generator().manual_seed(SEED)
    inputs = torch.randn(POOL, FEATURES, generator=chance)
    return inputs, torch.randint(CLASSES, (POOL,), generator=chance)
