"""Buckets of gradients summed in any way that isn't torch's own: with the backward pass, or after it."""

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.sync_method import BSP, KEY_BYTES, SERVERS, SyncMethod
from peerloom.worker.batches import Nest, call_model
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.coming_sum import ComingSum
from peerloom.worker.sync.distributed_model import distributed, unchanged
from peerloom.worker.sync.low_rank import LowRankSumming
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import Summing
from peerloom.worker.sync.summing_by_size import SummingBySize
from peerloom.worker.sync.topologies import summing_of


class ScheduledReduce:
    """DDP around a living model, which cuts its gradients into buckets; what becomes of them is `method`."""

    def __init__(
        self, model: torch.nn.Module, collectives: Collectives, method: SyncMethod, residuals: Residuals
    ) -> None:
        self.traffic = SyncTraffic()
        self._residuals = None if method.has_feedback else residuals
        self._is_eager = method.schedule != BSP
        carried = method.without_codec() if method.codec == POWER_SGD else method
        self._summing: Summing = summing_of(collectives, self.traffic, carried, residuals)
        if method.codec == POWER_SGD:
            self._summing = LowRankSumming(self._summing, method, residuals, list(model.parameters()))
        elif method.codec_from:
            self._summing = SummingBySize(self._summing, method)
        self._waiting: list[tuple[torch.Tensor, Layout]] = []
        self._coming: list[ComingSum] = []
        key_bytes = KEY_BYTES if method.topology == SERVERS else 0
        self._ddp = distributed(model, collectives, self._take_bucket, method.size_bytes or key_bytes)

    def forward(self, inputs: Nest) -> Nest:
        return call_model(self._ddp, inputs)

    def backward(self, loss: torch.Tensor, counts: Sequence[int]) -> float:
        self.send(loss)
        return self.finish()

    def send(self, loss: torch.Tensor) -> list[ComingSum]:
        """The backward pass: the sums of all buckets are on their way then."""
        self._coming.clear()  # of a step that broke
        self._summing.begin_loss(loss.detach().clone())
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        computed_s = time.perf_counter()
        self._coming += [self._summing.begin(*one) for one in self._waiting]
        self._waiting.clear()
        self.traffic.exposed_s += time.perf_counter() - computed_s
        return list(self._coming)

    def finish(self) -> float:
        """Waits for what of them wasn't taken; returns as `backward`."""
        waiting_s = time.perf_counter()
        mean = self._summing.finish()
        self.traffic.exposed_s += time.perf_counter() - waiting_s
        return mean

    def close(self) -> None:
        self._ddp = None  # type: ignore[assignment]  # DDP's hooks leave the model with it
        self._waiting.clear()
        self._coming.clear()

    def _take_bucket(self, _: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if self._residuals is not None:
            self._residuals.settle(bucket)
        gradients, layout = bucket.buffer(), Layout.of(bucket)
        if self._is_eager:
            self._coming.append(self._summing.begin(gradients, layout))
        else:
            self._waiting.append((gradients, layout))
        return unchanged(gradients)
