"""Averages of some of the local parameters over all ranks, while a round is under way.

What travels is what a rank has changed since a value was last the same on all, by the method's codec. What
that leaves out is kept by who encoded it, until the value travels again or the round ends.
"""

import time
from collections.abc import Sequence

from torch import Tensor

from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.common_values import CommonValues, PartUnderWay
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
        assert method.partial is not None, "only such a method has these"
        self._partial = method.partial
        self._under_way: PartUnderWay | None = None
        self._began = 0  # after which step that did

    def after(self, step: int, steps: range) -> None:
        """What the method says about the job's `step`, in the round of `steps`: a part begins, or ends.

        Raises what `Collectives.result` does.
        """
        if self._collectives.world_size == 1:
            return
        begun_s = time.perf_counter()
        if self._under_way is not None and step - self._began >= self._partial.late:
            self._end()
        part = self._partial.part_after(step, steps, self._method.batches)
        if part is not None:
            self._under_way = self._common.begin(part, self._partial.parts, self._weight, self._begin_sum)
            self._began = step
        if self._under_way is not None and (self._partial.late == 0 or step == steps[-1]):
            self._end()
        self._traffic.exposed_s += time.perf_counter() - begun_s

    def _end(self) -> None:
        assert self._under_way is not None, "a part travels"
        self._under_way.end()
        self._under_way = None

    def _begin_sum(self, values: Tensor) -> OwnedSum:
        exchange = DirectExchange(self._collectives, self._traffic)
        return OwnedSum(exchange, self._method, values.dtype, values, range(exchange.ranks), keeps=True)
