"""A caller's holders are dialled where the registry lists them so, or while it can't be asked."""

from typing import Any, cast

import pytest

from peerloom.artifacts.known_holders import KnownHolders
from peerloom.errors import NotFoundError, PeerloomError, UnavailableError
from peerloom.kit.dialing import RegistryPeer
from peerloom.v1.artifact_pb2 import ArtifactHolder
from peerloom.v1.registry_pb2 import (
    GetNodeRequest,
    GetNodeResponse,
    ListServicesResponse,
    Node,
    NodeSpec,
    ServiceEndpoint,
)

ADA = ArtifactHolder(node_id="node-1", name="ada", address="ada:1")
TRAINER = ArtifactHolder(name="trainer", address="trainer:1")


class Registry:
    """Lists ada and a trainer, and counts the questions."""

    class stub:  # noqa: N801  # as the peer calls it
        GetNode = ListServices = None

    def __init__(self) -> None:
        self.asked, self.error = 0, cast("PeerloomError | None", None)

    async def call(self, method: object, request: Any, timeout_s: float) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        if not isinstance(request, GetNodeRequest):
            return ListServicesResponse(services=[ServiceEndpoint(address="trainer:1")])
        if request.node != "node-1":
            raise NotFoundError.of_name("node", request.node, ())
        return GetNodeResponse(node=Node(node_id="node-1", spec=NodeSpec(address="ada:1")))


def known_by(registry: Registry) -> KnownHolders:
    return KnownHolders(cast("RegistryPeer", registry))


@pytest.mark.parametrize(
    "stranger",
    [
        ArtifactHolder(node_id="node-1", address="10.0.0.1:22"),
        ArtifactHolder(node_id="node-2", address="ada:1"),
        ArtifactHolder(name="trainer", address="10.0.0.1:22"),
    ],
)
async def test_who_is_not_listed_there_is_left_out(stranger: ArtifactHolder) -> None:
    assert await known_by(Registry()).keep([TRAINER, stranger, ADA]) == [TRAINER, ADA]


async def test_whom_it_knows_it_asks_for_once() -> None:
    registry = Registry()
    known = known_by(registry)
    for _ in range(3):
        assert await known.keep([ADA, TRAINER]) == [ADA, TRAINER]
    assert registry.asked == 2


async def test_while_the_registry_is_away_holders_are_believed_and_asked_for_later() -> None:
    registry = Registry()
    registry.error = UnavailableError("away")
    known, stranger = known_by(registry), ArtifactHolder(node_id="node-2", address="b:1")
    assert await known.keep([stranger]) == [stranger]
    registry.error = None
    assert await known.keep([stranger]) == []
