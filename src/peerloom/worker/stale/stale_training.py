"""What a worker keeps over the generations of a job whose gradients may be of older parameters."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from peerloom.errors import InvalidArgumentError
from peerloom.kit.handing_out import HandOut, Row
from peerloom.kit.sample_ranges import Range, cut_out, others, size
from peerloom.kit.stale_steps import StaleSteps
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.group.process_group import Group
from peerloom.worker.stale.part_computer import PartComputer
from peerloom.worker.sync.local_steps import ChangedModel
from peerloom.worker.task import Task
from peerloom.worker.training import Training
from peerloom.worker.updating.precision import FP16


class Counted:
    """The positions of the epoch under way that have counted: a part of the job's state."""

    def __init__(self) -> None:
        self.ranges: tuple[Range, ...] = ()

    def state_dict(self) -> dict[str, Any]:
        """The ranges."""
        return {"ranges": [list(each) for each in self.ranges]}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Takes over another worker's."""
        self.ranges = tuple((int(first), int(end)) for first, end in state_dict["ranges"])


class StaleTraining(Training):
    """A training whose steps take parts of batches that any worker has computed.

    Raises InvalidArgumentError for batch normalisation, and for fp16, whose gradients have the scale of the
    step that they began with.
    """

    def __init__(self, task: Task, spec: JobSpec, device: torch.device) -> None:
        super().__init__(task, spec, device)
        assert self.sync.stale is not None, "the job takes older gradients"
        _check(task, self.state.model)
        self.counted = Counted()
        self.state.registered["stale"] = self.counted
        self._changed = ChangedModel(self.state.model)
        self._computer: PartComputer | None = None
        self._epoch: tuple[int, int] | None = None  # the generation and epoch that `handing` is of
        self._rest: tuple[Range, ...] = ()
        self._part_size = 1
        self.handing = HandOut(self.sync.stale, 0, 1, False, ())

    @property
    def computer(self) -> PartComputer:
        """What computes this worker's parts."""
        if self._computer is None:
            self._computer = PartComputer(self)
        return self._computer

    @property
    def exchanged(self) -> nn.Module:
        """What a synchroniser wraps: what hands over a step's gradients."""
        return self._changed

    @property
    def changed(self) -> ChangedModel:
        """The same."""
        return self._changed

    @property
    def called(self) -> nn.Module:
        """What the forward pass of a part calls."""
        return self.computer.model

    def begin_parts(self, group: Group, step: int) -> None:
        """Before a step (from 0): where a generation or an epoch begins, what is left of it is cut anew.

        Parts that were handed out before, and haven't counted, are handed out again.
        """
        epoch = self.schedule.epoch_of(step)
        if step % self.schedule.steps_per_epoch == 0:
            self.counted.ranges = ()
        if self._epoch == (group.generation, epoch):
            return
        self._epoch = (group.generation, epoch)
        self.computer.drop()
        self._rest = others(self.counted.ranges, self.schedule.samples)
        stale, batch = self._stale(), self.schedule.batch_size
        per_step = stale.parts(batch, group.world_size)
        self._part_size = batch // per_step
        left = size(self._rest)
        ends_short = left % self._part_size > 0
        rows = tuple(Row() for _ in range(group.world_size))
        self.handing = HandOut(stale, -(-left // self._part_size), per_step, ends_short, rows)

    def positions_in(self, number: int) -> tuple[Range, ...]:
        """The positions of a part in the order of the epoch under way."""
        first = number * self._part_size
        return cut_out(self._rest, first, first + self._part_size)

    def indices_of(self, number: int, step: int) -> torch.Tensor:
        """The samples of a part, int64, in the epoch that a step (from 0) belongs to."""
        order = self.order(self.schedule.epoch_of(step))
        return torch.cat([order[first:end] for first, end in self.positions_in(number)])

    def finish(self, check: Any) -> None:
        """The last step is made."""
        self.computer.close()
        super().finish(check)

    def _stale(self) -> StaleSteps:
        assert self.sync.stale is not None, "the job takes older gradients"
        return self.sync.stale


def _check(task: Task, model: nn.Module) -> None:
    name = type(task).__name__
    if any(isinstance(module, _BatchNorm) and module.track_running_stats for module in model.modules()):
        raise InvalidArgumentError(
            f"The model of {name} has batch normalisation, whose statistics change with each part that a "
            "worker computes by itself. Take GroupNorm or LayerNorm, or a sync without staleness and backup.",
            reason="BATCH_NORMALISATION_STALE",
        )
    if task.autocast == FP16:
        raise InvalidArgumentError(
            f"{name}.autocast is 'fp16', and a gradient that is some steps old may have another scale. Use "
            "'bf16', or a sync without staleness and backup.",
            reason="FP16_STALE",
        )
