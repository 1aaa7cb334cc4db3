"""What the nodes' answers tell the selector: gathered, and handed over every few seconds, each fact once."""

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress

from peerloom.client.services import Services
from peerloom.errors import PeerloomError
from peerloom.kit.ids import new_request_id
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_TRANSFER,
    EVIDENCE_KIND_UNFINISHED,
    Evidence,
    ReportEvidenceRequest,
)

PAUSE_S = 2.0
_KEPT = 200


class Witness:
    """First-hand evidence of this client. A node's answers within 2 s make one fact with their mean delay.

    A thousand small requests say little more than one: a belief shouldn't grow by how often one asks.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._answered: OrderedDict[str, tuple[int, float, int]] = OrderedDict()
        self._facts: list[Evidence] = []
        self._task: asyncio.Task[None] | None = None

    def answered(self, node_id: str, delay_s: float, moved_bytes: int) -> None:
        """A node answered; `delay_s` is what the network took of it."""
        count, delays_s, bytes_before = self._answered.get(node_id, (0, 0.0, 0))
        self._answered[node_id] = (count + 1, delays_s + delay_s, bytes_before + moved_bytes)
        self._report_later()

    def unfinished(self, node_id: str, detail: str) -> None:
        """A node that was asked gave no answer, a wrong one, or one that stands apart."""
        evidence = Evidence(evidence_id=new_request_id(), node_id=node_id, kind=EVIDENCE_KIND_UNFINISHED)
        evidence.detail = f"inference: {detail}"[:512]
        evidence.time.FromNanoseconds(time.time_ns())
        self._facts = [*self._facts, evidence][-_KEPT:]
        self._report_later()

    async def flush(self) -> None:
        """Hands over what there is; what the selector doesn't take now is tried again with the next."""
        for node_id, (count, delays_s, moved_bytes) in self._answered.items():
            evidence = Evidence(evidence_id=new_request_id(), node_id=node_id, kind=EVIDENCE_KIND_TRANSFER)
            evidence.delay_s, evidence.transfer_bytes = delays_s / count, moved_bytes
            evidence.detail = f"inference: {count} answers"
            evidence.time.FromNanoseconds(time.time_ns())
            self._facts.append(evidence)
        self._answered.clear()
        facts, self._facts = self._facts, []
        if facts:
            try:
                await self._services.call("selector", "ReportEvidence", ReportEvidenceRequest(evidence=facts))
            except PeerloomError:
                self._facts = [*facts, *self._facts][-_KEPT:]

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
