"""The rival of the benchmark of unequal workers: the same work under plain DDP, as torchrun starts it.

Every worker has an equal part of each batch, and that of rank 0 takes three times as long: it waits longer,
or the first of the cgroups that stand after STEPS and WARM_UP, one a rank, gives it less of a core. Prints
the samples a second over all steps after the warm-up.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.core_shares import join
from benchmarks.recovery import small_model
from benchmarks.unequal_task import (
    COMPUTING_BATCH,
    SAMPLE_S,
    SLOWDOWN,
    WAITING_BATCH,
    make_data,
    make_model,
)


def main(steps: int, warm_up: int, groups: Sequence[Path]) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if groups:
        join(groups[rank], os.getpid())
    torch.manual_seed(1)
    whole, inputs, targets, batch = _work(steps, is_computing=bool(groups))
    model = DistributedDataParallel(whole, gradient_as_bucket_view=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    wait_s = 0.0 if groups else SAMPLE_S * (SLOWDOWN if rank == 0 else 1.0)
    begin_s = 0.0
    for step in range(steps):
        if step == warm_up:
            begin_s = time.perf_counter()
        indices = torch.arange(step * batch + rank, (step + 1) * batch, world) % len(inputs)
        time.sleep(wait_s * len(indices))
        loss = functional.cross_entropy(model(inputs[indices]), targets[indices])
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        optimiser.zero_grad()
    if rank == 0:
        print((steps - warm_up) * batch / (time.perf_counter() - begin_s), flush=True)
    dist.destroy_process_group()


def _work(steps: int, *, is_computing: bool) -> tuple[nn.Module, Tensor, Tensor, int]:
    """The model, inputs and targets, and the samples of a step."""
    if is_computing:
        return small_model.make_model(), *small_model.make_pool(), COMPUTING_BATCH
    return make_model(), *make_data(steps * WAITING_BATCH), WAITING_BATCH


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(int(sys.argv[1]), int(sys.argv[2]), [Path(one) for one in sys.argv[3:]])
