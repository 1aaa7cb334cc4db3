"""TLS 1.3 between the workers of one job, and of no other."""

import socket
import ssl
import threading

from peerloom.kit.identity import Identity
from peerloom.kit.principal import Principal

HANDSHAKE_S = 5.0
_PIECE_BYTES = 1 << 18
_RECORD_BYTES = 1 << 14


class JobTls:
    """Makes connections on which both sides have shown that they are workers of `job_id`.

    The identity's file is read anew for each, so a renewed certificate is used from then on.
    """

    def __init__(self, identity: Identity, job_id: str) -> None:
        self._identity = identity
        self._host_name = f"{job_id}.job.peerloom"

    def accept(self, connection: socket.socket) -> "TlsLink":
        """The handshake with who has connected. Raises OSError for who isn't a worker of this job."""
        identity = Identity(self._identity.path)
        context = identity.server_context()
        context.num_tickets = 0
        link = TlsLink(connection, context, None)
        if ("DNS", self._host_name) not in link.names():
            raise ssl.SSLError("the peer is no worker of this job")
        return link

    def dial(self, connection: socket.socket) -> "TlsLink":
        """The handshake with whom we have connected to. Raises OSError as `accept` does."""
        context = Identity(self._identity.path).client_context()
        return TlsLink(connection, context, self._host_name)


class TlsLink:
    """TLS on a connected socket, for one thread that sends and one that receives.

    OpenSSL lets one thread at a time use a connection, and a receiver waits most of the time. So it has no
    socket here, only memory: threads wait for the socket apart, and take turns for the ciphers.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, server_hostname: str | None
    ) -> None:
        self.socket = connection
        self._lock = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        self._raw = memoryview(bytearray(_PIECE_BYTES))
        connection.settimeout(HANDSHAKE_S)
        self._shake_hands()
        connection.settimeout(None)

    def names(self) -> set[tuple[str, str]]:
        """What the peer's certificate says who it is: pairs of a kind, e.g. "DNS", and a name."""
        certificate = self._tls.getpeercert() or {}
        return set(certificate.get("subjectAltName", ()))  # type: ignore[arg-type]  # typeshed knows less

    def node(self) -> str:
        """The node for which the peer works, by its certificate; "" for who works for none."""
        uris = [name for kind, name in self.names() if kind == "URI"]
        return Principal.parse(uris[0]).node if uris else ""

    def settimeout(self, limit_s: float | None) -> None:
        """The socket's, for calls that begin from now on."""
        self.socket.settimeout(limit_s)

    def sendall(self, data: bytes | memoryview) -> None:
        """Sends all of it. Raises OSError."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE_BYTES):
            self.socket.sendall(self.seal(view[start : start + _PIECE_BYTES]))

    def seal(self, data: bytes | memoryview) -> bytes:
        """What has to be written to the socket, in this order, for the peer to receive `data`."""
        with self._lock:
            self._tls.write(data)
            return self._outgoing.read()

    def recv_into(self, target: memoryview) -> int:
        """How many bytes came, at most as many as there is room; 0 at the end. Raises OSError."""
        while True:
            with self._lock:
                count = self._open_into(target)
            if count:
                return count
            size_bytes = self.socket.recv_into(self._raw)
            if not size_bytes:
                return 0
            with self._lock:
                self._incoming.write(self._raw[:size_bytes])

    def receive_exactly(self, size_bytes: int) -> bytes:
        """So many bytes. Raises EOFError when there are fewer, OSError."""
        target = bytearray(size_bytes)
        view = memoryview(target)
        while view:
            count = self.recv_into(view)
            if not count:
                raise EOFError("the peer closed the connection")
            view = view[count:]
        return bytes(target)

    def _open_into(self, target: memoryview) -> int:
        filled = 0
        try:
            while filled < len(target):
                count = self._tls.read(min(_RECORD_BYTES, len(target) - filled), target[filled:])
                if not count:
                    break
                filled += int(count)
        except ssl.SSLWantReadError:
            pass
        return filled

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                size_bytes = self.socket.recv_into(self._raw)
                if not size_bytes:
                    raise ssl.SSLError("the peer closed the connection in the handshake") from None
                self._incoming.write(self._raw[:size_bytes])
            except ssl.SSLError:
                self._flush()  # it says why
                raise
            else:
                self._flush()
                return

    def _flush(self) -> None:
        if self._outgoing.pending:
            self.socket.sendall(self._outgoing.read())
