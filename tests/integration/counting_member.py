"""One of two ranks that train a model which counts its forward passes; told by a line of JSON.

{"rank": 0, "hub": "/a/path", "sync": "..."}: rank 1 ends after its eighth forward pass, and rank 0 says how
many steps were committed, and how many passes its model has counted.
"""

import json
import os
import sys
from typing import Any

import torch
from rank_group import rank_group, run_rank

from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.group.process_group import GenerationBrokenError
from peerloom.worker.joining.participants import Joining
from peerloom.worker.loop import train_generation
from peerloom.worker.task import Samples, Split, Task
from peerloom.worker.training import Training

RANKS, SAMPLES, BATCH, DIES_AT = 2, 64, 4, 8


class Counting(torch.nn.Linear):
    """Counts its forward passes in training, as batch normalisation counts its batches."""

    passes: torch.Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.passes += 1
        return super().forward(inputs)


class CountingTask(Task):
    """A line through 64 points; the rank that `dies` ends after the forward pass of one of its batches."""

    def __init__(self, dies: bool) -> None:
        self.dies, self.batches = dies, 0

    def model(self) -> torch.nn.Module:
        return Counting(8, 2)

    def data(self) -> tuple[Samples, Samples]:
        inputs = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(3))
        split = Split(inputs, inputs[:, :2].argmax(dim=1))
        return split, split

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.batches += torch.is_grad_enabled()
        if self.dies and self.batches == DIES_AT:
            os._exit(0)
        return super().loss(outputs, targets)

    def optimiser(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=learning_rate)


def main() -> None:
    told = json.loads(sys.stdin.readline())
    with rank_group(told, RANKS, ["a", "b"]) as group:
        spec = JobSpec(epochs=1, batch_size=BATCH, learning_rate=0.01, seed=1, sync=told["sync"])
        training = Training(CountingTask(group.rank == 1), spec, torch.device("cpu"))
        joining, balance = Joining(group, training.state), Balance([1] * RANKS, is_fixed=True)
        auditor = Auditor(lambda _: None)
        try:
            train_generation(training, group, joining, balance, lambda _: None, lambda _: None, auditor)
        except GenerationBrokenError:
            passes = int(training.state.tensors()["model.passes"])
            print(json.dumps({"steps": training.state.step, "passes": passes}), flush=True)


if __name__ == "__main__":
    run_rank(main)
