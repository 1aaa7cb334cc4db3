"""One rank's work in one step, which any worker with the step's parameters can do, and do again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from peerloom.worker.batches import call_model
from peerloom.worker.schedule import samples_of
from peerloom.worker.step_chance import seed_of
from peerloom.worker.training import Forward, Training
from peerloom.worker.updating.updater import Updater


@dataclass(frozen=True, eq=False)
class StepShare:
    """The samples `indices` of `rank` in `step` (from 0), of a whole batch of `batch` samples."""

    step: int
    rank: int
    indices: torch.Tensor
    batch: int

    def seed(self, training: Training) -> int:
        """Of all chance in it: dropout, say."""
        return seed_of(training.seed, self.step, self.rank)

    def loss(self, training: Training, forward: Forward) -> torch.Tensor:
        """Its part of the batch's mean loss, to be differentiated."""
        training.seed_step(self.seed(training))
        return self._part(training, forward, self._chosen(training))

    def walk(self, training: Training, forward: Forward, updater: Updater) -> torch.Tensor:
        """The same, as the updater wants it, in pieces of the task's `micro_batch`.

        All but the last are differentiated already, and have left their gradients to be added to.
        """
        training.seed_step(self.seed(training))
        done: list[torch.Tensor] = []
        *before, last = self.pieces(training)
        for indices in before:
            # Past DDP, which sends what has been added up only with the last piece.
            part = self._part(training, partial(call_model, training.called), indices)
            updater.scaled(part).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            done.append(part.detach())
        part = updater.scaled(self._part(training, forward, last))
        return part + torch.stack(done).sum() if done else part

    def pieces(self, training: Training) -> tuple[torch.Tensor, ...]:
        """Its samples, int64, as `walk` computes them: in pieces of the task's `micro_batch`."""
        return pieces(self._chosen(training), training.task.micro_batch, training.least_samples)

    def _chosen(self, training: Training) -> torch.Tensor:
        # A rank without a sample in a small last batch still takes part, with a loss that weighs nothing.
        nothing = torch.zeros(training.least_samples, dtype=torch.long)
        return self.indices if len(self.indices) else nothing

    def _part(self, training: Training, forward: Forward, indices: torch.Tensor) -> torch.Tensor:
        weight = 1.0 if len(self.indices) else 0.0
        return training.part(forward, indices, self.batch, weight)


def pieces(indices: torch.Tensor, most: int | None, least: int) -> tuple[torch.Tensor, ...]:
    """Cut into as few pieces of `most` samples as hold all, of about equal size; none has fewer than `least`.

    One with more than `most` comes out where `least` asks for it.
    """
    if most is None or len(indices) <= most:
        return (indices,)
    return indices.tensor_split(max(1, min(math.ceil(len(indices) / most), len(indices) // least)))


def share_of(training: Training, step: int, counts: Sequence[int], rank: int) -> StepShare:
    """The share of a rank in a step, of whose samples each rank takes `counts`."""
    first, end = training.schedule.bounds(step)
    positions = training.order(training.schedule.epoch_of(step))[first:end]
    return StepShare(step, rank, samples_of(positions, counts, rank), end - first)
