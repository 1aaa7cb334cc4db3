"""Which samples belong to which step and which worker: pure functions of the seed and the step.

The global batch is what the user asked for, whatever the number of workers. Each epoch visits each
sample once, in an order made from the seed and the epoch alone, so that a step's samples depend neither
on who trains nor on what happened before. A step is a batch. With rounds of local steps those of a round are
committed at once; a round ends at the latest with its epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from peerloom.errors import InvalidArgumentError


@dataclass(frozen=True)
class Schedule:
    """`samples` training samples in batches of `batch_size` for `epochs` passes.

    A step has a batch, or with `is_epoch_a_step` all of an epoch's, which federated clients divide.
    """

    samples: int
    batch_size: int
    epochs: int
    seed: int
    is_epoch_a_step: bool = False

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InvalidArgumentError("The training set is empty; there is nothing to learn from.")

    @property
    def step_samples(self) -> int:
        """Samples in a step, but for the last of an epoch, which may have fewer."""
        return self.samples if self.is_epoch_a_step else self.batch_size

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one epoch; the last one may be smaller than the others."""
        return -(-self.samples // self.step_samples)

    @property
    def total_steps(self) -> int:
        """Steps in the whole job."""
        return self.steps_per_epoch * self.epochs

    @property
    def total_batches(self) -> int:
        """Batches in the whole job."""
        return -(-self.samples // self.batch_size) * self.epochs

    def epoch_of(self, step: int) -> int:
        """The epoch, from 0, that the step (from 0) belongs to."""
        return step // self.steps_per_epoch

    def order(self, epoch: int) -> torch.Tensor:
        """All samples of an epoch (from 0) in the order of their use, int64 [samples]."""
        return shuffled(self.samples, self.seed, epoch)

    def bounds(self, step: int) -> tuple[int, int]:
        """First and one past the last position in the epoch's order of the step (from 0)."""
        first = (step % self.steps_per_epoch) * self.step_samples
        return first, min(first + self.step_samples, self.samples)

    def samples_in(self, steps: range) -> int:
        """Of steps of one epoch."""
        return self.bounds(steps[-1])[1] - self.bounds(steps[0])[0]

    def round_end(self, step: int, period: int) -> int:
        """The steps that are made when the round ends that begins after `step`: `period`, or fewer.

        A round ends where the epoch's steps are a multiple of `period`, and with the epoch. So all ranks
        agree, also where rounds begin in the middle of an epoch.
        """
        first = self.epoch_of(step) * self.steps_per_epoch
        return min(first + ((step - first) // period + 1) * period, first + self.steps_per_epoch)


def shuffled(samples: int, seed: int, epoch: int) -> torch.Tensor:
    """So many samples in an order of the epoch's (from 0) own, int64 [samples]."""
    # torch takes seeds of 64 bits; the job's may have as many by itself.
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**64)
    return torch.randperm(samples, generator=generator)


def split_batch(count: int, shares: Sequence[int], least: int = 1) -> list[int]:
    """How many of `count` samples each rank takes: in proportion to `shares`, each sample once.

    D'Hondt's method, which makes the largest count / share as small as whole samples allow, and so the
    step as short: one sample too many costs a slow worker most. Ties to the lower rank. Nobody takes fewer
    than `least`, but none at all, unless the whole batch is smaller.
    """
    total, sharing = sum(shares), [rank for rank, share in enumerate(shares) if share]
    counts = [count * share // total for share in shares]
    for _ in range(count - sum(counts)):
        counts[min(sharing, key=lambda rank: (counts[rank] + 1) / shares[rank])] += 1
    if count >= least:
        for rank in sharing:
            _fill_or_empty(counts, rank, least)
    return counts


def _fill_or_empty(counts: list[int], rank: int, least: int) -> None:
    # From the rank that has most, or else to it.
    others = [other for other in range(len(counts)) if other != rank]
    if not 0 < counts[rank] < least or not others:
        return
    missing, most = least - counts[rank], max(others, key=lambda other: counts[other])
    moved = missing if counts[most] - missing >= least else -counts[rank]
    counts[rank] += moved
    counts[most] -= moved


def samples_of(positions: torch.Tensor, counts: Sequence[int], rank: int) -> torch.Tensor:
    """The part of a step's samples that `rank` takes: consecutive, without overlap."""
    first = sum(counts[:rank])
    return positions[first : first + counts[rank]]
