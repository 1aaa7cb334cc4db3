"""A model of two layers, the first of which costs twice as much as the second; slots tell a speed of ours."""

from dataclasses import replace

from torch import Tensor, nn

from peerloom.worker.plan import task_survey
from peerloom.worker.tasks.digits import Digits

_ROWS, _CLASSES = 256, 8_192
TOLD_GFLOPS = 12.5


class Rows(nn.Module):
    """An image's pixels as a row, many times: [n, 1, 8, 8] to [n, rows, 64]."""

    def forward(self, images: Tensor) -> Tensor:
        rows: Tensor = images.flatten(1).unsqueeze(1).repeat(1, _ROWS, 1)
        return rows


class Mean(nn.Module):
    """Of all rows: [n, rows, 512] to [n, 512]."""

    def forward(self, rows: Tensor) -> Tensor:
        return rows.mean(1)


class Uneven(Digits):
    """33 thousand parameters that are used 256 times for a sample, and 4.2 million that are used once.

    What slots measure depends on what else runs here, and with it the plan; so they tell a speed of ours.
    """

    raw_input = replace(Digits.raw_input, labels=())  # ten of them, and this model has more outputs

    def __init__(self) -> None:
        super().__init__()
        task_survey.slot_gflops = lambda device: TOLD_GFLOPS  # the module's own name for it

    def model(self) -> nn.Module:
        return nn.Sequential(Rows(), nn.Linear(64, 512), nn.Tanh(), Mean(), nn.Linear(512, _CLASSES))
