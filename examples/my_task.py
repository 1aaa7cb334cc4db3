"""A task of your own: tells the inner of two rings of points from the outer one.

Make the file importable on the nodes, e.g. by starting them beside it:

    PYTHONPATH=examples peerloom up

and train with three lines:

    import peerloom
    with peerloom.Client() as client:
        print(client.train("my_task:Rings", requests=3, arguments={"noise": "0.1"}).result())
"""

import math

import torch
from torch import nn

from peerloom.worker.task import Split, Task


class Rings(Task):
    """Points [n, 2] on rings of radius 1 (class 0) and 2 (class 1), moved by `noise`, 0.1 unless given."""

    epochs = 5
    learning_rate = 0.05

    def __init__(self, noise: str = "0.1") -> None:
        self.noise = float(noise)

    def model(self) -> nn.Module:
        """A network with one hidden layer."""
        return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))

    def data(self) -> tuple[Split, Split]:
        """2,000 points to train on and 500 to test on; its own seed makes them the same everywhere."""
        random = torch.Generator().manual_seed(7)
        rings = torch.randint(2, (2500,), generator=random)
        angles = torch.rand(2500, generator=random) * 2 * math.pi
        points = torch.stack([angles.cos(), angles.sin()], dim=1) * (1 + rings[:, None])
        points += self.noise * torch.randn(2500, 2, generator=random)
        return Split(points[:2000], rings[:2000]), Split(points[2000:], rings[2000:])
