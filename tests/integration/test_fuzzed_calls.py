"""Whatever is sent to a method of any service: never a bug of ours, and the service serves on.

Aim: no answer is INTERNAL or UNKNOWN, no log has a traceback, and health is SERVING afterwards. Method: each
method that a server's reflection lists gets wild requests, the same in every run; streams are opened with a
few of them and left.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from conftest import ServiceHandle, StartService
from fuzzed_messages import MessageFuzzer
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from node_agent_parts import agent_at

# Their descriptors enter the pool, where reflection's names are looked up.
from peerloom.v1 import artifact_pb2, inference_pb2, node_agent_pb2, registry_pb2, selector_pb2, trainer_pb2
from peerloom.v1.node_agent_pb2 import StartInferenceRequest

KNOWN = (artifact_pb2, inference_pb2, node_agent_pb2, registry_pb2, selector_pb2, trainer_pb2)
SEED = 1
UNARY_REQUESTS, STREAMED_REQUESTS = 40, 3
CALL_S, STREAM_S, LIMIT_S = 5.0, 0.3, 120.0
OURS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
LEFT = "Internal error from Core"  # what our own gRPC says when it writes into a stream that was ended
SERVICES = ("registry", "selector", "trainer", "node_agent")


@pytest.fixture
def services(start_service: StartService, tmp_path: Path) -> dict[str, ServiceHandle]:
    """One process of each service; the agent's workers are left out."""
    registry = start_service("registry", "--state", str(tmp_path / "registry"))
    found = {"registry": registry}
    more = {"node_agent": ("--name", "ada", "--slots", "1", "--keep-warm=false")}
    for name in SERVICES[1:]:
        flags = ("--state", str(tmp_path / name), "--registry", registry.address, *more.get(name, ()))
        found[name] = start_service(name, *flags)
    return found


async def methods_of(channel: aio.Channel) -> list[MethodDescriptor]:
    """All methods of Peerloom's own services that the server lists."""
    reflected = reflection_pb2_grpc.ServerReflectionStub(channel)
    asking = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in reflected.ServerReflectionInfo(iter([asking])):
        names = [one.name for one in answer.list_services_response.service if one.name.startswith("peerloom")]
        pool = descriptor_pool.Default()
        return [method for name in names for method in pool.FindServiceByName(name).methods]
    return []


async def answer_to(channel: aio.Channel, method: MethodDescriptor, requests: list[bytes]) -> str:
    """What came of one call, if that is a bug of ours; else ""."""
    path = f"/{method.containing_service.full_name}/{method.name}"

    async def sent() -> AsyncIterator[bytes]:
        for request in requests:
            yield request

    try:
        if method.client_streaming and method.server_streaming:
            many = channel.stream_stream(path)(sent(), timeout=STREAM_S)
            _ = [one async for one in many]
        elif method.client_streaming:
            await channel.stream_unary(path)(sent(), timeout=STREAM_S)
        elif method.server_streaming:
            _ = [one async for one in channel.unary_stream(path)(requests[0], timeout=STREAM_S)]
        else:
            await channel.unary_unary(path)(requests[0], timeout=CALL_S)
    except aio.AioRpcError as error:
        if error.code() in OURS and error.details() != LEFT:
            return f"{path}: {error.code().name} {error.details()} for {requests[0][:80]!r}"
    return ""


async def inference_of(agent_address: str) -> str:
    """Where the node's inference server listens, a process of the agent's whose log is the agent's too."""
    async with agent_at(agent_address) as agent:
        answer = await agent.call(agent.stub.StartInference, StartInferenceRequest(), LIMIT_S)
        return str(answer.address)


async def faults_of(name: str, address: str) -> list[str]:
    """The answers of one service that are bugs of ours."""
    options = [("grpc.max_send_message_length", -1)]
    async with aio.insecure_channel(address, options=options) as channel, asyncio.timeout(LIMIT_S):
        fuzzer, found = MessageFuzzer(SEED), list[str]()
        methods = await methods_of(channel)
        assert methods, f"{name} lists no method of ours"
        for method in methods:
            streams = method.client_streaming or method.server_streaming
            kind = method.input_type
            made = list(fuzzer.requests(kind, UNARY_REQUESTS))
            calls = (
                [made[:STREAMED_REQUESTS], made[STREAMED_REQUESTS:]] if streams else [[one] for one in made]
            )
            found += await asyncio.gather(*(answer_to(channel, method, call) for call in calls))
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
        if answer.status != health_pb2.HealthCheckResponse.SERVING:
            found.append(f"{name} is no longer serving")
        return [one for one in found if one]


async def test_nothing_that_is_sent_is_a_bug_of_ours(services: dict[str, ServiceHandle]) -> None:
    addresses = {name: handle.address for name, handle in services.items()}
    # The agent's calls may start its inference server anew: it is asked when they are through.
    found = list(await asyncio.gather(*(faults_of(*service) for service in addresses.items())))
    found.append(await faults_of("inference", await inference_of(addresses["node_agent"])))
    told = [fault for faults in found for fault in faults]
    for handle in services.values():
        log = handle.log()
        at = log.find("Traceback")
        if at >= 0:
            told.append(f"{handle.name} wrote {log[max(0, at - 300) : at + 3000]}")
    assert told == [], "\n".join(told)
