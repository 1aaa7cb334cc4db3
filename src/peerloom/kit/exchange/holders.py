"""Who holds an artifact, as the registry knows."""

from collections.abc import Awaitable, Callable, Sequence

from peerloom.kit.channel import Peer
from peerloom.v1.artifact_pb2 import ArtifactHolder
from peerloom.v1.registry_pb2 import ListHoldersRequest

FindHolders = Callable[[str], Awaitable[Sequence[ArtifactHolder]]]
ASKED = 20
_CALL_S = 5.0


def holders_at(registry: Peer, but_not: Callable[[], str] = lambda: "") -> FindHolders:
    """Asks this registry each time; `but_not` gives the id of a node to leave out, the asker's own."""

    async def find(digest: str) -> list[ArtifactHolder]:
        request = ListHoldersRequest(digest=digest, limit=ASKED)
        answer = await registry.call("ListHolders", request, _CALL_S)
        return [holder for holder in answer.holders if holder.node_id != but_not()]

    return find
