"""When to look at whom again: a heap, so that waiting nodes cost nothing until their time comes."""

import heapq
import itertools
from typing import Generic, TypeVar

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Items ordered by due time. A deadline isn't moved when a node beats: it is looked at when it
    comes up and put back later, so a beat costs no heap operation."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order = itertools.count()

    def add(self, due_s: float, item: T) -> None:
        """Brings `item` up at `due_s`."""
        heapq.heappush(self._heap, (due_s, next(self._order), item))

    def take_due(self, now_s: float, limit: int) -> list[T]:
        """Removes and returns what is due at `now_s`, earliest first, at most `limit` items."""
        due: list[T] = []
        while self._heap and self._heap[0][0] <= now_s and len(due) < limit:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def __len__(self) -> int:
        return len(self._heap)
