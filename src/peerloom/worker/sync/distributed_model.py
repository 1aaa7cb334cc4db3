"""What all ways to synchronise have of torch's DDP, which cuts gradients into buckets for a hook."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from peerloom.worker.group.waits import future_on
from peerloom.worker.sync import Collectives

BucketHook = Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]


def distributed(
    model: torch.nn.Module, collectives: Collectives, hook: BucketHook, bucket_bytes: int = 0
) -> DistributedDataParallel:
    """DDP around a living model; `hook` gets each bucket as soon as the backward pass has filled it.

    A bucket is full when it has `bucket_bytes`; 0: torch's own sizes.
    """
    ddp = DistributedDataParallel(
        model,
        process_group=collectives.process_group,
        # Workers agree before: same seed, or a state transfer. So nothing need be sent at the start.
        init_sync=False,
        gradient_as_bucket_view=True,
        bucket_cap_mb=bucket_bytes / 2**20 if bucket_bytes else None,
    )
    ddp.register_comm_hook(None, hook)
    return ddp


def unchanged(gradients: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """A hook's answer that leaves the bucket as it is, for now: the sums are put there once DDP is done."""
    future: torch.futures.Future[torch.Tensor] = future_on(gradients.device)
    future.set_result(gradients)
    return future
