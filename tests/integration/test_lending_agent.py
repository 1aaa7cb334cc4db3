"""An agent with a real registry: a drain or an owner's limit reaches its workers, and nodes show why."""

import asyncio
import time
from pathlib import Path

import pytest
from inference_parts import inference_process
from node_agent_parts import (
    JOB,
    LIMIT_S,
    ServiceHandle,
    StartService,
    agent_at,
    announce_trainer,
    node_events,
    request_work,
    start_workers,
    worker_command,
)

from peerloom.errors import FailedPreconditionError
from peerloom.kit.dialing import Dialer, NodeAgentPeer
from peerloom.v1.node_agent_pb2 import (
    GetWorkerLogsRequest,
    HandshakeRequest,
    Refusal,
    StartInferenceRequest,
    StopWorkersRequest,
)
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_DRAIN_CHANGED,
    NODE_EVENT_KIND_REGISTERED,
    DrainRequest,
    GetNodeRequest,
    Node,
)


def other_hours() -> str:
    """An hour of the day that is half a day away."""
    hour = (time.localtime().tm_hour + 12) % 24
    return f"{hour:02}:00-{hour:02}:59"


@pytest.fixture
async def registry(start_service: StartService, tmp_path: Path) -> ServiceHandle:
    fast = ("--restart-grace-s", "0", "--heartbeat-interval-s", "0.1")
    started = start_service("registry", "--state", str(tmp_path / "registry"), *fast)
    await announce_trainer(started.address)
    return started


def start_agent(start: StartService, folder: Path, registry: str, *arguments: str) -> ServiceHandle:
    common = ("--registry", registry, "--state", str(folder / "agent"), "--name", "alpha")
    return start("node_agent", *common, "--worker-command", worker_command(folder), *arguments)


async def node(registry: str) -> Node:
    async with Dialer().registry(registry) as peer:
        answer = await peer.call(peer.stub.GetNode, GetNodeRequest(node="alpha"))
        return answer.node  # type: ignore[no-any-return]  # the call's type is not known


async def told(agent: NodeAgentPeer, words: str) -> str:
    """The first line of the job's output that has these words."""
    async with asyncio.timeout(LIMIT_S):
        async for message in agent.stream(
            agent.stub.GetWorkerLogs, GetWorkerLogsRequest(job_id=JOB, follow=True)
        ):
            if words in message.line:
                return str(message.line)
    raise AssertionError(f"the worker ended without {words!r}")


async def test_a_drain_asks_the_workers_to_leave_and_its_end_lets_them_stay(
    start_service: StartService, tmp_path: Path, registry: ServiceHandle
) -> None:
    running = start_agent(start_service, tmp_path, registry.address)
    async with (
        agent_at(running.address) as agent,
        Dialer().registry(registry.address) as peer,
        node_events(registry.address) as wait_for,
    ):
        await wait_for(NODE_EVENT_KIND_REGISTERED)
        await start_workers(agent, "one")
        await peer.call(peer.stub.Drain, DrainRequest(node="alpha"))
        assert "its node is being drained" in await told(agent, '"leave"')
        await peer.call(peer.stub.Drain, DrainRequest(node="alpha", undo=True))
        assert await told(agent, '"stay"')
        await agent.call(agent.stub.StopWorkers, StopWorkersRequest(job_id=JOB, grace_s=1))


async def test_outside_its_hours_a_node_refuses_work_and_says_why(
    start_service: StartService, tmp_path: Path, registry: ServiceHandle
) -> None:
    hours = other_hours()
    running = start_agent(start_service, tmp_path, registry.address, "--lend-hours", hours)
    async with agent_at(running.address) as agent, node_events(registry.address) as wait_for:
        event = await wait_for(NODE_EVENT_KIND_DRAIN_CHANGED)
        assert hours in event.reason
        assert event.node.draining
        answer = await request_work(agent)
        assert answer.refusal == Refusal.REFUSAL_OWNER_LIMITS
        assert hours in answer.reason
        assert (await agent.call(agent.stub.Handshake, HandshakeRequest(caller="test"))).draining
        with pytest.raises(FailedPreconditionError, match=hours):
            await agent.call(agent.stub.StartInference, StartInferenceRequest(), LIMIT_S)
    shown = await node(registry.address)
    assert (shown.draining, hours in shown.withheld) == (True, True)


@pytest.mark.usefixtures("processes_are_executed")
async def test_what_a_killed_inference_server_left_is_gone_when_the_next_starts(
    start_service: StartService, tmp_path: Path, registry: ServiceHandle
) -> None:
    running = start_agent(start_service, tmp_path, registry.address)
    folder = tmp_path / "agent" / "inference"
    async with agent_at(running.address) as agent:
        first = await agent.call(agent.stub.StartInference, StartInferenceRequest(), LIMIT_S)
        (folder / "model.safetensors").write_bytes(b"of the first")
        server = inference_process(running.process.pid)
        server.kill()
        server.wait(LIMIT_S)
        second = await agent.call(agent.stub.StartInference, StartInferenceRequest(), LIMIT_S)
    assert first.address != second.address
    assert list(folder.iterdir()) == []


async def test_a_worker_that_uses_more_memory_than_is_lent_is_asked_to_leave(
    start_service: StartService, tmp_path: Path, registry: ServiceHandle
) -> None:
    limits = ("--memory-limit-bytes", "1000", "--slots", "2")
    running = start_agent(start_service, tmp_path, registry.address, *limits)
    async with agent_at(running.address) as agent, node_events(registry.address) as wait_for:
        await wait_for(NODE_EVENT_KIND_REGISTERED)
        await start_workers(agent, "one")
        assert "the owner lends 1,000" in await told(agent, '"leave"')
        again = await request_work(agent, request_id="request-2")
        assert again.refusal == Refusal.REFUSAL_OWNER_LIMITS, "it would grow again"
        other = await request_work(agent, request_id="request-3", job_id="job-2")
        assert other.accepted_slots == 1
        await agent.call(agent.stub.StopWorkers, StopWorkersRequest(job_id=JOB, grace_s=1))
