"""Who holds artifacts: the living nodes and the trainer, found through the registry and asked one by one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from peerloom.client.remote_services import Services
from peerloom.client.types import ArtifactHolder
from peerloom.errors import PeerloomError, UnavailableError
from peerloom.kit.dialing import ArtifactPeer
from peerloom.v1 import artifact_pb2, registry_pb2

T = TypeVar("T")
CALL_S = 10.0
MANIFEST_S = 60.0


class Holders:
    """Finds and asks the holders; whoever doesn't answer a question to all is left out."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def holders(self, digest: str) -> Sequence[artifact_pb2.ArtifactHolder]:
        """Who holds an artifact, whole or in part: nodes, and the trainer."""
        request = registry_pb2.ListHoldersRequest(digest=digest, limit=100)
        answer, trainer = await asyncio.gather(
            self._services.registry.call(lambda stub: stub.ListHolders, request),
            self._quietly(self.trainer, None),
        )
        holders = list(answer.holders)
        if trainer is not None and await self.describe_at(digest, trainer) is not None:
            holders.append(message_of(trainer))
        return holders

    async def nodes(self, name: str) -> list[ArtifactHolder]:
        """The living nodes, or the one with this name ("trainer" is one). Raises UnavailableError."""
        if name == "trainer":
            return [await self.trainer()]
        if name:
            request = registry_pb2.GetNodeRequest(node=name)
            found = [(await self._services.registry.call(lambda stub: stub.GetNode, request)).node]
        else:
            states = [registry_pb2.NODE_STATE_ALIVE]
            listing = registry_pb2.ListNodesRequest(states=states)
            found = await self._services.registry.pages(
                lambda stub: stub.ListNodes, listing, lambda page: page.nodes
            )
        if not found:
            raise UnavailableError(
                "No node lives that could keep artifacts. Start one with: peerloom node", reason="NO_NODE"
            )
        return [ArtifactHolder(one.spec.name, one.spec.address, one.node_id) for one in found]

    async def trainer(self) -> ArtifactHolder:
        """The trainer. Raises UnavailableError."""
        return ArtifactHolder("trainer", (await self._services.trainer.peer()).address, "")

    async def everybody(self) -> list[ArtifactHolder]:
        """All living nodes and the trainer, as far as they can be found. Raises what hid them all."""
        trainer = await self._quietly(self.trainer, None)
        try:
            nodes = await self.nodes("")
        except PeerloomError as error:
            if trainer is None and error.reason != "NO_NODE":
                raise
            nodes = []
        return [*nodes, *([trainer] if trainer else [])]

    async def list_at(self, holder: ArtifactHolder) -> list[artifact_pb2.Artifact]:
        """What somebody keeps; nothing where nobody answers."""

        async def ask() -> list[artifact_pb2.Artifact]:
            request = artifact_pb2.ListArtifactsRequest(page_size=1000)
            found: list[artifact_pb2.Artifact] = []
            async with self.peer(holder) as peer:
                while True:
                    answer = await peer.call(peer.stub.ListArtifacts, request, CALL_S)
                    found.extend(answer.artifacts)
                    request.page_token = answer.next_page_token
                    if not request.page_token:
                        return found

        return await self._quietly(ask, [])

    async def describe_at(self, digest: str, holder: ArtifactHolder) -> artifact_pb2.Artifact | None:
        """An artifact as somebody keeps it; None if not, or where nobody answers."""

        async def ask() -> artifact_pb2.Artifact | None:
            request = artifact_pb2.HasArtifactsRequest(digests=[digest])
            async with self.peer(holder) as peer:
                answer = await peer.call(peer.stub.HasArtifacts, request, MANIFEST_S)
            return answer.artifacts[0] if answer.artifacts else None

        return await self._quietly(ask, None)

    async def _quietly(self, ask: Callable[[], Awaitable[T]], otherwise: T) -> T:
        try:
            return await ask()
        except PeerloomError:
            return otherwise

    def peer(self, holder: ArtifactHolder) -> ArtifactPeer:
        """The artifact service of a holder."""
        return self._services.dialer.artifacts(holder.address)


def message_of(holder: ArtifactHolder) -> artifact_pb2.ArtifactHolder:
    """A holder as a message."""
    return artifact_pb2.ArtifactHolder(node_id=holder.node_id, name=holder.name, address=holder.address)


def holder_of(message: artifact_pb2.ArtifactHolder) -> ArtifactHolder:
    """A holder as a value."""
    return ArtifactHolder(message.name, message.address, message.node_id)
