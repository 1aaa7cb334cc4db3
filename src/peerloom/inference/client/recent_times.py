"""What answers of a way took lately, where no formula knows all that they cost."""

import math
import statistics
from collections import deque

HOLDS_S = 30.0  # so that a way that was slow is tried again
_REMEMBERED = 9


class RecentTimes:
    """Seconds by batch size, in each power of two the last nine; they count for 30 s."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[tuple[float, float]]] = {}  # power of two: (when, seconds)

    def note(self, samples: int, seconds: float, now_s: float) -> None:
        """Adds an answer to `samples`, at least 1."""
        self._seen.setdefault(int(math.log2(samples)), deque(maxlen=_REMEMBERED)).append((now_s, seconds))

    def median_s(self, samples: int, now_s: float) -> float | None:
        """What answers to about so many samples took; None where there was none lately."""
        seen = self._seen.get(int(math.log2(samples)), ())
        recent = [seconds for noted_s, seconds in seen if now_s - noted_s < HOLDS_S]
        return statistics.median(recent) if recent else None
