"""A limit on bytes a second, shared by all that send."""

import asyncio

from peerloom.kit.clock import Clock, SystemClock

_BURST_S = 0.05
_LEAST_BURST_BYTES = 64 * 1024


class Throttle:
    """Lets `limit_bytes_per_s` through (0: everything), with bursts of a twentieth of a second.

    Callers are served in the order in which they came.
    """

    def __init__(self, limit_bytes_per_s: float = 0.0, clock: Clock | None = None) -> None:
        self._limit = limit_bytes_per_s
        self._clock = clock or SystemClock()
        self._free_s = self._clock.monotonic_s()

    @property
    def piece_bytes(self) -> int:
        """How much to take at once, so that nobody holds the others up."""
        if not self._limit:
            return 2**40
        return max(_LEAST_BURST_BYTES, int(self._limit * _BURST_S))

    def due_s(self, size_bytes: int) -> float:
        """Takes the bytes; how long to wait before they may go, in seconds."""
        if not self._limit:
            return 0.0
        now_s = self._clock.monotonic_s()
        self._free_s = max(self._free_s, now_s - _BURST_S)
        wait_s = max(0.0, self._free_s - now_s)
        self._free_s += size_bytes / self._limit
        return wait_s

    async def take(self, size_bytes: int) -> None:
        """Returns when the bytes may go."""
        wait_s = self.due_s(size_bytes)
        if wait_s:
            await asyncio.sleep(wait_s)
