"""A node's end of the tunnel to its relay: asks for ports there, and dials back for each connection."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from peerloom.errors import ResourceExhaustedError, UnavailableError
from peerloom.kit.dialing import NodeAgentPeer
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.tunnels.relay_server import BEAT_S
from peerloom.services.node_agent.tunnels.splice import Splice
from peerloom.v1.node_agent_pb2 import OpenedPort, OpenTunnelRequest, OpenTunnelResponse, TunnelConnection

SILENCE_S = 3 * BEAT_S
_CONNECT_S, _OPEN_S = 5.0, 10.0
CONNECTIONS = 1024  # what a relay may make us open
_log = get_logger()


@dataclass
class _Forward:
    """Where we listen, whether somebody still does, and the address that others were given for it."""

    host: str
    is_open: Callable[[], bool]
    told: "asyncio.Future[str]"


class Tunnel:
    """To the relay whose agent is `relay`, for as long as `hold` runs."""

    def __init__(self, relay: NodeAgentPeer) -> None:
        self._relay = relay
        self._host = relay.address.rpartition(":")[0].strip("[]")
        self._data_port = 0
        self._asked: asyncio.Queue[OpenTunnelRequest] = asyncio.Queue()
        self._forwards: dict[int, _Forward] = {}
        self._lock = threading.Lock()
        self._splices: set[Splice] = set()
        self._is_over = False

    async def hold(self) -> None:
        """Serves it until it is lost, which it raises as a PeerloomError."""
        stream = self._relay.converse(self._relay.stub.OpenTunnel, self._requests())
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    answer = await anext(stream, None)
                if answer is None:
                    raise UnavailableError(f"The relay at {self._relay.address} ended the tunnel.")
                self._hear(answer)
        except TimeoutError:
            raise UnavailableError(
                f"The relay at {self._relay.address} has said nothing for {SILENCE_S:g} s."
            ) from None
        finally:
            self._end()
            await stream.aclose()

    async def forward(self, host: str, port: int, is_open: Callable[[], bool] = lambda: True) -> str:
        """The address at the relay whose connections come to this port of ours, at `host`.

        `is_open` says whether whoever listened there still does: later another may have the port. Raises
        UnavailableError when the tunnel is over, ResourceExhaustedError when the relay opens no more ports.
        """
        if self._is_over:
            raise self._lost()
        self._close_ended()
        if port not in self._forwards:
            told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._forwards[port] = _Forward(host, is_open, told)
            self._asked.put_nowait(OpenTunnelRequest(open_port=port))
        forward = self._forwards[port]
        forward.host, forward.is_open = host, is_open
        try:
            async with asyncio.timeout(_OPEN_S):
                return await asyncio.shield(forward.told)
        except TimeoutError:
            raise self._lost() from None

    async def _requests(self) -> AsyncIterator[OpenTunnelRequest]:
        while True:
            yield await self._asked.get()

    def _hear(self, answer: OpenTunnelResponse) -> None:
        if answer.data_port:
            self._data_port = answer.data_port
        if answer.HasField("opened"):
            self._note_opened(answer.opened)
        if answer.HasField("connection"):
            self._meet(answer.connection)

    def _note_opened(self, opened: OpenedPort) -> None:
        forward = self._forwards.get(opened.port)
        if forward is None or forward.told.done():
            return
        if opened.address:
            forward.told.set_result(opened.address)
            return
        del self._forwards[opened.port]
        refusal = ResourceExhaustedError(f"The relay opens no port: {opened.reason}.", reason="RELAY_FULL")
        forward.told.set_exception(refusal)
        forward.told.exception()  # who asked may have gone

    def _meet(self, connection: TunnelConnection) -> None:
        self._close_ended()
        forward = self._forwards.get(connection.port)
        # A relay names ports that it was asked for; another one is none of its business.
        if forward is None or len(self._splices) >= CONNECTIONS:
            return
        arguments = (forward.host, connection.port, connection.connection_id)
        threading.Thread(target=self._dial_back, args=arguments, name="tunnel", daemon=True).start()

    def _close_ended(self) -> None:
        for port in [port for port, forward in self._forwards.items() if not forward.is_open()]:
            del self._forwards[port]
            self._asked.put_nowait(OpenTunnelRequest(close_port=port))

    def _dial_back(self, host: str, port: int, connection_id: bytes) -> None:
        opened: list[socket.socket] = []
        try:
            opened.append(socket.create_connection((self._host, self._data_port), _CONNECT_S))
            opened[0].sendall(connection_id)
            # Where nobody listens, who has connected finds its connection closed, as it would here.
            opened.append(socket.create_connection((host.strip("[]"), port), _CONNECT_S))
        except OSError as error:
            _log.warning("tunnel_connection_failed", port=port, relay=self._relay.address, reason=str(error))
            for one in opened:
                one.close()
            return
        splice = Splice(opened[0], opened[1])
        with self._lock:
            self._splices.add(splice)
            if self._is_over:
                splice.close()
        splice.start(lambda: self._leave(splice))

    def _leave(self, splice: Splice) -> None:
        with self._lock:
            self._splices.discard(splice)

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            for splice in self._splices:
                splice.close()
        for forward in self._forwards.values():
            if not forward.told.done():
                forward.told.set_exception(self._lost())
                forward.told.exception()

    def _lost(self) -> UnavailableError:
        return UnavailableError(f"The tunnel through the relay at {self._relay.address} is lost.")
