"""Seven equal layers of 4 million parameters, whose operations take longer than their values' way."""

import torch
from torch import Tensor, nn

from peerloom.worker.task import Samples, Split, Task

WIDTH, LAYERS, SAMPLES = 2048, 7, 256


class Large(Task):
    """64 samples a step."""

    epochs = 3
    batch_size = 64
    learning_rate = 0.001

    def model(self) -> nn.Module:
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))

    def data(self) -> tuple[Samples, Samples]:
        chance = torch.Generator().manual_seed(3)
        inputs: Tensor = torch.randn(SAMPLES, WIDTH, generator=chance)
        targets = torch.randint(WIDTH, (SAMPLES,), generator=chance)
        return Split(inputs, targets), Split(inputs[:64], targets[:64])
