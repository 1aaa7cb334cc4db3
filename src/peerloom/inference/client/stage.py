"""The client's stream to one stage of a split model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

from peerloom.errors import PeerloomError, UnavailableError
from peerloom.inference.client.replica import Replica
from peerloom.kit.clock import Clock
from peerloom.v1.inference_pb2 import (
    Acknowledge,
    Activation,
    OpenStage,
    Relink,
    RunStageRequest,
    RunStageResponse,
)

OPEN_LIMIT_S = 60.0
_GOODBYE_S = 0.5


@dataclass(frozen=True)
class Placement:
    """Layers `first` to `end`, one past the last, on a node."""

    replica: Replica
    first: int
    end: int


class StageStream:
    """A session at one stage: `on_response` gets what it says, `on_lost` is called when the stream ends."""

    def __init__(
        self,
        session_id: str,
        digest: str,
        placement: Placement,
        on_response: Callable[[RunStageResponse], None],
        on_lost: Callable[[PeerloomError], None],
        clock: Clock,
    ) -> None:
        self.session_id = session_id
        self.replica = placement.replica
        self.node = placement.replica.node.name
        self.address = placement.replica.address
        self.lost = False
        self._digest, self._placement = digest, placement
        self._on_response, self._on_lost, self._clock = on_response, on_lost, clock
        self._outgoing: asyncio.Queue[RunStageRequest | None] = asyncio.Queue()
        self._asked_s: float | None = None
        self._listening: asyncio.Task[None] | None = None

    @property
    def is_overdue(self) -> bool:
        """Whether the stage should have been opened by now."""
        return self._asked_s is not None and self._clock.monotonic_s() > self._asked_s + OPEN_LIMIT_S

    def open(self, following: "StageStream | None", *, incremental: bool) -> None:
        """Asks for the session; outputs go to `following`, or to us. What follows may be sent at once."""
        request = OpenStage(
            session_id=self.session_id,
            digest=self._digest,
            first_layer=self._placement.first,
            end_layer=self._placement.end,
            incremental=incremental,
            caller=self.replica.as_node,
        )
        if following is not None:
            request.next_address, request.next_session_id = following.address, following.session_id
        self._outgoing.put_nowait(RunStageRequest(open=request))
        self._asked_s = self._clock.monotonic_s()
        self._listening = asyncio.create_task(self._listen())

    def feed(self, activation: Activation) -> None:
        """An input; for the first stage only."""
        self._outgoing.put_nowait(RunStageRequest(input=activation))

    def relink(self, following: "StageStream") -> None:
        """What it has kept, and what follows, goes to another stage."""
        relink = Relink(next_address=following.address, next_session_id=following.session_id)
        self._outgoing.put_nowait(RunStageRequest(relink=relink))

    def acknowledge(self, sequence: int) -> None:
        """It needn't keep outputs up to this one."""
        self._outgoing.put_nowait(RunStageRequest(acknowledge=Acknowledge(sequence=sequence)))

    async def close(self) -> None:
        """Ends the session there: politely, so that nothing is under way, or after a while at once."""
        self.lost = True
        self._outgoing.put_nowait(None)
        if self._listening is not None:
            await asyncio.wait([self._listening], timeout=_GOODBYE_S)
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening

    async def _listen(self) -> None:
        failure: PeerloomError = UnavailableError(f"{self.node} ended its stage.")
        try:
            async for response in self.replica.peer.converse(
                self.replica.peer.stub.RunStage, self._requests()
            ):
                if response.HasField("opened"):
                    self._asked_s = None
                else:
                    self._on_response(response)
        except PeerloomError as error:
            failure = error
        self._on_lost(failure)

    async def _requests(self) -> AsyncIterator[RunStageRequest]:
        while (request := await self._outgoing.get()) is not None:
            yield request
