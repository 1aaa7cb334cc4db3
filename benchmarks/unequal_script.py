"""The rival of the benchmark of unequal workers: the same waiting under plain DDP, as torchrun starts it.

Every worker has an equal part of each batch. Prints the samples a second over all steps after the warm-up.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.unequal_task import BATCH, SAMPLE_S, SLOWDOWN, make_data, make_model


def main(steps: int, warm_up: int) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(make_model(), gradient_as_bucket_view=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs, targets = make_data(steps * BATCH)
    sample_s = SAMPLE_S * (SLOWDOWN if rank == 0 else 1.0)
    begin_s = 0.0
    for step in range(steps):
        if step == warm_up:
            begin_s = time.perf_counter()
        indices = torch.arange(step * BATCH + rank, (step + 1) * BATCH, world)
        time.sleep(sample_s * len(indices))
        loss = functional.cross_entropy(model(inputs[indices]), targets[indices])
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    if rank == 0:
        print((steps - warm_up) * BATCH / (time.perf_counter() - begin_s), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(int(sys.argv[1]), int(sys.argv[2]))
