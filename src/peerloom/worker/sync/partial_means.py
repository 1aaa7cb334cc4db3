"""Averages of some of the local parameters over all ranks, while a round is under way.

What travels is what a rank has changed since a value was last the same on all, by the method's codec. What
that leaves out is kept by who encoded it, until the value travels again or the round ends.
"""

import time
from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import pad

from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.codecs import codec_of
from peerloom.worker.sync.common_values import CommonValues
from peerloom.worker.sync.direct import DirectExchange


class PartialMeans:
    """Those of one round by a method that has them; what they cost is added to `traffic`.

    `counts` are the ranks' samples in the round, by which they weigh, as in the exchange that ends it.
    """

    def __init__(
        self,
        collectives: Collectives,
        traffic: SyncTraffic,
        method: SyncMethod,
        counts: Sequence[int],
        common: CommonValues,
    ) -> None:
        self._collectives, self._traffic, self._method = collectives, traffic, method
        self._weight = counts[collectives.rank] / sum(counts)
        self._common = common

    def after(self, step: int, steps: range) -> None:
        """Averages a part where the method says so after the job's `step`, in the round of `steps`.

        Raises what `Collectives.result` does.
        """
        partial = self._method.partial
        assert partial is not None, "only such a method has these"
        part = partial.part_after(step, steps, self._method.batches)
        if part is None or self._collectives.world_size == 1:
            return
        begun_s = time.perf_counter()
        self._common.average(part, partial.parts, self._weight, self._summed)
        self._traffic.exposed_s += time.perf_counter() - begun_s

    def _summed(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of all ranks' flat values, each part by its owner, and what this rank left out of it."""
        exchange = DirectExchange(self._collectives, self._traffic)
        rows = pad(values, (0, -len(values) % exchange.ranks)).view(exchange.ranks, -1)
        codec = codec_of(self._method, rows.shape[1], rows.dtype)
        encoded = codec.encode(rows)
        left_out = rows - codec.decode(encoded, rows.shape[1])
        own, of_sum = rows[exchange.rank].cpu(), list[Tensor]()

        def summed(came: Tensor) -> Tensor:
            parts = codec.decode(came, rows.shape[1])
            parts[exchange.rank] = own  # which doesn't travel, so nothing of it is left out
            total = parts.sum(0, keepdim=True)
            result = codec.encode(total)
            of_sum.append((total - codec.decode(result, rows.shape[1]))[0])
            return result[0]

        under_way = exchange.begin_by_owners(encoded, range(exchange.ranks), summed)
        totals = codec.decode(exchange.rows(under_way), rows.shape[1])
        left_out[exchange.rank] = of_sum[0].to(left_out.device)
        # What isn't finite has been told as such, and would come back each time.
        kept = left_out.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return totals.flatten()[: len(values)], kept.flatten()[: len(values)]
