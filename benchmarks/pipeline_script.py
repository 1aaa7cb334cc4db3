"""The rival of the benchmark of pipelines: the same model by torch's own schedules, as torchrun starts it.

As `emulated_rival` says, and with the samples of a `batch`, its `micro_batches`, and an `order`. Each rank
has as many of the layers as any other. In the order `zbv` a rank has two stages, the first one the last too.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining.stage import _PipelineStageBase
from torch.nn import functional

from benchmarks.emulated_rival import begin
from peerloom.kit.plan_model.pipeline_order import GPIPE, ONE_F_ONE_B, ZB_H1

ZBV = "zbv"
OF_ONE_STAGE = {GPIPE: ScheduleGPipe, ONE_F_ONE_B: Schedule1F1B}
OF_SEVERAL = {ZB_H1: ScheduleInterleavedZeroBubble, ZBV: ScheduleZBVZeroBubble}


def main() -> None:
    rival = begin()
    rank, world, order, batch = rival.rank, rival.world, rival.asked["order"], rival.asked["batch"]
    layers = list(rival.model())
    numbers = [rank, 2 * world - 1 - rank] if order == ZBV else [rank]
    own: list[_PipelineStageBase] = [_stage(layers, number, world * len(numbers)) for number in numbers]
    how = {"n_microbatches": rival.asked["micro_batches"], "loss_fn": functional.cross_entropy}
    schedule = OF_ONE_STAGE[order](own[0], **how) if order in OF_ONE_STAGE else OF_SEVERAL[order](own, **how)
    has_targets = rank == (0 if order == ZBV else world - 1)

    def passes(inputs: Tensor, targets: Tensor) -> None:
        more: dict[str, Any] = {"target": targets} if has_targets else {}
        schedule.step(*([inputs] if rank == 0 else []), **more)

    parameters = [each for stage in own for each in stage.submod.parameters()]
    rival.train(parameters, batch, lambda first: first + torch.arange(batch), passes)


class _Copied(nn.Module):
    """Torch's split backward passes fail where what a stage hands on is a view."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.clone()


def _stage(layers: list[nn.Module], number: int, stages: int) -> PipelineStage:
    """As many of the layers as each other stage has; the last one has what is left too."""
    each = len(layers) // stages
    own = nn.Sequential(*layers[number * each : None if number == stages - 1 else (number + 1) * each])
    own.append(_Copied())
    return PipelineStage(own, number, stages, torch.device("cpu"))


if __name__ == "__main__":
    main()
