"""How the members of a generation get one connection to each other.

Each tells in the generation's store where it is reached, with a secret. The higher rank of two dials the
lower one, and shows that it knows the secret; the lower one answers with another proof of it. So both know
that the other one reads this generation's store. With relays they are besides, by TLS, workers of the same
job on the nodes of their ranks.
"""

import hmac
import json
import secrets
import socket
import struct
import threading
import time

from peerloom.errors import PeerloomError
from peerloom.kit.logs import get_logger
from peerloom.worker.group.entrance import Entrance
from peerloom.worker.group.relay.relay import MESH, RelayedGeneration
from peerloom.worker.group.relay.tls import HANDSHAKE_S
from peerloom.worker.mesh.frames import MARK
from peerloom.worker.mesh.mesh_link import PeerConnection, PlainConnection
from peerloom.worker.store_entries import StoreEntries

RETRY_S = 0.2
_SECRET_BYTES = 32
_GREETING = struct.Struct("!II32s")  # generation, rank, proof
_PROOF_BYTES = 32
_log = get_logger()


class MeshMeeting:
    """The connections of `rank` to the other `ranks` of a generation, whose `entries` say where they are.

    Listens at `host`, or takes what comes through the `relayed` generation. Whatever takes longer than
    `limit_s` is given up.
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        entries: StoreEntries,
        limit_s: float,
        host: str,
        relayed: RelayedGeneration | None = None,
    ) -> None:
        self._rank, self._ranks, self._entries, self._limit_s = rank, ranks, entries, limit_s
        self._host, self._relayed = host, relayed
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._entrance: Entrance | None = None
        self._changed = threading.Condition()
        self._connections: dict[int, PeerConnection] = {}
        self._failure = ""
        self._is_over = False

    def begin(self) -> None:
        """Begins to connect. Raises RuntimeError where nobody could reach this worker, or after `leave`."""
        try:
            address = self._open()
        except (OSError, PeerloomError) as error:
            raise RuntimeError(f"{MARK}: this worker can't be reached: {error}") from error
        with self._changed:
            failure = self._failure
        if failure:
            self._close_entrance()  # there was none yet for `leave` to close
            raise RuntimeError(failure)
        told = {"address": address, "secret": self._secret.hex()}
        self._entries.set(_key(self._rank), json.dumps(told).encode())
        for rank in range(self._rank):
            threading.Thread(target=self._dial, args=(rank,), name="mesh-out", daemon=True).start()

    def connect(self) -> dict[int, PeerConnection]:
        """A connection to each other rank. Raises RuntimeError when one doesn't come, or on `leave`."""
        with self._changed:
            self._changed.wait_for(self._is_settled, self._limit_s)
            missing = sorted(set(range(self._ranks)) - set(self._connections) - {self._rank})
            failure = self._failure or (f"{MARK}: Timed out waiting for ranks {missing}" if missing else "")
            if not failure:
                found, self._connections, self._is_over = self._connections, {}, True
        if failure:
            self.leave(failure)
            raise RuntimeError(failure)
        self._close_entrance()
        return found

    def leave(self, reason: str) -> None:
        """Ends the wait for the others, and lets nobody in any more. Any thread may call it."""
        with self._changed:
            self._failure, self._is_over = self._failure or reason, True
            left, self._connections = self._connections, {}
            self._changed.notify_all()
        self._close_entrance()
        for connection in left.values():
            connection.socket.close()

    def _is_settled(self) -> bool:
        return bool(self._failure) or len(self._connections) == self._ranks - 1

    def _close_entrance(self) -> None:
        if self._entrance is not None:
            self._entrance.close()

    def _open(self) -> str:
        if self._relayed is None:
            self._entrance = Entrance(self._host, "mesh", lambda one: self._greet(PlainConnection(one)))
            return self._entrance.address
        self._relayed.serve_mesh(self._greet)
        return self._relayed.reached_at()

    def _greet(self, connection: PeerConnection, told_rank: int | None = None) -> None:
        """Another has dialled, of `told_rank` if a relay knows. Raises OSError, EOFError or ValueError."""
        deadline_s = time.monotonic() + HANDSHAKE_S
        generation, rank, proof = _GREETING.unpack(_exactly(connection, _GREETING.size, deadline_s))
        expected = _proof(self._secret, b"dials", self._entries.generation, rank, self._rank)
        is_member = self._rank < rank < self._ranks and told_rank in (None, rank)
        if (
            generation != self._entries.generation
            or not is_member
            or not hmac.compare_digest(proof, expected)
        ):
            raise ValueError("who connected is no member of this generation")
        _send(connection, _proof(self._secret, b"takes", generation, rank, self._rank), deadline_s)
        self._take(rank, connection)

    def _dial(self, rank: int) -> None:
        deadline_s, pause = time.monotonic() + self._limit_s, threading.Event()
        try:
            told = json.loads(self._entries.get(_key(rank), self._limit_s))
            address, secret = str(told["address"]), bytes.fromhex(told["secret"])
            while (
                not self._try(rank, address, secret) and time.monotonic() < deadline_s and not self._is_over
            ):
                pause.wait(RETRY_S)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            self.leave(f"{MARK}: no way to rank {rank}: {error}")

    def _try(self, rank: int, address: str, secret: bytes) -> bool:
        connection: PeerConnection | None = None
        try:
            connection = self._connected(rank, address)
            deadline_s = time.monotonic() + HANDSHAKE_S
            generation = self._entries.generation
            proof = _proof(secret, b"dials", generation, self._rank, rank)
            _send(connection, _GREETING.pack(generation, self._rank, proof), deadline_s)
            answer = _exactly(connection, _PROOF_BYTES, deadline_s)
            if not hmac.compare_digest(answer, _proof(secret, b"takes", generation, self._rank, rank)):
                raise ValueError(f"what answers at {address} is not rank {rank}")
            self._take(rank, connection)
        except (OSError, EOFError, ValueError) as error:
            _log.warning("mesh_not_reached", rank=rank, address=address, reason=str(error))
            if connection is not None:
                connection.socket.close()
            return False
        return True

    def _connected(self, rank: int, address: str) -> PeerConnection:
        if self._relayed is not None:
            return self._relayed.dial(rank, address, MESH)
        host, _, port = address.rpartition(":")
        return PlainConnection(socket.create_connection((host.strip("[]"), int(port)), HANDSHAKE_S))

    def _take(self, rank: int, connection: PeerConnection) -> None:
        with self._changed:
            if self._is_over:
                raise ValueError("the meeting is over")
            former = self._connections.get(rank)  # the peer gave it up, or it would not dial again
            self._connections[rank] = connection
            self._changed.notify_all()
        if former is not None:
            former.socket.close()


def _key(rank: int) -> str:
    return f"mesh/{rank}"


def _proof(secret: bytes, what: bytes, generation: int, dialler: int, listener: int) -> bytes:
    return hmac.digest(secret, what + struct.pack("!III", generation, dialler, listener), "sha256")


def _exactly(connection: PeerConnection, size_bytes: int, deadline_s: float) -> bytes:
    """So many bytes until then: who sends one at a time gets no longer. Raises OSError, EOFError."""
    target = bytearray(size_bytes)
    unfilled = memoryview(target)
    while unfilled:
        _limit(connection, deadline_s)
        count = connection.recv_into(unfilled)
        if not count:
            raise EOFError("the connection was closed in the handshake")
        unfilled = unfilled[count:]
    return bytes(target)


def _send(connection: PeerConnection, content: bytes, deadline_s: float) -> None:
    _limit(connection, deadline_s)
    connection.socket.sendall(connection.seal(content))


def _limit(connection: PeerConnection, deadline_s: float) -> None:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the handshake took too long")
    connection.settimeout(left_s)
