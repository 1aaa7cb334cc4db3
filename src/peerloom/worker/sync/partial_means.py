"""Averages of some of the local parameters over all ranks, while a round is under way.

What travels is what a rank has changed since a value was last the same on all, by the method's codec. What
that leaves out is kept by who encoded it, until the value travels again or the round ends.
"""

import time
from collections.abc import Sequence

from torch import Tensor

from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.common_values import CommonValues
from peerloom.worker.sync.direct import DirectExchange
from peerloom.worker.sync.owned_sum import OwnedSum


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
        ranks = range(exchange.ranks)
        under_way = OwnedSum(exchange, self._method, values.dtype, values, ranks, keeps=True)
        total = under_way.total()
        # What isn't finite has been told as such, and would come back each time.
        return total, under_way.left_out().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
