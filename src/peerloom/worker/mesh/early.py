"""Messages that came before their exchange has begun here; each peer may be so much ahead, and no more."""

from peerloom.worker.mesh.frames import Tag

EARLY_BYTES = 1 << 25  # of one peer


class EarlyMessages:
    """By rank and tag; used under the lock of a mesh."""

    def __init__(self) -> None:
        self._arriving: dict[int, bytearray] = {}
        self._complete: dict[tuple[int, Tag], bytearray] = {}
        self._bytes: dict[int, int] = {}
        self._waiting: set[int] = set()

    def room(self, rank: int, length_bytes: int) -> memoryview | None:
        """Where the next message of a rank goes; None when it has to wait until an exchange begins."""
        if self._bytes.get(rank, 0) + length_bytes > EARLY_BYTES:
            self._waiting.add(rank)
            return None
        self._bytes[rank] = self._bytes.get(rank, 0) + length_bytes
        self._arriving[rank] = bytearray(length_bytes)
        return memoryview(self._arriving[rank])

    def arrived(self, rank: int) -> bytearray | None:
        """The rank's message that is complete now, if it went here."""
        content = self._arriving.pop(rank, None)
        self._bytes[rank] = self._bytes.get(rank, 0) - len(content or b"")
        return content

    def keep(self, rank: int, tag: Tag, content: bytearray) -> None:
        """Its exchange still hasn't begun."""
        self._bytes[rank] = self._bytes.get(rank, 0) + len(content)
        self._complete[rank, tag] = content

    def take(self, rank: int, tag: Tag) -> bytearray | None:
        """The message, if it has come."""
        content = self._complete.pop((rank, tag), None)
        self._bytes[rank] = self._bytes.get(rank, 0) - len(content or b"")
        return content

    def take_waiting(self) -> set[int]:
        """The ranks whose messages had to wait: an exchange has begun."""
        waiting, self._waiting = self._waiting, set()
        return waiting
