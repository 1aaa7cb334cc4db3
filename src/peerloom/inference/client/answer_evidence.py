"""What the nodes' answers tell the selector: gathered, and handed over every few seconds, each fact once."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from peerloom.errors import PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import SelectorPeer
from peerloom.kit.evidence import (
    EvidenceReporter,
    MemoryOutbox,
    answered_wrongly,
    detailed,
    transferred,
    unfinished,
)

PAUSE_S = 2.0
_KEPT = 200


class AnswerEvidence:
    """First-hand evidence of this client. A node's answers within 2 s make one fact with their mean delay.

    A thousand small requests say little more than one: a belief shouldn't grow by how often one asks. Facts
    that the selector doesn't take are handed over again with the next ones.
    """

    def __init__(self, selector: Callable[[], Awaitable[SelectorPeer]], clock: Clock) -> None:
        self._clock = clock
        self._answered: dict[str, tuple[int, float, int]] = {}
        self._outbox = MemoryOutbox(_KEPT)
        self._reporter = EvidenceReporter(self._outbox, selector)
        self._task: asyncio.Task[None] | None = None

    def answered(self, node_id: str, delay_s: float, moved_bytes: int) -> None:
        """A node answered; `delay_s` is what the network took of it."""
        count, delays_s, bytes_before = self._answered.get(node_id, (0, 0.0, 0))
        self._answered[node_id] = (count + 1, delays_s + delay_s, bytes_before + moved_bytes)
        self._report_later()

    def unfinished(self, node_id: str, detail: str) -> None:
        """A node that was asked gave no answer, a wrong one, or one that stands apart."""
        fact = unfinished("", node_id, self._clock.wall_s())
        self._outbox.add(detailed(fact, f"inference: {detail}"))
        self._report_later()

    def answered_wrongly(self, node_id: str, detail: str) -> None:
        """Most of those who were asked the same answered otherwise."""
        fact = answered_wrongly("", node_id, self._clock.wall_s())
        self._outbox.add(detailed(fact, f"inference: {detail}"))
        self._report_later()

    async def flush(self) -> None:
        """Hands over what there is, as far as the selector takes it now."""
        wall_s = self._clock.wall_s()
        for node_id, (count, delays_s, moved_bytes) in self._answered.items():
            fact = transferred("", node_id, wall_s, delays_s / count, moved_bytes)
            self._outbox.add(detailed(fact, f"inference: {count} answers"))
        self._answered.clear()
        with suppress(PeerloomError):
            while await self._reporter.report_once():
                pass

    async def close(self) -> None:
        """Hands over the rest."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.flush()

    def _report_later(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._report())

    async def _report(self) -> None:
        await asyncio.sleep(PAUSE_S)
        await self.flush()
