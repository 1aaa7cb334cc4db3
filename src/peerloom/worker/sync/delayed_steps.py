"""Local steps whose changes travel while the next round is computed; nothing of it counts before they came.

The state holds the committed rounds, with the same bits on all ranks. Beside it each rank goes on from its
own end of a round while the ranks exchange what that changed (CoCoD-SGD: Shen et al., IJCAI 2019). So with
the exchange's end a round is committed, and the next one is there to be exchanged. What breaks on the way
undoes both: no sample counts whose change isn't in the parameters.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from peerloom.kit.local_rounds import LocalRounds
from peerloom.worker.sync import Synchroniser
from peerloom.worker.sync.local_steps import (
    ChangedModel,
    LocalSteps,
    NewUpdater,
    send_changes,
    trained,
)
from peerloom.worker.updating.updater import Updater


class Carrier(nn.Module):
    """Gradients and buffers for what travels beside a model, whose parameters it has."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.values = nn.ParameterList(nn.Parameter(parameter.detach()) for parameter in trained(model))
        for number, buffer in enumerate(model.buffers()):
            self.register_buffer(f"buffer_{number}", buffer.clone())


@dataclass(frozen=True, eq=False)
class RoundAhead:
    """A round that is computed beside the state, and isn't committed.

    `own` is what it changed in this rank, start minus end, `loss` this rank's part of the mean loss, `counts`
    the ranks' samples. `updater` is the inner optimiser's state at its start, `buffers` are the model's at
    its end.
    """

    steps: range
    generation: int
    counts: list[int]
    loss: float
    own: list[Tensor]
    buffers: list[Tensor]
    updater: tuple[dict[str, Any], dict[str, Tensor]]

    @torch.no_grad()
    def lead_on(self, model: nn.Module) -> None:
        """Has a model in the state that it began with be where this rank was at its end."""
        for parameter, change in zip(trained(model), self.own, strict=True):
            parameter.sub_(change)
        for buffer, at_end in zip(model.buffers(), self.buffers, strict=True):
            buffer.copy_(at_end)


class DelayedSteps(LocalSteps):
    """Local steps that are a round ahead of what all have exchanged."""

    def __init__(self, model: nn.Module, new_updater: NewUpdater, updater: Updater, step: int) -> None:
        super().__init__(model, new_updater, updater, step)
        self.changed = ChangedModel(Carrier(model))
        self._ahead: RoundAhead | None = None
        self._exchanging = ThreadPoolExecutor(1, "exchange")

    def compute(
        self,
        steps: range,
        generation: int,
        counts: list[int],
        behind: RoundAhead | None,
        work: Callable[[], float],
    ) -> RoundAhead:
        """What `work` makes of a round beside the state, which is as before afterwards.

        It begins with the state's parameters, or where the round `behind` it leads from there. `work` returns
        this rank's part of the mean loss; what it raises undoes all.
        """
        start = self._begin(steps)
        try:
            if behind is not None:
                behind.lead_on(self._model)
            loss = work()
            own = self._changed(start.parameters, behind)
            buffers = [buffer.clone() for buffer in self._model.buffers()]
        except BaseException:
            self._put_back(start)
            raise
        start.give_back(self._model)
        self.step = steps.stop
        return RoundAhead(steps, generation, counts, loss, own, buffers, start.updater)

    @torch.no_grad()
    def _changed(self, start: list[Tensor], behind: RoundAhead | None) -> list[Tensor]:
        """What the round that ends now has changed; it began where the one `behind` had led from `start`."""
        before = start if behind is None else [one - own for one, own in zip(start, behind.own, strict=True)]
        return [one - parameter for one, parameter in zip(before, trained(self._model), strict=True)]

    def computed(self, steps: range, generation: int) -> RoundAhead | None:
        """The round of these steps, if it was computed ahead in this generation. Another is dropped."""
        ahead = self._ahead
        if ahead is None or (ahead.steps, ahead.generation) != (steps, generation):
            self.forget()
            return None
        self._ahead = None
        return ahead

    def forget(self) -> None:
        """Drops the round that was computed ahead, if there is one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self.drop(ahead)

    def keep(self, ahead: RoundAhead | None) -> None:
        """Keeps a computed round, of which nothing was exchanged yet, until it is asked for."""
        self._ahead = ahead

    def drop(self, ahead: RoundAhead) -> None:
        """Undoes a computed round, and what was computed after it: the moments are those from before."""
        self.updater.load(*ahead.updater)
        self.step = ahead.steps.start

    def send(self, ahead: RoundAhead, sync: Synchroniser, rank: int) -> "Future[float]":
        """Begins to exchange what a round changed; gives the round's mean loss, or raises as `send_changes`.

        The sums wait for `take`. One exchange at a time.
        """
        weight = ahead.counts[rank] / sum(ahead.counts)
        with torch.no_grad():
            for carried, buffer in zip(self.changed.buffers(), ahead.buffers, strict=True):
                carried.copy_(buffer)
            changes = [change * weight for change in ahead.own]
        return self._exchanging.submit(send_changes, self.changed, changes, sync, ahead.loss, ahead.counts)

    def take(self) -> None:
        """Leaves the sums that came in the model's `.grad`, and rank 0's buffers in its own."""
        carried: Sequence[nn.Parameter] = trained(self.changed)
        for parameter, sum_of_all in zip(trained(self._model), carried, strict=True):
            parameter.grad = sum_of_all.grad
        with torch.no_grad():
            for buffer, of_first in zip(self._model.buffers(), self.changed.buffers(), strict=True):
                buffer.copy_(of_first)


def steps_by(
    rounds: LocalRounds,
    before: LocalSteps | None,
    model: nn.Module,
    new_updater: NewUpdater,
    updater: Updater,
    step: int,
) -> LocalSteps:
    """What makes the local steps of such `rounds`; what made them `before`, where that does it the same way.

    Moments go on; without any before they are those of `updater`, for `step`.
    """
    kind = DelayedSteps if rounds.delay else LocalSteps
    if before is None:
        return kind(model, new_updater, updater, step)
    if type(before) is kind:
        return before
    if isinstance(before, DelayedSteps):
        before.forget()
    return kind(model, new_updater, before.updater, before.step)
