"""What the rivals of jobs of the task "emulated" have in common: each is a script, as torchrun starts it.

`python -m benchmarks.NAME {"arguments": {...}, "warm_up": n, ...}`: `arguments` are the task's. Rank 0 prints
the milliseconds a step after the warm-up, counted in steps.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from peerloom.worker.tasks.emulated import Emulated


@dataclass(frozen=True)
class Rival:
    """One rank of it, in a group over gloo, and what was `asked`."""

    asked: dict[str, Any]
    rank: int
    world: int
    task: Emulated

    def model(self) -> nn.Sequential:
        """The task's network, whose layers follow each other."""
        made = self.task.model()
        assert isinstance(made, nn.Sequential)
        return made

    def train(
        self,
        parameters: Iterable[nn.Parameter],
        batch: int,
        own: Callable[[int], Tensor],
        passes: Callable[[Tensor, Tensor], None],
    ) -> None:
        """Goes through all samples in steps of `batch`, tells the time, and ends the process.

        `own` gives this rank's samples of a step from the number of its first; `passes` makes gradients of
        their inputs and targets.
        """
        optimiser = self.task.optimiser(parameters, self.task.learning_rate)
        assert isinstance(optimiser, torch.optim.Optimizer)  # this task has one
        (train, _), began_s = self.task.data(), 0.0
        steps, warm_up = self.task.samples // batch, self.asked["warm_up"]
        for step in range(steps):
            if step == warm_up:
                began_s = time.perf_counter()
            passes(*self.task.batch(train, own(step * batch)))
            optimiser.step()
            optimiser.zero_grad()
        dist.barrier()
        if self.rank == 0:
            print(1000 * (time.perf_counter() - began_s) / (steps - warm_up), flush=True)
        dist.destroy_process_group()
        os._exit(0)  # as workers do: torch's threads may abort a process that ends while they do


def begin() -> Rival:
    """Meets the other ranks; all draw the same parameters then."""
    asked = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    task = Emulated(**asked["arguments"])
    torch.manual_seed(1)
    return Rival(asked, dist.get_rank(), dist.get_world_size(), task)
