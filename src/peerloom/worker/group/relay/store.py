"""The store of a relayed group: each member finds the others at addresses of its own loopback."""

import re
import socket
import struct

from peerloom.errors import PeerloomError
from peerloom.worker.group.relay.relay import RelayedGeneration, loopback_of
from peerloom.worker.group.session_store import SessionStore
from peerloom.worker.store_entries import StoreEntries

_PORT = struct.Struct("!H")


class RelayedStore(SessionStore):
    """Beside gloo's address each member tells where its relay is; what gloo reads leads to our own relay.

    Gloo's keys end in a rank, and their values hold one socket address (in the kernel's form) of that rank.
    """

    def __init__(self, entries: StoreEntries, limit_s: float, relayed: RelayedGeneration) -> None:
        super().__init__(entries, limit_s)
        self._relayed = relayed
        self._ports: dict[str, int] = {}

    def set(self, key: str, value: bytes | str) -> None:
        """Tells all members, and where our relay is. Raises RuntimeError while nobody could reach it."""
        content = value.encode() if isinstance(value, str) else bytes(value)
        start = _port_in(content, self._relayed.rank)
        self._relayed.serve(_PORT.unpack_from(content, start)[0])
        try:
            address = self._relayed.reached_at()
        except PeerloomError as error:  # gloo passes this kind on
            raise RuntimeError(error.message) from error
        super().set(_relay_key(self._relayed.rank), address)
        super().set(key, content)

    def get(self, key: str) -> bytes:
        """Waits for a key. Raises RuntimeError as `SessionStore` does, and for what is no rank's address."""
        value, rank = super().get(key), int(key.rpartition("/")[2])
        if rank == self._relayed.rank:
            return value
        start = _port_in(value, rank)
        if key not in self._ports:
            address = super().get(_relay_key(rank)).decode(errors="replace")
            self._ports[key] = self._relayed.port_to(rank, address)
        return value[:start] + _PORT.pack(self._ports[key]) + value[start + _PORT.size :]


def _relay_key(rank: int) -> str:
    return f"relay/{rank}"


def _port_in(value: bytes, rank: int) -> int:
    """Where the port stands: after the address family (native order), before the address."""
    family = re.escape(struct.pack("=H", socket.AF_INET))
    address = re.escape(socket.inet_aton(loopback_of(rank)))
    found = re.search(family + b"(..)" + address, value, re.DOTALL)
    if found is None:
        raise RuntimeError(f"ProcessGroup: rank {rank} told no address at {loopback_of(rank)}")
    return found.start(1)
