"""Averages of local parameters within groups of ranks, while a round is under way."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync import Collectives, SyncTraffic
from peerloom.worker.sync.codecs.casting import wide
from peerloom.worker.sync.common_values import alike_of
from peerloom.worker.sync.direct import DirectExchange
from peerloom.worker.sync.owned_sum import OwnedSum


class GroupMeans:
    """Those of one round, or none where the method has no groups; what they cost is added to `traffic`.

    `counts` are the ranks' samples in the round, by which they weigh; who has none isn't in a group. The same
    weights in the exchange that ends the round make the mean of all what it would have been without groups,
    but for what members learn from each other.
    """

    def __init__(
        self, collectives: Collectives, traffic: SyncTraffic, method: SyncMethod, counts: Sequence[int]
    ) -> None:
        self._traffic = traffic
        self._collectives, self._method, self._counts = collectives, method, counts

    def after(self, step: int, steps: range, parameters: Sequence[Tensor]) -> None:
        """Averages the `parameters` where the method says so after the job's `step`, in the round of `steps`.

        Raises what `Collectives.result` does.
        """
        rounds = self._method.rounds
        if rounds is None or rounds.groups is None or self._collectives.world_size == 1:
            return
        occasion = rounds.groups.occasion(step, steps, rounds.period)
        if occasion is None:
            return
        taking_part = [rank for rank, samples in enumerate(self._counts) if samples]
        divided = rounds.groups.divide(taking_part, self._collectives.node_ids, self._method.sites, occasion)
        own = self._collectives.rank
        self._average(next((members for members in divided if own in members), (own,)), parameters)

    def _average(self, members: tuple[int, ...], parameters: Sequence[Tensor]) -> None:
        """Who is by itself counts its exchanges too, as those of the others."""
        begun_s = time.perf_counter()
        exchange = DirectExchange(self._collectives, self._traffic, members)
        weight = 1.0
        if len(members) > 1:
            weight = self._counts[self._collectives.rank] / sum(self._counts[rank] for rank in members)
        with torch.no_grad():
            for alike in alike_of(parameters):
                values = wide(torch.cat([each.flatten() for each in alike])) * weight
                mean = OwnedSum(exchange, SyncMethod(), values.dtype, values, range(exchange.ranks)).total()
                parts = torch.split(mean, [each.numel() for each in alike])
                for parameter, values in zip(alike, parts, strict=True):
                    parameter.copy_(values.view_as(parameter))
        self._traffic.exposed_s += time.perf_counter() - begun_s
