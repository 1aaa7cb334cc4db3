"""The line from one stage to the next: a stream that tells when it breaks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from peerloom.errors import PeerloomError
from peerloom.kit.channel import Peer
from peerloom.v1.inference_pb2 import Activation, LinkLost, PassActivationsRequest
from peerloom.v1.inference_pb2_grpc import InferenceServiceStub

# Only activations that wait for the line take memory here; the session keeps its own until acknowledged.
_NO_LIMIT_S = 7 * 24 * 3600.0


class Link(Protocol):
    """Where a stage's outputs go."""

    def send(self, activation: Activation) -> None: ...

    def close(self) -> None: ...


class StreamLink:
    """Passes a session's activations on to `address`; `on_lost` is called once if that fails."""

    def __init__(
        self, session_id: str, address: str, tls_ca: str, on_lost: Callable[[LinkLost], None]
    ) -> None:
        self._session_id, self._address, self._tls_ca = session_id, address, tls_ca
        self._on_lost = on_lost
        self._outgoing: asyncio.Queue[Activation] = asyncio.Queue()
        self._streaming = asyncio.create_task(self._stream())

    def send(self, activation: Activation) -> None:
        """Queues an activation."""
        self._outgoing.put_nowait(activation)

    def close(self) -> None:
        """Ends the line; what is queued is lost."""
        self._streaming.cancel()

    async def _stream(self) -> None:
        async with Peer(InferenceServiceStub, "next stage", self._address, self._tls_ca) as peer:
            try:
                await peer.call("PassActivations", self._requests(), _NO_LIMIT_S)
                reason = "it closed the line"
            except PeerloomError as error:
                reason = error.message
        self._on_lost(LinkLost(next_address=self._address, reason=reason))

    async def _requests(self) -> AsyncIterator[PassActivationsRequest]:
        while True:
            activation = await self._outgoing.get()
            yield PassActivationsRequest(session_id=self._session_id, activation=activation)
