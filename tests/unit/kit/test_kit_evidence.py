"""Evidence reaches the selector once it answers, as it was, and is forgotten only then."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from peerloom.errors import InvalidArgumentError, UnavailableError
from peerloom.kit import evidence as ev
from peerloom.kit.dialing import SelectorPeer
from peerloom.v1.selector_pb2 import EvidenceKind, ReportEvidenceRequest, ReportEvidenceResponse

LIMIT_S = 60.0


class StubSelector:
    """Takes batches, or fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.batches: list[list[str]] = []
        self.stub = self
        self.ReportEvidence = "ReportEvidence"

    async def call(self, method: str, request: ReportEvidenceRequest, timeout_s: float) -> Any:
        self.batches.append([fact.evidence_id for fact in request.evidence])
        if self.failures:
            self.failures -= 1
            raise UnavailableError("the selector is away")
        return ReportEvidenceResponse()


def reporter_of(selector: StubSelector, outbox: ev.MemoryOutbox) -> ev.EvidenceReporter:
    async def find() -> SelectorPeer:
        return cast(SelectorPeer, selector)

    async def no_pause(seconds: float) -> None:
        await asyncio.sleep(0)

    pause: Callable[[float], Awaitable[None]] = no_pause
    return ev.EvidenceReporter(outbox, find, pause)


def test_a_fact_carries_what_was_seen() -> None:
    fact = ev.detailed(ev.transferred("job-1", "node-1", 1.5, 0.25, 4096), "gave it")
    assert fact.evidence_id.startswith("job-1/")
    assert (fact.node_id, fact.kind) == ("node-1", EvidenceKind.EVIDENCE_KIND_TRANSFER)
    assert (fact.delay_s, fact.transfer_bytes, fact.detail) == (0.25, 4096, "gave it")
    assert fact.time.ToMicroseconds() == 1_500_000


def test_a_long_detail_is_cut_to_what_the_selector_takes() -> None:
    assert len(ev.detailed(ev.unfinished("", "node-1", 0.0), "x" * 2000).detail) == 512


async def test_a_batch_goes_again_as_it_was_until_it_is_acknowledged() -> None:
    selector, outbox = StubSelector(failures=2), ev.MemoryOutbox(10)
    facts = [ev.unfinished("w", f"node-{n}", 0.0) for n in range(3)]
    for fact in facts:
        outbox.add(fact)
    reporter = reporter_of(selector, outbox)
    reporting = asyncio.create_task(reporter.report_forever())
    async with asyncio.timeout(LIMIT_S):
        await reporter.flush(LIMIT_S)
    reporting.cancel()
    ids = [fact.evidence_id for fact in facts]
    assert selector.batches == [ids, ids, ids]
    assert await outbox.oldest(10) == []


async def test_a_fact_that_is_refused_does_not_hold_up_the_others() -> None:
    class Picky(StubSelector):
        async def call(self, method: str, request: ReportEvidenceRequest, timeout_s: float) -> Any:
            await super().call(method, request, timeout_s)
            if any(fact.node_id == "node-1" for fact in request.evidence):
                raise InvalidArgumentError("evidence is not to its liking")

    selector, outbox = Picky(), ev.MemoryOutbox(10)
    for number in range(3):
        outbox.add(ev.unfinished("w", f"node-{number}", 0.0))
    ids = [fact.evidence_id for fact in await outbox.oldest(10)]
    assert await reporter_of(selector, outbox).report_once() == 3
    assert selector.batches == [ids, *([one] for one in ids)]
    assert await outbox.oldest(10) == []


def test_a_transfer_is_told_within_what_the_selector_takes() -> None:
    fact = ev.transferred("", "node-1", 1.5, 1e6, 2**60)
    assert (fact.delay_s, fact.transfer_bytes) == (86_400.0, 2**50)


async def test_what_a_failed_report_left_is_still_there() -> None:
    selector, outbox = StubSelector(failures=1), ev.MemoryOutbox(10)
    outbox.add(ev.unfinished("w", "node-1", 0.0))
    with pytest.raises(UnavailableError):
        await reporter_of(selector, outbox).report_once()
    assert len(await outbox.oldest(10)) == 1


async def test_a_full_outbox_forgets_the_oldest() -> None:
    outbox = ev.MemoryOutbox(2)
    for number in range(3):
        outbox.add(ev.unfinished("w", f"node-{number}", 0.0))
    assert [fact.node_id for fact in await outbox.oldest(10)] == ["node-1", "node-2"]
