"""Lets the project's own containers in: `doorkeeper.py FOLDER`, started beside the registry by start.py.

Listens at FOLDER/ROLE/door.sock for each folder of a role that is there. Each is a volume that the registry
shares with the containers of that role alone, so whoever connects is one of them, and is told the string of
a fresh token of that role: the tokens of all others stay closed to it, and none lies anywhere. Who was here
before may send the certificate that it had first; a node stays the node that it was.
"""

import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import peerloom
from peerloom.errors import PeerloomError
from peerloom.kit.identity import principal_of
from peerloom.kit.ownership import REGISTRY_OWNER

SOCKET = "door.sock"
TTL = timedelta(minutes=5)
REQUEST_LIMIT_BYTES = 8192
WAIT_S = 3.0


def listen(path: Path) -> socket.socket:
    """A socket file that only this user's processes can connect to. Raises OSError."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(64)
    return listener


def read_all(connection: socket.socket) -> bytes:
    """What the other sends until it has no more. Raises OSError, TimeoutError too."""
    deadline_s, read = time.monotonic() + WAIT_S, b""
    while len(read) < REQUEST_LIMIT_BYTES:
        connection.settimeout(max(0.001, deadline_s - time.monotonic()))
        part = connection.recv(REQUEST_LIMIT_BYTES)
        if not part:
            break
        read += part
    return read


def known_id(client: peerloom.Client, role: str, certificate: bytes) -> str:
    """The id of a node of ours that this certificate (PEM) names; "" for anybody else.

    Nobody has checked the certificate: the id counts only if a node of this owner was admitted with it.
    Raises ValueError, InvalidArgumentError for what is no certificate.
    """
    if not certificate or role != "node":
        return ""
    from cryptography import x509

    name = principal_of(x509.load_pem_x509_certificate(certificate)).id
    ours = [each for each in client.door.admitted() if (each.role, each.owner) == (role, REGISTRY_OWNER)]
    return name if any(each.id == name and not each.revoked for each in ours) else ""


def make_token(role: str, certificate: bytes) -> str:
    """The string of a fresh token, at this container's loopback. Raises PeerloomError, ValueError.

    A client for each: tokens are seldom asked for, and the operator's certificate is renewed in between.
    """
    with peerloom.Client(patience_s=WAIT_S) as client:
        name = known_id(client, role, certificate)
        return client.door.create_token(role, name=name, ttl=TTL, owner=REGISTRY_OWNER).text  # type: ignore[arg-type]  # a folder's name


def answer(role: str, connection: socket.socket) -> None:
    """Tells a token, or "error: ..."; an answer that doesn't arrive was no answer."""
    with connection, suppress(OSError):
        try:
            told = make_token(role, read_all(connection))
        except (PeerloomError, ValueError) as error:
            told = f"error: {error}"
        print(f"doorkeeper: {role}: {told if told.startswith('error') else 'token made'}", file=sys.stderr)
        connection.sendall(told.encode())


def serve(doors: Path) -> None:
    """Answers until the process is ended, one at a time."""
    waiting = selectors.DefaultSelector()
    for folder in sorted(path for path in doors.iterdir() if path.is_dir()):
        waiting.register(listen(folder / SOCKET), selectors.EVENT_READ, folder.name)
    while True:
        for key, _ in waiting.select():
            assert isinstance(key.fileobj, socket.socket)
            connection, _ = key.fileobj.accept()
            answer(key.data, connection)


if __name__ == "__main__":
    registry = os.getppid()
    try:
        serve(Path(sys.argv[1]))
    finally:
        # Nobody would see that the door is closed: with the registry the container ends, and starts again.
        os.kill(registry, signal.SIGTERM)
