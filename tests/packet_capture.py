"""What somebody on the wire sees, as root, and what of it must never be there."""

import base64
import os
import select
import socket
import threading
from pathlib import Path

ALL_PACKETS = 3  # linux/if_ether.h: ETH_P_ALL
BUFFER_FORCED = 33  # asm-generic/socket.h: SO_RCVBUFFORCE, which the machine's limit doesn't cut


class Capture:
    """All that crosses an interface, packet after packet; a context manager, after which `seen` has it.

    Without an interface all of the namespace that the calling thread is in: a packet is seen on each then.
    """

    def __init__(self, interface: str = "") -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PACKETS))
        if interface:
            self._socket.bind((interface, ALL_PACKETS))
        self._socket.setsockopt(socket.SOL_SOCKET, BUFFER_FORCED, 2**26)
        self._woken, self._wakes = os.pipe()
        self._packets = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.seen = b""

    def __enter__(self) -> "Capture":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._wakes)
        self._thread.join()
        os.close(self._woken)
        self._socket.close()
        self.seen = bytes(self._packets)

    def _read(self) -> None:
        while True:
            readable, _, _ = select.select([self._socket, self._woken], [], [])
            if self._woken in readable:
                return
            self._packets += self._socket.recv(2**17)


def keys_in(folder: Path) -> list[list[bytes]]:
    """The lines of each private key that services keep below a folder."""
    pems = [path.read_bytes().partition(b"-----BEGIN CERTIFICATE")[0] for path in folder.rglob("*.pem")]
    return [pem.split(b"\n")[1:-2] for pem in pems]


def keys_seen(folder: Path, seen: bytes) -> list[list[bytes]]:
    """Those of them of which something was seen: a line, or the secret number itself."""
    return [
        key
        for key in keys_in(folder)
        if any(line in seen for line in key) or base64.b64decode(b"".join(key))[36:68] in seen
    ]
