"""Models for measuring pipelines: layers that wait for a known time instead of computing.

Three stages on two cores can't compute at once, so computing would measure the machine; what waits shows what
the pipeline itself costs.
"""

import time

import torch
from torch import Tensor, nn

from peerloom.worker.task import Split, Task


class Wait(nn.Module):
    """Passes its input on after `seconds`, for a batch of any size; of `each` sample, if that is so."""

    def __init__(self, seconds: float, width: int, *, each: bool) -> None:
        super().__init__()
        self.seconds, self.each = seconds, each
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.seconds * (len(x) if self.each else 1))
        return x * self.scale


class Waiting(Task):
    """A chain of `layers` that wait `seconds` each: for a batch, or with `each` "sample" for one."""

    def __init__(
        self, layers: str = "3", seconds: str = "0.02", width: str = "256", each: str = "batch"
    ) -> None:
        self.layers, self.seconds, self.width = int(layers), float(seconds), int(width)
        self.each_sample = each == "sample"

    def model(self) -> nn.Module:
        return nn.Sequential(
            *(Wait(self.seconds, self.width, each=self.each_sample) for _ in range(self.layers))
        )

    def data(self) -> tuple[Split, Split]:
        split = Split(torch.ones(4, self.width), torch.zeros(4, dtype=torch.int64))
        return split, split
