"""One node's tunnel at its relay: the ports that were opened for it, and the connections that came there."""

import asyncio
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress

from peerloom.kit.accepting import end_listening
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.tunnels.relay_limits import PORTS_OF_TUNNEL
from peerloom.services.node_agent.tunnels.splice import Splice
from peerloom.v1.node_agent_pb2 import OpenedPort, OpenTunnelRequest, OpenTunnelResponse, TunnelConnection

ID_BYTES = 16
WAITING_S = 10.0  # for the node to dial back
_SHORTAGE_PAUSE_S = 0.1
_log = get_logger()


class ServedTunnel:
    """`said` is what the node is to be told, None once the tunnel is over. `host` is where others reach us.

    `listen` opens a port here, or raises OSError; `may_take` says whether one more connection may be taken.
    """

    def __init__(
        self, host: str, listen: Callable[[], socket.socket], may_take: Callable[["ServedTunnel"], bool]
    ) -> None:
        self.said: asyncio.Queue[OpenTunnelResponse | None] = asyncio.Queue()
        self._host, self._listen, self._may_take = host, listen, may_take
        self._ports: dict[int, tuple[socket.socket, str]] = {}
        self._waiting: dict[bytes, tuple[socket.socket, asyncio.TimerHandle]] = {}
        self._splices: set[Splice] = set()

    @property
    def connections(self) -> int:
        """How many wait or are open."""
        return len(self._waiting) + len(self._splices)

    def hear(self, request: OpenTunnelRequest) -> None:
        """The node wants a port opened, or closed."""
        if request.close_port in self._ports:
            end_listening(self._ports.pop(request.close_port)[0])
        if request.open_port:
            self.said.put_nowait(OpenTunnelResponse(opened=self._open(request.open_port)))

    def take_waiting(self, connection_id: bytes) -> socket.socket | None:
        """The connection that the node has come for; None if none waits by this id."""
        found = self._waiting.pop(connection_id, None)
        if found is None:
            return None
        found[1].cancel()
        return found[0]

    def carry(self, splice: Splice) -> None:
        """Carries one connection, to its end or that of the tunnel."""
        loop = asyncio.get_running_loop()
        self._splices.add(splice)

        def ended() -> None:
            with suppress(RuntimeError):  # the loop may be over before the connection is
                loop.call_soon_threadsafe(self._splices.discard, splice)

        splice.start(ended)

    def close(self) -> None:
        """Closes its ports and ends its connections."""
        for listener, _ in self._ports.values():
            end_listening(listener)
        self._ports.clear()
        for connection, timer in self._waiting.values():
            timer.cancel()
            connection.close()
        self._waiting.clear()
        for splice in self._splices:
            splice.close()
        self.said.put_nowait(None)

    def _open(self, port: int) -> OpenedPort:
        if port in self._ports:
            return OpenedPort(port=port, address=self._ports[port][1])
        if port > 65_535 or len(self._ports) >= PORTS_OF_TUNNEL:
            return OpenedPort(port=port, reason=f"one tunnel has at most {PORTS_OF_TUNNEL} ports")
        try:
            listener = self._listen()
        except OSError as error:
            return OpenedPort(port=port, reason=f"the relay can't listen: {error}")
        listener.setblocking(False)
        address = f"{self._host}:{listener.getsockname()[1]}"
        self._ports[port] = (listener, address)
        self._listen_again(port, listener)
        return OpenedPort(port=port, address=address)

    def _accept(self, port: int, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection, _ = listener.accept()
        except OSError as error:  # e.g. too many open files: those that are open go on
            _log.warning("tunnel_connection_refused", reason=str(error))
            loop.remove_reader(listener)
            loop.call_later(_SHORTAGE_PAUSE_S, self._listen_again, port, listener)
            return
        if not self._may_take(self):
            connection.close()
            return
        connection_id = secrets.token_bytes(ID_BYTES)
        timer = loop.call_later(WAITING_S, self._give_up, connection_id)
        self._waiting[connection_id] = (connection, timer)
        waiting = TunnelConnection(port=port, connection_id=connection_id)
        self.said.put_nowait(OpenTunnelResponse(connection=waiting))

    def _listen_again(self, port: int, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, port, listener)

    def _give_up(self, connection_id: bytes) -> None:
        connection = self.take_waiting(connection_id)
        if connection is not None:
            connection.close()
