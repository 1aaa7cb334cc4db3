"""One connection of gloo's, carried to the other relay and back by two threads that block."""

import socket
import threading
from contextlib import suppress
from ipaddress import ip_address

from peerloom.worker.group.relay.tls import TlsLink

BUFFER_BYTES = 1 << 18
LINGER_S = 10.0  # for the other direction, once gloo has closed one


def quick(connection: socket.socket) -> None:
    """Sends what is written at once: gloo waits for small messages too.

    Within this machine there is no path whose pace has to be found, and a system's BBR, which paces, takes a
    fifth of the throughput: Reno, which every Linux has, doesn't.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError):  # the peer may be gone already
        if hasattr(socket, "TCP_CONGESTION") and ip_address(connection.getpeername()[0]).is_loopback:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def shut(connection: socket.socket) -> None:
    """Ends both directions; threads that wait on it see that."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class RelayLink:
    """Carries bytes between gloo's socket and a TLS connection until either side closes, or `close`."""

    def __init__(self, gloo: socket.socket, tls: TlsLink) -> None:
        self._gloo, self._tls = gloo, tls
        self._inward_ended = threading.Event()

    def run(self) -> None:
        """Carries in this thread and another until both directions have ended; closes both sockets."""
        inward = threading.Thread(target=self._carry_inward, name="relay-in", daemon=True)
        inward.start()
        with suppress(OSError):
            self._carry_outward()
        # What gloo has written last is on its way; the peer's relay closes when its gloo does.
        with suppress(OSError):
            self._tls.socket.shutdown(socket.SHUT_WR)
        self._inward_ended.wait(LINGER_S)
        self.close()
        inward.join()
        self._gloo.close()
        self._tls.socket.close()

    def close(self) -> None:
        """Ends both directions at once."""
        shut(self._gloo)
        shut(self._tls.socket)

    def _carry_outward(self) -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        while count := self._gloo.recv_into(buffer):
            self._tls.sendall(buffer[:count])

    def _carry_inward(self) -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        with suppress(OSError):
            while count := self._tls.recv_into(buffer):
                self._gloo.sendall(buffer[:count])
        # Nothing comes any more, so gloo has lost its peer: it shall know at once.
        self._inward_ended.set()
        shut(self._gloo)
