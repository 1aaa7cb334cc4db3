"""Discrete events in the order of their times, and the resources that they run: links, and a processor."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

Then = Callable[[], None]


@dataclass(frozen=True)
class Interval:
    """What a resource did from `start_s` to `end_s`."""

    resource: str
    what: str
    start_s: float
    end_s: float


class EventQueue:
    """Events by time; those of one time in the order in which they were added."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Then]] = []
        self._added = 0

    def after(self, delay_s: float, then: Then) -> None:
        """`then` is called `delay_s` from now."""
        self._added += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self._added, then))

    def run(self) -> None:
        """Until there is no event left."""
        while self._events:
            self.now_s, _, then = heapq.heappop(self._events)
            then()


class LinkQueue:
    """Serves messages, `at_once` of them at a time, the most urgent first, then the first that came."""

    def __init__(
        self,
        name: str,
        events: EventQueue,
        log: list[Interval],
        is_used: Callable[[int], None],
        at_once: int = 1,
    ) -> None:
        self._name = name
        self._events = events
        self._log = log
        self._is_used = is_used  # told +1 when the link becomes busy, -1 when idle
        self._waiting: list[tuple[tuple[int, ...], int, float, str, Then]] = []
        self._added = 0
        self._at_once = at_once
        self._served = 0

    def serve(self, urgency: tuple[int, ...], busy_s: float, what: str, then: Then) -> None:
        """`then` is called when the message has left; a smaller `urgency` goes first."""
        self._added += 1
        heapq.heappush(self._waiting, (urgency, self._added, busy_s, what, then))
        if self._served < self._at_once:
            self._served += 1
            if self._served == 1:
                self._is_used(1)
            # What else happens at this time may be more urgent.
            self._events.after(0.0, self._next)

    def _next(self) -> None:
        if not self._waiting:
            self._served -= 1
            if not self._served:
                self._is_used(-1)
            return
        _, _, busy_s, what, then = heapq.heappop(self._waiting)
        start_s = self._events.now_s

        def done() -> None:
            self._log.append(Interval(self._name, what, start_s, self._events.now_s))
            then()
            self._next()

        self._events.after(busy_s, done)


class Processor:
    """Computes one thing after the other, urgent ones first; slower while links are busy, by `contention`."""

    def __init__(self, events: EventQueue, log: list[Interval], contention: float) -> None:
        self._events = events
        self._log = log
        self._contention = contention
        self._busy_links = 0
        self._waiting: list[tuple[bool, int, float, str, Then]] = []
        self._added = 0
        self._current: tuple[str, float, Then] | None = None  # what, when it began, then
        self._left_s = 0.0  # of work at full speed, at `_seen_s`
        self._seen_s = 0.0
        self._version = 0  # of the current work's end, which moves with the speed

    def compute(self, seconds: float, what: str, then: Then, *, urgent: bool = False) -> None:
        """`then` is called after so many seconds of work at full speed."""
        self._added += 1
        heapq.heappush(self._waiting, (not urgent, self._added, seconds, what, then))
        if self._current is None:
            self._next()

    def links_used(self, change: int) -> None:
        """So many more links are busy."""
        before = self._speed
        self._progress()
        self._busy_links += change
        if self._current is not None and self._speed != before:
            self._set_end()

    @property
    def _speed(self) -> float:
        return 1.0 - self._contention if self._busy_links else 1.0

    def _progress(self) -> None:
        self._left_s -= (self._events.now_s - self._seen_s) * self._speed
        self._seen_s = self._events.now_s

    def _set_end(self) -> None:
        self._version += 1
        version = self._version
        self._events.after(max(0.0, self._left_s) / self._speed, lambda: self._end(version))

    def _next(self) -> None:
        if not self._waiting:
            return
        _, _, self._left_s, what, then = heapq.heappop(self._waiting)
        self._current = what, self._events.now_s, then
        self._seen_s = self._events.now_s
        self._set_end()

    def _end(self, version: int) -> None:
        if version != self._version or self._current is None:
            return
        what, start_s, then = self._current
        self._log.append(Interval("computes", what, start_s, self._events.now_s))
        self._current = None
        then()
        if self._current is None:
            self._next()
