"""One rank's work in a round of local steps: its share of each batch, a step each, then the exchange."""

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from peerloom.v1.trainer_pb2 import StepProgress
from peerloom.worker.batches import call_model
from peerloom.worker.group.process_group import Group
from peerloom.worker.schedule import Schedule, samples_of, split_batch
from peerloom.worker.step_share import StepShare
from peerloom.worker.sync import Synchroniser, SyncTraffic
from peerloom.worker.sync.group_means import GroupMeans
from peerloom.worker.sync.local_steps import LocalSteps, trained
from peerloom.worker.sync.partial_means import PartialMeans
from peerloom.worker.training import Training


def make_round(
    training: Training,
    local_steps: LocalSteps,
    group: Group,
    sync: Synchroniser,
    steps: range,
    shares: Sequence[int],
) -> tuple[float, list[int]]:
    """Makes the round of the job's `steps` (from 0), but for the outer optimiser's step.

    Returns the mean loss over its samples, and how many of these each rank took. Each local step goes by the
    mean loss of this rank's own samples of a batch. Raises GenerationBrokenError between two of them when the
    group broke, or is to be left where the last round ended, and what the synchroniser raises; what the round
    changed is undone then.
    """
    divided = division(training, steps, shares)
    counts = samples_of_ranks(divided)
    with local_steps.round(steps):
        own = walk_round(training, local_steps, group, sync.traffic, steps, divided, steps.start)
        mean = local_steps.exchange(sync, own, counts, group.rank)
        group.check()
    return mean, counts


def walk_round(
    training: Training,
    local_steps: LocalSteps,
    group: Group,
    traffic: SyncTraffic,
    steps: range,
    divided: Sequence[Sequence[int]],
    committed: int,
) -> float:
    """This rank's local steps of a round, and its part of the mean loss; `committed` steps of the job count.

    What averages within the round cost is added to `traffic`. Raises as `make_round` does.
    """
    counts = samples_of_ranks(divided)
    means = GroupMeans(group, traffic, training.sync, counts)
    parts = None
    if training.sync.partial is not None:
        common = local_steps.common(training.residuals.kept)
        parts = PartialMeans(group, traffic, training.sync, counts, common)
    forward, parameters = partial(call_model, training.state.model), trained(training.state.model)
    loss_sum = torch.zeros((), device=training.device)
    share_of = {share.step: share for share in shares_of(training, steps, divided, group.rank)}
    for step in steps:
        if step in share_of:
            group.check(committed)
            local_steps.updater.reach(step)
            loss = share_of[step].walk(training, forward, local_steps.updater)
            samples, of_all = len(share_of[step].indices), sum(divided[step - steps.start])
            local_steps.make(loss, samples / of_all)
            loss_sum += loss.detach() * samples
        means.after(step, steps, parameters)
        if parts is not None:
            parts.after(step, steps)
    own = float(loss_sum) / sum(map(sum, divided))  # on a GPU this waits for the local steps
    group.check(committed)
    return own


def each_step(whole: StepProgress, steps: range, schedule: Schedule) -> list[StepProgress]:
    """A round as its steps: each with its samples and an equal part of what the round took, and its loss.

    What is told once is told with the first step; what belongs to its end, with the last.
    """
    made: list[StepProgress] = []
    for step in steps:
        first, end = schedule.bounds(step)
        progress = StepProgress()
        progress.CopyFrom(whole)
        progress.step, progress.first_sample, progress.samples = step + 1, first, end - first
        for part in ("step_s", "compute_s", "communication_s"):
            setattr(progress, part, getattr(whole, part) / len(steps))
        sent = whole.communicated_bytes
        progress.communicated_bytes = sent * (len(made) + 1) // len(steps) - sent * len(made) // len(steps)
        if made:
            del progress.batch_shares[:]
        if step != steps[-1]:
            progress.metrics.clear()
        made.append(progress)
    return made


def division(training: Training, steps: range, shares: Sequence[int]) -> list[list[int]]:
    """How many samples each rank takes in each of the steps."""
    bounds = map(training.schedule.bounds, steps)
    return [split_batch(end - first, shares, training.least_samples) for first, end in bounds]


def samples_of_ranks(divided: Sequence[Sequence[int]]) -> list[int]:
    """How many samples each rank takes in all of the steps."""
    return [sum(rank) for rank in zip(*divided, strict=True)]


def shares_of(
    training: Training, steps: range, divided: Sequence[Sequence[int]], rank: int
) -> Iterator[StepShare]:
    """A rank's shares of the steps of one epoch, without those in which it has no sample."""
    order = training.order(training.schedule.epoch_of(steps.start))
    for step, counts in zip(steps, divided, strict=True):
        if counts[rank]:
            first, end = training.schedule.bounds(step)
            yield StepShare(step, rank, samples_of(order[first:end], counts, rank), counts[rank])
