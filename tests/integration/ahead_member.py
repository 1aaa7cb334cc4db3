"""One rank of three that trains by one method after the other; told by a line of JSON.

{"rank": 0, "hub": "/a/path", "runs": [{"sync": "...", "waiting": [1]}, ...], "dies": "..."}
It answers with a line for each run: the parameters it came to, and how many batches it had begun when each
step was committed. The ranks that are `waiting` begin no forward pass ahead. At last all train by `dies`,
and rank 2 ends in its eighth batch: the others say what the state was after each step, and in the end.
"""

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from rank_group import rank_group, run_rank

from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker import forward_ahead
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.group.process_group import GenerationBrokenError, Group
from peerloom.worker.joining.participants import Joining
from peerloom.worker.loop import train_generation
from peerloom.worker.task import Samples, Split, Task
from peerloom.worker.training import Training

RANKS, SAMPLES, BATCH, EPOCHS, DIES_AT = 3, 36, 6, 2, 8  # six steps an epoch
PASSES_BEFORE = forward_ahead.PASSES_BEFORE


class Wide(Task):
    """Attention and two wide layers, so that buckets of a kilobyte hold less than a parameter."""

    def __init__(self, dies_at: int = 0) -> None:
        self.batches, self.dies_at = 0, dies_at

    def model(self) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.TransformerEncoderLayer(8, 2, 64, dropout=0.1, batch_first=True),
            torch.nn.Flatten(),
            torch.nn.Linear(32, 4),
        )

    def data(self) -> tuple[Samples, Samples]:
        inputs = torch.randn(SAMPLES, 4, 8, generator=torch.Generator().manual_seed(3))
        split = Split(inputs, inputs[:, 0, :4].argmax(dim=1))
        return split, split

    def batch(self, split: Samples, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.batches += torch.is_grad_enabled()
        if self.batches == self.dies_at:
            os._exit(0)
        return super().batch(split, indices)

    def optimiser(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=learning_rate)


def train(group: Group, sync: str, dies_at: int = 0) -> dict[str, Any]:
    task = Wide(dies_at)
    spec = JobSpec(epochs=EPOCHS, batch_size=BATCH, learning_rate=0.01, seed=1, sync=sync)
    training = Training(task, spec, torch.device("cpu"))
    joining, balance = Joining(group, training.state), Balance([1] * RANKS, is_fixed=True)
    begun: list[int] = []
    states = [training.state.fingerprint()]

    def on_step(step: int) -> None:
        begun.append(task.batches)
        states.append(training.state.fingerprint())

    broken = ""
    try:
        train_generation(training, group, joining, balance, lambda _: None, on_step, Auditor(lambda _: None))
    except GenerationBrokenError as error:
        broken = str(error)
    left = training.state.fingerprint()
    digest = training.state.parameters_digest()
    return {"parameters": digest, "begun": begun, "states": states, "left": left, "broken": broken}


def main() -> None:
    told = json.loads(sys.stdin.readline())
    with rank_group(told, RANKS, ["a", "b", "c"]) as group:
        for run in told["runs"]:
            forward_ahead.PASSES_BEFORE = 1000 if group.rank in run["waiting"] else PASSES_BEFORE
            print(json.dumps(train(group, run["sync"])), flush=True)
            dist.barrier()
        forward_ahead.PASSES_BEFORE = PASSES_BEFORE
        print(json.dumps(train(group, told["dies"], DIES_AT if group.rank == RANKS - 1 else 0)), flush=True)


if __name__ == "__main__":
    run_rank(main)
