"""Finding the other services through the registry, so that a user gives one address."""

import asyncio
from contextlib import suppress
from typing import Any

from peerloom.errors import PeerloomError, UnavailableError
from peerloom.kit.channel import Peer
from peerloom.kit.dialing import Dialer, SelectorPeer, TrainerPeer
from peerloom.kit.lease_rules import NO_EPOCH
from peerloom.kit.logs import get_logger
from peerloom.v1.registry_pb2 import (
    AnnounceServiceRequest,
    ListServicesRequest,
    ListServicesResponse,
    ServiceEndpoint,
    ServiceKind,
)

_log = get_logger()
# Somebody waits for an answer of ours meanwhile: a trainer waits 5 s for an agent's.
_LISTING_TIMEOUT_S = 2.0
# A registry that has just taken over knows of no service until each announces itself anew.
_ANNOUNCING_S = 1.0
_FOLLOWING_S = 0.5
_PROBE_S = 1.5


class Directory:
    """The registry's list of services, with one open channel to each."""

    def __init__(self, dialer: Dialer, registry_address: str) -> None:
        self.registry = dialer.registry(registry_address)
        self._dialer = dialer
        self._selector: SelectorPeer | None = None
        self._trainer: TrainerPeer | None = None

    async def selector(self) -> SelectorPeer:
        """The selector. Raises UnavailableError when none has announced itself."""
        address = await self._address_of(ServiceKind.SERVICE_KIND_SELECTOR)
        if self._selector is None or self._selector.address != address:
            former, self._selector = self._selector, self._dialer.selector(address)
            await _close(former)
        return self._selector

    async def trainer(self) -> TrainerPeer:
        """The trainer. Raises UnavailableError when none has announced itself."""
        address = await self._address_of(ServiceKind.SERVICE_KIND_TRAINER)
        if self._trainer is None or self._trainer.address != address:
            former, self._trainer = self._trainer, self._dialer.trainer(address)
            await _close(former)
        return self._trainer

    async def list_trainers(self) -> list[str]:
        """host:port of every trainer that is listed now. Raises UnavailableError without registry."""
        serving = await self._serving(ServiceKind.SERVICE_KIND_TRAINER, _LISTING_TIMEOUT_S)
        return [found.address for found in serving]

    async def leading_trainer(self) -> tuple[str, int] | None:
        """host:port of the trainer that leads, and its lease's epoch; None when none is listed.

        Raises UnavailableError without registry.
        """
        serving = await self._serving(ServiceKind.SERVICE_KIND_TRAINER, _LISTING_TIMEOUT_S)
        return (serving[0].address, serving[0].epoch) if serving else None

    async def _serving(self, kind: "ServiceKind.ValueType", timeout_s: float) -> list[ServiceEndpoint]:
        """Those of a kind that don't stand by, the leader first."""
        answer = await self._list(timeout_s)
        return [found for found in answer.services if found.kind == kind and not found.stands_by]

    async def _list(self, timeout_s: float) -> ListServicesResponse:
        return await self.registry.call(self.registry.stub.ListServices, ListServicesRequest(), timeout_s)

    async def _address_of(self, kind: "ServiceKind.ValueType") -> str:
        name = ServiceKind.Name(kind).removeprefix("SERVICE_KIND_").lower()
        serving = await self._serving(kind, 5.0)
        if not serving:
            raise UnavailableError(
                f"No {name} has announced itself at the registry {self.registry.address}. Start one with: "
                f"peerloom {name} --registry {self.registry.address}",
                reason="SERVICE_NOT_ANNOUNCED",
                metadata={"service": name},
            )
        return serving[0].address

    async def follow_forever(self) -> None:
        """Closes, until cancelled, the channel to a service once another one leads in its place.

        Calls that wait for one that is frozen fail then, and their callers ask the new one.
        """
        while True:
            await asyncio.sleep(_FOLLOWING_S)
            with suppress(PeerloomError):
                if self._selector is not None:
                    await self.selector()
                if self._trainer is not None:
                    await self.trainer()

    async def announce_forever(self, kind: "ServiceKind.ValueType", address: str, epoch: int) -> None:
        """Keeps an announcement alive until cancelled, over restarts of the registry.

        `epoch` is that of the service's lease: of two that announce themselves the higher one leads.
        NO_EPOCH: it stands by.
        """
        stands_by = epoch == NO_EPOCH
        request = AnnounceServiceRequest(kind=kind, address=address, epoch=epoch, stands_by=stands_by)
        was_known = True
        while True:
            pause_s = 1.0
            try:
                answer = await self.registry.call(self.registry.stub.AnnounceService, request, 5.0)
                pause_s, was_known = min(answer.lease_s / 3, _ANNOUNCING_S), True
            except PeerloomError as error:
                if was_known:
                    _log.warning("announcement_failed", reason=error.message)
                was_known = False
            await asyncio.sleep(pause_s)

    async def registry_id(self) -> str:
        """Which registry it is, thus which system. Raises UnavailableError without registry."""
        return (await self._list(_LISTING_TIMEOUT_S)).registry_id

    async def probe(self) -> None:
        """Raises unless the registry answers; for a service's health."""
        await self._list(_PROBE_S)

    async def __aenter__(self) -> "Directory":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all channels."""
        for opened in (self.registry, self._selector, self._trainer):
            with suppress(Exception):
                await _close(opened)


async def _close(peer: Peer[Any] | None) -> None:
    if peer is not None:
        await peer.close()
