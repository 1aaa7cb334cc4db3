"""Evidence on its way to the selector: made once with an id, kept until it is acknowledged.

The selector counts each id once, so a batch that may have been lost on its way goes again as it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

from peerloom.errors import InvalidArgumentError, PeerloomError, UnavailableError
from peerloom.kit.backoff import Backoff
from peerloom.kit.clock import to_timestamp
from peerloom.kit.dialing import SelectorPeer
from peerloom.kit.ids import new_request_id
from peerloom.kit.limits import MAX_DELAY_S, MAX_DETAIL_CHARACTERS, MAX_TRANSFER_BYTES
from peerloom.kit.logs import get_logger
from peerloom.v1.selector_pb2 import Evidence, EvidenceKind, ReportEvidenceRequest

_log = get_logger()
BATCH = 200
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0


def transferred(witness: str, node_id: str, wall_s: float, delay_s: float, size_bytes: int) -> Evidence:
    """Bytes moved to or from the node in `delay_s` seconds; `witness` begins the evidence's id."""
    fact = _fact(witness, node_id, EvidenceKind.EVIDENCE_KIND_TRANSFER, wall_s)
    fact.delay_s, fact.transfer_bytes = min(delay_s, MAX_DELAY_S), min(size_bytes, MAX_TRANSFER_BYTES)
    return fact


def trained(witness: str, node_id: str, wall_s: float, speed_gflops: float, slots: int) -> Evidence:
    """The node took part to the end, with so many slots, each at this speed (0: it can't be told)."""
    fact = _fact(witness, node_id, EvidenceKind.EVIDENCE_KIND_TRAINING, wall_s)
    fact.speed_gflops, fact.slots = speed_gflops, slots
    return fact


def unfinished(witness: str, node_id: str, wall_s: float) -> Evidence:
    """The node refused, gave a wrong answer, or did not finish what it took."""
    return _fact(witness, node_id, EvidenceKind.EVIDENCE_KIND_UNFINISHED, wall_s)


def lied(witness: str, node_id: str, wall_s: float) -> Evidence:
    """Others did the node's work again, and most of their owners found something else."""
    return _fact(witness, node_id, EvidenceKind.EVIDENCE_KIND_LIE, wall_s)


def answered_wrongly(witness: str, node_id: str, wall_s: float) -> Evidence:
    """Most of those who were asked the same answered otherwise; one caller's word."""
    return _fact(witness, node_id, EvidenceKind.EVIDENCE_KIND_WRONG_ANSWER, wall_s)


def detailed(fact: Evidence, detail: str) -> Evidence:
    """The same fact with words for people, cut to what the selector takes."""
    fact.detail = detail[:MAX_DETAIL_CHARACTERS]
    return fact


def _fact(witness: str, node_id: str, kind: "EvidenceKind.ValueType", wall_s: float) -> Evidence:
    evidence_id = f"{witness}/{new_request_id()}" if witness else new_request_id()
    return Evidence(evidence_id=evidence_id, node_id=node_id, kind=kind, time=to_timestamp(wall_s))


class Outbox(Protocol):
    """Where evidence waits, oldest first."""

    async def oldest(self, limit: int) -> Sequence[Evidence]:
        """At most `limit` facts that wait."""

    async def forget(self, evidence_ids: Collection[str]) -> None:
        """These were acknowledged."""


class MemoryOutbox:
    """An outbox for witnesses that may forget: beyond `limit` facts the oldest goes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[str, Evidence] = {}

    def add(self, fact: Evidence) -> None:
        """Takes a fact."""
        self._waiting[fact.evidence_id] = fact
        while len(self._waiting) > self._limit:
            del self._waiting[next(iter(self._waiting))]

    async def oldest(self, limit: int) -> Sequence[Evidence]:
        """At most `limit` facts that wait."""
        return list(islice(self._waiting.values(), limit))

    async def forget(self, evidence_ids: Collection[str]) -> None:
        """These were acknowledged."""
        for evidence_id in evidence_ids:
            self._waiting.pop(evidence_id, None)


class EvidenceReporter:
    """Carries what an outbox holds to the selector, whenever it is woken."""

    def __init__(
        self,
        outbox: Outbox,
        selector: Callable[[], Awaitable[SelectorPeer]],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._outbox = outbox
        self._selector = selector
        self._sleep = sleep
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._wake = asyncio.Event()
        self._wake.set()
        self._reported = asyncio.Event()

    def wake(self) -> None:
        """There may be something new."""
        self._reported.clear()
        self._wake.set()

    async def flush(self, limit_s: float) -> None:
        """Returns when all that waits was reported by `report_forever`, or after `limit_s` seconds."""
        self.wake()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._reported.wait()

    async def report_forever(self) -> None:
        """Reports whatever there is, until cancelled; pauses while the selector is away."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while await self.report_once():
                    self._backoff.succeeded()
                self._reported.set()
            except PeerloomError as error:
                level = _log.info if isinstance(error, UnavailableError) else _log.error
                level("evidence_not_reported", reason=error.message)
                await self._sleep(self._backoff.next_pause_s())
                self._wake.set()

    async def report_once(self) -> int:
        """Reports one batch; returns how many facts it had. Raises a PeerloomError when it can't."""
        batch = await self._outbox.oldest(BATCH)
        if batch:
            await self._hand_over(await self._selector(), batch)
            await self._outbox.forget([fact.evidence_id for fact in batch])
        return len(batch)

    async def _hand_over(self, selector: SelectorPeer, batch: Sequence[Evidence]) -> None:
        try:
            await selector.call(selector.stub.ReportEvidence, ReportEvidenceRequest(evidence=batch), 10.0)
        except InvalidArgumentError as error:
            # All of a report is refused for one fact: without it the others would wait behind it for ever.
            if len(batch) == 1:
                _log.error("evidence_refused", evidence_id=batch[0].evidence_id, reason=error.message)
                return
            for fact in batch:
                await self._hand_over(selector, [fact])
