"""What the members of a generation tell each other to get connected: kept while it is new, and told to all.

Each member may say a few words, and nobody can say them for another: torch's own key-value store listens on a
port and keeps whatever a stranger sends.
"""

from collections.abc import Callable, Iterable

from peerloom.v1.trainer_pb2 import StoreEntry, WorkerSessionResponse

GENERATIONS_KEPT = 2  # one may meet beside the training of the other
KEY_CHARACTERS, VALUE_BYTES, KEYS_OF_WORKER = 128, 4096, 32


class Rendezvous:
    """Keeps the entries of a job's newest generations, and tells each to all members by `send`."""

    def __init__(self, send: Callable[[str, WorkerSessionResponse], object]) -> None:
        self._send = send
        self._members: dict[int, frozenset[str]] = {}
        self._entries: dict[int, dict[str, tuple[str, StoreEntry]]] = {}  # by key: who said it, and what

    def begin(self, generation: int, worker_ids: Iterable[str]) -> None:
        """This is the newest generation; older ones than that before it are forgotten."""
        self._members[generation] = frozenset(worker_ids)
        self._entries[generation] = {}
        for old in [old for old in self._members if old <= generation - GENERATIONS_KEPT]:
            del self._members[old], self._entries[old]

    def say(self, worker_id: str, entry: StoreEntry) -> str:
        """A worker tells all members of a generation that it belongs to; why it may not, or "".

        It may say the same again. What another has said, and what is of other generations, isn't heard.
        """
        if len(entry.key) > KEY_CHARACTERS or len(entry.value) > VALUE_BYTES:
            return f"a key has at most {KEY_CHARACTERS} characters, and its value {VALUE_BYTES} bytes"
        if worker_id not in self._members.get(entry.generation, ()):
            return ""
        entries = self._entries[entry.generation]
        by, said = entries.get(entry.key, (worker_id, None))
        if by != worker_id or said == entry:
            return ""
        if said is None and sum(by == worker_id for by, _ in entries.values()) >= KEYS_OF_WORKER:
            return f"a worker says at most {KEYS_OF_WORKER} keys in a generation"
        entries[entry.key] = (worker_id, entry)
        for member in sorted(self._members[entry.generation]):
            self._send(member, WorkerSessionResponse(entry=entry))
        return ""

    def repeat_to(self, worker_id: str) -> None:
        """A worker is back: it hears all that it may have missed."""
        for generation, members in self._members.items():
            if worker_id in members:
                for _, entry in self._entries[generation].values():
                    self._send(worker_id, WorkerSessionResponse(entry=entry))
