"""What stands between the wire and every servicer: the caller's identity, and errors as statuses."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import aio

from peerloom.errors import InternalError, InvalidArgumentError, PeerloomError
from peerloom.kit import tracing
from peerloom.kit.call_metrics import CallMetrics
from peerloom.kit.identity import Identity
from peerloom.kit.logs import get_logger
from peerloom.kit.principal import Principal, Role
from peerloom.kit.roles import check_may_call, check_not_revoked
from peerloom.kit.send_watch import SendWatch
from peerloom.kit.status import code_of, details_of, message_of

_log = get_logger()
ANONYMOUS = "anonymous"
# What `read` gives after the last request.
END = aio.EOF  # type: ignore[attr-defined]  # public in grpc.aio, and left out of grpc's stubs


# What one owner's machines and people say counts as one voice; coordinators speak for themselves.
_OWN_VOICE = (Role.REGISTRY, Role.SELECTOR, Role.TRAINER)


@dataclass(frozen=True)
class Caller:
    """Who calls, from where. Without certificates everybody is anonymous: `principal` is None."""

    principal: Principal | None
    peer: str

    @property
    def owner(self) -> str:
        """Whose it is, by its certificate; empty while nobody is known."""
        return self.principal.owner if self.principal is not None else ""

    @property
    def key(self) -> str:
        """Who it is, for whoever counts: a coordinator, an owner, or while nobody is known, a host."""
        if self.principal is None:
            return f"{ANONYMOUS} {self.peer.rpartition(':')[0]}"
        if self.principal.role in _OWN_VOICE:
            return self.principal.uri
        return self.principal.owner


NOBODY = Caller(None, "")  # outside a call
caller: contextvars.ContextVar[Caller] = contextvars.ContextVar("caller", default=NOBODY)


@dataclass
class Gate:
    """Whether calls are let in: while `refusal` isn't None, it is what every caller gets instead."""

    refusal: PeerloomError | None = None


class CallInterceptor(aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Sets `caller` for each call, lets in whom `kit/roles.py` allows, and turns exceptions into statuses.

    The only place that does. Where the server has no `identity`, nobody is known and everybody is let in.
    `calls` counts the calls, but for gRPC's own (health, reflection); None: nobody does.
    """

    def __init__(
        self, gate: Gate | None = None, identity: Identity | None = None, calls: CallMetrics | None = None
    ) -> None:
        self._gate = gate or Gate()
        self._identity = identity
        self._calls = calls

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        method: str = handler_call_details.method
        if self._gate.refusal is not None and not method.startswith("/grpc."):
            if self._calls is not None:
                self._calls.ended(method, self._gate.refusal.status)
            return _refusing(self._gate.refusal, method)
        handler = await continuation(handler_call_details)
        if handler is None or method.startswith("/grpc."):
            return handler
        if handler.response_streaming:
            wrapped: Any = self._guard_stream(handler.stream_stream or handler.unary_stream, method)
            kind = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
        else:
            wrapped = self._guard_unary(handler.stream_unary or handler.unary_unary, method)
            kind = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
        return kind(wrapped, _tolerant(handler.request_deserializer), handler.response_serializer)

    def _guard_unary(self, behaviour: Any, method: str) -> Any:
        async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
            with self._counted_unary(method, context), tracing.serving(method, context):
                try:
                    caller.set(self._admit(context, method))
                    return await behaviour(_decoded(request, context), context)
                except Exception as error:
                    await _abort(context, error, method)

        return call

    def _guard_stream(self, behaviour: Any, method: str) -> Any:
        # The hot path of all streams, with as few layers as can be: each heartbeat passes all of them twice.
        async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> None:
            write, identity = context.write, self._identity
            with self._counted_stream(method, context), tracing.serving(method, context):
                try:
                    admitted = self._admit(context, method)
                    caller.set(admitted)
                    principal, responses = admitted.principal, behaviour(_decoded(request, context), context)
                    async with aclosing(responses):
                        with SendWatch(method) as watch:
                            async for response in responses:
                                if identity is not None and principal is not None:
                                    # A stream outlives the moment in which its caller was let in.
                                    check_not_revoked(principal, identity.revoked)
                                watch.begin()
                                await write(response)
                                watch.end()
                except Exception as error:
                    await _abort(context, error, method)

        return call

    def _counted_unary(self, method: str, context: Any) -> AbstractContextManager[None]:
        return nullcontext() if self._calls is None else self._calls.unary(method, context)

    def _counted_stream(self, method: str, context: Any) -> AbstractContextManager[None]:
        return nullcontext() if self._calls is None else self._calls.stream(method, context)

    def _admit(self, context: aio.ServicerContext[Any, Any], method: str) -> Caller:
        """Who calls. Raises PermissionDeniedError for who may not, InvalidArgumentError for a foreign URI."""
        if self._identity is None:
            return Caller(None, context.peer())
        uris = list(context.auth_context().get("peer_uri", ()))
        principal = Principal.parse(uris[0].decode() if uris else "")
        check_may_call(method, principal, self._identity.revoked)
        return Caller(principal, context.peer())


def _refusing(error: PeerloomError, method: str) -> Any:
    async def call(requests: Any, context: aio.ServicerContext[Any, Any]) -> None:
        await _abort(context, error, method)

    # On the wire all kinds of calls look like this one, so it answers those whose kind isn't known yet.
    return grpc.stream_stream_rpc_method_handler(call)


@dataclass(frozen=True)
class _Undecodable:
    """Stands for a request whose bytes aren't the message that the method takes."""

    reason: str

    def error(self) -> InvalidArgumentError:
        """What its caller gets."""
        limit = f"a message of this method in protobuf's encoding ({self.reason})"
        return InvalidArgumentError.of_field("request", "undecodable", limit)


def _tolerant(deserializer: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    # gRPC itself would answer INTERNAL, and write a traceback into our log.
    if deserializer is None:
        return None

    def decode(data: bytes) -> Any:
        try:
            return deserializer(data)
        except Exception as error:
            return _Undecodable(type(error).__name__)

    return decode


class _Requests:
    """A call's stream of requests; raises InvalidArgumentError for one that can't be decoded."""

    def __init__(self, context: aio.ServicerContext[Any, Any]) -> None:
        self._read = context.read

    def __aiter__(self) -> "_Requests":
        return self

    async def __anext__(self) -> Any:
        request = await self._read()
        if request is END:
            raise StopAsyncIteration
        if isinstance(request, _Undecodable):
            raise request.error()
        return request


def _decoded(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
    """The request, or the stream of them. Raises InvalidArgumentError for bytes that aren't the message."""
    if isinstance(request, _Undecodable):
        raise request.error()
    return _Requests(context) if hasattr(request, "__aiter__") else request


async def _abort(context: aio.ServicerContext[Any, Any], error: Exception, method: str) -> None:
    if isinstance(error, aio.BaseError | asyncio.CancelledError):  # gRPC's own: e.g. the reader has gone
        raise error
    if not isinstance(error, PeerloomError):
        _log.error("call_crashed", method=method, exc_info=error)
        error = InternalError(f"{method} failed by a bug of ours ({type(error).__name__}); its log has more.")
    else:
        _log.info("call_refused", method=method, reason=error.reason, message=error.message)
    await context.abort(code_of(error), message_of(error), details_of(error))
