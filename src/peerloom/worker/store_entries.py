"""What the members of one generation tell each other through the trainer to get connected: keys and values.

The trainer tells every entry to all members, so each has them here, and looks for no more than its own copy.
"""

import threading
import time
from collections.abc import Callable, Iterable

from peerloom.v1.trainer_pb2 import StoreEntry

GENERATIONS_KEPT = 2  # one may meet beside the training of the other
_PAST = "a newer generation takes its place"


class StoreEntries:
    """One generation's entries. `tell` hands one to the trainer. Any thread may call any method."""

    def __init__(self, generation: int, tell: Callable[[StoreEntry], object]) -> None:
        self.generation = generation
        self._tell = tell
        self._values: dict[str, bytes] = {}
        self._own: dict[str, StoreEntry] = {}
        self._closed = ""
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        """Tells all members, this one too."""
        entry = StoreEntry(generation=self.generation, key=key, value=value)
        with self._changed:
            self._own[key] = entry
        self._tell(entry)

    def own(self) -> list[StoreEntry]:
        """What this member has said: a trainer that is back may have to be told again."""
        with self._changed:
            return list(self._own.values())

    def heard(self, entry: StoreEntry) -> None:
        """Some member has said this."""
        with self._changed:
            self._values[entry.key] = entry.value
            self._changed.notify_all()

    def has(self, keys: Iterable[str]) -> bool:
        """Whether all of these keys have been heard."""
        with self._changed:
            return all(key in self._values for key in keys)

    def get(self, key: str, limit_s: float) -> bytes:
        """The value of a key, once it is there. Raises RuntimeError when it doesn't come, or on a close."""
        return self.wait(key, lambda value: value is not None, limit_s) or b""

    def wait(self, key: str, is_due: Callable[[bytes | None], bool], limit_s: float) -> bytes | None:
        """As `get`, once the value, None before there is one, `is_due`; `wake` has it looked at again."""
        deadline_s = time.monotonic() + limit_s
        with self._changed:
            while not is_due(self._values.get(key)) and not self._closed:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise RuntimeError(f"Timed out waiting for {key} of generation {self.generation}")
                self._changed.wait(left_s)
            if self._closed:
                raise RuntimeError(self._closed)
            return self._values.get(key)

    def wake(self) -> None:
        """What is due may depend on more than the value, which has changed."""
        with self._changed:
            self._changed.notify_all()

    def close(self, reason: str) -> None:
        """Ends all waits, those to come too."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()


class EntriesByGeneration:
    """The entries of the newest generations. `tell` hands one to the trainer. Any thread may call it."""

    def __init__(self, tell: Callable[[StoreEntry], object]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._entries: dict[int, StoreEntries] = {}

    def begin(self, generation: int) -> None:
        """This is the newest one; of those before the last nothing is heard any more."""
        with self._lock:
            self._entries[generation] = StoreEntries(generation, self._tell)
            for old in [old for old in self._entries if old <= generation - GENERATIONS_KEPT]:
                self._entries.pop(old).close(_PAST)

    def of(self, generation: int) -> StoreEntries:
        """Those of one generation; closed ones if it is past."""
        with self._lock:
            entries = self._entries.get(generation)
        if entries is None:
            entries = StoreEntries(generation, self._tell)
            entries.close(_PAST)
        return entries

    def own(self) -> list[StoreEntry]:
        """What this member has said."""
        with self._lock:
            return [entry for entries in self._entries.values() for entry in entries.own()]
