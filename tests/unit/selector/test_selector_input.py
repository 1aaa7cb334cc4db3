"""What the selector refuses, and that the refusal names the field and its limit."""

import math
from dataclasses import replace
from typing import Any

import pytest
from memory_selector import MemorySelector, entry, event, fact

from peerloom.errors import ConfigurationError, InvalidArgumentError, NotFoundError, UnavailableError
from peerloom.kit.config import load_config
from peerloom.kit.paging import encode_token
from peerloom.services.selector.belief.evidence_report import MAX_EVIDENCE, check_report
from peerloom.services.selector.belief.formula import Weights
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.selector.messages import event_from_message
from peerloom.v1 import registry_pb2, selector_pb2
from peerloom.v1.registry_pb2 import NODE_EVENT_KIND_REGISTERED, NODE_STATE_SUSPECT
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_INTERRUPTION, EVIDENCE_KIND_SESSION_ENDED


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"evidence_id": ""}, "evidence_id"),
        ({"evidence_id": "x" * 129}, "evidence_id"),
        ({"evidence_id": "registry/1/1"}, "evidence_id"),
        ({"node_id": "n1"}, "node_id"),
        ({"node_id": ""}, "node_id"),
        ({"kind": 0}, "kind"),
        ({"kind": 8}, "kind"),
        ({"kind": EVIDENCE_KIND_SESSION_ENDED}, "kind"),
        ({"kind": EVIDENCE_KIND_INTERRUPTION}, "kind"),
        ({"delay_s": -0.1}, "delay_s"),
        ({"delay_s": math.nan}, "delay_s"),
        ({"delay_s": 86_401.0}, "delay_s"),
        ({"online_s": 1.0}, "online_s"),
        ({"speed_gflops": 2e9}, "speed_gflops"),
        ({"slots": 1025}, "slots"),
        ({"transfer_bytes": 2**50 + 1}, "transfer_bytes"),
        ({"online_s": math.inf}, "online_s"),
        ({"transfer_bytes": 2**64 - 1}, "transfer_bytes"),
        ({"time_s": -1.0}, "time"),
        ({"job_id": "x" * 129}, "job_id"),
        ({"detail": "x" * 513}, "detail"),
    ],
)
def test_bad_evidence_is_refused_by_place_and_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        check_report([fact("good"), replace(fact("bad"), **changes)])
    assert refused.value.metadata["field"] == f"evidence[1].{field}"


@pytest.mark.parametrize("count", [0, MAX_EVIDENCE + 1])
def test_a_report_has_one_to_a_thousand_facts(count: int) -> None:
    with pytest.raises(InvalidArgumentError, match="1 to 1000 entries"):
        check_report([fact(str(number)) for number in range(count)])


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"request_budget": 0}, "request_budget"),
        ({"request_budget": 1001}, "request_budget"),
        ({"requirements": {"min_slots": 1025}}, "requirements.min_slots"),
        ({"requirements": {"accelerator_kind": "x" * 64}}, "requirements.accelerator_kind"),
        ({"requirements": {"labels": {"": "x"}}}, "requirements.labels key"),
        ({"excluded_nodes": ["x"] * 10_001}, "excluded_nodes"),
    ],
)
async def test_a_bad_selection_is_refused_by_field(request_: dict[str, Any], field: str) -> None:
    request = selector_pb2.SelectNodesRequest(**{"request_budget": 1, **request_})
    with pytest.raises(InvalidArgumentError) as refused:
        await MemorySelector().servicer().SelectNodes(request, None)
    assert refused.value.metadata["field"] == field


async def test_an_unknown_node_is_answered_with_the_nearest_names() -> None:
    selector = MemorySelector()
    await selector.writer.follow([event(1, NODE_EVENT_KIND_REGISTERED, entry(1, name="lab-red"))])
    with pytest.raises(NotFoundError, match="Did you mean lab-red"):
        await selector.servicer().GetBelief(selector_pb2.GetBeliefRequest(node="lab-rad"), None)


@pytest.mark.parametrize("token", ["no token!", encode_token([1]), encode_token({"a": 1}), encode_token("x")])
async def test_a_foreign_page_token_is_refused(token: str) -> None:
    selector = MemorySelector()
    await selector.writer.report([fact("a")])
    service = selector.servicer()
    node = selector.columns.node_ids[0]
    with pytest.raises(InvalidArgumentError, match="page_token"):
        await service.ListBeliefs(selector_pb2.ListBeliefsRequest(page_token=token), None)
    with pytest.raises(InvalidArgumentError, match="page_token"):
        await service.ListBeliefHistory(
            selector_pb2.ListBeliefHistoryRequest(node=node, page_token=token), None
        )


