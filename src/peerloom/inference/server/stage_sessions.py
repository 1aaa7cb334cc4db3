"""One stage of a split model in one session: takes activations in order, computes, passes them on.

Outputs are kept until the client has acknowledged them, or to the session's end where a sequence is continued
(`incremental`): a stage that replaces a lost one has to see all of it again, in the same pieces, so that it
comes to the same bits. What a stage has seen already it doesn't compute again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from peerloom.errors import InvalidArgumentError, PeerloomError, ResourceExhaustedError
from peerloom.inference.server.computing import Array, ServedPart
from peerloom.inference.server.links import StageLink
from peerloom.kit.raw_values import raw_values
from peerloom.kit.tensors import array_of, message_of
from peerloom.v1.inference_pb2 import Activation, LinkLost, RunStageResponse, Tensor

WAITING_LIMIT = 32
UNREAD_LIMIT = 16
KEPT_LIMIT_BYTES = 256 * 2**20
OpenLink = Callable[[str, str, Callable[[LinkLost], None]], StageLink]


class StageSession:
    """Computes one stage for one client; `responses` are for the client, None ends them.

    A client that doesn't read them is waited for: nothing more is computed for it.
    """

    def __init__(
        self,
        session_id: str,
        part: ServedPart,
        open_link: OpenLink,
        *,
        incremental: bool,
    ) -> None:
        self.session_id = session_id
        self.part = part
        self.responses: asyncio.Queue[RunStageResponse | PeerloomError | None] = asyncio.Queue(UNREAD_LIMIT)
        self._caches: dict[str, Any] | None = {} if incremental else None
        self._waiting: asyncio.Queue[Activation] = asyncio.Queue(WAITING_LIMIT)
        self._kept: OrderedDict[int, Activation] = OrderedDict()
        self._seen = self._kept_bytes = 0
        self._open_link = open_link
        self._link: StageLink | None = None
        self._working = asyncio.create_task(self._work())

    async def take(self, activation: Activation) -> None:
        """Queues an activation; waits while too many are queued. Repeats are dropped in their turn."""
        await self._waiting.put(activation)

    def link(self, next_address: str, next_session_id: str) -> None:
        """Sends all that is kept, and what follows, to a stage."""
        if self._link is not None:
            self._link.close()
        self._link = self._open_link(next_address, next_session_id, self._tell_lost)
        for activation in self._kept.values():
            self._link.send(activation)

    def acknowledge(self, sequence: int) -> None:
        """Forgets outputs up to this one; a sequence that is continued is kept whole."""
        if self._caches is not None:
            return
        while self._kept and next(iter(self._kept)) <= sequence:
            self._kept_bytes -= self._kept.popitem(last=False)[1].ByteSize()

    async def close(self) -> None:
        """Ends the session's work and its link."""
        self._working.cancel()
        with suppress(asyncio.CancelledError):
            await self._working
        if self._link is not None:
            self._link.close()

    async def _work(self) -> None:
        try:
            while True:
                activation = await self._waiting.get()
                if self._seen and activation.sequence <= self._seen:
                    continue
                self._check_next(activation.sequence)
                await self._pass(activation)
        except PeerloomError as error:
            await self.responses.put(error)

    def _check_next(self, sequence: int) -> None:
        # A stage that replaces another begins where the client's acknowledgement stood.
        first_ok = self._seen == 0 and (sequence == 1 or self._caches is None)
        if not first_ok and sequence != self._seen + 1:
            limit = f"{self._seen + 1}, the one that follows"
            raise InvalidArgumentError.of_field("activation.sequence", sequence, limit)

    async def _pass(self, activation: Activation) -> None:
        outputs, compute_s = await self.part.run(self._inputs(activation.tensor), self._caches)
        output = Activation(sequence=activation.sequence, tensor=message_of(outputs, "outputs"))
        self._seen = activation.sequence
        if self._link is None:
            await self.responses.put(RunStageResponse(output=output, compute_s=compute_s))
            return
        self._keep(output)
        self._link.send(output)

    def _keep(self, output: Activation) -> None:
        self._kept_bytes += output.ByteSize()
        if self._kept_bytes > KEPT_LIMIT_BYTES:
            raise ResourceExhaustedError(
                f"The session {self.session_id} would keep {self._kept_bytes:,} bytes of outputs that may be "
                f"needed again, and the limit is {KEPT_LIMIT_BYTES:,}. Acknowledge them sooner, or continue "
                "a shorter sequence.",
                reason="TOO_MUCH_UNACKNOWLEDGED",
            )
        self._kept[output.sequence] = output

    def _inputs(self, message: Tensor) -> Array:
        if self.part.raw_input is None:
            return array_of(message, "activation.tensor")
        return raw_values(array_of(message), self.part.raw_input)

    def _tell_lost(self, lost: LinkLost) -> None:
        with suppress(asyncio.QueueFull):  # who reads nothing hears of no further loss
            self.responses.put_nowait(RunStageResponse(link_lost=lost))
