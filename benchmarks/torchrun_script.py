"""The rival of the benchmarks of training: the same model and data under plain DDP, as torchrun starts it.

Takes how many steps to make, how many of them are the warm-up, and the model's name. Prints "first" when the
first optimiser step is done, and at the end the samples a second over all steps after the warm-up. A model
for GPUs is trained over NCCL in bf16; two workers of one card say that they are different hosts, or NCCL
would refuse them.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks import gpu_model, wide_model
from benchmarks.recovery import small_model

MODELS = {"wide": wide_model, "small": small_model, "sequences": gpu_model}


def main(steps: int, warm_up: int, name: str) -> None:
    made = MODELS[name]
    device = join(name)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(made.SEED)
    model = DistributedDataParallel(made.make_model().to(device), gradient_as_bucket_view=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=made.LEARNING_RATE, momentum=0.9)
    inputs, targets = made.make_pool()
    order = torch.randperm(steps * made.BATCH, generator=torch.Generator().manual_seed(made.SEED))
    begin_s = 0.0
    for step in range(steps):
        if step == warm_up:
            begin_s = time.perf_counter()
        indices = order[step * made.BATCH + rank : (step + 1) * made.BATCH : world] % made.POOL
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(inputs[indices].to(device))
            loss = functional.cross_entropy(logits, targets[indices].to(device))
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        optimiser.zero_grad()
        if step == 0 and rank == 0:
            loss.item()  # until the card has made it
            print("first", flush=True)
    loss.item()
    if rank == 0:
        print((steps - warm_up) * made.BATCH / (time.perf_counter() - begin_s), flush=True)
    dist.barrier()  # who ends first would take its connections from the other's last sum
    dist.destroy_process_group()


def join(name: str) -> torch.device:
    """Joins the group; the device of this rank's model."""
    if MODELS[name] is not gpu_model:
        dist.init_process_group("gloo")
        return torch.device("cpu")
    rank, cards = int(os.environ["RANK"]), torch.cuda.device_count()
    if cards < int(os.environ["WORLD_SIZE"]):
        os.environ["NCCL_HOSTID"] = f"rank-{rank}"
    device = torch.device("cuda", rank % cards)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
