"""The rival of the benchmark of synchronisation: the same model under plain DDP, as torchrun starts it.

Rank 0 prints the milliseconds a batch after the warm-up.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from peerloom.worker.tasks.emulated import Emulated


def main() -> None:
    asked = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    task = Emulated(**asked["arguments"])
    torch.manual_seed(1)
    model = DistributedDataParallel(task.model(), gradient_as_bucket_view=True)
    optimiser = task.optimiser(model.parameters(), task.learning_rate)
    assert isinstance(optimiser, torch.optim.Optimizer)  # this task has one
    train, _ = task.data()
    began_s = 0.0
    for step in range(task.samples // world):
        if step == asked["warm_up"]:
            began_s = time.perf_counter()
        own = torch.tensor([step * world + rank])
        inputs, targets = task.batch(train, own)
        loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        optimiser.zero_grad()
    dist.barrier()
    if rank == 0:
        batches = task.samples // world - asked["warm_up"]
        print(1000 * (time.perf_counter() - began_s) / batches, flush=True)
    dist.destroy_process_group()
    os._exit(0)  # as workers do: torch's threads may abort a process that ends while they do


if __name__ == "__main__":
    main()
