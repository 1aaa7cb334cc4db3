"""What real servicers need of gRPC, over the simulated network: a server and the calls it answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from peerloom.kit.interceptors import END
from peerloom.testing.memory_network import Connection, MemoryNetwork, Order

if TYPE_CHECKING:
    from peerloom.testing.memory_call import ClientCall
    from peerloom.testing.simulated_processes import ProcessRun

_Metadata = tuple[tuple[str, Any], ...]


class MemoryServer:
    """Takes the handlers of real servicers, behind the real interceptors."""

    def __init__(self, network: MemoryNetwork, run: ProcessRun, interceptors: Sequence[Any] = ()) -> None:
        self.network, self.run = network, run
        self._interceptors = list(interceptors)
        self._handlers: list[Any] = []
        self._calls: dict[ServerCall, asyncio.Task[None]] = {}
        self._addresses: list[str] = []
        self.serving, self.is_stopping = asyncio.Event(), False

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """From generated code."""
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """From generated code, which adds the same ones generically too."""

    def add_insecure_port(self, address: str) -> int:
        """Takes the address; port 0 takes one that was never used."""
        host, _, port = address.rpartition(":")
        self.network.numbers += port == "0"
        taken = int(port) or 20_000 + self.network.numbers
        self._addresses.append(f"{host}:{taken}")
        if f"{host}:{taken}" in self.network.servers:
            raise RuntimeError(f"{host}:{taken} is taken")
        self.network.servers[f"{host}:{taken}"] = self
        return taken

    @property
    def under_way(self) -> list[str]:
        """The methods of the calls that are served now, but for gRPC's own."""
        return [call.path for call in self._calls if not call.path.startswith("/grpc.")]

    async def start(self) -> None:
        """From here on calls are served; those that came earlier have waited."""
        self.serving.set()

    async def stop(self, grace: float | None) -> None:
        """Takes no more calls, gives those under way `grace` seconds (None: no time), then cancels them."""
        self.is_stopping = True
        for address in self._addresses:
            self.network.servers.pop(address, None)
        tasks = list(self._calls.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace or 0.0)
            for task in [task for task in tasks if task in late]:
                task.cancel()

    async def handler_of(self, path: str) -> Any:
        """The handler of a method behind all interceptors; None for an unknown one."""
        details = _Details(path)

        async def innermost(details: Any) -> Any:
            return next(
                (found for one in self._handlers if (found := one.service(details)) is not None), None
            )

        continuation: Callable[[Any], Any] = innermost
        for interceptor in reversed(self._interceptors):
            continuation = _behind(interceptor, continuation)
        return await continuation(details)

    def began(self, call: ServerCall, task: asyncio.Task[None]) -> None:
        """A call is served."""
        self._calls[call] = task
        task.add_done_callback(lambda _: self._calls.pop(call, None))


def _behind(interceptor: Any, continuation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda details: interceptor.intercept_service(continuation, details)


class _Details:
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


class ServerCall:
    """One call as its server sees it; also the context that the servicer is given."""

    def __init__(
        self,
        server: MemoryServer,
        client: ClientCall,
        line: Connection,
        path: str,
        deadline_s: float | None,
    ) -> None:
        self._server, self._client, self._line, self.path = server, client, line, path
        self._network, self._loop = server.network, server.network.loop
        self._deadline_s = deadline_s
        self._requests: deque[bytes | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._order = Order()
        self._status: tuple[grpc.StatusCode, str, _Metadata] = (grpc.StatusCode.OK, "", ())
        self._has_ended = False
        self._to_bytes: Callable[[Any], bytes] = bytes

    def peer(self) -> str:
        """Who calls."""
        return f"ipv4:{self._line.client.host}:1"

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline; None: it has none."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._loop.time())

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing: _Metadata = ()) -> None:
        """Ends the call with a status."""
        self._status = (code, details, trailing)
        raise aio.AbortError("aborted")

    def opened(self) -> None:
        """The call reached its server."""
        if self._server.is_stopping:
            self._finish(grpc.StatusCode.UNAVAILABLE, "the server is stopping", ())
            return
        self._task = self._loop.create_task(self._serve())
        self._server.began(self, self._task)
        if self._deadline_s is not None:
            self._loop.call_at(self._deadline_s + 0.001, self.line_broken)

    def received(self, message: bytes | None) -> None:
        """A request arrived, or their end."""
        self._requests.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def line_broken(self) -> None:
        """The caller is gone, or gave up."""
        if not self._has_ended and self._task is not None:
            self._has_ended = True
            self._task.cancel()

    async def _serve(self) -> None:
        try:
            await self._server.serving.wait()
            handler = await self._server.handler_of(self.path)
            if handler is None:
                self._finish(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ())
                return
            await self._answer(handler)
        except aio.AbortError:
            self._finish(*self._status)
        except asyncio.CancelledError:
            self._finish(grpc.StatusCode.UNAVAILABLE, "Cancelling all calls", ())  # as gRPC's server stops
            raise
        except Exception as error:
            self._finish(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}", ())
        else:
            self._finish(grpc.StatusCode.OK, "", ())

    async def _answer(self, handler: Any) -> None:
        self._requests_read = self._each(handler.request_deserializer)
        request = self._requests_read if handler.request_streaming else await anext(self._requests_read)
        if handler.response_streaming:
            serve = handler.stream_stream or handler.unary_stream
            self._to_bytes = handler.response_serializer
            answers = serve(request, self)
            if asyncio.iscoroutine(answers):  # as gRPC's own health, it calls `write`
                await answers
                return
            async for response in answers:
                await self.write(response)
        else:
            serve = handler.stream_unary or handler.unary_unary
            data = handler.response_serializer(await serve(request, self))
            if not self._has_ended:
                self._has_ended = True
                self._network.send(self._line, False, self._order, self._client.replied, data)

    async def _each(self, from_bytes: Any) -> AsyncIterator[Any]:
        while True:
            while not self._requests:
                self._waiter = self._loop.create_future()
                await self._waiter
            message = self._requests.popleft()
            if message is None:
                return
            yield from_bytes(message)

    async def read(self) -> Any:
        """The next message of a streamed request, END after the last."""
        return await anext(self._requests_read, END)

    async def write(self, response: Any) -> None:
        """One more message of a streamed answer."""
        if not self._has_ended:
            data = self._to_bytes(response)
            self._network.send(self._line, False, self._order, self._client.answered, data)

    def _finish(self, code: grpc.StatusCode, details: str, trailing: _Metadata) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._network.send(self._line, False, self._order, self._client.finished, code, details, trailing)
