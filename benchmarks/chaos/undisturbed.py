"""The same training without anybody else: what the loss would have been without faults."""

import torch

from peerloom.v1.trainer_pb2 import ConfigureGeneration, EpochProgress, JobSpec, StepProgress
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.group.process_group import Group
from peerloom.worker.joining.participants import Joining
from peerloom.worker.loop import train_generation
from peerloom.worker.store_entries import StoreEntries
from peerloom.worker.task import load_task
from peerloom.worker.training import Training


def losses_of(task_name: str, epochs: int, learning_rate: float, seed: int) -> list[float]:
    """Each epoch's mean loss in a job with the task's own batch size, which no exact method changes."""
    torch.set_num_threads(1)
    task = load_task(task_name, {})
    spec = JobSpec(
        task=task_name,
        epochs=epochs,
        batch_size=task.batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    losses: list[float] = []

    def report(progress: StepProgress | EpochProgress) -> None:
        if isinstance(progress, EpochProgress):
            losses.append(progress.loss)

    device = torch.device("cpu")
    entries = StoreEntries(0, lambda entry: None)
    alone = Group(ConfigureGeneration(world_size=1), device, entries)
    training = Training(task, spec, device)
    members, balance = Joining(alone, training.state), Balance([1], is_fixed=True)
    train_generation(
        training, alone, members, balance, report, lambda step: None, Auditor(lambda message: None)
    )
    return losses
