"""Behind a door a lie is told by who may tell it, about an owner that the registry knows by certificate."""

import asyncio
from pathlib import Path

import pytest
from door_system import DoorSystem
from node_agent_parts import StartService

from peerloom.errors import PermissionDeniedError
from peerloom.kit.clock import SystemClock
from peerloom.kit.dialing import Dialer
from peerloom.kit.evidence import answered_wrongly, lied
from peerloom.v1.selector_pb2 import (
    Evidence,
    GetBeliefRequest,
    ReportEvidenceRequest,
    SelectNodesRequest,
    SelectNodesResponse,
)

LIMIT_S = 120.0
pytestmark = pytest.mark.timeout(180)


async def report(dialer: Dialer, address: str, *facts: Evidence) -> None:
    async with dialer.selector(address) as selector:
        await selector.call(selector.stub.ReportEvidence, ReportEvidenceRequest(evidence=facts))


async def select(dialer: Dialer, address: str) -> SelectNodesResponse:
    async with dialer.selector(address) as selector:
        answer: SelectNodesResponse = await selector.call(
            selector.stub.SelectNodes, SelectNodesRequest(request_budget=10)
        )
        return answer


async def test_a_trainer_proves_lies_and_users_of_three_owners_do_and_nobody_else(
    start_service: StartService, tmp_path: Path
) -> None:
    """Ann has three nodes and bob one: two liars of ann's take her third one with them."""
    system = DoorSystem(tmp_path, start_service)
    async with asyncio.timeout(LIMIT_S):
        started = await system.start_all(("ann", "ann", "ann", "bob"))
        selector = str(started["selector"].address)
        trainer = await system.dialer("trainer")
        people = [await system.dialer("user", owner) for owner in ("cid", "dan", "eve")]
        found: dict[str, str] = {}
        while len(found) < 4:  # the selector follows the registry's log
            found = {node.name: node.node_id for node in (await select(people[0], selector)).nodes}
        now_s = SystemClock().wall_s()

        with pytest.raises(PermissionDeniedError, match="can't prove a lie"):
            await report(people[0], selector, lied("", found["node-4"], now_s))
        wrong = [answered_wrongly("", found["node-4"], now_s) for _ in range(50)]
        await report(people[0], selector, *wrong)
        assert len((await select(trainer, selector)).nodes) == 4, "one owner's word, fifty times"

        await report(trainer, selector, lied("job-1", found["node-1"], now_s))
        for person in people:
            await report(person, selector, answered_wrongly("", found["node-2"], now_s))
        answer = await select(trainer, selector)
        assert [node.name for node in answer.nodes] == ["node-4"]
        excluded = {one.reason: (one.count, list(one.examples)) for one in answer.exclusions}
        assert excluded["it is a proven liar"] == (2, ["node-1", "node-2"])
        assert excluded["other nodes of its owner are proven liars"] == (1, ["node-3"])
        async with people[0].selector(selector) as peer:
            belief = await peer.call(peer.stub.GetBelief, GetBeliefRequest(node="node-2"))
        assert belief.belief.terms.lies == 1
        assert belief.belief.evidence.reporter == "eve"
