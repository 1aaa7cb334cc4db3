"""Buckets of gradients summed in any way that isn't torch's own: with the backward pass, or after it."""

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from peerloom.kit.sync_method import DIRECT, WFBP, SyncMethod
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.direct import DirectExchange
from peerloom.worker.sync.distributed_model import distributed, unchanged
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import DirectSumming, RingSumming, Summing


class ScheduledReduce:
    """DDP around a living model, which cuts its gradients into buckets; what becomes of them is `method`."""

    def __init__(
        self, model: torch.nn.Module, collectives: Collectives, method: SyncMethod, residuals: Residuals
    ) -> None:
        self.traffic = SyncTraffic()
        self._collectives = collectives
        self._is_eager = method.schedule == WFBP
        self._summing: Summing
        if method.topology == DIRECT:
            self._summing = DirectSumming(DirectExchange(collectives, self.traffic), method, residuals)
        else:
            self._summing = RingSumming(collectives, self.traffic, method)
        self._waiting: list[tuple[torch.Tensor, Layout]] = []
        self._ddp = distributed(model, collectives, self._take_bucket)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self._ddp(inputs)
        return outputs

    def backward(self, loss: torch.Tensor, counts: Sequence[int]) -> float:
        total = loss.detach().clone()
        summed = self._collectives.follow(dist.all_reduce(total, async_op=True))
        self.traffic.bytes += total.element_size()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        computed_s = time.perf_counter()
        for gradients, layout in self._waiting:
            self._summing.begin(gradients, layout)
        self._waiting.clear()
        self._summing.finish()
        mean = float(self._collectives.result(summed))
        self.traffic.exposed_s += time.perf_counter() - computed_s
        return mean

    def close(self) -> None:
        self._ddp = None  # type: ignore[assignment]  # DDP's hooks leave the model with it
        self._waiting.clear()

    def _take_bucket(self, _: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradients, layout = bucket.buffer(), Layout.of(bucket)
        if self._is_eager:
            self._summing.begin(gradients, layout)
        else:
            self._waiting.append((gradients, layout))
        return unchanged(gradients)
