"""The rival of the benchmark of pipelines: the same model by torch's own schedules, over gloo.

`python -m benchmarks.pipeline_script {"arguments": {...}, "batch": n, "micro_batches": n, "order": NAME,
"warm_up": n}`, as torchrun starts it. Each rank has as many of the layers as any other; rank 0 prints the
milliseconds a step after the warm-up.
"""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

from peerloom.kit.plan_model.pipeline_order import GPIPE, ONE_F_ONE_B
from peerloom.worker.tasks.emulated import Emulated

SCHEDULES = {GPIPE: ScheduleGPipe, ONE_F_ONE_B: Schedule1F1B}


def main() -> None:
    asked = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    task = Emulated(**asked["arguments"])
    torch.manual_seed(1)
    layers = list(task.model())  # type: ignore[call-overload]  # it is a Sequential
    each = len(task.shapes) // world
    own = nn.Sequential(*layers[rank * each : None if rank == world - 1 else (rank + 1) * each])
    stage = PipelineStage(own, rank, world, torch.device("cpu"))
    schedule = SCHEDULES[asked["order"]](stage, asked["micro_batches"], loss_fn=functional.cross_entropy)
    optimiser = task.optimiser(own.parameters(), task.learning_rate)
    assert isinstance(optimiser, torch.optim.Optimizer)  # this task has one
    train, _ = task.data()
    steps, began_s = task.samples // asked["batch"], 0.0
    for step in range(steps):
        if step == asked["warm_up"]:
            began_s = time.perf_counter()
        inputs, targets = task.batch(train, torch.arange(asked["batch"]) + step * asked["batch"])
        schedule.step(*([inputs] if rank == 0 else []), **({"target": targets} if rank == world - 1 else {}))
        optimiser.step()
        optimiser.zero_grad()
    dist.barrier()
    if rank == 0:
        print(1000 * (time.perf_counter() - began_s) / (steps - asked["warm_up"]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
