"""The digits where links are long and unequal: workers measure such ones, and an all-reduce takes as long.

Loopback has no links to speak of. So what a probe would find is given here, and the ring waits for what its
rounds would take over them: of three ranks four round trips of 20 ms. Other methods are as fast as they are.
"""

import threading
from collections.abc import Sequence

import torch
from given_links import give_links

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


class SlowRing(Digits):
    """Importing it makes the ring slow."""


AllReduce.backward = _slow_backward  # type: ignore[method-assign]  # on purpose, for this process
give_links(DELAY_S, lambda peer: (2e7 * (1 + peer), 1e7 * (1 + peer)))
