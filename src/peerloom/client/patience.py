"""How long to go on with a service that is away.

A line that breaks is opened again after a pause that doubles from 0.1 s to 2 s. Once nothing was heard for
the whole limit, the last error comes out. A line that ended without an error never counts as lost.
"""

import asyncio
import time

from peerloom.errors import PeerloomError

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0


def next_pause_s(attempts: int, lost_s: float, limit_s: float) -> float | None:
    """The pause before the next attempt in seconds, None when nothing was heard for `limit_s`."""
    if lost_s >= limit_s:
        return None
    doubled: float = FIRST_PAUSE_S * 2.0 ** min(attempts, 10)
    return min(LONGEST_PAUSE_S, doubled)


class Patience:
    """Counts the attempts to open one line again."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._attempts = 0
        self._lost_at_s: float | None = None

    def heard(self) -> None:
        """Something arrived: the line stands."""
        self._attempts, self._lost_at_s = 0, None

    async def wait(self, error: PeerloomError | None) -> None:
        """Pauses before the next attempt. Raises `error` when the limit is reached."""
        now_s = time.monotonic()
        if error is not None and self._lost_at_s is None:
            self._lost_at_s = now_s
        lost_s = 0.0 if self._lost_at_s is None else now_s - self._lost_at_s
        limit_s = self._limit_s if error is not None else float("inf")
        pause_s = next_pause_s(self._attempts, lost_s, limit_s)
        if pause_s is None and error is not None:
            raise error
        self._attempts += 1
        await asyncio.sleep(pause_s or FIRST_PAUSE_S)
