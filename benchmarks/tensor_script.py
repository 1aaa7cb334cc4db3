"""The rival of the benchmark of layers in pieces: the task "text" by torch's tensor parallelism over gloo.

`python -m benchmarks.tensor_script {"arguments": {...}, "batch": n, "warm_up": n, "steps": n}`, as torchrun
starts it: `arguments` are the task's. Rank 0 prints the median milliseconds of a step after the warm-up. What
is cut along what is as in Peerloom's plan: attention by heads, the two layers after it, the embeddings'
vectors, and the logits.
"""

import json
import os
import sys
import time
from statistics import median

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from peerloom.worker.task import load_batch
from peerloom.worker.tasks.text import Block, Text


def main() -> None:
    asked = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    task = Text(**asked["arguments"])
    torch.manual_seed(1)
    model = task.model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    joined = ColwiseParallel(output_layouts=Replicate())
    plan: dict[str, ParallelStyle] = {
        "embedding.bytes": joined,
        "embedding.places": joined,
        "head.logits": joined,
    }
    for number in range(task.depth):
        for name in ("projections", "wide"):
            plan[f"blocks.{number}.{name}"] = ColwiseParallel()
        for name in ("mixing", "narrow"):
            plan[f"blocks.{number}.{name}"] = RowwiseParallel()
    parallelize_module(model, mesh, plan)
    for block in model.modules():
        if isinstance(block, Block):
            block.heads //= dist.get_world_size()
    optimiser = task.optimiser(model.parameters(), task.learning_rate)
    train, taken_s, batch = task.data()[0], [], asked["batch"]
    for step in range(asked["warm_up"] + asked["steps"]):
        began_s = time.perf_counter()
        inputs, targets = load_batch(task, train, step * batch + torch.arange(batch))
        torch.autograd.backward([task.loss(model(inputs), targets).mean()])
        optimiser.step()
        optimiser.zero_grad()
        taken_s.append(time.perf_counter() - began_s)
    dist.barrier()
    if dist.get_rank() == 0:
        print(1000 * median(taken_s[asked["warm_up"] :]), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # as workers do: torch's threads may abort a process that ends while they do


if __name__ == "__main__":
    main()
