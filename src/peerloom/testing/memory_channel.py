"""What the generated stubs need of gRPC, over a network in memory: a channel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from peerloom.errors import FailedPreconditionError
from peerloom.testing.memory_call import ClientCall
from peerloom.testing.memory_network import CONNECT_LIMIT_S, Connection, MemoryNetwork

if TYPE_CHECKING:
    from peerloom.testing.simulated_processes import ProcessRun

_ATTEMPTS = 4  # as kit/channel's retry policy
_RECONNECT_MIN_S, _RECONNECT_MAX_S = 0.1, 2.0


class MemoryChannel:
    """A channel of one process to one address; a lost connection is opened again by the next call."""

    is_watchful = False  # as kit/channel's are to several replicas

    def __init__(self, network: MemoryNetwork, run: ProcessRun, address: str, retries: bool = True) -> None:
        self.network, self.run, self.address = network, run, address
        self.attempts = _ATTEMPTS if retries else 1
        self._line: Connection | None = None
        self._again_s = self._pause_s = 0.0
        self._calls: dict[int, ClientCall] = {}

    def _multicallable(self, path: str, to_bytes: Any, from_bytes: Any, streams: tuple[bool, bool]) -> Any:
        name = path.rpartition("/")[2]

        def begin(request: Any = None, *, timeout: float | None = None, **_: object) -> ClientCall:
            if asyncio.get_running_loop() is not self.network.loop:
                raise FailedPreconditionError(
                    "a client of a system in memory keeps the system's own time: run the coroutine that "
                    "uses it with system.run(...), or use system.client()."
                )
            call = ClientCall(self, path, name, to_bytes, from_bytes, streams, timeout)
            self._calls[call.number] = call
            call.begin(request)
            return call

        return begin

    def unary_unary(self, path: str, request_serializer: Any, response_deserializer: Any, **_: object) -> Any:
        """A call of one request and one answer."""
        return self._multicallable(path, request_serializer, response_deserializer, (False, False))

    def unary_stream(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: object
    ) -> Any:
        """A call of one request and many answers."""
        return self._multicallable(path, request_serializer, response_deserializer, (False, True))

    def stream_unary(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: object
    ) -> Any:
        """A call of many requests and one answer."""
        return self._multicallable(path, request_serializer, response_deserializer, (True, False))

    def stream_stream(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: object
    ) -> Any:
        """A call of many requests and many answers."""
        return self._multicallable(path, request_serializer, response_deserializer, (True, True))

    async def close(self, grace: float | None = None) -> None:
        """Cancels what is under way."""
        for call in list(self._calls.values()):
            call.cancel()
        if self._line is not None and self._line.is_open:
            self.network.close_line(self._line, self.run)

    def ended(self, call: ClientCall) -> None:
        """A call is over."""
        self._calls.pop(call.number, None)

    def line_for(self, call: ClientCall) -> None:
        """Gives the call a line, now or later, or tells it that there is none."""
        loop, network = self.network.loop, self.network
        if self._line is not None and self._line.is_open:
            call.connected(self._line)
            return
        host = self.address.rpartition(":")[0]
        if loop.time() < self._again_s:
            loop.call_soon(call.attempt_failed, f"{self.address}: waiting to connect again")
            return
        after_s = network.delay_s(self.run.host, host) + network.delay_s(host, self.run.host)
        if not network.can_talk(self.run.host, host):
            after_s = CONNECT_LIMIT_S
        loop.call_later(after_s, self._connected, call, host)

    def _connected(self, call: ClientCall, host: str) -> None:
        if self._line is not None and self._line.is_open:
            call.connected(self._line)
            return
        server = self.network.servers.get(self.address)
        if server is None or server.run.is_frozen or not self.network.can_talk(self.run.host, host):
            self._pause_s = min(_RECONNECT_MAX_S, max(_RECONNECT_MIN_S, self._pause_s * 1.6))
            self._again_s = self.network.loop.time() + self._pause_s
            call.attempt_failed(f"{self.address}: connection refused")
            return
        self._pause_s = 0.0
        self._line = self.network.connect(self.run, server.run, self.address, self.is_watchful)
        call.connected(self._line)
