"""Calling others: channels with one set of limits, and calls whose failures are our own exceptions."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from peerloom.errors import ConfigurationError
from peerloom.kit.status import error_from_rpc

MESSAGE_LIMIT_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 512 * 1024

# Only UNAVAILABLE is tried again: the request may not have arrived. Mutations carry a request_id.
_RETRY = json.dumps(
    {
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
)

# Pings find a dead peer behind an idle stream. The server must allow what the client sends, or it
# answers with GOAWAY, so both sides are set here.
KEEPALIVE = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 4_000),
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
]

# A service that comes back should be found soon: gRPC's own ceiling is two minutes.
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def open_channel(address: str, tls_ca: str = "") -> aio.Channel:
    """A channel to host:port; with a CA file (PEM) it is TLS. Connects when first used."""
    options = [*KEEPALIVE, *_RECONNECT, ("grpc.service_config", _RETRY), ("grpc.enable_http_proxy", 0)]
    if not tls_ca:
        return aio.insecure_channel(address, options=options)
    try:
        roots = Path(tls_ca).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the CA file {tls_ca} can't be read: {error}") from error
    return aio.secure_channel(address, grpc.ssl_channel_credentials(roots), options=options)


class Peer:
    """One service at one address: makes its calls and raises our exceptions.

    `stub` is the class of a generated stub, `service` what people call it.
    """

    def __init__(self, stub: type[Any], service: str, address: str, tls_ca: str = "") -> None:
        self.address = address
        self.service = service
        self._channel = open_channel(address, tls_ca)
        self._stub = stub(self._channel)

    async def call(self, method: str, request: Any, timeout_s: float = 10.0) -> Any:
        """A unary call, or one that streams requests. Raises a PeerloomError."""
        try:
            return await getattr(self._stub, method)(request, timeout=timeout_s)
        except aio.AioRpcError as error:
            raise error_from_rpc(error, self.address, self.service) from None

    async def stream(self, method: str, request: Any, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        """The messages of a streamed answer. Raises a PeerloomError; leaving early cancels the call."""
        call = getattr(self._stub, method)(request, timeout=timeout_s)
        try:
            async for message in call:
                yield message
        except aio.AioRpcError as error:
            raise error_from_rpc(error, self.address, self.service) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """Closes the channel; calls under way are cancelled."""
        await self._channel.close(None)

    async def __aenter__(self) -> "Peer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
