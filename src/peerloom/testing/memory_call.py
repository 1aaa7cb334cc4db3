"""One call over a network in memory, as its caller sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from peerloom.testing.memory_network import Connection, Order
from peerloom.testing.memory_server import ServerCall

if TYPE_CHECKING:
    from peerloom.testing.memory_channel import MemoryChannel

# As kit/channel's retry policy.
_FIRST_BACKOFF_S, _BACKOFF_FACTOR, _LONGEST_BACKOFF_S = 0.05, 3.0, 1.0
_Metadata = tuple[tuple[str, Any], ...]


class ClientCall:
    """One call as its caller sees it: awaitable, or an iterator of answers."""

    def __init__(
        self,
        channel: MemoryChannel,
        path: str,
        name: str,
        to_bytes: Any,
        from_bytes: Any,
        streams: tuple[bool, bool],
        timeout_s: float | None,
    ) -> None:
        network = channel.network
        network.numbers += 1
        self.number = network.numbers
        self.path, self.name = path, name
        self._channel, self._network, self._loop = channel, network, network.loop
        self._to_bytes, self._from_bytes = to_bytes, from_bytes
        self._sends_stream, _ = streams
        self._sent: list[bytes | None] = []  # None: the end of the requests
        self._answers: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._line: Connection | None = None
        self._server: ServerCall | None = None
        self._order = Order()
        self._attempts = 0
        self._is_committed = False
        self._code: grpc.StatusCode | None = None
        self._is_cancelled = self._is_left = False
        self._details = ""
        self._trailing: _Metadata = ()
        self._request: Any = None
        self._pump: asyncio.Task[None] | None = None
        self._deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        self._timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._expire)

    def begin(self, request: Any) -> None:
        """Opens the call, and sends the request or all that an iterator gives."""
        self._request = request
        if self._sends_stream:
            self._pump = self._loop.create_task(self._send_all(request))
        else:
            self._sent = [self._to_bytes(request), None]
        self._attempt()

    def cancel(self) -> bool:
        """Ends the call; the other side hears of it."""
        if self._code is not None:
            return False
        self._is_cancelled = True
        self._tell_server_of_end()
        self._end(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
        return True

    def done(self) -> bool:
        """Whether it is over."""
        return self._code is not None

    def __await__(self) -> Any:
        return self._whole().__await__()

    async def _whole(self) -> Any:
        async for answer in self:
            return answer
        raise AssertionError("a unary call has an answer or raises")

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            while self._answers:
                yield self._answers.popleft()
            if self._code is not None:
                break
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                self._waiter = None
        if self._is_cancelled:
            raise asyncio.CancelledError
        if self._code is not grpc.StatusCode.OK:
            raise aio.AioRpcError(
                self._code, aio.Metadata(), aio.Metadata(*self._trailing), self._details, None
            )

    def connected(self, line: Connection) -> None:
        """There is a line: what was to be sent goes out."""
        if self._code is not None:
            return
        self._line = line
        server = self._network.servers.get(line.address)
        if server is None:
            self.attempt_failed("the server is gone")
            return
        self._server = ServerCall(server, self, line, self.path, self._deadline_s)
        line.calls[self.number] = (self, self._server)
        self._order = Order()
        self._network.send(line, True, self._order, self._server.opened)
        for message in self._sent:
            self._transmit(message)

    def attempt_failed(self, reason: str) -> None:
        """The line could not be opened, or broke: tried again while nothing was answered."""
        if self._code is not None:
            return
        if self._line is not None:
            self._line.calls.pop(self.number, None)
        self._line = self._server = None
        if self._is_committed or self._attempts >= self._channel.attempts:
            self._end(grpc.StatusCode.UNAVAILABLE, reason)
            return
        pause_s = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * _BACKOFF_FACTOR ** (self._attempts - 1))
        self._loop.call_later(pause_s * self._network.chance.uniform(0.8, 1.2), self._attempt)

    def line_broken(self, line: Connection, reason: str) -> None:
        """The line of this call broke."""
        if line is self._line:
            self.attempt_failed(reason)

    def answered(self, data: bytes) -> None:
        """A message arrived."""
        if self._code is None:
            self._is_committed = True
            self._sent = []
            answer = self._from_bytes(data)
            self._note("<", len(data))
            self._answers.append(answer)
            self._wake()

    def replied(self, data: bytes) -> None:
        """The one answer of a call that has no more arrived, and with it the end."""
        if self._code is None:
            self._note("<", len(data))
            answer = self._from_bytes(data)
            self._answers.append(answer)
            self._network.on_answer(self._channel.run, self.name, self._request, answer)
            self._end(grpc.StatusCode.OK, "")

    def finished(self, code: grpc.StatusCode, details: str, trailing: _Metadata) -> None:
        """The server said how the call ended."""
        if self._code is not None:
            return
        self._note(f"< {code.name}", 0)
        if code is grpc.StatusCode.UNAVAILABLE:
            self._trailing = trailing
            self.attempt_failed(details)
            return
        self._end(code, details, trailing)

    def _attempt(self) -> None:
        if self._code is None:
            self._attempts += 1
            self._channel.line_for(self)

    async def _send_all(self, requests: AsyncIterator[Any]) -> None:
        async for request in requests:
            self._push(self._to_bytes(request))
        self._push(None)

    def _push(self, message: bytes | None) -> None:
        if not self._is_committed:
            self._sent.append(message)
        if self._line is not None:
            self._transmit(message)

    def _transmit(self, message: bytes | None) -> None:
        assert self._line is not None, "there is a line to send on"
        assert self._server is not None, "a line leads to a server"
        if message is not None:
            self._note(">", len(message))
        self._network.send(self._line, True, self._order, self._server.received, message)

    def _note(self, direction: str, size: int) -> None:
        self._network.on_message(
            self._channel.run.name, self._channel.address, f"{direction} {self.name}", size
        )

    def _expire(self) -> None:
        if self._code is None:
            self._tell_server_of_end()
            self._end(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _tell_server_of_end(self) -> None:
        if self._line is not None and self._server is not None and self._line.is_open:
            self._is_left = True  # until the server hears of it, a line that breaks tells it, too
            self._network.send(self._line, True, self._order, self._left, self._line, self._server)

    def _left(self, line: Connection, server: ServerCall) -> None:
        line.calls.pop(self.number, None)
        server.line_broken()

    def _end(self, code: grpc.StatusCode, details: str, trailing: _Metadata = ()) -> None:
        self._code, self._details, self._trailing = code, details, trailing or self._trailing
        if self._timer is not None:
            self._timer.cancel()
        if self._pump is not None:
            self._pump.cancel()
        if self._line is not None and not self._is_left:
            self._line.calls.pop(self.number, None)
        self._channel.ended(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
