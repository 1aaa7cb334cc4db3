"""Torch DDP's all-reduce: each bucket of gradients leaves as soon as it is complete (WFBP-A2A)."""

import time
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist

from peerloom.worker.batches import Nest, call_model
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.distributed_model import distributed
from peerloom.worker.sync.residuals import Residuals


class AllReduce:
    """DDP around a living model, summing instead of averaging, with the traffic measured."""

    def __init__(self, model: torch.nn.Module, collectives: Collectives, residuals: Residuals) -> None:
        self.traffic = SyncTraffic()
        self._residuals = residuals
        self._collectives = collectives
        self._last_bucket_s = 0.0
        self._ddp = distributed(model, collectives, self._sum_bucket)

    def forward(self, inputs: Nest) -> Nest:
        return call_model(self._ddp, inputs)

    def backward(self, loss: torch.Tensor, counts: Sequence[int]) -> float:
        # The loss travels while the gradients are computed.
        total = loss.detach().clone()
        summed = self._collectives.follow(dist.all_reduce(total, async_op=True))
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        mean = float(self._collectives.result(summed))  # on a GPU this waits for the backward pass too
        self.traffic.exposed_s += time.perf_counter() - self._last_bucket_s
        self.traffic.add_all_reduce(total.nbytes, self._collectives.world_size)
        return mean

    def close(self) -> None:
        self._ddp = None  # type: ignore[assignment]  # DDP's hooks leave the model with it

    def _sum_bucket(self, _: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self._residuals.settle(bucket)
        tensor = bucket.buffer()
        self.traffic.add_all_reduce(tensor.nbytes, self._collectives.world_size)
        self._last_bucket_s = time.perf_counter()
        summed = self._collectives.follow(dist.all_reduce(tensor, async_op=True))
        # DDP wants this annotation; where the future holds a reason instead, DDP raises RuntimeError with it.
        return cast(torch.futures.Future[torch.Tensor], summed)
