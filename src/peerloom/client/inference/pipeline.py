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

from peerloom.client.inference.stage import Placement, StageLine
from peerloom.errors import DeadlineError, PeerloomError, UnavailableError
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
        self, digest: str, placements: Sequence[Placement], replace: Replace, *, incremental: bool
    ) -> None:
        self.digest = digest
        self._replace, self._incremental = replace, incremental
        self._session = secrets.token_hex(8)
        self._placements = list(placements)
        self._lines: list[StageLine] = []
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
        return tuple(placement.server.node.name for placement in self._placements)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where the stages are, in order."""
        return tuple(self._placements)

    @property
    def is_whole(self) -> bool:
        """Whether all stages live and all outputs were taken."""
        return not self._inputs and self._outputs.empty() and not any(line.lost for line in self._lines)

    def open(self) -> None:
        """Opens all stages at once; inputs need not wait until they are. `next` raises what comes of it."""
        self._lines = [self._line(index) for index in range(len(self._placements))]
        for line, after in zip(self._lines, [*self._lines[1:], None], strict=True):
            line.open(after, incremental=self._incremental)

    def feed(self, array: Array) -> None:
        """The next input. Raises InvalidArgumentError for one that doesn't fit a message."""
        self._sent += 1
        activation = Activation(sequence=self._sent, tensor=message_of(array))
        self._inputs[self._sent] = activation
        self._lines[0].feed(activation)

    async def next(self, timeout_s: float) -> tuple[Array, float]:
        """The next output, in order, and the seconds that the last stage computed for it.

        Raises DeadlineError after `timeout_s`, and what a stage's model or the search for a replacement
        raises.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            left_s = deadline_s - loop.time()
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
        await asyncio.gather(*(line.close() for line in self._lines))

    def _line(self, index: int) -> StageLine:
        name = f"{self._session}.{index}.{len(self._lost_nodes)}"
        line = StageLine(
            name,
            self.digest,
            self._placements[index],
            lambda response: self._hear(line, response),
            lambda error: self._lose(line, error),
        )
        return line

    def _hear(self, line: StageLine, response: RunStageResponse) -> None:
        if response.HasField("link_lost"):
            following = self._after(line)
            if following is not None and following.address == response.link_lost.next_address:
                self._lose(following, UnavailableError(response.link_lost.reason))
            return
        output = response.output
        if line not in self._lines or output.sequence <= self._received:
            return
        self._received = output.sequence
        try:
            array = array_of(output.tensor, "outputs")
        except PeerloomError as error:
            # A node that answers rubbish is as good as lost.
            self._received -= 1
            self._lose(line, UnavailableError(f"{line.node} sent what is no tensor: {error.message}"))
            return
        self._outputs.put_nowait((array, response.compute_s))
        if not self._incremental:
            self._inputs.pop(output.sequence, None)
            for each in self._lines:
                each.acknowledge(output.sequence)

    def _lose(self, line: StageLine, error: PeerloomError) -> None:
        if line.lost:
            return
        if not isinstance(error, UnavailableError | DeadlineError):
            self._outputs.put_nowait(error)  # the model's own failure: another node would fail too
            return
        line.lost = True
        if line in self._lines and self._inputs:  # one that rests is not worth a replacement
            task = asyncio.create_task(self._repair())
            self._repairs.add(task)
            task.add_done_callback(self._repairs.discard)

    async def _repair(self) -> None:
        async with self._repairing:
            try:
                while any(line.lost for line in self._lines):
                    await self._replace_lost()
            except PeerloomError as error:
                self._outputs.put_nowait(error)

    async def _replace_lost(self) -> None:
        lost = [index for index, line in enumerate(self._lines) if line.lost]
        self._lost_nodes += [self._lines[index].node for index in lost]
        if len(self._lost_nodes) > REPLACEMENTS:
            raise UnavailableError(
                f"Over {REPLACEMENTS} stages were lost; the last on {self._lost_nodes[-1]}."
            )
        for index in reversed(lost):
            await self._lines[index].close()
            placement = self._placements[index]
            self._placements[index] = await self._replace((placement.first, placement.end), self._lost_nodes)
            following = self._lines[index + 1] if index + 1 < len(self._lines) else None
            line = self._line(index)
            line.open(following, incremental=self._incremental)
            self._lines[index] = line
            self.replaced += 1
        for index in lost:
            if index == 0:
                for activation in self._inputs.values():
                    self._lines[0].feed(activation)
            elif index - 1 not in lost:
                self._lines[index - 1].relink(self._lines[index])

    async def _ask_all(self) -> None:
        async def ask(line: StageLine) -> None:
            if line.is_overdue:
                self._lose(line, UnavailableError(f"{line.node} doesn't open its stage"))
                return
            with suppress(PeerloomError):
                await line.server.look()
                return
            self._lose(line, UnavailableError(f"{line.node} didn't answer within a second"))

        await asyncio.gather(*(ask(line) for line in self._lines if not line.lost))

    def _after(self, line: StageLine) -> StageLine | None:
        if line not in self._lines or line is self._lines[-1]:
            return None
        return self._lines[self._lines.index(line) + 1]
