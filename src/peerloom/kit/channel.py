"""Calling others: channels with one set of limits, and calls whose failures are our own exceptions."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, Self, TypeVar

from grpc import aio

from peerloom.errors import UnavailableError
from peerloom.kit import tracing
from peerloom.kit.first_status import FirstStatus
from peerloom.kit.identity import Identity
from peerloom.kit.replica_addresses import target_of
from peerloom.kit.status import UNREACHABLE, behind_a_door, error_from_rpc

S = TypeVar("S")  # a service's stub
Q = TypeVar("Q")  # a request
R = TypeVar("R")  # a response
MESSAGE_LIMIT_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 512 * 1024

# Only UNAVAILABLE is tried again: the request may not have arrived. Mutations carry a request_id.
_RETRY = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.05s",
                "maxBackoff": "1s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
# Of several replicas the one is called whose health says SERVING: the others stand by.
_LEADER_ONLY = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}

# Pings find a dead peer behind an idle stream. The server must allow what the client sends, or it
# answers with GOAWAY, so both sides are set here.
KEEPALIVE = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
]

# A service that comes back should be found soon: gRPC's own ceiling is two minutes. The second is how long an
# attempt may take at least: where thousands connect at once, one that is given up too early is begun again,
# and the server greets in vain.
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]

# Else gRPC keeps a connection that failed, with its wait of up to two seconds, for the next channel to the
# same address: who tries anew with a channel of its own would only hear of that failure again.
UNSHARED = [("grpc.use_local_subchannel_pool", 1)]

# A leader that was frozen says for ever that it serves, so its connection has to be found dead, at about the
# time when a standby takes its lease. gRPC sends one ping at a time: without the last option the keepalive's
# waits for up to a minute behind one of gRPC's own that isn't answered.
_WATCHFUL = [
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 1_500),
    ("grpc.http2.ping_timeout_ms", 1_500),
]


def open_channel(
    address: str, identity: Identity | None = None, host_name: str = "", *, retries: bool = True
) -> aio.Channel:
    """A channel to host:port, or to whichever serves of several with commas. Connects when first used.

    With an identity both sides show certificates, and the other's must carry `host_name`, one of the
    `Principal.host_names`. Without `retries` a call that doesn't arrive fails at once, for callers with a
    pace of their own, and each channel makes its own attempt to connect.
    """
    has_standbys = "," in address
    options: dict[str, Any] = {**dict([*KEEPALIVE, *_RECONNECT]), "grpc.enable_http_proxy": 0}
    if not retries:
        options |= dict(UNSHARED)
    if has_standbys:
        options |= dict(_WATCHFUL)
    if config := {**(_RETRY if retries else {}), **(_LEADER_ONLY if has_standbys else {})}:
        options["grpc.service_config"] = json.dumps(config)
    target = target_of(address)
    if identity is None:
        return aio.insecure_channel(target, options=list(options.items()))
    options["grpc.ssl_target_name_override"] = host_name
    return aio.secure_channel(target, identity.channel_credentials(), options=list(options.items()))


async def _knows_nothing(_: str) -> bool:
    return False


class Peer(Generic[S]):
    """One service at one address: makes its calls and raises our exceptions.

    `stub` has the service's methods; `service` is what people call it. `probe` says whether TLS is spoken at
    an address that never answered in plain: it may take seconds, which nobody has who was answered before.
    """

    def __init__(
        self,
        stub: Callable[[aio.Channel], S],
        service: str,
        address: str,
        open_: Callable[[], aio.Channel],
        identity: Identity | None = None,
        probe: Callable[[str], Awaitable[bool]] = _knows_nothing,
    ) -> None:
        self.address = address
        self.service = service
        self._make_stub, self._open, self._identity = stub, open_, identity
        self._probe = probe
        self._was_answered = self._is_closed = False
        self._streams: set[Any] = set()
        self._channels: list[aio.Channel] = []
        self._connect()

    @property
    def stub(self) -> S:
        """The methods. Once our certificate was renewed they go by a new channel, and old streams go on."""
        if self._identity is not None and self._version != self._identity.version:
            self._connect()
        return self._stub

    def _connect(self) -> None:
        self._version = self._identity.version if self._identity is not None else 0
        self._channels.append(self._open())
        self._stub = self._make_stub(self._channels[-1])

    async def call(
        self,
        method: "aio.UnaryUnaryMultiCallable[Q, R]",
        request: Q,
        timeout_s: float = 10.0,
    ) -> R:
        """A unary call of one of `stub`'s methods. Raises a PeerloomError."""
        with tracing.calling(request) as carried:
            async with self._failures():
                return await method(request, timeout=timeout_s, metadata=carried)

    async def send(
        self,
        method: "aio.StreamUnaryMultiCallable[Q, R]",
        requests: AsyncIterator[Q],
        timeout_s: float = 10.0,
    ) -> R:
        """A call that streams requests and is answered once. Raises a PeerloomError."""
        call = method(requests, timeout=timeout_s, metadata=tracing.carried())
        async with self._failures(FirstStatus(call)):
            return await call

    def stream(
        self, method: "aio.UnaryStreamMultiCallable[Q, R]", request: Q, timeout_s: float | None = None
    ) -> AsyncGenerator[R]:
        """The messages of a streamed answer. Raises a PeerloomError; leaving early cancels the call."""
        carried = partial(tracing.carried_to, request)
        return self._messages(lambda: method(request, timeout=timeout_s, metadata=carried()))

    def converse(
        self, method: "aio.StreamStreamMultiCallable[Q, R]", requests: AsyncIterator[Q]
    ) -> AsyncGenerator[R]:
        """The answers to a stream of requests. Raises a PeerloomError; leaving early cancels the call."""
        return self._messages(lambda: method(requests))

    async def _messages(self, begin: Callable[[], AsyncIterable[R]]) -> AsyncGenerator[R]:
        call: Any = begin()
        self._streams.add(call)
        try:
            async with self._failures(FirstStatus(call)):
                async for message in call:
                    self._was_answered = True
                    yield message
        finally:
            self._streams.discard(call)
            call.cancel()

    async def close(self) -> None:
        """Closes the channel; calls under way fail."""
        self._is_closed = True
        for call in self._streams:  # before 1.85 gRPC itself leaves them waiting
            call.cancel()
        for channel in self._channels:
            await channel.close(None)

    @asynccontextmanager
    async def _failures(self, first: FirstStatus | None = None) -> AsyncIterator[None]:
        try:
            yield
            self._was_answered = True
        except aio.AioRpcError as raised:
            error = first.true_error(raised) if first else raised
            told = error_from_rpc(error, self.address, self.service)
            if told.reason == UNREACHABLE and await self._is_behind_a_door():
                told = behind_a_door(self.address, self.service)
            raise told from None
        except asyncio.CancelledError:
            # gRPC says so, too, when another task closes the channel: then nobody wants this task to end.
            task = asyncio.current_task()
            if not self._is_closed or task is None or task.cancelling():
                raise
            raise UnavailableError(
                f"The connection to the {self.service} at {self.address} was closed.",
                reason="CONNECTION_CLOSED",
                metadata={"service": self.service, "address": self.address},
            ) from None

    async def _is_behind_a_door(self) -> bool:
        asks = self._identity is None and not self._was_answered
        return asks and await self._probe(self.address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
