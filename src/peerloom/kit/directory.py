"""Finding the other services through the registry, so that a user gives one address."""

import asyncio
from contextlib import suppress
from typing import Any

from peerloom.errors import PeerloomError, UnavailableError
from peerloom.kit.channel import Peer
from peerloom.kit.logs import get_logger
from peerloom.v1.registry_pb2 import AnnounceServiceRequest, ListServicesRequest, ServiceKind
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub

_log = get_logger()


class Directory:
    """The registry's list of services, with one open channel to each."""

    def __init__(self, registry_address: str, tls_ca: str = "") -> None:
        self.registry = Peer(RegistryServiceStub, "registry", registry_address, tls_ca)
        self._tls_ca = tls_ca
        self._peers: dict[int, Peer] = {}

    async def find(self, kind: "ServiceKind.ValueType", stub: type[Any]) -> Peer:
        """The service of this kind. Raises UnavailableError when none has announced itself."""
        name = ServiceKind.Name(kind).removeprefix("SERVICE_KIND_").lower()
        answer = await self.registry.call("ListServices", ListServicesRequest(), 5.0)
        addresses = [found.address for found in answer.services if found.kind == kind]
        if not addresses:
            raise UnavailableError(
                f"No {name} has announced itself at the registry {self.registry.address}. Start one with: "
                f"peerloom {name} --registry {self.registry.address}",
                reason="SERVICE_NOT_ANNOUNCED",
                metadata={"service": name},
            )
        known = self._peers.get(kind)
        if known is None or known.address != addresses[0]:
            if known is not None:
                await known.close()
            self._peers[kind] = Peer(stub, name, addresses[0], self._tls_ca)
        return self._peers[kind]

    async def announce_forever(self, kind: "ServiceKind.ValueType", address: str) -> None:
        """Keeps an announcement alive until cancelled, over restarts of the registry."""
        request, was_known = AnnounceServiceRequest(kind=kind, address=address), True
        while True:
            pause_s = 1.0
            try:
                answer = await self.registry.call("AnnounceService", request, 5.0)
                pause_s, was_known = answer.lease_s / 3, True
            except PeerloomError as error:
                if was_known:
                    _log.warning("announcement_failed", reason=error.message)
                was_known = False
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Closes all channels."""
        for opened in [self.registry, *self._peers.values()]:
            with suppress(Exception):
                await opened.close()
