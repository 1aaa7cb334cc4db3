"""The state of training from one process to another, over a socket of its own, while collectives go on."""

import json
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from safetensors.torch import load

from peerloom.errors import UnavailableError
from peerloom.kit.logs import get_logger
from peerloom.worker.group.relay.tls import JobTls, TlsLink

CONNECT_S = 5.0
SILENCE_S = 60.0  # a last resort: the donor is in the group, which notices its end much sooner
ADDRESS_BYTES = 128
_PIECE_BYTES = 1 << 20
_LENGTH = struct.Struct("!Q")
_log = get_logger()


class StateDonor:
    """Offers one copy of the state to those who know the token, once it is given; with `tls` by that."""

    def __init__(
        self, host: str, tls: JobTls | None = None, forward: Callable[[int], str] | None = None
    ) -> None:
        """Listens on `host`, a free port; `forward` asks where others reach that, None: there.

        Raises OSError when it can't listen, UnavailableError when nobody reaches it.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host.strip("[]"), 0), family=family)
        self._tls = tls
        self._token = secrets.token_bytes(16)
        self._closed = False
        host, port = self._listener.getsockname()[:2]
        try:
            address = f"{host}:{port}" if forward is None else forward(port)
        except UnavailableError:
            self._listener.close()
            raise
        self._reached = address.rpartition(":")[0].strip("[]"), int(address.rpartition(":")[2])

    def address(self) -> bytes:
        """Where to connect, and the token: at most 128 bytes, which only the group gets to know."""
        return json.dumps([*self._reached, self._token.hex()]).encode()

    def give(self, make: Callable[[], bytes]) -> None:
        """Gives to whoever calls what `make` returns, which is called in a thread."""
        threading.Thread(target=self._serve, args=[make], name="donor", daemon=True).start()

    def close(self) -> None:
        """Takes no more callers; what is being sent is sent to its end."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._listener.close()

    def _serve(self, make: Callable[[], bytes]) -> None:
        data = make()
        while not self._closed:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._give, args=(caller, data), name="donor", daemon=True).start()

    def _give(self, caller: socket.socket, data: bytes) -> None:
        with caller:
            try:
                peer = self._tls.accept(caller) if self._tls is not None else caller
                peer.settimeout(SILENCE_S)
                token = bytearray(len(self._token))
                _fill(peer, memoryview(token))
                if secrets.compare_digest(bytes(token), self._token):
                    peer.sendall(_LENGTH.pack(len(data)))
                    peer.settimeout(None)  # of sendall it would limit the whole; the receiver has one
                    peer.sendall(data)
            except OSError as error:
                _log.warning("state_not_given", reason=str(error))


class StateReceiver:
    """Gets a donor's copy in a thread, by `tls` if given. `failure` says why it didn't come; else ""."""

    def __init__(self, address: bytes, tls: JobTls | None = None) -> None:
        self.failure = ""
        self.size_bytes = 0
        self._tls = tls
        self._tensors: dict[str, Any] | None = None
        self._closed = False
        threading.Thread(target=self._receive, args=(address,), name="receiver", daemon=True).start()

    def take(self) -> "dict[str, torch.Tensor] | None":
        """The state's tensors, once; None while it hasn't come."""
        tensors, self._tensors = self._tensors, None
        return tensors

    def close(self) -> None:
        """What still comes isn't wanted any more."""
        self._closed = True

    def _receive(self, address: bytes) -> None:
        host, port, token = json.loads(address)
        try:
            with socket.create_connection((host, port), timeout=CONNECT_S) as connection:
                donor = self._tls.dial(connection) if self._tls is not None else connection
                donor.settimeout(SILENCE_S)
                donor.sendall(bytes.fromhex(token))
                header = bytearray(_LENGTH.size)
                _fill(donor, memoryview(header))
                data = bytearray(_LENGTH.unpack(header)[0])
                content = memoryview(data)
                for start in range(0, len(data), _PIECE_BYTES):
                    if self._closed:
                        return
                    _fill(donor, content[start : start + _PIECE_BYTES])
            self.size_bytes = len(data)
            self._tensors = load(bytes(data))
        except Exception as error:  # whatever it was, there is another way
            self.failure = f"the state didn't come from {host}:{port}: {error}"


def _fill(peer: socket.socket | TlsLink, target: memoryview) -> None:
    while target:
        count = peer.recv_into(target)
        if not count:
            raise ConnectionError("the connection was closed")
        target = target[count:]