@pytest.mark.parametrize(("seconds", "nanos"), [(2**62, 0), (-1, 0), (1, -5), (1, 2**31 - 1)])
async def test_a_time_that_is_none_is_refused_by_place_and_field(seconds: int, nanos: int) -> None:
    request = selector_pb2.ReportEvidenceRequest(evidence=[selector_pb2.Evidence(evidence_id="a")])
    request.evidence[0].time.seconds, request.evidence[0].time.nanos = seconds, nanos
    with pytest.raises(InvalidArgumentError) as refused:
        await MemorySelector().servicer().ReportEvidence(request, None)
    assert refused.value.metadata["field"].startswith("evidence[0].time.")


async def test_the_same_seed_chooses_the_same_nodes() -> None:
    selector = MemorySelector()
    await selector.writer.follow([event(n, NODE_EVENT_KIND_REGISTERED, entry(n)) for n in range(1, 50)])
    request = selector_pb2.SelectNodesRequest(request_budget=5, seed=7)
    first = await selector.servicer().SelectNodes(request, None)
    again = selector.again()
    await again.writer.load()
    assert await again.servicer().SelectNodes(request, None) == first
    assert (first.policy, first.candidates, len(first.nodes)) == ("thesis", 49, 5)


async def test_a_choice_of_few_is_made_again_with_who_came_just_now() -> None:
    selector = MemorySelector()
    await selector.writer.follow([event(1, NODE_EVENT_KIND_REGISTERED, entry(1))])
    limits: list[float] = []

    async def one_more_comes(limit_s: float) -> bool:
        limits.append(limit_s)
        if len(selector.columns) < 3:
            number = len(selector.columns) + 1
            await selector.writer.follow([event(number, NODE_EVENT_KIND_REGISTERED, entry(number))])
            return True
        return False

    for wanted, found in ((1, 1), (2, 2), (3, 3), (4, 3)):
        request = selector_pb2.SelectNodesRequest(request_budget=wanted)
        assert len((await selector.servicer(one_more_comes).SelectNodes(request, None)).nodes) == found
    assert len(limits) == 3, "who finds enough doesn't look"


async def test_few_are_answered_and_nobody_is_not_while_the_registry_is_away() -> None:
    async def fails(limit_s: float) -> bool:
        raise UnavailableError("the registry is away")

    request = selector_pb2.SelectNodesRequest(request_budget=2)
    selector = MemorySelector()
    with pytest.raises(UnavailableError, match="away"):
        await selector.servicer(fails).SelectNodes(request, None)
    await selector.writer.follow([event(1, NODE_EVENT_KIND_REGISTERED, entry(1))])
    assert len((await selector.servicer(fails).SelectNodes(request, None)).nodes) == 1


def test_configured_weights_reach_the_formula() -> None:
    flags = ["--weight-score-old", "0.5", "--time-score-cap", "20", "--weight-delay", "2"]
    config = load_config(SelectorConfig, "selector", flags, {})
    assert config.weights() == Weights(score_old=0.5, delay=2.0, time_score_cap=20.0)
    assert load_config(SelectorConfig, "selector", [], {}).weights() == Weights()


@pytest.mark.parametrize("value", ["1", "nan", "-inf", "heavy"])
def test_a_weight_that_cannot_be_used_stops_the_start(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"score.old"):
        load_config(SelectorConfig, "selector", [f"--weight-score-old={value}"], {}).weights()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"listen": "0.0.0.0:7401"}, "--advertise"),
        ({"registry": "nowhere"}, "registry"),
        ({"advertise": "host"}, "advertise"),
    ],
)
def test_addresses_that_lead_nowhere_stop_the_start(settings: dict[str, str], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        SelectorConfig(**settings).check_addresses()


def test_a_session_began_when_the_registry_says_it_did() -> None:
    message = registry_pb2.WatchNodesResponse(
        sequence=1, registry_id="r", kind=registry_pb2.NODE_EVENT_KIND_SUSPECTED
    )
    message.time.FromSeconds(1000)
    message.node.state, message.node.online_s = registry_pb2.NODE_STATE_SUSPECT, 40.0
    message.node.spec.accelerators.add(kind="cuda")
    message.node.spec.accelerators.add(kind="cuda")
    found = event_from_message(message)
    assert found.entry.session_start_s == 960
    assert (found.entry.state, found.entry.accelerators) == (NODE_STATE_SUSPECT, ("cuda",))
    message.kind = registry_pb2.NODE_EVENT_KIND_INTERRUPTED
    assert event_from_message(message).entry.session_start_s is None
