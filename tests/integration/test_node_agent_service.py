"""An agent with a real registry: it registers, comes back as the same node, refutes, and leaves politely."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from node_agent_parts import (
    JOB,
    LIMIT_S,
    ServiceHandle,
    StartService,
    agent_at,
    announce_trainer,
    node_events,
    request_work,
    worker_command,
)

from peerloom.kit.channel import open_channel
from peerloom.kit.dialing import Dialer
from peerloom.sandbox.cgroups import why_no_cgroups
from peerloom.sandbox.kernel_support import find_support
from peerloom.v1.artifact_pb2 import HasArtifactsRequest
from peerloom.v1.node_agent_pb2 import HandshakeRequest, Refusal, StopWorkersRequest
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_LEFT,
    NODE_EVENT_KIND_REFUTED,
    NODE_EVENT_KIND_REGISTERED,
    NODE_EVENT_KIND_SUSPECTED,
    DrainRequest,
)

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
FAST = (
    "--restart-grace-s", "0", "--heartbeat-interval-s", "0.1",
    "--suspect-after-s", "0.5", "--dead-after-s", "1.5",
)  # fmt: skip


@asynccontextmanager
async def health_of(agent: ServiceHandle) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Gives a function that waits until the agent's health has a status."""
    channel = open_channel(agent.address)
    statuses = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())

    async def until(wanted: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            async for message in statuses:
                if message.status == wanted:
                    return

    yield until
    statuses.cancel()
    await channel.close()


class Bench:
    """Starts registries and agents whose workers are the small ones."""

    def __init__(self, start_service: StartService, folder: Path) -> None:
        self._start, self._folder = start_service, folder
        self._command = worker_command(folder)

    def registry(self, *arguments: str) -> ServiceHandle:
        return self._start("registry", "--state", str(self._folder / "registry"), *arguments)

    def agent(self, registry: str, name: str = "alpha", *arguments: str) -> ServiceHandle:
        state, command = str(self._folder / name), ("--worker-command", self._command)
        return self._start(
            "node_agent", "--registry", registry, "--state", state, "--name", name, *command, *arguments
        )


@pytest.fixture
def bench(start_service: StartService, tmp_path: Path) -> Bench:
    return Bench(start_service, tmp_path)


async def test_an_agent_registers_what_it_has_and_says_the_same_to_peers(bench: Bench) -> None:
    registry = bench.registry()
    agent = bench.agent(registry.address, "alpha", "--slots", "2", "--labels", "room=b12,owner=lab")
    async with node_events(registry.address) as event, agent_at(agent.address) as peer:
        node = (await event(NODE_EVENT_KIND_REGISTERED)).node
        hello = await peer.call(peer.stub.Handshake, HandshakeRequest(caller="a test"))
    assert (node.spec.name, node.spec.address, node.spec.slots) == ("alpha", agent.address, 2)
    sandbox = replace(find_support(), cgroup=not why_no_cgroups())
    assert dict(node.spec.labels) == {"room": "b12", "owner": "lab", "sandbox": str(sandbox)}
    assert node.spec.speed.matmul_gflops > 0
    assert node.spec.speed.memory_bytes_per_s > 0
    assert node.spec.speed.disk_bytes_per_s > 0
    assert (hello.name, hello.slots.total, hello.slots.free) == ("alpha", 2, 2)
    assert hello.speed == node.spec.speed
    assert list(hello.accelerators) == list(node.spec.accelerators)
    assert hello.accelerators[0].memory_bytes > 0


async def test_after_kill_9_the_same_node_comes_back(bench: Bench, tmp_path: Path) -> None:
    registry = bench.registry()
    async with node_events(registry.address) as event:
        first_process = bench.agent(registry.address)
        first = (await event(NODE_EVENT_KIND_REGISTERED)).node
        first_process.kill()
        bench.agent(registry.address)
        second = (await event(NODE_EVENT_KIND_REGISTERED)).node
    assert second.node_id == first.node_id
    assert ((tmp_path / "alpha" / "node.json").stat().st_mode & 0o777) == 0o600


async def test_a_taken_name_is_fatal_and_said_in_one_line(bench: Bench) -> None:
    registry = bench.registry()
    bench.agent(registry.address, "first", "--name", "alpha")
    async with node_events(registry.address) as event:
        await event(NODE_EVENT_KIND_REGISTERED)
    second = bench.agent(registry.address, "second", "--name", "alpha")
    assert second.process.wait(LIMIT_S) == 2
    errors = [line for line in second.log().splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "alpha" in errors[0]


async def test_a_state_folder_serves_one_agent_only(bench: Bench, start_service: StartService) -> None:
    bench.agent("127.0.0.1:9")
    with pytest.raises(pytest.fail.Exception, match="in use by another agent"):
        bench.agent("127.0.0.1:9")


async def test_a_frozen_agent_refutes_when_it_wakes(bench: Bench) -> None:
    registry = bench.registry(*FAST, "--dead-after-s", "25")
    agent = bench.agent(registry.address)
    async with node_events(registry.address) as event:
        before = (await event(NODE_EVENT_KIND_REGISTERED)).node
        agent.process.send_signal(signal.SIGSTOP)
        await event(NODE_EVENT_KIND_SUSPECTED)
        agent.process.send_signal(signal.SIGCONT)
        after = (await event(NODE_EVENT_KIND_REFUTED)).node
    assert after.node_id == before.node_id
    assert after.incarnation > before.incarnation


async def test_an_agent_that_was_given_up_registers_again(bench: Bench) -> None:
    registry = bench.registry(*FAST)
    agent = bench.agent(registry.address)
    async with node_events(registry.address) as event:
        before = (await event(NODE_EVENT_KIND_REGISTERED)).node
        agent.process.send_signal(signal.SIGSTOP)
        await event(NODE_EVENT_KIND_INTERRUPTED)
        agent.process.send_signal(signal.SIGCONT)
        after = (await event(NODE_EVENT_KIND_REGISTERED)).node
    assert after.node_id == before.node_id


async def test_an_agent_waits_for_its_registry_and_outlives_it(bench: Bench) -> None:
    """Starts first, sees the registry killed and restarted, says so by its health, and leaves politely."""
    registry = bench.registry()
    address = registry.address
    registry.kill()
    agent = bench.agent(address)
    registry = bench.registry("--listen", address)
    async with node_events(address) as event:
        before = (await event(NODE_EVENT_KIND_REGISTERED)).node
    async with health_of(agent) as until:
        await until(SERVING)
        registry.kill()
        await until(NOT_SERVING)
        bench.registry("--listen", address)
        await until(SERVING)
    assert await asyncio.to_thread(agent.stop) == 0
    async with node_events(address) as event:
        assert (await event(NODE_EVENT_KIND_LEFT)).node.node_id == before.node_id


async def test_a_drained_agent_refuses_new_work(bench: Bench) -> None:
    registry = bench.registry(*FAST)
    agent = bench.agent(registry.address)
    async with node_events(registry.address) as event, agent_at(agent.address) as peer:
        await event(NODE_EVENT_KIND_REGISTERED)
        await announce_trainer(registry.address)
        async with Dialer().registry(registry.address) as caller:
            await caller.call(caller.stub.Drain, DrainRequest(node="alpha"))
        # The next beat's answer tells the agent; each request until then is accepted, and the same.
        while (answer := await request_work(peer)).refusal == Refusal.REFUSAL_UNSPECIFIED:
            assert answer.accepted_slots == 1
            await peer.call(peer.stub.StopWorkers, StopWorkersRequest(job_id=JOB))
    assert answer.refusal == Refusal.REFUSAL_DRAINING


async def test_an_agent_without_slots_stores_and_refuses(bench: Bench) -> None:
    registry = bench.registry()
    agent = bench.agent(registry.address, "alpha", "--slots", "0")
    async with (
        agent_at(agent.address) as peer,
        Dialer().artifacts(agent.address) as artifacts,
    ):
        answer = await request_work(peer)
        assert (answer.accepted_slots, answer.refusal) == (0, Refusal.REFUSAL_NO_COMPUTE)
        held = await artifacts.call(artifacts.stub.HasArtifacts, HasArtifactsRequest(digests=["0" * 64]))
        assert list(held.artifacts) == []


async def test_a_broken_identity_is_said(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "alpha").mkdir()
    (tmp_path / "alpha" / "node.json").write_text(json.dumps({"key": "wrong"}))
    with pytest.raises(pytest.fail.Exception, match="identity"):
        bench.agent("127.0.0.1:9")
