"""What is trained until which accuracy, and how fast each host computes: known to both sides.

Nothing of Peerloom's services is needed here, so that rivals' processes can import it from their own
environment.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.accuracy.waited_task import WaitedMnist, WaitedText
from peerloom.worker.task import Samples, Split, Task

HOSTS = 4
EPOCHS = 40  # at most; a race ends long before
PERIOD = 32  # batches between two exchanges of those who exchange seldom, on either side
OUTER_RATE, OUTER_MOMENTUM = 1.0, 0.6
TASKS = {"mnist": WaitedMnist, "text": WaitedText}


@dataclass(frozen=True)
class Trial:
    """A model of `TASKS` until `target`, a part of 1 right of the test set; `batch` is all workers' together.

    `arguments` are the task's.
    """

    task: str
    arguments: dict[str, str]
    batch: int
    target: float
    seed: int

    def made(self) -> Task:
        """The task itself."""
        return TASKS[self.task](**self.arguments)


class Work:
    """A rival's model, samples and optimiser, all ranks' alike."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.task = trial, trial.made()
        torch.manual_seed(trial.seed)
        self.model = self.task.model()
        train, self._test = self.task.data()
        assert isinstance(train, Split)  # these tasks have one
        self._train = train
        self.steps = len(self._train) // trial.batch  # of an epoch
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def optimiser(self, parameters: Iterator[nn.Parameter]) -> Optimizer:
        """The task's."""
        made = self.task.optimiser(parameters, self.task.learning_rate)
        assert isinstance(made, Optimizer)  # these tasks have one
        return made

    def passes(self, model: Any, step: int, place: int, places: int) -> None:
        """Both passes of one of `places` equal parts of step `step`'s samples."""
        epoch, within = divmod(step, self.steps)
        first = within * self.trial.batch
        indices = self._order_of(epoch)[first + place : first + self.trial.batch : places]
        inputs, targets = self.task.batch(self._train, indices)
        self.task.loss(model(inputs), targets).mean().backward()  # type: ignore[no-untyped-call]  # torch's own

    def _order_of(self, epoch: int) -> Tensor:
        if self._order[0] != epoch:
            chance = torch.Generator().manual_seed(1000 * self.trial.seed + epoch)
            self._order = epoch, torch.randperm(len(self._train), generator=chance)
        return self._order[1]

    @torch.no_grad()
    def accuracy(self) -> float:
        """Of the model as it is now, on all test samples; a part of 1."""
        self.model.eval()
        parts = torch.split(torch.arange(len(self._test)), 256)
        total = sum(self._score(self._test, part) for part in parts)
        self.model.train()
        return total / len(self._test)

    def _score(self, test: Samples, indices: Tensor) -> float:
        inputs, targets = self.task.batch(test, indices)
        return float(self.task.metric(self.model(inputs), targets).double().sum())
