"""Local steps: a rank trains by itself for a round, and what that changed takes the place of a gradient.

The change, start minus end, leaves as a gradient does, so every topology and codec sums it, and an outer
optimiser, whose state is the same on all ranks, moves the parameters from the round's start by the sum. The
inner optimiser's moments belong to this rank alone. Sources: Stich (ICLR 2019), Douillard et al. (arXiv
2311.08105).
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from peerloom.kit.local_rounds import LocalRounds
from peerloom.worker.buffers_before import BuffersBefore
from peerloom.worker.sync import Synchroniser
from peerloom.worker.sync.bucket_layout import Gradients
from peerloom.worker.sync.common_values import CommonValues
from peerloom.worker.updating.updater import Updater

NewUpdater = Callable[[], Updater]
ADAM_BETAS, ADAM_EPS = (0.9, 0.99), 1e-3  # those of Reddi et al. for changes, which are larger than gradients


def outer_optimiser(model: nn.Module, rounds: LocalRounds) -> torch.optim.Optimizer:
    """What moves the parameters at a round's end; with a rate of 1 and no momentum that is averaging."""
    if rounds.adam:
        return torch.optim.Adam(model.parameters(), lr=rounds.rate, betas=ADAM_BETAS, eps=ADAM_EPS)
    return torch.optim.SGD(
        model.parameters(), lr=rounds.rate, momentum=rounds.momentum, nesterov=rounds.momentum > 0
    )


class _GivenGradients(torch.autograd.Function):
    """Passes a loss on; its backward pass gives each parameter the gradient that is given for it."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor], *_: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *ctx.gradients)


class ChangedModel(nn.Module):
    """A living model whose backward pass hands over `changes` as its gradients; its input is the loss.

    A synchroniser wraps it as it does the model: it sends the changes, and before those rank 0's buffers.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.changes: list[Tensor] = []

    def forward(self, loss: Tensor) -> Tensor:
        """The `loss` as it is."""
        passed: Tensor = _GivenGradients.apply(loss, self.changes, *trained(self.model))  # type: ignore[no-untyped-call]  # torch's own is untyped
        return passed


@dataclass(frozen=True, eq=False)
class RoundStart:
    """What a round begins with, copied."""

    parameters: list[Tensor]
    buffers: BuffersBefore
    updater: tuple[dict[str, Any], dict[str, Tensor]]

    @torch.no_grad()
    def give_back(self, model: nn.Module) -> None:
        """Has the model's parameters and buffers be these again."""
        for parameter, before in zip(trained(model), self.parameters, strict=True):
            parameter.copy_(before)
        self.buffers.put_back()


class LocalSteps:
    """One worker's local steps, over the generations of a job.

    `changed` is what a synchroniser wraps, `updater` what makes the steps: it is this worker's own. Its
    moments, if it has any, are for `step`.
    """

    def __init__(self, model: nn.Module, new_updater: NewUpdater, updater: Updater, step: int) -> None:
        self.changed = ChangedModel(model)
        self.updater = updater
        self.step = step
        self._model = model
        self._new_updater = new_updater
        self._start: RoundStart | None = None
        self._common: CommonValues | None = None

    @contextmanager
    def round(self, steps: range) -> Iterator[None]:
        """The round of the job's `steps` (from 0); one that doesn't come to its end changes nothing.

        The moments of another place in the training are dropped: who gets another state begins with none.
        """
        self._start = start = self._begin(steps)
        try:
            yield
        except BaseException:
            self._put_back(start)
            raise
        finally:
            self._start = self._common = None
        self.step = steps.stop

    def make(self, loss: Tensor, part: float) -> None:
        """One step of this rank's own, by the gradients of the `loss` and those that are there already.

        They are of such a `part` of the batch's samples.
        """
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.updater.step(part=part)

    def common(self, owed: Gradients) -> CommonValues:
        """What all ranks know of the parameters, as a round begins; `exchange` sends what it doesn't have.

        `owed` is what this rank's codecs left out before, which the synchroniser adds.
        """
        self._common = CommonValues(trained(self._model), owed)
        return self._common

    def exchange(self, sync: Synchroniser, loss: float, counts: Sequence[int], rank: int) -> float:
        """Leaves the ranks' mean change in `.grad`, weighted by `counts`, their samples in the round.

        The parameters are those of the round's start again. Returns the round's mean loss; `loss` is this
        rank's part of it. Raises what `Collectives.result` does.
        """
        assert self._start is not None, "a round is under way"
        weight = counts[rank] / sum(counts)
        if self._common is not None:
            total = send_changes(self.changed, self._common.changes(weight), sync, loss, counts)
            self._common.add_moved()
            return total
        parameters, changes = trained(self._model), []
        with torch.no_grad():
            for parameter, start in zip(parameters, self._start.parameters, strict=True):
                changes.append((start - parameter).mul_(weight))
                parameter.copy_(start)
        return send_changes(self.changed, changes, sync, loss, counts)

    def _begin(self, steps: range) -> RoundStart:
        if steps.start != self.step:
            self.updater, self.step = self._new_updater(), steps.start
        self._model.zero_grad()
        return RoundStart(
            [parameter.detach().clone() for parameter in trained(self._model)],
            BuffersBefore(self._model),
            copy.deepcopy(self.updater.state()),
        )

    def _put_back(self, start: RoundStart) -> None:
        start.give_back(self._model)
        self.updater.load(*start.updater)


def send_changes(
    changed: ChangedModel, changes: list[Tensor], sync: Synchroniser, loss: float, counts: Sequence[int]
) -> float:
    """Leaves the sum of all ranks' `changes` in `.grad`; returns the sum of their parts of a `loss`.

    `counts` are the ranks' samples. Raises what `Collectives.result` does.
    """
    begun_s, exposed_before_s = time.perf_counter(), sync.traffic.exposed_s
    changed.model.zero_grad()
    changed.changes = changes
    part = torch.tensor(loss, device=changes[0].device)
    try:
        total = sync.backward(sync.forward(part), counts)
    finally:
        changed.changes = []
    # Nothing is computed beside it; waiting for rank 0's buffers, too, is waiting for others.
    sync.traffic.exposed_s = exposed_before_s + time.perf_counter() - begun_s
    return total


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The model's parameters that have gradients, in their order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
