"""A channel to several replicas calls the one whose health says that it serves, also once that is frozen."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from peerloom.client.remote_services import may_be_repeated
from peerloom.errors import UnavailableError
from peerloom.kit.dialing import Dialer, RegistryPeer
from peerloom.kit.server import Endpoint, Server
from peerloom.v1 import registry_pb2, registry_pb2_grpc, trainer_pb2

NAME = registry_pb2.DESCRIPTOR.services_by_name["RegistryService"].full_name
pytestmark = pytest.mark.timeout(120)


class Nodes(registry_pb2_grpc.RegistryServiceServicer):
    """Answers with its own name."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def GetNode(self, request: Any, context: Any) -> registry_pb2.GetNodeResponse:  # noqa: N802  # the schema's
        return registry_pb2.GetNodeResponse(node=registry_pb2.Node(node_id=self._name))


class Replica:
    """One process of a service, which stands by at first."""

    def __init__(self, name: str) -> None:
        self.server = Server(Endpoint("127.0.0.1:0"), [NAME])
        self.server.add_servicer(registry_pb2_grpc.add_RegistryServiceServicer_to_server, Nodes(name))


@pytest.fixture
async def replicas() -> AsyncIterator[list[Replica]]:
    async with AsyncExitStack() as opened:
        found = [Replica("first"), Replica("second")]
        for each in found:
            await opened.enter_async_context(each.server)
            await each.server.stand_by("stands by; another leads")
        yield found


async def who_answers(registry: RegistryPeer) -> str:
    request = registry_pb2.GetNodeRequest(node="any")
    return str((await registry.call(registry.stub.GetNode, request, 30.0)).node.node_id)


async def test_the_replica_that_serves_is_called_and_the_next_one_after_it(replicas: list[Replica]) -> None:
    first, second = replicas
    async with Dialer().registry(f"{first.server.address},{second.server.address}") as registry:
        await second.server.start({})
        assert [await who_answers(registry) for _ in range(4)] == ["second"] * 4
        await second.server.close()
        await first.server.start({})
        answer = ""
        while not answer:  # until the channel has heard of its health
            try:
                answer = await who_answers(registry)
            except UnavailableError:
                continue
        assert answer == "first"


async def test_where_all_stand_by_the_error_names_them_all(replicas: list[Replica]) -> None:
    text = ",".join(each.server.address for each in replicas)
    async with Dialer().registry(text) as registry:
        with pytest.raises(UnavailableError, match=f"registry at {text} can't be reached"):
            await who_answers(registry)


def test_only_what_changes_nothing_twice_is_repeated() -> None:
    assert may_be_repeated(trainer_pb2.GetJobRequest())
    assert may_be_repeated(trainer_pb2.SubmitJobRequest())
    assert not may_be_repeated(registry_pb2.DrainRequest())
