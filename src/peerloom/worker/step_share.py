"""One rank's work in one step, which any worker with the step's parameters can do, and do again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from peerloom.kit.robust_rules import OFF
from peerloom.worker.schedule import samples_of
from peerloom.worker.step_chance import seed_all, seed_torch
from peerloom.worker.task import sample_losses
from peerloom.worker.training import Training

Forward = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class StepShare:
    """The samples `indices` of `rank` in `step` (from 0), of a whole batch of `batch` samples."""

    step: int
    rank: int
    indices: torch.Tensor
    batch: int

    def seed(self, training: Training) -> int:
        """Of all chance in it (dropout, say): of the job's seed, the step and the rank alone."""
        return hash((training.seed, self.step, self.rank)) & 0x7FFF_FFFF_FFFF_FFFF

    def loss(self, training: Training, forward: Forward) -> torch.Tensor:
        """Its part of the batch's mean loss, to be differentiated."""
        # Seeding Python's and numpy's generators too takes time, and only audits need it.
        (seed_torch if training.robust == OFF else seed_all)(training.device, self.seed(training))
        # A rank without a sample in a small last batch still takes part, with a loss that weighs nothing.
        weight = 1.0 if len(self.indices) else 0.0
        nothing = torch.zeros(training.least_samples, dtype=torch.long)
        chosen = self.indices if len(self.indices) else nothing
        inputs, targets = training.task.batch(training.train, chosen)
        outputs = forward(inputs.to(training.device))
        losses = sample_losses(training.task, outputs, targets.to(training.device))
        return losses.sum() * (weight / self.batch)


def share_of(training: Training, step: int, counts: Sequence[int], rank: int) -> StepShare:
    """The share of a rank in a step, of whose samples each rank takes `counts`."""
    first, end = training.schedule.bounds(step)
    positions = training.order(training.schedule.epoch_of(step))[first:end]
    return StepShare(step, rank, samples_of(positions, counts, rank), end - first)
