"""What the workers of shards send each other in a step: units' values to all, and gradients to their owner.

Both go along a ring, from each rank to the next, a piece at a time: each worker passes on what it gets while
the rest still comes, so every connection carries every unit once, and none of them is a bottleneck. Values
begin at their owner; gradients at the rank after it, each worker adds its own, and the owner adds the last.

All go through the units in the same order, and values are on their way some units ahead. A worker's own
progress waits for values only, of earlier units than whatever it holds up, so no wait is in a circle. The
units of an owner follow each other in a lane, and those of the next owner take the other lane: theirs begin
where the ones before are not yet at their end.
"""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Self

import torch
from torch import Tensor

from peerloom.kit.shard_travel import MOST_UNSUMMED, UNITS_AHEAD, piece_bytes
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.plan.sharded_model import ShardedModel
from peerloom.worker.plan.stage_links import SHARD_GRADIENTS, SHARD_VALUES, WorkerLinks

MOST_UNSENT = 8  # pieces that may wait here for the next worker to take them


class _Lane(NamedTuple):
    """A way around the ring, and the thread that carries on it, one unit after the other."""

    links: WorkerLinks
    thread: ThreadPoolExecutor


class ShardStream:
    """One worker's part in it, for the units of `visits`, in turn; neighbours there are different ones.

    Every method raises what `WorkerLinks.result` does. Used as a context, which doesn't wait when it is left
    by an error: the group's end does that for the threads.
    """

    def __init__(self, model: ShardedModel, links: WorkerLinks, visits: Sequence[int]) -> None:
        self._model, self._links, self._visits = model, links, list(visits)
        self._values = [
            _Lane(links.beside(way), ThreadPoolExecutor(1, "shard-values")) for way in SHARD_VALUES
        ]
        self._gradients = [
            _Lane(links.beside(way), ThreadPoolExecutor(1, "shard-gradients")) for way in SHARD_GRADIENTS
        ]
        self._lanes = (*self._values, *self._gradients)
        self._next, self._former = (links.rank + 1) % links.workers, (links.rank - 1) % links.workers
        self._visited = self._begun = 0
        self._coming: dict[int, Future[Tensor]] = {}  # by visit
        self._unsummed: deque[Future[None]] = deque()
        self._sent_before = self._sent_bytes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for lane in self._lanes:
            lane.thread.shutdown(wait=False, cancel_futures=True)

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
            lane = self._lane(self._gradients, number)
            self._unsummed.append(lane.thread.submit(self._sum, lane.links, number, content))

    def finish(self) -> None:
        """Waits until own gradients are summed, and what was sent has left."""
        while self._unsummed:
            self._result(self._unsummed.popleft())
        for lane in self._lanes:
            self._result(lane.thread.submit(lane.links.flush))
        self._links.traffic.bytes += self._sent_bytes() - self._sent_before

    def _sent_bytes(self) -> int:
        return sum(lane.links.traffic.bytes for lane in self._lanes)

    def _begin(self, position: int) -> None:
        number = self._visits[position]
        unit = self._model.units[number]
        if not unit.values:
            return
        own = self._model.packed(number) if unit.owner == self._links.rank else None
        lane = self._lane(self._values, number)
        self._coming[position] = lane.thread.submit(
            self._carry, lane.links, unit.owner, unit.value_bytes, own
        )

    def _lane(self, lanes: Sequence[_Lane], number: int) -> _Lane:
        return lanes[self._model.units[number].owner % len(lanes)]

    def _carry(self, links: WorkerLinks, owner: int, size_bytes: int, own: Tensor | None) -> Tensor:
        """A unit's values, passed on unless the next one is their owner."""
        # New memory each time: after a break somebody may still write into it.
        content = torch.empty(size_bytes, dtype=torch.uint8) if own is None else own
        pieces = torch.split(content, piece_bytes(size_bytes))
        coming = [] if own is not None else self._await(links, pieces)
        for number, piece in enumerate(pieces):
            if coming:
                links.result(coming[number])
            if self._next != owner:
                links.post(self._next, piece)
                links.flush(MOST_UNSENT)
        return content

    def _sum(self, links: WorkerLinks, number: int, content: Tensor) -> None:
        """Adds what the rank before has of a unit's gradients to own ones; passes on, or takes, the sum."""
        unit = self._model.units[number]
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
