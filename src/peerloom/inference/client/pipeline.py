"""A split model at work: stages opened on nodes, inputs fed to the first, outputs taken from the last.

The client holds a stream to every stage, so it hears of a dead one at once, and asks all of them when nothing
comes for too long. A lost stage is opened anew on another node; the stage before sends what it has kept once
more (the client its inputs, where the first was lost), and stages that have seen it drop the repeats: only
what was lost is computed again, in the same pieces, so the outputs are the same to the last bit.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy.typing as npt

from peerloom.errors import DeadlineError, PeerloomError, UnavailableError
from peerloom.inference.client.stage import Placement, StageStream
from peerloom.kit.clock import Clock
from peerloom.kit.tensors import array_of, message_of
from peerloom.v1.inference_pb2 import Activation, RunStageResponse

Array = npt.NDArray[Any]
SILENCE_S = 1.0  # without any output for so long, the stages are asked whether they live
REPLACEMENTS = 16  # of one session: a model that kills each of its nodes must not go through all of them
# Names a node for a lost stage: given its layers and the names of nodes not to take. Raises a PeerloomError.
Replace = Callable[[tuple[int, int], Sequence[str]], Awaitable[Placement]]


class Pipeline:
    """One session. `incremental`: each input continues the sequence of those before it."""

    def __init__(
        self,
        digest: str,
        placements: Sequence[Placement],
        replace: Replace,
        clock: Clock,
        *,
        incremental: bool,
    ) -> None:
        self.digest = digest
        self._replace, self._clock, self._incremental = replace, clock, incremental
        self._session = secrets.token_hex(8)
        self._placements = list(placements)
        self._streams: list[StageStream] = []
        self._inputs: OrderedDict[int, Activation] = OrderedDict()
        self._outputs: asyncio.Queue[tuple[Array, float] | PeerloomError] = asyncio.Queue()
        self._sent, self._received = 0, 0
        self._lost_nodes: list[str] = []
        self._repairing = asyncio.Lock()
        self._repairs: set[asyncio.Task[None]] = set()
        self.replaced = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the stages, in order."""
        return tuple(placement.replica.node.name for placement in self._placements)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where the stages are, in order."""
        return tuple(self._placements)

    @property
    def is_whole(self) -> bool:
        """Whether all stages live and all outputs were taken."""
        return not self._inputs and self._outputs.empty() and not any(stream.lost for stream in self._streams)

    def open(self) -> None:
        """Opens all stages at once; inputs need not wait until they are. `next` raises what comes of it."""
        self._streams = [self._stream(index) for index in range(len(self._placements))]
        for stream, after in zip(self._streams, [*self._streams[1:], None], strict=True):
            stream.open(after, incremental=self._incremental)

    def feed(self, array: Array) -> None:
        """The next input. Raises InvalidArgumentError for one that doesn't fit a message."""
        self._sent += 1
        activation = Activation(sequence=self._sent, tensor=message_of(array))
        self._inputs[self._sent] = activation
        self._streams[0].feed(activation)

    async def next(self, timeout_s: float) -> tuple[Array, float]:
        """The next output, in order, and the seconds that the last stage computed for it.

        Raises DeadlineError after `timeout_s`, and what a stage's model or the search for a replacement
        raises.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            left_s = deadline_s - self._clock.monotonic_s()
            try:
                found = await asyncio.wait_for(self._outputs.get(), min(SILENCE_S, max(0.0, left_s)))
            except TimeoutError:
                if left_s <= SILENCE_S:
                    raise DeadlineError(
                        f"The split model gave no output within {timeout_s:g} s (stages on "
                        f"{', '.join(self.nodes)}). Give it more time, or fewer stages."
                    ) from None
                await self._ask_all()
                continue
            if isinstance(found, PeerloomError):
                raise found
            return found

    async def close(self) -> None:
        """Ends the session at all stages."""
        for task in self._repairs:
            task.cancel()
        await asyncio.gather(*self._repairs, return_exceptions=True)
        await asyncio.gather(*(stream.close() for stream in self._streams))

    def _stream(self, index: int) -> StageStream:
        name = f"{self._session}.{index}.{len(self._lost_nodes)}"
        stream = StageStream(
            name,
            self.digest,
            self._placements[index],
            lambda response: self._hear(stream, response),
            lambda error: self._lose(stream, error),
            self._clock,
        )
        return stream

    def _hear(self, stream: StageStream, response: RunStageResponse) -> None:
        if response.HasField("link_lost"):
            following = self._after(stream)
            if following is not None and following.address == response.link_lost.next_address:
                self._lose(following, UnavailableError(response.link_lost.reason))
            return
        output = response.output
        if stream not in self._streams or output.sequence <= self._received:
            return
        self._received = output.sequence
        try:
            array = array_of(output.tensor, "outputs")
        except PeerloomError as error:
            # A node that answers rubbish is as good as lost.
            self._received -= 1
            self._lose(stream, UnavailableError(f"{stream.node} sent what is no tensor: {error.message}"))
            return
        self._outputs.put_nowait((array, response.compute_s))
        if not self._incremental:
            self._inputs.pop(output.sequence, None)
            for each in self._streams:
                each.acknowledge(output.sequence)

    def _lose(self, stream: StageStream, error: PeerloomError) -> None:
        if stream.lost:
            return
        if not isinstance(error, UnavailableError | DeadlineError):
            self._outputs.put_nowait(error)  # the model's own failure: another node would fail too
            return
        stream.lost = True
        if stream in self._streams and self._inputs:  # an idle one is not worth a replacement
            task = asyncio.create_task(self._repair())
            self._repairs.add(task)
            task.add_done_callback(self._repairs.discard)

    async def _repair(self) -> None:
        async with self._repairing:
            try:
                while any(stream.lost for stream in self._streams):
                    await self._replace_lost()
            except PeerloomError as error:
                self._outputs.put_nowait(error)

    async def _replace_lost(self) -> None:
        lost = [index for index, stream in enumerate(self._streams) if stream.lost]
        self._lost_nodes += [self._streams[index].node for index in lost]
        if len(self._lost_nodes) > REPLACEMENTS:
            raise UnavailableError(
                f"Over {REPLACEMENTS} stages were lost; the last on {self._lost_nodes[-1]}."
            )
        for index in reversed(lost):
            await self._streams[index].close()
            placement = self._placements[index]
            self._placements[index] = await self._replace((placement.first, placement.end), self._lost_nodes)
            following = self._streams[index + 1] if index + 1 < len(self._streams) else None
            stream = self._stream(index)
            stream.open(following, incremental=self._incremental)
            self._streams[index] = stream
            self.replaced += 1
        for index in lost:
            if index == 0:
                for activation in self._inputs.values():
                    self._streams[0].feed(activation)
            elif index - 1 not in lost:
                self._streams[index - 1].relink(self._streams[index])

    async def _ask_all(self) -> None:
        async def ask(stream: StageStream) -> None:
            if stream.is_overdue:
                self._lose(stream, UnavailableError(f"{stream.node} doesn't open its stage"))
                return
            with suppress(PeerloomError):
                await stream.replica.look()
                return
            self._lose(stream, UnavailableError(f"{stream.node} didn't answer within a second"))

        await asyncio.gather(*(ask(stream) for stream in self._streams if not stream.lost))

    def _after(self, stream: StageStream) -> StageStream | None:
        if stream not in self._streams or stream is self._streams[-1]:
            return None
        return self._streams[self._streams.index(stream) + 1]
