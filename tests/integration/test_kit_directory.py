"""Services find each other through a registry, over its restarts and over changes of address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from grpc import aio

from peerloom.errors import UnavailableError
from peerloom.kit.dialing import Dialer
from peerloom.kit.directory import Directory
from peerloom.v1.registry_pb2 import (
    SERVICE_KIND_SELECTOR,
    SERVICE_KIND_TRAINER,
    AnnounceServiceRequest,
    AnnounceServiceResponse,
    ListServicesRequest,
    ListServicesResponse,
    ServiceEndpoint,
    ServiceKind,
)
from peerloom.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server

LIMIT_S = 60.0


class SmallRegistry(RegistryServiceServicer):
    """Remembers announcements; a lease of 0 s asks for the next one at once."""

    def __init__(self) -> None:
        self.addresses: dict[ServiceKind.ValueType, str] = {}
        self.epochs: dict[ServiceKind.ValueType, int] = {}
        self.standing_by: set[ServiceKind.ValueType] = set()
        self.heard: asyncio.Queue[str] = asyncio.Queue()

    async def AnnounceService(  # noqa: N802  # the schema's
        self, request: AnnounceServiceRequest, context: Any
    ) -> AnnounceServiceResponse:
        self.addresses[request.kind] = request.address
        self.heard.put_nowait(request.address)
        return AnnounceServiceResponse(lease_s=0.0 if self.heard.qsize() < 2 else 60.0)

    async def ListServices(  # noqa: N802  # the schema's
        self, request: ListServicesRequest, context: Any
    ) -> ListServicesResponse:
        found = [
            ServiceEndpoint(
                kind=kind,
                address=at,
                epoch=self.epochs.get(kind, 0),
                stands_by=kind in self.standing_by,
            )
            for kind, at in self.addresses.items()
        ]
        return ListServicesResponse(services=found)


@asynccontextmanager
async def registry(port: int = 0) -> AsyncIterator[tuple[SmallRegistry, int]]:
    servicer, server = SmallRegistry(), aio.server(options=[("grpc.so_reuseport", 0)])
    add_RegistryServiceServicer_to_server(servicer, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield servicer, bound
    finally:
        await server.stop(None)


@asynccontextmanager
async def announcing(directory: Directory, address: str) -> AsyncIterator[None]:
    task = asyncio.create_task(directory.announce_forever(SERVICE_KIND_TRAINER, address, 1))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_service_that_has_not_announced_itself_is_named_with_the_command_that_starts_it() -> None:
    async with registry() as (_, port):
        directory = Directory(Dialer(), f"127.0.0.1:{port}")
        with pytest.raises(UnavailableError, match=f"peerloom selector --registry .*:{port}") as raised:
            await directory.selector()
        assert raised.value.metadata == {"service": "selector"}
        await directory.close()


async def test_a_registry_that_is_not_up_is_named_with_its_address() -> None:
    directory = Directory(Dialer(), "127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"registry at 127\.0\.0\.1:1"):
        await directory.selector()
    await directory.close()


async def test_one_channel_is_kept_until_the_service_moves() -> None:
    async with registry() as (servicer, port):
        directory = Directory(Dialer(), f"127.0.0.1:{port}")
        servicer.addresses[SERVICE_KIND_SELECTOR] = "127.0.0.1:7001"
        first = await directory.selector()
        assert first is await directory.selector()
        servicer.addresses[SERVICE_KIND_SELECTOR] = "127.0.0.1:7002"
        moved = await directory.selector()
        assert (first.address, moved.address) == ("127.0.0.1:7001", "127.0.0.1:7002")
        await directory.close()


async def test_the_leading_trainer_is_the_first_that_is_listed_and_does_not_stand_by() -> None:
    async with registry() as (servicer, port):
        directory = Directory(Dialer(), f"127.0.0.1:{port}")
        servicer.addresses[SERVICE_KIND_SELECTOR] = "127.0.0.1:7001"
        assert await directory.leading_trainer() is None
        servicer.addresses[SERVICE_KIND_TRAINER] = "127.0.0.1:7002"
        servicer.epochs[SERVICE_KIND_TRAINER] = 3
        assert await directory.leading_trainer() == ("127.0.0.1:7002", 3)
        servicer.standing_by.add(SERVICE_KIND_TRAINER)
        assert await directory.leading_trainer() is None
        await directory.close()


async def test_an_announcement_is_repeated() -> None:
    async with registry() as (servicer, port):
        directory = Directory(Dialer(), f"127.0.0.1:{port}")
        async with announcing(directory, "127.0.0.1:7003"):
            assert [await servicer.heard.get(), await servicer.heard.get()] == ["127.0.0.1:7003"] * 2
        await directory.close()


async def test_an_announcement_outlives_the_registry() -> None:
    """The registry goes and comes back on its port: it hears of the service again by itself."""
    async with registry() as (servicer, port):
        directory = Directory(Dialer(), f"127.0.0.1:{port}")
        task = asyncio.create_task(directory.announce_forever(SERVICE_KIND_TRAINER, "127.0.0.1:7004", 1))
        await servicer.heard.get()
    async with registry(port) as (reborn, _):
        assert await reborn.heard.get() == "127.0.0.1:7004"
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await directory.close()


async def test_a_call_whose_channel_another_task_closes_fails_and_does_not_cancel_its_task() -> None:
    """A service that moves is dialled anew while others still call it where it was."""

    class SlowRegistry(SmallRegistry):
        async def ListServices(  # noqa: N802  # the schema's
            self, request: ListServicesRequest, context: Any
        ) -> ListServicesResponse:
            self.heard.put_nowait("asked")
            await asyncio.Event().wait()
            raise AssertionError("nobody answers")

    servicer, server = SlowRegistry(), aio.server()
    add_RegistryServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    peer = Dialer().registry(f"127.0.0.1:{port}")
    calling = asyncio.create_task(peer.call(peer.stub.ListServices, ListServicesRequest(), LIMIT_S))
    async with asyncio.timeout(LIMIT_S):
        await servicer.heard.get()
        await peer.close()
        with pytest.raises(UnavailableError, match="was closed"):
            await calling
    await server.stop(None)
