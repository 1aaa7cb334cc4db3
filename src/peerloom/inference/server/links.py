"""From one stage to the next: a stream that tells when it breaks, over a channel that stays."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from peerloom.errors import PeerloomError
from peerloom.kit.dialing import Dialer, InferencePeer
from peerloom.v1.inference_pb2 import Activation, LinkLost, PassActivationsRequest

# Only activations that wait for the stream take memory here; the session keeps its own until acknowledged.
_NO_LIMIT_S = 7 * 24 * 3600.0
_IDLE_KEPT = 16


class StageLink(Protocol):
    """Where a stage's outputs go."""

    def send(self, activation: Activation) -> None: ...

    def close(self) -> None: ...


@dataclass
class _SharedChannel:
    peer: InferencePeer
    users: int = 0


class StageChannels:
    """Channels to other inference servers, kept for the next session: connecting takes longer than a hop."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._open: OrderedDict[str, _SharedChannel] = OrderedDict()

    @asynccontextmanager
    async def to(self, address: str) -> AsyncIterator[InferencePeer]:
        """The channel to a server; one over which a call failed is not used again."""
        channel = self._open.get(address)
        if channel is None:
            channel = _SharedChannel(self._dialer.inference(address, "next stage"))
        self._open[address] = channel
        self._open.move_to_end(address)
        channel.users += 1
        try:
            yield channel.peer
        except PeerloomError:
            if self._open.get(address) is channel:
                del self._open[address]
            raise
        finally:
            channel.users -= 1
            if not channel.users and self._open.get(address) is not channel:
                await channel.peer.close()
            await self._close_idle()

    async def close(self) -> None:
        """Closes all; calls under way are cancelled."""
        while self._open:
            await self._open.popitem()[1].peer.close()

    async def _close_idle(self) -> None:
        idle = [address for address, channel in self._open.items() if not channel.users]
        for address in idle[: max(0, len(idle) - _IDLE_KEPT)]:
            await self._open.pop(address).peer.close()


class StreamLink:
    """Passes a session's activations on to `address`; `on_lost` is called once if that fails."""

    def __init__(
        self, session_id: str, address: str, channels: StageChannels, on_lost: Callable[[LinkLost], None]
    ) -> None:
        self._session_id, self._address, self._channels = session_id, address, channels
        self._on_lost = on_lost
        self._outgoing: asyncio.Queue[Activation] = asyncio.Queue()
        self._streaming = asyncio.create_task(self._stream())

    def send(self, activation: Activation) -> None:
        """Queues an activation."""
        self._outgoing.put_nowait(activation)

    def close(self) -> None:
        """Ends the stream; what is queued is lost."""
        self._streaming.cancel()

    async def _stream(self) -> None:
        reason = "it closed the stream"
        try:
            async with self._channels.to(self._address) as peer:
                await peer.send(peer.stub.PassActivations, self._requests(), _NO_LIMIT_S)
        except PeerloomError as error:
            reason = error.message
        self._on_lost(LinkLost(next_address=self._address, reason=reason))

    async def _requests(self) -> AsyncIterator[PassActivationsRequest]:
        while True:
            activation = await self._outgoing.get()
            yield PassActivationsRequest(session_id=self._session_id, activation=activation)
