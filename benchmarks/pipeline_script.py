"""The rival of the benchmark of pipelines: the same model by torch's own schedules, over gloo.

`python -m benchmarks.pipeline_script {"arguments": {...}, "batch": n, "micro_batches": n, "order": NAME,
"warm_up": n}`, as torchrun starts it. Each rank has as many of the layers as any other; rank 0 prints the
milliseconds a step after the warm-up. In the order `zbv` a rank has two stages, the first one the last too.
"""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining.stage import _PipelineStageBase
from torch.nn import functional

from peerloom.kit.plan_model.pipeline_order import GPIPE, ONE_F_ONE_B, ZB_H1
from peerloom.worker.tasks.emulated import Emulated

ZBV = "zbv"
OF_ONE_STAGE = {GPIPE: ScheduleGPipe, ONE_F_ONE_B: Schedule1F1B}
OF_SEVERAL = {ZB_H1: ScheduleInterleavedZeroBubble, ZBV: ScheduleZBVZeroBubble}


def main() -> None:
    asked = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    task = Emulated(**asked["arguments"])
    torch.manual_seed(1)
    layers = list(task.model())  # type: ignore[call-overload]  # it is a Sequential
    order = asked["order"]
    numbers = [rank, 2 * world - 1 - rank] if order == ZBV else [rank]
    own: list[_PipelineStageBase] = [_stage(layers, number, world * len(numbers)) for number in numbers]
    how = {"n_microbatches": asked["micro_batches"], "loss_fn": functional.cross_entropy}
    schedule = OF_ONE_STAGE[order](own[0], **how) if order in OF_ONE_STAGE else OF_SEVERAL[order](own, **how)
    parameters = [each for stage in own for each in stage.submod.parameters()]
    optimiser = task.optimiser(parameters, task.learning_rate)
    assert isinstance(optimiser, torch.optim.Optimizer)  # this task has one
    train, _ = task.data()
    steps, began_s = task.samples // asked["batch"], 0.0
    for step in range(steps):
        if step == asked["warm_up"]:
            began_s = time.perf_counter()
        inputs, targets = task.batch(train, torch.arange(asked["batch"]) + step * asked["batch"])
        has_targets = rank == (0 if order == ZBV else world - 1)
        schedule.step(*([inputs] if rank == 0 else []), **({"target": targets} if has_targets else {}))
        optimiser.step()
        optimiser.zero_grad()
    dist.barrier()
    if rank == 0:
        print(1000 * (time.perf_counter() - began_s) / (steps - asked["warm_up"]), flush=True)
    dist.destroy_process_group()


class _Copied(nn.Module):
    """Torch's split backward passes fail where what a stage hands on is a view."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.clone()


def _stage(layers: list[nn.Module], number: int, stages: int) -> PipelineStage:
    """As many of the layers as each other stage has; the last one has what is left too."""
    each = len(layers) // stages
    own = nn.Sequential(*layers[number * each : None if number == stages - 1 else (number + 1) * each])
    own.append(_Copied())
    return PipelineStage(own, number, stages, torch.device("cpu"))


if __name__ == "__main__":
    main()
