"""What the workers of shards send each other in a step: units' values to all, and gradients to their owner.

Both go along a ring, from each rank to the next, a piece at a time: each worker passes on what it gets while
the rest still comes, so every connection carries every unit once, and none of them is a bottleneck. Values
begin at their owner; gradients at the rank after it, each worker adds its own, and the owner adds the last.

All go through the units in the same order, and values are on their way some units ahead. A worker's own
progress waits for values only, of earlier units than whatever it holds up, so no wait is in a circle.
"""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import torch
from torch import Tensor

from peerloom.kit.shard_travel import UNITS_AHEAD, piece_bytes
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.plan.sharded_model import ShardedModel
from peerloom.worker.plan.stage_links import SHARD_GRADIENTS, SHARD_VALUES, WorkerLinks

MOST_UNSUMMED = 2  # units whose gradients may wait here to be passed on
MOST_UNSENT = 8  # pieces that may wait here for the next worker to take them


class ShardStream:
    """One worker's part in it, for the units of `visits`, in turn; neighbours there are different ones.

    Every method raises what `WorkerLinks.result` does. Used as a context, which doesn't wait when it is left
    by an error: the group's end does that for the threads.
    """

    def __init__(self, model: ShardedModel, links: WorkerLinks, visits: Sequence[int]) -> None:
        self._model, self._links, self._visits = model, links, list(visits)
        self._values, self._gradients = links.beside(SHARD_VALUES), links.beside(SHARD_GRADIENTS)
        self._next, self._former = (links.rank + 1) % links.workers, (links.rank - 1) % links.workers
        self._visited = self._begun = 0
        self._coming: dict[int, Future[Tensor]] = {}  # by visit
        self._unsummed: deque[Future[None]] = deque()
        self._carrier = ThreadPoolExecutor(1, "shard-values")
        self._adder = ThreadPoolExecutor(1, "shard-gradients")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for pool in (self._carrier, self._adder):
            pool.shutdown(wait=False, cancel_futures=True)

    def visit(self) -> int:
        """The next unit, whose values are there now, until it is released."""
        position, self._visited = self._visited, self._visited + 1
        while self._begun < min(position + UNITS_AHEAD + 1, len(self._visits)):
            self._begin(self._begun)
            self._begun += 1
        number = self._visits[position]
        if (coming := self._coming.pop(position, None)) is not None:
            content = self._result(coming)
            if self._model.units[number].owner != self._links.rank:
                self._model.fill(number, content)
        return number

    def release(self, number: int) -> None:
        """Nobody here needs the unit's values until the next visit."""
        self._model.release(number)

    def give_gradients(self, number: int) -> None:
        """A unit's backward passes are made here: its gradients are on their way to its owner."""
        if self._model.units[number].trained:
            while len(self._unsummed) >= MOST_UNSUMMED:
                self._result(self._unsummed.popleft())
            content = self._model.packed_gradients(number)
            self._unsummed.append(self._adder.submit(self._sum, number, content))

    def finish(self) -> None:
        """Waits until own gradients are summed, and what was sent has left."""
        while self._unsummed:
            self._result(self._unsummed.popleft())
        for pool, links in ((self._carrier, self._values), (self._adder, self._gradients)):
            self._result(pool.submit(links.flush))

    def _begin(self, position: int) -> None:
        number = self._visits[position]
        unit = self._model.units[number]
        if not unit.values:
            return
        own = self._model.packed(number) if unit.owner == self._links.rank else None
        self._coming[position] = self._carrier.submit(self._carry, unit.owner, unit.value_bytes, own)

    def _carry(self, owner: int, size_bytes: int, own: Tensor | None) -> Tensor:
        """A unit's values, passed on unless the next one is their owner."""
        # New memory each time: after a break somebody may still write into it.
        content = torch.empty(size_bytes, dtype=torch.uint8) if own is None else own
        pieces = torch.split(content, piece_bytes(size_bytes))
        coming = [] if own is not None else self._await(self._values, pieces)
        for number, piece in enumerate(pieces):
            if coming:
                self._values.result(coming[number])
            if self._next != owner:
                self._values.post(self._next, piece)
                self._values.flush(MOST_UNSENT)
        return content

    def _sum(self, number: int, content: Tensor) -> None:
        """Adds what the rank before has of a unit's gradients to own ones; passes on, or takes, the sum."""
        unit, links = self._model.units[number], self._gradients
        is_first = self._former == unit.owner
        size_bytes = piece_bytes(unit.gradient_bytes)
        for first in range(0, unit.gradient_bytes, size_bytes):
            piece = content[first : first + size_bytes]
            if not is_first:
                came = torch.empty_like(piece)
                links.result(links.begin_receive(self._former, came))
                self._model.add(number, first, piece, came)
            if unit.owner != self._links.rank:
                links.post(self._next, piece)
                links.flush(MOST_UNSENT)
        if unit.owner == self._links.rank:
            self._model.take_gradients(number, content)

    def _await(self, links: WorkerLinks, pieces: Sequence[Tensor]) -> list[TensorFuture]:
        return [links.begin_receive(self._former, piece) for piece in pieces]

    def _result(self, future: "Future[Tensor] | Future[None]") -> Tensor:
        began_s = time.perf_counter()
        result = future.result()
        self._links.traffic.exposed_s += time.perf_counter() - began_s
        return torch.empty(0) if result is None else result
