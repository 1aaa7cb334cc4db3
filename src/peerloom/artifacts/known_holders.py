"""Which of the holders that a caller names are dialled: those that the registry lists with that address."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from peerloom.errors import DeadlineError, NotFoundError, UnavailableError
from peerloom.kit.dialing import RegistryPeer
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import ArtifactHolder
from peerloom.v1.registry_pb2 import GetNodeRequest, ListServicesRequest

KeepKnown = Callable[[Sequence[ArtifactHolder]], Awaitable[list[ArtifactHolder]]]
_log = get_logger()
_CALL_S = 2.0
_REMEMBERED = 1000


async def keep_all(holders: Sequence[ArtifactHolder]) -> list[ArtifactHolder]:
    """Where there is no registry."""
    return list(holders)


class KnownHolders:
    """Asks a registry, once for each holder: a caller must not have us knock at any door it likes.

    While the registry is away all are believed, as training goes on without it.
    """

    def __init__(self, registry: RegistryPeer) -> None:
        self._registry = registry
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def keep(self, holders: Sequence[ArtifactHolder]) -> list[ArtifactHolder]:
        """The known ones, in their order."""
        answers = await asyncio.gather(*(self._is_known(holder) for holder in holders))
        unknown = [holder.address for holder, known in zip(holders, answers, strict=True) if not known]
        if unknown:
            _log.warning("unknown_holders_left_out", addresses=unknown)
        return [holder for holder, known in zip(holders, answers, strict=True) if known]

    async def _is_known(self, holder: ArtifactHolder) -> bool:
        key = (holder.node_id, holder.address)
        if key in self._known:
            self._known.move_to_end(key)
            return True
        try:
            is_listed = await (self._is_node(holder) if holder.node_id else self._is_service(holder))
        except (UnavailableError, DeadlineError) as error:
            _log.info("holder_not_looked_up", address=holder.address, reason=error.message)
            return True
        if is_listed:
            self._known[key] = None
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return is_listed

    async def _is_node(self, holder: ArtifactHolder) -> bool:
        request = GetNodeRequest(node=holder.node_id)
        try:
            answer = await self._registry.call(self._registry.stub.GetNode, request, _CALL_S)
        except NotFoundError:
            return False
        return answer.node.spec.address == holder.address

    async def _is_service(self, holder: ArtifactHolder) -> bool:
        answer = await self._registry.call(self._registry.stub.ListServices, ListServicesRequest(), _CALL_S)
        return any(service.address == holder.address for service in answer.services)
