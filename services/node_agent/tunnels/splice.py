"""Two connected sockets whose bytes go from one to the other, by two threads that block.

Threads, not the loop: gradients pass here, and an agent's loop has heartbeats to send.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

BUFFER_BYTES = 1 << 18
# A peer that is cut off leaves a connection that nobody ends: found by probes, after 30 + 3 * 10 s.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class Splice:
    """Carries until both directions have ended, or `close`; the end of one is passed on.

    Takes both sockets over. `pace` is called with the number of bytes before they are sent on, and may wait.
    """

    def __init__(
        self, one: socket.socket, other: socket.socket, pace: Callable[[int], object] = lambda _: None
    ) -> None:
        self._one, self._other, self._pace = one, other, pace
        for connection in (one, other):
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def start(self, on_end: Callable[[], object]) -> None:
        """Begins to carry; `on_end` is called in a thread once both sockets are closed."""
        threading.Thread(target=self._run, args=(on_end,), name="splice", daemon=True).start()

    def close(self) -> None:
        """Ends both directions at once."""
        for connection in (self._one, self._other):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _run(self, on_end: Callable[[], object]) -> None:
        arguments = (self._other, self._one)
        back = threading.Thread(target=self._carry, args=arguments, name="splice-back", daemon=True)
        back.start()
        self._carry(self._one, self._other)
        back.join()
        self._one.close()
        self._other.close()
        on_end()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        try:
            while count := source.recv_into(buffer):
                self._pace(count)
                sink.sendall(buffer[:count])
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()  # who was cut off hears nothing any more, so neither shall the other wait
