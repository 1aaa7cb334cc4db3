"""One rank's work in a round of local steps: its share of each batch, a step each, then the exchange."""

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from peerloom.worker.batches import call_model
from peerloom.worker.group.process_group import Group
from peerloom.worker.schedule import samples_of, split_batch
from peerloom.worker.step_share import StepShare
from peerloom.worker.sync import Synchroniser
from peerloom.worker.sync.local_steps import LocalSteps
from peerloom.worker.training import Training


def make_round(
    training: Training,
    local_steps: LocalSteps,
    group: Group,
    sync: Synchroniser,
    step: int,
    shares: Sequence[int],
) -> tuple[float, list[int]]:
    """Makes the round that is the job's `step` (from 0), but for the outer optimiser's step.

    Returns the mean loss over its samples, and how many of these each rank took. Each local step goes by the
    mean loss of this rank's own samples of a batch. Raises GenerationBrokenError between two of them when the
    group broke, or is to be left where the last round ended, and what the synchroniser raises; what the round
    changed is undone then.
    """
    divided = division(training, step, shares)
    counts = [sum(rank) for rank in zip(*divided, strict=True)]
    forward = partial(call_model, training.state.model)
    with local_steps.round(step):
        loss_sum = torch.zeros((), device=training.device)
        for share in shares_of(training, step, divided, group.rank):
            group.check(step)
            local_steps.updater.reach(share.step)
            loss = share.walk(training, forward, local_steps.updater)
            local_steps.make(loss)
            loss_sum += loss.detach() * len(share.indices)
        own = float(loss_sum) / sum(counts)  # on a GPU this waits for the local steps
        group.check(step)
        mean = local_steps.exchange(sync, own, counts, group.rank)
        group.check()
    return mean, counts


def division(training: Training, step: int, shares: Sequence[int]) -> list[list[int]]:
    """How many samples each rank takes, of each batch of the step."""
    batches = training.schedule.batches(step)
    return [split_batch(end - first, shares, training.least_samples) for first, end in batches]


def shares_of(
    training: Training, step: int, divided: Sequence[Sequence[int]], rank: int
) -> Iterator[StepShare]:
    """A rank's shares of the step's batches, without those in which it has no sample."""
    schedule = training.schedule
    order = training.order(schedule.epoch_of(step))
    for (first, end), counts in zip(schedule.batches(step), divided, strict=True):
        if counts[rank]:
            indices = samples_of(order[first:end], counts, rank)
            yield StepShare(schedule.batch_number(step, first), rank, indices, counts[rank])
