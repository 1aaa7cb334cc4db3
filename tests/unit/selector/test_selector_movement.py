"""A liar moves a belief by no more than the documented bounds, whatever it says and how often."""

from memory_selector import MemorySelector, entry, event, fact, node_id

from peerloom.kit.clock import to_timestamp
from peerloom.services.selector.belief.movement import counted_delay_s
from peerloom.v1 import selector_pb2 as pb
from peerloom.v1.registry_pb2 import NODE_EVENT_KIND_REGISTERED

HOST_1, HOST_2 = "ipv4:10.0.0.1:4001", "ipv4:10.0.0.2:4001"


def told(name: str, kind: int, **values: float) -> pb.Evidence:
    return pb.Evidence(
        evidence_id=name,
        node_id=node_id(1),
        kind=pb.EvidenceKind.ValueType(kind),
        time=to_timestamp(1_700_000_000.0),
        **values,  # type: ignore[arg-type]  # fields by name
    )


async def known_node() -> MemorySelector:
    """A selector that knows node 1, with two transfers of no delay, and 38 trainings: a belief near 20."""
    selector = MemorySelector()
    await selector.writer.follow([event(1, NODE_EVENT_KIND_REGISTERED, entry(1))])
    await selector.writer.report(
        [fact(f"moved-{n}", kind=pb.EVIDENCE_KIND_TRANSFER) for n in range(5)]
        + [fact(f"trained-{n}") for n in range(28)]
    )
    return selector


async def test_one_message_with_an_endless_delay_costs_a_minute() -> None:
    """Five transfers of 0 s and one of a day: the mean of 60 / 6 = 10 s costs 10, not 14,400."""
    selector = await known_node()
    before = selector.beliefs()[node_id(1)]
    liar = told("lie", pb.EVIDENCE_KIND_TRANSFER, delay_s=86_400.0)
    await selector.servicer().ReportEvidence(pb.ReportEvidenceRequest(evidence=[liar]), None)
    after = selector.beliefs()[node_id(1)]
    assert after == 0.3 * before + 0.1 * 6 + 0.5 * 28 - 60.0 / 6
    explained = selector.explanations.of_node(node_id(1))
    assert explained.last is not None
    assert explained.last.evidence.delay_s == 86_400.0, "stored as it was told"


def test_an_honest_delay_counts_whole() -> None:
    assert [counted_delay_s(delay_s) for delay_s in (0.0, 0.2, 60.0, 61.0)] == [0.0, 0.2, 60.0, 60.0]


async def test_a_report_counts_half_of_an_hours_facts_about_a_node() -> None:
    """240 in an hour, 120 of them at once; the next 120 come one each half minute."""
    selector = await known_node()
    service = selector.servicer()
    many = [told(f"a-{n}", pb.EVIDENCE_KIND_UNFINISHED) for n in range(1000)]
    assert (await service.ReportEvidence(pb.ReportEvidenceRequest(evidence=many), None)).applied == 120
    more = [told(f"b-{n}", pb.EVIDENCE_KIND_UNFINISHED) for n in range(1000)]
    selector.clock.advance(60.0)
    assert (await service.ReportEvidence(pb.ReportEvidenceRequest(evidence=more), None)).applied == 2


async def test_reporters_and_nodes_have_allowances_of_their_own() -> None:
    selector = await known_node()
    service = selector.servicer()
    assert all(service.reporters.take((HOST_1, node_id(1)), 0.0) for _ in range(120))
    assert not service.reporters.take((HOST_1, node_id(1)), 0.0)
    assert service.reporters.take((HOST_2, node_id(1)), 0.0)
    assert service.reporters.take((HOST_1, node_id(2)), 0.0)
