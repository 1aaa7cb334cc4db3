"""The robust update: each worker gets everybody's values for its part, applies the rule, and gives the
result.

Two direct exchanges, in which each rank sends (n - 1) / n of the gradient twice: the bytes of a ring
all-reduce. The first begins with each bucket, during the backward pass. Rules that compare whole votes add
one small exchange, of the parts' Gram matrices. A part's result is one worker's bytes, so all hold the same,
whatever their processors.

A worker that follows the protocol is all that is needed for its own part. One that doesn't can put anything
into it, 1 / n of the gradient: nobody checks that.

What a rank gets in the first exchange can be kept for an audit. With the second one the ranks throw a common
coin (`common_coin`) that says whether there is one: each has said by then what it contributes.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import pad

from peerloom.errors import FailedPreconditionError
from peerloom.kit.logs import get_logger
from peerloom.kit.robust_rules import AUTO
from peerloom.worker.batches import Nest, call_model
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.bucket_layout import Gradients, Layout
from peerloom.worker.sync.direct import DirectExchange, RowExchange
from peerloom.worker.sync.distributed_model import distributed, unchanged
from peerloom.worker.sync.robust import aggregation
from peerloom.worker.sync.robust.common_coin import CommonCoin
from peerloom.worker.sync.robust.histories import Histories
from peerloom.worker.sync.robust.votes import Votes, collect, voters

_log = get_logger()


@dataclass(frozen=True, eq=False)
class _Bucket:
    gradients: torch.Tensor
    parts: RowExchange
    layout: Layout | None


class RobustReduce:
    """DDP around a living model, its sum of gradients replaced by a rule over votes.

    `owners` of the ranks; `rule` as in `kit.robust_rules`. `on_refused` hears of ranks whose gradients aren't
    finite, of each once. A `coin`, which all ranks have or none, is thrown with each step.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        owners: Sequence[str],
        rule: str,
        collectives: Collectives,
        on_refused: Callable[[Sequence[int]], None] = lambda ranks: None,
        coin: CommonCoin | None = None,
    ) -> None:
        self.traffic = SyncTraffic()
        self.thrown: bytes | None = None  # the coin of the last step
        self._coin = coin
        self._histories = Histories()
        self._on_refused = on_refused
        self._keeps = False
        self._kept: list[tuple[Layout, torch.Tensor]] = []
        self._owners = list(owners)
        self._asked = rule
        self._exchange = DirectExchange(collectives, self.traffic)
        self._buckets: list[_Bucket] = []
        self._named: set[int] = set()
        self._ddp = distributed(model, collectives, self._send_bucket)

    def forward(self, inputs: Nest) -> Nest:
        return call_model(self._ddp, inputs)

    def backward(self, loss: torch.Tensor, counts: Sequence[int]) -> float:
        self._buckets.clear()
        own = torch.full([len(counts)], float(loss.detach()), dtype=torch.float64, device=loss.device)
        losses = self._exchange.begin(own)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        computed_s = time.perf_counter()
        self._apply_rule(counts)
        mean = _mean_loss(self._exchange.rows(losses).flatten().tolist(), counts)
        self.traffic.exposed_s += time.perf_counter() - computed_s
        return mean

    def close(self) -> None:
        self._ddp = None  # type: ignore[assignment]  # DDP's hooks leave the model with it
        self._buckets.clear()
        self._kept.clear()

    def keep(self, keeps: bool) -> None:
        """Whether what all ranks send in the next steps stays for `said_by`, until this is called again."""
        self._keeps = keeps
        self._kept.clear()

    def said_by(self, rank: int) -> list[torch.Tensor]:
        """This rank's part of the gradient that `rank` sent in the last step, one tensor a bucket."""
        return [rows[rank] for _, rows in self._kept]

    def part_of(self, gradients: Gradients, rank: int) -> list[torch.Tensor]:
        """What `said_by` gives on `rank` of a rank that has these gradients."""
        return [layout.part(gradients, rank, len(self._owners)) for layout, _ in self._kept]

    def _send_bucket(self, _: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradients, ranks = bucket.buffer(), len(self._owners)
        padded = pad(gradients, (0, -gradients.numel() % ranks))
        layout = Layout.of(bucket) if self._keeps else None
        self._buckets.append(_Bucket(gradients, self._exchange.begin(padded), layout))
        return unchanged(gradients)

    def _apply_rule(self, counts: Sequence[int]) -> None:
        names = voters(self._owners, counts)
        rule = aggregation.rule_for(self._asked, len(set(self._owners)), len(names))
        came = [self._exchange.rows(bucket.parts) for bucket in self._buckets]
        self._kept = [(b.layout, rows) for b, rows in zip(self._buckets, came, strict=True) if b.layout]
        found = [collect(rows, self._owners, counts) for rows in came]
        self._name_refused(found)
        if rule == AUTO:
            self._histories.add(found)
            apart = self._histories.apart()
            results = [aggregation.of_part_without(apart, votes) for votes in found]
        elif aggregation.needs_distances(rule):
            weights = self._agree_on_weights(rule, found, names)
            results = [aggregation.of_part_by(weights, votes, names) for votes in found]
        else:
            results = [aggregation.of_part(rule, votes) for votes in found]
        self._give([result.to(b.gradients.dtype) for b, result in zip(self._buckets, results, strict=True)])
        self._buckets.clear()

    def _give(self, results: list[torch.Tensor]) -> None:
        """Sends this rank's part of each bucket to all, the coin behind the last, and takes theirs."""
        sizes = [result.numel() for result in results]
        if self._coin is not None:
            said = self._coin.say().to(results[-1].device).view(results[-1].dtype)
            results[-1] = torch.cat([results[-1], said])
        arriving = [self._exchange.begin_to_all(result) for result in results]
        for bucket, size, exchange in zip(self._buckets, sizes, arriving, strict=True):
            parts = self._exchange.rows(exchange)
            bucket.gradients.copy_(parts[:, :size].flatten()[: bucket.gradients.numel()])
        if self._coin is not None:
            self.thrown = self._coin.throw(parts[:, size:].contiguous().view(torch.uint8).cpu())

    def _agree_on_weights(self, rule: str, found: Sequence[Votes], names: Sequence[str]) -> torch.Tensor:
        products = torch.stack([aggregation.part_products(votes, names) for votes in found]).sum(0)
        device = self._buckets[0].gradients.device
        came = self._exchange.rows(self._exchange.begin_to_all(products.to(device)))
        parts = came.cpu().view(-1, len(names), len(names))
        return aggregation.weights_of(rule, parts.sum(0))

    def _name_refused(self, found: Sequence[Votes]) -> None:
        refused = {rank for votes in found for rank in votes.refused}
        if refused - self._named:
            ranks = sorted(refused - self._named)
            self._named |= refused
            _log.warning("gradients_refused", ranks=ranks, owners=[self._owners[rank] for rank in ranks])
            self._on_refused(ranks)
        if not all(votes.owners for votes in found):
            raise FailedPreconditionError(
                "No worker's gradient is finite: the training has diverged. Submit the job again with a "
                "smaller learning rate.",
                reason="DIVERGED",
            )


def _mean_loss(parts: Sequence[float], counts: Sequence[int]) -> float:
    """The batch's mean loss of the ranks' parts of it, without those that aren't finite; NaN if none is."""
    kept = [rank for rank, count in enumerate(counts) if count and math.isfinite(parts[rank])]
    if not kept:
        return math.nan
    return math.fsum(parts[rank] for rank in kept) * sum(counts) / sum(counts[rank] for rank in kept)
