"""Waits that together take as long as they are to, though the system wakes nobody in time."""

import time
from collections.abc import Callable

# Who is woken so late was kept from the processor by others: that isn't made good.
LONGEST_EXCESS_S = 0.01


class PunctualWaits:
    """The waits of one emulated device: what one took too long, the next ones take less."""

    def __init__(
        self, clock_s: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock_s, self._sleep = clock_s, sleep
        self._excess_s = 0.0

    def wait(self, seconds: float) -> None:
        """Waits so long, less what those before took too long, which is 10 ms at most."""
        left_s = seconds - self._excess_s
        due_s = self._clock_s() + left_s
        if left_s > 0:
            self._sleep(left_s)
        self._excess_s = min(LONGEST_EXCESS_S, max(0.0, self._clock_s() - due_s))
