"""The selector as a process, beside a real registry: what it learns, what survives, whom it chooses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from conftest import StartService
from selector_system import (
    LIMIT_S,
    SERVICE,
    System,
    evidence,
    formula,
)

from peerloom.errors import InvalidArgumentError, NotFoundError, UnavailableError
from peerloom.kit.channel import open_channel
from peerloom.kit.dialing import Dialer
from peerloom.kit.directory import Directory
from peerloom.v1 import selector_pb2


@pytest.fixture
async def system(start_service: StartService, tmp_path: Path) -> AsyncIterator[System]:
    found = System(start_service, tmp_path)
    yield found
    await found.close()


async def test_it_chooses_among_the_nodes_that_the_registry_knows(system: System) -> None:
    cuda = [{"kind": "cuda", "model": "x", "count": 1, "memory_bytes": 1}]
    strong = await system.register("strong", slots=4, accelerators=cuda, labels={"room": "a"})
    await system.register("weak", slots=1)
    gone = await system.register("gone", slots=2)
    await system.leave(gone.lease_id)
    await system.start_informed_selector()
    await system.report(evidence("one", strong.node_id, 1, delay_s=0.25))
    both = await system.select(seed=1)
    assert [(n.name, n.slots, n.address) for n in both.nodes] == [
        ("strong", 4, "127.0.0.1:9"),
        ("weak", 1, "127.0.0.1:9"),
    ]
    assert both.nodes[0].node_id == strong.node_id
    assert both.nodes[0].reason.endswith("is the highest of 2 candidates")
    assert (both.policy, both.candidates) == ("thesis", 2)
    assert [(e.reason, e.count, list(e.examples)) for e in both.exclusions] == [
        ("left with notice", 1, ["gone"])
    ]
    needs = {"min_slots": 2, "accelerator_kind": "cuda", "labels": {"room": "a"}}
    assert [node.name for node in (await system.select(requirements=needs, policy="random")).nodes] == [
        "strong"
    ]
    nobody = await system.select(excluded_nodes=["strong", "weak"])
    assert (list(nobody.nodes), nobody.candidates) == ([], 0)


async def test_it_announces_itself_and_tells_its_policies(system: System) -> None:
    system.start_selector("--default-policy", "random")
    directory = Directory(Dialer(), system.registry_process.address)
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                found = await directory.selector()
                break
            except UnavailableError:
                continue
    assert found.address == system.selector_process.address
    answer = await found.call(found.stub.ListPolicies, selector_pb2.ListPoliciesRequest())
    names = ["aco", "beta", "pso", "random", "round-robin", "survival", "thesis", "thesis-fixed"]
    assert [(p.name, p.is_default) for p in answer.policies] == [(name, name == "random") for name in names]
    assert all(policy.description and policy.source for policy in answer.policies)
    await directory.close()


async def test_a_belief_is_explained_to_the_last_digit(system: System) -> None:
    node_id = (await system.register("a")).node_id
    await system.start_informed_selector("--weight-train", "0.7")
    facts = [
        evidence("1", node_id, 1, delay_s=0.1, transfer_bytes=2**40, job_id="job-1", detail="got a model"),
        evidence("2", node_id, 1, delay_s=0.7),
        evidence("3", node_id),
        evidence("4", node_id, 3),
    ]
    assert await system.report(*facts) == 4
    found = await system.belief("a")
    assert found == await system.belief(node_id)
    assert (found.name, found.updates, found.terms.weights.train) == ("a", 4, 0.7)
    assert found.terms.delay_s == pytest.approx(0.4)
    assert found.terms.open_online_s > 0
    request = selector_pb2.ListBeliefHistoryRequest(node="a", page_size=3)
    first = await system.selector.call(system.selector.stub.ListBeliefHistory, request)
    request.page_token = first.next_page_token
    rest = await system.selector.call(system.selector.stub.ListBeliefHistory, request)
    updates = [*first.updates, *rest.updates]
    for one in facts:
        one.reporter = "anonymous ipv4:127.0.0.1"
    assert [update.evidence for update in updates] == facts[::-1]
    assert [update.updates for update in updates] == [4, 3, 2, 1]
    assert [update.belief for update in updates] == [formula(update.terms) for update in updates]
    assert updates[0] == found
    assert rest.next_page_token == ""


async def test_beliefs_come_highest_first_in_pages_with_newcomers_at_zero(system: System) -> None:
    nodes = [(await system.register(f"n{number}")).node_id for number in range(6)]
    await system.start_informed_selector()
    await system.report(evidence("1", nodes[2]), evidence("2", nodes[4], 3, online_s=0))
    everybody = await system.beliefs(page_size=2)
    assert sorted(b.name for b in everybody) == [f"n{number}" for number in range(6)]
    assert [b.belief for b in everybody] == sorted((b.belief for b in everybody), reverse=True)
    newcomers = [b for b in everybody if not b.updates]
    assert [(b.belief, b.HasField("terms"), b.HasField("evidence")) for b in newcomers] == [
        (0, False, False)
    ] * 4
    assert await system.beliefs(page_size=3) == everybody == await system.beliefs()


async def test_it_catches_up_with_a_long_log_before_it_answers(system: System) -> None:
    await asyncio.gather(*(system.register(f"n{number}") for number in range(700)))
    await system.start_informed_selector()
    assert (await system.select(request_budget=10)).candidates == 700


async def test_refusals_name_the_nearest_and_the_field(system: System) -> None:
    await system.register("lab-red")
    await system.start_informed_selector()
    with pytest.raises(NotFoundError, match="Did you mean thesis") as unknown:
        await system.select(policy="tesis")
    assert (unknown.value.reason, unknown.value.metadata["nearest"]) == (
        "POLICY_NOT_FOUND",
        "thesis,thesis-fixed",
    )
    with pytest.raises(NotFoundError, match="Did you mean lab-red"):
        await system.belief("lab-rad")
    with pytest.raises(InvalidArgumentError) as bad:
        await system.select(request_budget=0)
    assert bad.value.metadata["field"] == "request_budget"
    with pytest.raises(InvalidArgumentError, match="evidence"):
        await system.report()
    good, wrong = evidence("good", "node-" + "0" * 12), evidence("bad", "node-x")
    with pytest.raises(InvalidArgumentError, match=r"evidence\[1\]\.node_id"):
        await system.report(good, wrong)
    assert len(await system.beliefs()) == 1, "all or none"


async def test_it_stops_gracefully_and_refuses_a_bad_start(
    system: System, start_service: StartService
) -> None:
    system.start_selector()
    assert await asyncio.to_thread(system.selector_process.stop) == 0
    with pytest.raises(pytest.fail.Exception, match="score_new = score_old"):
        start_service("selector", "--weight-score-old", "1")
    with pytest.raises(pytest.fail.Exception, match="Did you mean thesis"):
        start_service("selector", "--default-policy", "tesis")


async def test_reflection_tells_of_the_service(system: System) -> None:
    """So that grpcurl needs no file; asked with the wire format alone."""
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    system.start_selector()
    async with open_channel(system.selector_process.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        assert answer is not grpc.aio.EOF
        assert SERVICE in {found.name for found in answer.list_services_response.service}
        call.cancel()
