"""The same work under plain DDP, as torchrun starts it: python torchrun_worker.py FOLDER BACKEND.

Over NCCL all share the first card, and say that they are different hosts, or NCCL would refuse them.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.recovery.small_model import BATCH, LEARNING_RATE, POOL, SEED, make_model, make_pool
from benchmarks.recovery.steps_file import StepsFile


def main(folder: str, backend: str) -> None:
    device = torch.device("cuda" if backend == "nccl" else "cpu")
    os.environ["NCCL_HOSTID"] = f"rank-{os.environ['RANK']}"
    dist.init_process_group(backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(SEED)
    model = DistributedDataParallel(make_model().to(device), gradient_as_bucket_view=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    inputs, targets = make_pool()
    steps, step = StepsFile(folder), 0
    while True:
        indices = torch.arange(step * BATCH + rank, (step + 1) * BATCH, world) % POOL
        logits = model(inputs[indices].to(device))
        loss = functional.cross_entropy(logits, targets[indices].to(device))
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        optimiser.zero_grad()
        step += 1
        loss.item()  # until the card has made it
        steps.commit(step, world)


if __name__ == "__main__":
    main(*sys.argv[1:])
