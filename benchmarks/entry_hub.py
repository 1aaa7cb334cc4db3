"""Members without a trainer find each other: a hub on a Unix socket that tells each member's entries to all.

It does for processes of benchmarks and tests what the trainer does for workers over their sessions. A
member's connection stands before its first group, so no break ends it.
"""

import socket
import threading
from contextlib import suppress
from pathlib import Path

from peerloom.v1.trainer_pb2 import StoreEntry
from peerloom.worker.store_entries import StoreEntries

_LENGTH_BYTES = 4


class EntryHub:
    """Listens at `path`; a member that comes later is told what was said before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._said: list[bytes] = []
        self._members: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, name="hub", daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Ends all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        with self._lock:
            for member in self._members:
                with suppress(OSError):
                    member.shutdown(socket.SHUT_RDWR)  # whoever listens closes it
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                member, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._members.append(member)
                for frame in self._said:
                    member.sendall(frame)
            listening = threading.Thread(target=self._listen, args=(member,), name="hub", daemon=True)
            self._threads.append(listening)
            listening.start()

    def _listen(self, member: socket.socket) -> None:
        with suppress(OSError, ValueError), member, member.makefile("rb") as reader:
            while length := reader.read(_LENGTH_BYTES):
                frame = length + reader.read(int.from_bytes(length, "big"))
                with self._lock:
                    self._said.append(frame)
                    for other in self._members:
                        with suppress(OSError):  # it was killed
                            other.sendall(frame)


class HubEntries:
    """A member's side of the hub at `path`: the entries of each generation."""

    def __init__(self, path: str) -> None:
        self._hub = socket.socket(socket.AF_UNIX)
        self._hub.connect(path)
        self._lock = threading.Lock()
        self._entries: dict[int, StoreEntries] = {}
        self._thread = threading.Thread(target=self._listen, name="entries", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nothing is told or heard any more."""
        with suppress(OSError):
            self._hub.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def of(self, generation: int) -> StoreEntries:
        """What the members of a generation say."""
        with self._lock:
            if generation not in self._entries:
                self._entries[generation] = StoreEntries(generation, self._tell)
            return self._entries[generation]

    def _tell(self, entry: StoreEntry) -> None:
        content = entry.SerializeToString()
        with self._lock:
            self._hub.sendall(len(content).to_bytes(_LENGTH_BYTES, "big") + content)

    def _listen(self) -> None:
        with suppress(OSError), self._hub, self._hub.makefile("rb") as reader:
            while length := reader.read(_LENGTH_BYTES):
                entry = StoreEntry.FromString(reader.read(int.from_bytes(length, "big")))
                self.of(entry.generation).heard(entry)
