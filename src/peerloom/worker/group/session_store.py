"""The key-value store in which a group's members find each other: torch's interface to their entries.

These travel over the workers' sessions with the trainer, so no port is opened for them, and whoever can't
speak for a worker can't say anything.
"""

from collections.abc import Sequence
from datetime import timedelta

from torch.distributed import Store

from peerloom.worker.store_entries import StoreEntries


class SessionStore(Store):
    """What gloo and NCCL ask of a store, for one generation; `limit_s` is the longest that a wait may take.

    A key holds what was set last, by whom it was set first. Counters aren't there: no backend counts.
    """

    def __init__(self, entries: StoreEntries, limit_s: float) -> None:
        super().__init__()
        self._entries, self._limit_s = entries, limit_s

    def set(self, key: str, value: bytes | str) -> None:
        """Tells all members."""
        self._entries.set(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        """Waits for a key. Raises RuntimeError when it doesn't come, or when the group is left."""
        return self._entries.get(key, self._limit_s)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits for all of them. Raises RuntimeError as `get` does."""
        limit_s = self._limit_s if timeout is None else timeout.total_seconds()
        for key in keys:
            self._entries.get(key, limit_s)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of them have been heard."""
        return self._entries.has(keys)
