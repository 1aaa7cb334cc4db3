"""Passes connections on to nodes behind NAT: a port here for each port that such a node asks for.

For each connection that comes there the node is told over its tunnel, and dials the data port with the random
id of that connection; then bytes go from one to the other. What they say is TLS between their ends, so it
isn't encrypted once more, and this node sees who talks to whom and how much.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from peerloom.artifacts.fetch.connection_table import ConnectionTable
from peerloom.artifacts.fetch.throttle import Throttle
from peerloom.errors import ResourceExhaustedError, UnavailableError
from peerloom.kit.accepting import accepted, end_listening
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.tunnels.relay_limits import RelayLimits
from peerloom.services.node_agent.tunnels.served_tunnel import ID_BYTES, ServedTunnel
from peerloom.services.node_agent.tunnels.splice import Splice
from peerloom.v1.node_agent_pb2 import OpenTunnelRequest, OpenTunnelResponse

BEAT_S = 10.0  # a tunnel says at least so often that it is there; who was turned out is found then
GREETING_S = 5.0  # for who dials the data port to say its id
STRANGERS, STRANGERS_OF_HOST = 256, 64
UNREAD = 1000  # answers that a node may leave unread; then its tunnel ends
_log = get_logger()


class RelayServer:
    """Listens at `host`, where others reach it as `told_host`. Raises UnavailableError when it can't."""

    def __init__(self, host: str, told_host: str, limits: RelayLimits) -> None:
        self._host, self._told_host, self._limits = host.strip("[]"), told_host, limits
        self._tunnels: dict[ServedTunnel, str] = {}  # with whose it is
        self._of_node: dict[str, ServedTunnel] = {}
        self._strangers = ConnectionTable[socket.socket](STRANGERS, STRANGERS_OF_HOST)
        self._greeting: dict[socket.socket, asyncio.Task[None]] = {}
        self._throttle, self._lock = Throttle(limits.bytes_per_s), threading.Lock()
        self._paused = threading.Event()
        self._is_closed = False
        try:
            self._data = self._listen()
        except OSError as error:
            raise UnavailableError(f"can't listen on {host} as a relay: {error}") from error
        self._data.setblocking(False)

    @property
    def data_port(self) -> int:
        """Where nodes dial for the connections that wait for them."""
        return int(self._data.getsockname()[1])

    async def keep(self) -> None:
        """Serves the data port until cancelled, then ends all tunnels."""
        try:
            while True:
                try:
                    connection, address = await accepted(self._data)
                except OSError as error:  # e.g. too many open files
                    _log.warning("relay_connection_refused", reason=str(error))
                    await asyncio.sleep(0.1)
                    continue
                self._greet(connection, str(address[0]))
        finally:
            self.close()

    def close(self) -> None:
        """Ends all tunnels and takes no more."""
        self._is_closed = True
        self._paused.set()
        for task in self._greeting.values():
            task.cancel()
        for tunnel in list(self._tunnels):
            tunnel.close()
        end_listening(self._data)

    async def serve(
        self, node: str, owner: str, requests: AsyncIterator[OpenTunnelRequest]
    ) -> AsyncGenerator[OpenTunnelResponse]:
        """A tunnel of a node, until it ends its stream; what it is told. A second one ends the first.

        `node` is who it is, "" where nobody knows. Raises ResourceExhaustedError at a limit.
        """
        tunnel = self._enter(node, owner)
        reading = asyncio.create_task(_read(tunnel, requests))
        try:
            yield OpenTunnelResponse(data_port=self.data_port)
            while True:
                try:
                    async with asyncio.timeout(BEAT_S):
                        said = await tunnel.said.get()
                except TimeoutError:
                    said = OpenTunnelResponse()
                if said is None:
                    return
                yield said
        finally:
            reading.cancel()
            tunnel.close()
            self._leave(node, tunnel)

    def _enter(self, node: str, owner: str) -> ServedTunnel:
        former = self._of_node.get(node)
        if former is not None:
            former.close()
            self._leave(node, former)
        of_owner = sum(one == owner for one in self._tunnels.values())
        if len(self._tunnels) >= self._limits.tunnels or of_owner >= self._limits.tunnels_of_owner:
            raise ResourceExhaustedError(
                f"This relay has {len(self._tunnels)} tunnels, {of_owner} of them yours; it takes "
                f"{self._limits.tunnels}, and {self._limits.tunnels_of_owner} of one owner. Ask another one.",
                reason="RELAY_FULL",
            )
        if self._is_closed:
            raise UnavailableError("This relay is being stopped. Ask another one.")
        tunnel = ServedTunnel(self._told_host, self._listen, self._may_take)
        self._tunnels[tunnel] = owner
        if node:
            self._of_node[node] = tunnel
        _log.info("tunnel_opened", node=node, owner=owner)
        return tunnel

    def _leave(self, node: str, tunnel: ServedTunnel) -> None:
        if self._tunnels.pop(tunnel, None) is not None:
            _log.info("tunnel_closed", node=node)
        if self._of_node.get(node) is tunnel:
            del self._of_node[node]

    def _may_take(self, tunnel: ServedTunnel) -> bool:
        if tunnel.connections >= self._limits.connections_of_tunnel:
            return False
        return sum(one.connections for one in self._tunnels) < self._limits.connections

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        trouble: OSError | None = None
        for port in self._limits.ports or (0,):
            try:
                return socket.create_server((self._host, port), family=family, backlog=128)
            except OSError as error:
                trouble = error
        assert trouble is not None, "a range has ports"
        raise trouble

    def _greet(self, connection: socket.socket, host: str) -> None:
        is_taken, displaced = self._strangers.enter(connection, host)
        if displaced is not None:
            self._greeting[displaced].cancel()
        if not is_taken:
            connection.close()
            return
        greeting = self._greeting[connection] = asyncio.create_task(self._match(connection))
        greeting.add_done_callback(lambda _: self._end_greeting(connection))

    async def _match(self, connection: socket.socket) -> None:
        """Finds the connection that who dialled has come for, and hands this one to its tunnel."""
        connection_id = b""
        loop = asyncio.get_running_loop()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(GREETING_S):
                while len(connection_id) < ID_BYTES:
                    piece = await loop.sock_recv(connection, ID_BYTES - len(connection_id))
                    if not piece:
                        return
                    connection_id += piece
        for tunnel in self._tunnels:
            waiting = tunnel.take_waiting(connection_id)
            if waiting is not None:
                tunnel.carry(Splice(waiting, connection, self._pace))
                self._forget(connection)
                return

    def _end_greeting(self, connection: socket.socket) -> None:
        """Also of one that was cancelled before it began."""
        if self._forget(connection):
            connection.close()

    def _forget(self, connection: socket.socket) -> bool:
        """Whether it was still ours."""
        self._strangers.leave(connection)
        return self._greeting.pop(connection, None) is not None

    def _pace(self, size_bytes: int) -> None:
        with self._lock:
            wait_s = self._throttle.due_s(size_bytes)
        if wait_s:
            self._paused.wait(wait_s)


async def _read(tunnel: ServedTunnel, requests: AsyncIterator[OpenTunnelRequest]) -> None:
    try:
        async for request in requests:
            tunnel.hear(request)
            if tunnel.said.qsize() > UNREAD:
                return
    finally:
        tunnel.said.put_nowait(None)
