"""A task whose every gradient can be told by hand."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from peerloom.worker.task import Split, Task


class Means(Task):
    """One number w, first 0; the loss of a sample x is (w - x)² / 2, so its gradient is w - x."""

    samples = 9

    def model(self) -> nn.Module:
        model = nn.Linear(1, 1, bias=False).double()
        nn.init.zeros_(model.weight)
        return model

    def data(self) -> tuple[Split, Split]:
        """The samples 1, 2, … as both sets."""
        samples = torch.arange(1.0, self.samples + 1, dtype=torch.float64)
        split = Split(torch.ones(self.samples, 1, dtype=torch.float64), samples)
        return split, split

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] - targets).square() / 2

    def metric(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(outputs, targets)

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=learning_rate)
