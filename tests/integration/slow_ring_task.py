"""The digits where links are long and unequal: workers measure such ones, and an all-reduce takes as long.

Loopback has no links to speak of. So what a probe would find is given here, and the ring waits for what its
rounds would take over them: of three ranks four round trips of 20 ms. Other methods are as fast as they are.
"""

import threading
from collections.abc import Sequence

import torch

from peerloom.v1.trainer_pb2 import MeasuredLink
from peerloom.worker.measuring.link_probe import LinkProbe
from peerloom.worker.measuring.together_probe import TogetherProbe
from peerloom.worker.sync.all_reduce import AllReduce
from peerloom.worker.tasks.digits import Digits

DELAY_S, ROUNDS = 0.01, 4
_backward = AllReduce.backward


def _slow_backward(self: AllReduce, loss: torch.Tensor, counts: Sequence[int]) -> float:
    mean = _backward(self, loss, counts)
    waited_s = ROUNDS * 2 * DELAY_S
    threading.Event().wait(waited_s)
    self.traffic.exposed_s += waited_s
    return mean


def _given_links(self: LinkProbe) -> list[MeasuredLink]:
    peers = range(self._rank + 1, self._ranks)
    rates = {peer: 2e7 * (1 + peer) for peer in peers}
    return [
        MeasuredLink(rank=peer, delay_s=DELAY_S, sent_bits_per_s=rate, received_bits_per_s=rate / 2)
        for peer, rate in rates.items()
    ]


class SlowRing(Digits):
    """Importing it makes the ring slow."""


AllReduce.backward = _slow_backward  # type: ignore[method-assign]  # on purpose, for this process
LinkProbe.run = _given_links  # type: ignore[method-assign]  # on purpose, for this process
TogetherProbe.run = lambda self: 0.0  # type: ignore[method-assign]  # on purpose, for this process
