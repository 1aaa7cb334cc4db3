"""One client's work: from a version of the parameters to an update, batch by batch.

It may begin in one round and end in a later one, or in another generation: others commit versions meanwhile.
So it has parameters of its own, which stand in the model only while it trains.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from peerloom.kit.federated_rounds import FederatedRounds
from peerloom.worker.batches import call_model
from peerloom.worker.federated.shards import Shard
from peerloom.worker.federated.versions import flaw_of, likeness_of
from peerloom.worker.step_share import StepShare
from peerloom.worker.sync.local_steps import trained
from peerloom.worker.training import Training
from peerloom.worker.updating.task_updater import updater_of
from peerloom.worker.updating.updater import Updater


class ClientWork:
    """What one client does for the round of `version`, with its `shard` of the training samples.

    It ends after the passes or batches that the `rounds` say. `samples` are those that it has trained on,
    `loss` their mean loss. Its optimiser begins anew with each, and its learning rate where the job's is.
    """

    def __init__(
        self, training: Training, rounds: FederatedRounds, client: int, shard: Shard, version: int
    ) -> None:
        self.client, self.version = client, version
        self.samples = 0
        self._training, self._rounds, self._shard = training, rounds, shard
        self._batch_size = min(training.schedule.batch_size, shard.count)
        in_pass = math.ceil(shard.count / self._batch_size)
        self._batches = rounds.batches or rounds.epochs * in_pass
        self._passes = math.ceil(self._batches / in_pass)
        self._made = 0
        self._loss_sum = 0.0
        self._before: list[Tensor] = []  # what the model had, while it has this client's parameters
        model, epochs = training.state.model, training.schedule.epochs
        self._base = [parameter.detach().clone() for parameter in trained(model)]
        self._own = self._base
        made = (training.task, model, training.learning_rate, self._batches * epochs, True)
        self._updater: Updater = updater_of(*made)
        self._upcoming = self._shares()

    @property
    def is_done(self) -> bool:
        """Its update is complete."""
        return self._made == self._batches

    @property
    def loss(self) -> float:
        """The mean over the samples that it has trained on."""
        return self._loss_sum / max(1, self.samples)

    def enter_model(self) -> None:
        """The model has this client's parameters from here on, until `leave_model`."""
        if not self._before:
            self._before = [tensor.detach().clone() for tensor in self._tensors()]
            _put(trained(self._training.state.model), self._own)

    def leave_model(self) -> None:
        """The model has again what it had."""
        if self._before:
            self._own = [each.detach().clone() for each in trained(self._training.state.model)]
            _put(self._tensors(), self._before)
            self._before = []
        self._training.state.model.zero_grad()

    def make_batch(self) -> int:
        """One step of this client's own, with its parameters in the model; of how many samples."""
        training, share = self._training, next(self._upcoming)
        self._updater.reach(share.step)
        loss = share.walk(training, partial(call_model, training.state.model), self._updater)
        drawn = loss
        if self._rounds.mu:
            pairs = zip(trained(training.state.model), self._base, strict=True)
            way = torch.stack([(now - begun).square().sum() for now, begun in pairs]).sum()
            drawn = loss + self._updater.scaled(self._rounds.mu / 2 * way)
        drawn.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._updater.step()
        self._made += 1
        self.samples += share.batch
        self._loss_sum += float(loss.detach()) * share.batch
        return share.batch

    def change(self) -> list[Tensor]:
        """What it has changed, the start minus the end, by parameter."""
        return [begun - own for begun, own in zip(self._base, self._own, strict=True)]

    def flaw(self) -> int:
        """What is wrong with its update, as `versions.flaw_of` says."""
        return flaw_of(self.change(), trained(self._training.state.model))

    def likeness(self) -> float:
        """The cosine between its update and what others have changed since it began."""
        now = trained(self._training.state.model)
        return likeness_of(self.change(), [a - b.detach() for a, b in zip(self._base, now, strict=True)])

    def _tensors(self) -> list[Tensor]:
        model = self._training.state.model
        return [*trained(model), *model.buffers()]

    def _shares(self) -> Iterator[StepShare]:
        """Its batches, in passes over its shard, each in an order of its own."""
        size, made = self._batch_size, self.version * self._batches
        for number in range(self.version * self._passes, (self.version + 1) * self._passes):
            order = self._shard.order(number)
            for rows in (order[first : first + size] for first in range(0, len(order), size)):
                yield StepShare(made, self.client, rows, len(rows))
                made += 1


@torch.no_grad()
def _put(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
