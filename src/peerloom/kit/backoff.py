"""Pauses between attempts: they grow, up to a ceiling, and are drawn so that many don't try at once."""

import random
from collections.abc import Callable

# Not the module's own: who draws a pause must not move what the user's code in this process draws next.
# A simulation seeds it, so that a history can be had again.
pauses = random.Random()


class Backoff:
    """Counts failed attempts of one thing and says how long to pause before the next.

    The pause after n failures is `first_s` * growth^(n-1), at most `longest_s`, times a random share between
    one half and one. A growth near 1 keeps each pause a small part of the time since the first failure: by
    1.03 it is some 4 %, for what must be found soon after it is back. `chance` gives numbers from 0 to 1;
    tests hand in their own.
    """

    def __init__(
        self,
        first_s: float,
        longest_s: float,
        chance: Callable[[], float] = pauses.random,
        growth: float = 2.0,
    ) -> None:
        assert 0 < first_s <= longest_s, "a pause begins above 0 and grows up to its ceiling"
        assert 1 < growth <= 2, "a pause grows, and doubles at most"
        self._first_s = first_s
        self._longest_s = longest_s
        self._growth = growth
        self._chance = chance
        self.failures = 0

    def succeeded(self) -> None:
        """The thing worked: the next pause is a first one again."""
        self.failures = 0

    def next_pause_s(self) -> float:
        """Counts a failure; how long to pause after it, in seconds."""
        self.failures += 1
        grown_s = self._first_s * self._growth ** min(self.failures - 1, 1000)
        return min(grown_s, self._longest_s) * (0.5 + 0.5 * self._chance())
