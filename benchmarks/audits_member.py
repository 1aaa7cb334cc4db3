"""A worker for `audits`: trains a block of steps for each line of JSON, [generation, last step, with audits].

It answers with the seconds of each step and the audits that it made. argv: the hub, its rank, and the number
of workers.
"""

import json
import os
import sys
import threading

import torch
from torch import Tensor, nn

from benchmarks.entry_hub import HubEntries
from peerloom.kit.logs import configure_logs
from peerloom.v1.trainer_pb2 import ConfigureGeneration, EpochProgress, JobSpec, StepProgress
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.joining.participants import Joining
from peerloom.worker.loop import train_generation
from peerloom.worker.task import Split, Task
from peerloom.worker.training import Training

COMPUTE_S = 0.1
LIMIT_S = 60.0
BATCH, STEPS = 64, 10_000


class Waiting(Task):
    """A network of 20,000 parameters whose forward pass waits as if it were a large one."""

    def __init__(self) -> None:
        self._pause = threading.Event()

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def data(self) -> tuple[Split, Split]:
        split = Split(torch.randn(BATCH * STEPS // 100, 64), torch.zeros(BATCH * STEPS // 100).long())
        return split, split

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._pause.wait(COMPUTE_S)
        return super().loss(outputs, targets)


def main() -> None:
    torch.set_num_threads(1)
    configure_logs("worker")  # standard output is for answers
    entries, rank, workers = HubEntries(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(1)  # the same data everywhere
    spec = JobSpec(epochs=100, batch_size=BATCH, learning_rate=0.01, seed=1, robust="auto")
    training = Training(Waiting(), spec, torch.device("cpu"))
    taken = list[float]()

    def note(progress: StepProgress | EpochProgress) -> None:
        if isinstance(progress, StepProgress):
            taken.append(progress.step_s)

    while line := sys.stdin.readline():
        generation, until, audits = json.loads(line)
        config = ConfigureGeneration(
            generation=generation,
            rank=rank,
            world_size=workers,
            collective_timeout_s=LIMIT_S,
            owners=[f"owner-{i}" for i in range(workers)],
            audits=audits,
        )
        group = Group(config, torch.device("cpu"), entries.of(generation))
        group.form()
        group.leave_at(until, "the block is over")
        auditor = Auditor(lambda message: None)  # to which all others are new
        taken.clear()
        balance = Balance([1] * workers, is_fixed=True)
        try:
            train_generation(
                training, group, Joining(group, training.state), balance, note, lambda step: None, auditor
            )
        except GenerationBrokenError:
            group.close()
        said = json.dumps({"steps": taken, "audits": auditor.made})
        os.write(sys.stdout.fileno(), f"{said}\n".encode())


if __name__ == "__main__":
    main()
