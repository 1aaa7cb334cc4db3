"""What the workers of shards send each other in a step: units' values to all, and gradients to their owner.

All go through the units in the same order, and values are on their way one unit ahead: who has them sends
them when it comes to the unit before, and who lacks them awaits them then. So whatever lies in a connection
before that which somebody waits for is awaited already, and no wait is in a circle.
"""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.plan.sharded_model import ShardedModel
from peerloom.worker.plan.stage_links import WorkerLinks

AHEAD = 1  # units
_Coming = tuple[TensorFuture, Tensor]


class ShardStream:
    """One worker's part in it, for the units of `visits`, in turn; neighbours there are different ones.

    Every method raises what `WorkerLinks.result` does.
    """

    def __init__(self, model: ShardedModel, links: WorkerLinks, visits: Sequence[int]) -> None:
        self._model, self._links, self._visits = model, links, list(visits)
        self._others = [rank for rank in range(links.workers) if rank != links.rank]
        self._visited = self._begun = 0
        self._values: dict[int, _Coming] = {}  # by visit
        self._gradients: tuple[int, dict[int, _Coming]] | None = None  # of an own unit, by rank
        self._sent: list[TensorFuture] = []

    def visit(self) -> int:
        """The next unit, whose values are there now, until it is released."""
        position, self._visited = self._visited, self._visited + 1
        while self._begun < min(position + AHEAD + 1, len(self._visits)):
            self._begin(self._begun)
            self._begun += 1
        number = self._visits[position]
        if position in self._values:
            self._model.fill(number, self._result(self._values.pop(position)))
        return number

    def release(self, number: int) -> None:
        """Nobody here needs the unit's values until the next visit."""
        self._model.release(number)

    def give_gradients(self, number: int) -> None:
        """A unit's backward passes are made here: its gradients go to its owner, and are summed there."""
        unit = self._model.units[number]
        if not unit.trained:
            return
        if unit.owner != self._links.rank:
            self._send([unit.owner], self._model.packed_gradients(number))
            return
        self._sum_gradients()  # of the unit before: the others are past it, or soon will be
        self._gradients = number, {rank: self._await(rank, unit.gradient_bytes) for rank in self._others}

    def finish(self) -> None:
        """Waits until own gradients are summed, and what was sent has left."""
        self._sum_gradients()
        began_s = time.perf_counter()
        for future in self._sent:
            self._links.result(future)
        self._sent = []
        self._links.traffic.exposed_s += time.perf_counter() - began_s

    def _begin(self, position: int) -> None:
        number = self._visits[position]
        unit = self._model.units[number]
        if not unit.values:
            return
        if unit.owner == self._links.rank:
            self._send(self._others, self._model.packed(number))
        else:
            self._values[position] = self._await(unit.owner, unit.value_bytes)

    def _sum_gradients(self) -> None:
        if self._gradients is not None:
            number, coming = self._gradients
            self._gradients = None
            came = {rank: self._result(one) for rank, one in coming.items()}
            self._model.sum_gradients(number, came)

    def _send(self, ranks: Sequence[int], content: Tensor) -> None:
        self._sent = [future for future in self._sent if not future.done()]
        self._sent += [self._links.begin_send(rank, content) for rank in ranks]

    def _await(self, rank: int, size_bytes: int) -> _Coming:
        # New memory each time: after a break somebody may still write into it.
        target = torch.empty(size_bytes, dtype=torch.uint8)
        return self._links.begin_receive(rank, target), target

    def _result(self, coming: _Coming) -> Tensor:
        began_s = time.perf_counter()
        self._links.result(coming[0])
        self._links.traffic.exposed_s += time.perf_counter() - began_s
        return coming[1]
