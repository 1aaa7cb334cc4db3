"""The rival of the benchmark of shards: the same model by torch's `fully_shard`, over gloo.

`python -m benchmarks.fsdp_script {"arguments": {...}, "batch": n, "warm_up": n}`, as torchrun starts it. Each
layer is a unit. Each rank has as many of a batch's samples; rank 0 prints the milliseconds a step after the
warm-up.
"""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from peerloom.worker.tasks.emulated import Emulated


def main() -> None:
    asked = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    task = Emulated(**asked["arguments"])
    torch.manual_seed(1)
    model = task.model()
    mesh = init_device_mesh("cpu", (world,))
    assert isinstance(model, nn.Sequential)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimiser = task.optimiser(model.parameters(), task.learning_rate)
    assert isinstance(optimiser, torch.optim.Optimizer)  # this task has one
    train, _ = task.data()
    batch, began_s = asked["batch"], 0.0
    steps = task.samples // batch
    for step in range(steps):
        if step == asked["warm_up"]:
            dist.barrier()
            began_s = time.perf_counter()
        own = step * batch + rank * (batch // world) + torch.arange(batch // world)
        inputs, targets = task.batch(train, own)
        functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        optimiser.step()
        optimiser.zero_grad()
    dist.barrier()
    if rank == 0:
        print(1000 * (time.perf_counter() - began_s) / (steps - asked["warm_up"]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
