"""Whether a history of calls could have come of calls one after the other: Wing and Gong's search.

Each call takes effect at one moment between its beginning and its end. The search tries, of the calls that
could be next, each that the state machine would answer as it was answered; Lowe's cache of (calls done,
state) keeps it from trying twice what comes to the same (Wing and Gong 1993; Lowe 2017, as in Porcupine). A
call without an end, whose caller died, may have taken effect at any time after its beginning, or never.
"""

import itertools
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Step = Callable[[Hashable, Any, Any], tuple[bool, Hashable]]


@dataclass
class Call:
    """What a client asked and was answered, with the places of both in the history; `end` None: it died."""

    client: int
    asked: Any
    begin: int
    end: int | None = None
    answer: Any = None


@dataclass
class History:
    """Records calls of several threads, in the order in which they begin and end."""

    calls: list[Call] = field(default_factory=list)
    _clock: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def call(self, client: int, asked: Any) -> Iterator[Call]:
        """A call, from here to the end of the block, where its `answer` is set; none where it raises."""
        with self._lock:
            made = Call(client, asked, next(self._clock))
            self.calls.append(made)
        yield made
        with self._lock:
            made.end = next(self._clock)


def record(threads: int, limit_s: float, work: Callable[[History, int], None]) -> list[Call]:
    """What so many threads ask that begin at once, each with its number."""
    history, begins = History(), threading.Barrier(threads, timeout=limit_s)

    def begin(number: int) -> None:
        begins.wait()
        work(history, number)

    workers = [threading.Thread(target=begin, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(limit_s)
    return history.calls


def is_linearizable(calls: list[Call], start: Hashable, step: Step) -> bool:
    """Whether there is an order that all answers fit to.

    `step(state, asked, answer)` says if the answer fits, and what state follows. The answer of a call that
    died is None, which fits to all.
    """
    order = sorted(calls, key=lambda call: call.begin)
    seen: set[tuple[int, Hashable]] = set()
    todo = [(0, start)]
    completed = sum(1 << i for i, call in enumerate(order) if call.end is not None)
    while todo:
        done, state = todo.pop()
        if (done & completed) == completed:
            return True
        open_ends = [call.end for i, call in enumerate(order) if not done >> i & 1 and call.end is not None]
        first_end = min(open_ends)
        for i, call in enumerate(order):
            if done >> i & 1:
                continue
            if call.begin > first_end:  # another one ended before this one began
                break
            fits, following = step(state, call.asked, call.answer)
            after = (done | 1 << i, following)
            if fits and after not in seen:
                seen.add(after)
                todo.append(after)
    return False
