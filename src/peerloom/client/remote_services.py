"""The services behind one address, found when first needed; errors say what to start.

A registry that is away hides no service that was met before: its last address is used then. Calls are typed:

    await services.trainer.call(lambda stub: stub.GetJob, GetJobRequest(job_id=job_id))
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from peerloom.admission.joining import renew_ended
from peerloom.admission.renewal import Renewal
from peerloom.client.address import Address
from peerloom.client.conversions.services import Health
from peerloom.client.transport_seam import TransportSeam
from peerloom.client.types import ServiceName
from peerloom.errors import DeadlineError, FailedPreconditionError, PeerloomError, UnavailableError
from peerloom.kit.channel import Peer
from peerloom.kit.dialing import AdmissionPeer
from peerloom.kit.directory import Directory
from peerloom.kit.identity import Identity
from peerloom.kit.replica_addresses import addresses_in

if TYPE_CHECKING:
    from grpc import aio

    from peerloom.v1.admission_pb2_grpc import AdmissionServiceAsyncStub
    from peerloom.v1.registry_pb2_grpc import RegistryServiceAsyncStub
    from peerloom.v1.selector_pb2_grpc import SelectorServiceAsyncStub
    from peerloom.v1.trainer_pb2_grpc import TrainerServiceAsyncStub

HEALTH_TIMEOUT_S = 2.0
TAKEOVER_S, TAKEOVER_PAUSE_S = 10.0, 0.2  # a standby leads within 3 s of its leader's loss
PAGE_SIZE = 100  # a job with a thousand answers still fits a message, and so do a hundred nodes


class PageRequest(Protocol):
    """What every request for a page of a list has."""

    page_size: int
    page_token: str


class Page(Protocol):
    """What every page of a list has."""

    next_page_token: str


S = TypeVar("S")  # a service's stub
Q = TypeVar("Q")  # a request
R = TypeVar("R")  # a response
PQ = TypeVar("PQ", bound=PageRequest)
PR = TypeVar("PR", bound=Page)
T = TypeVar("T")


class RemoteService(Generic[S]):
    """Calls to one service, whose methods are named by a function of its stub."""

    def __init__(
        self, services: "Services", name: ServiceName, find: Callable[[Directory], Awaitable[Peer[S]]]
    ) -> None:
        self._services, self._name, self._find = services, name, find
        self._met: Peer[S] | None = None

    async def peer(self) -> Peer[S]:
        """The service. Raises UnavailableError, saying what to start."""
        try:
            return await self._reached()
        except (UnavailableError, DeadlineError) as error:
            raise self._services.with_hint(error) from None

    async def call(
        self,
        method: "Callable[[S], aio.UnaryUnaryMultiCallable[Q, R]]",
        request: Q,
        timeout_s: float = 10.0,
    ) -> R:
        """One unary call. Raises a PeerloomError.

        Where there are standbys it is made again until one has taken over, if that can't do a thing twice.
        """
        is_safe = self._services.has_standbys and may_be_repeated(request)
        give_up_s = asyncio.get_running_loop().time() + TAKEOVER_S
        while True:
            try:
                peer = await self._reached()
                with self._services.following():
                    return await peer.call(method(peer.stub), request, timeout_s)
            except (UnavailableError, DeadlineError) as error:
                if self._services.closed or not is_safe or asyncio.get_running_loop().time() > give_up_s:
                    raise self._told(error) from None
            await asyncio.sleep(TAKEOVER_PAUSE_S)

    async def stream(
        self, method: "Callable[[S], aio.UnaryStreamMultiCallable[Q, R]]", request: Q
    ) -> AsyncGenerator[R, None]:
        """The messages of a streamed answer. Raises a PeerloomError."""
        peer = await self.peer()
        try:
            with self._services.following():
                async with aclosing(peer.stream(method(peer.stub), request)) as messages:
                    async for message in messages:
                        yield message
        except UnavailableError as error:
            raise self._told(error) from None

    async def pages(
        self,
        method: "Callable[[S], aio.UnaryUnaryMultiCallable[PQ, PR]]",
        request: PQ,
        items_of: Callable[[PR], Iterable[T]],
        limit: int | None = None,
    ) -> list[T]:
        """All items of a list, or its first `limit`, page by page. Raises a PeerloomError."""
        items: list[T] = []
        while limit is None or len(items) < limit:
            request.page_size = PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - len(items))
            page = await self.call(method, request)
            items.extend(items_of(page))
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        return items[:limit]

    async def close(self) -> None:
        """Closes the channel."""
        if self._met is not None:
            with suppress(Exception):
                await self._met.close()

    async def _reached(self) -> Peer[S]:
        await self._services.become_known()
        directory = self._services.open()
        try:
            self._met = await self._find(directory)
        except (UnavailableError, DeadlineError):
            if self._met is None:
                raise
        return self._met

    def _told(self, error: PeerloomError) -> PeerloomError:
        """What a user is told: who closed the connection, or what to start."""
        if error.reason != "CONNECTION_CLOSED":
            return self._services.with_hint(error)
        if self._services.closed:
            message = "the client was closed while it waited for an answer."
            return FailedPreconditionError(message, reason="CLIENT_CLOSED")
        return UnavailableError(f"The {self._name} moved to another address.", reason=error.reason)


class Services:
    """The registry, and the selector and trainer that it knows. Belongs to the loop that uses it first."""

    def __init__(self, address: Address, as_node: str = "", transport: TransportSeam | None = None) -> None:
        self.address, self.transport = address, transport or TransportSeam()
        self.as_node = as_node
        self.dialer = self.transport.dial(Identity(address.identity) if address.identity else None)
        self.closed = False
        self._door: AdmissionPeer | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._directory: Directory | None = None
        self.has_standbys = len(addresses_in(address.text)) > 1
        self._calls = 0
        self._follower: asyncio.Task[None] | None = None
        self.registry: RemoteService[RegistryServiceAsyncStub] = RemoteService(self, "registry", _registry_of)
        self.selector: RemoteService[SelectorServiceAsyncStub] = RemoteService(
            self, "selector", Directory.selector
        )
        self.trainer: RemoteService[TrainerServiceAsyncStub] = RemoteService(
            self, "trainer", Directory.trainer
        )
        self.admission: RemoteService[AdmissionServiceAsyncStub] = RemoteService(
            self, "registry", self._find_door
        )

    async def become_known(self) -> None:
        """Sees to it that our identity, if we have one, counts, and stays fresh until we are closed.

        Raises what `renew_ended` raises for one that has ended.
        """
        identity, clock = self.dialer.identity, self.transport.clock
        if identity is None or self._renewing is not None or self.closed:
            return
        if clock.wall_s() >= identity.current.ends_s:
            await renew_ended(identity)
        if self._renewing is None:  # still: another call may have been faster
            self._door = self.dialer.admission(self.address.text)
            self._renewing = asyncio.create_task(Renewal(identity, self._door, clock).keep())

    @contextmanager
    def following(self) -> Iterator[None]:
        """While calls are under way, one that waits for a frozen service fails once another leads."""
        self._calls += 1
        if self.has_standbys and self._follower is None:
            self._follower = asyncio.create_task(self.open().follow_forever())
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls and self._follower is not None:
                self._follower.cancel()
                self._follower = None

    async def _find_door(self, _: Directory) -> AdmissionPeer:
        if self._door is None:
            raise FailedPreconditionError(
                f"This needs an identity at {self.address.text}: log in with `peerloom login TOKEN`; or, on "
                "the registry's machine, use --identity STATE/operator.pem. A registry without --join-listen "
                "has no door, and needs neither.",
                reason="NO_IDENTITY",
            )
        return self._door

    async def health(self, service: str, address: str) -> Health:
        """What the service says of itself."""
        async with self.dialer.health(address, service) as peer:
            try:
                answer = await peer.call(peer.stub.Check, HealthCheckRequest(), HEALTH_TIMEOUT_S)
            except PeerloomError as error:
                return Health(answered=False, serves=False, detail=error.message)
        if answer.status == HealthCheckResponse.SERVING:
            return Health(answered=True, serves=True, detail="")
        why = "it runs, but says that it can't serve now; its log tells why"
        return Health(answered=True, serves=False, detail=why)

    async def close(self) -> None:
        """Closes all channels; calls under way end."""
        self.closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        if self._door is not None:
            await self._door.close()
        if self._directory is not None:
            await self._directory.close()
        services: tuple[RemoteService[Any], ...] = (self.registry, self.selector, self.trainer)
        for service in services:
            await service.close()

    def open(self) -> Directory:
        """The directory of services. Raises FailedPreconditionError once closed."""
        if self.closed:
            raise FailedPreconditionError("this client is closed; make a new one.", reason="CLIENT_CLOSED")
        # Not in the constructor: a channel belongs to the loop it is made in, and there may be none yet.
        if self._directory is None:
            self._directory = Directory(self.dialer, self.address.text)
        return self._directory

    def with_hint(self, error: PeerloomError) -> PeerloomError:
        """The same error, saying what to start where nothing can be reached."""
        if error.reason != "UNREACHABLE":
            return error
        service = error.metadata.get("service", "")
        hint = f"Start it with: peerloom {service} --registry {self.address.text}"
        if service == "registry":
            hint = (
                "Start a whole system with: peerloom up (or the registry alone with: peerloom registry), or "
                f"give another address: this one came from {self.address.source}."
            )
        return UnavailableError(f"{error.message} {hint}", reason=error.reason, metadata=error.metadata)


def may_be_repeated(request: object) -> bool:
    """Whether a call that may have been carried out can be made again: it changes nothing twice."""
    if not isinstance(request, Message):
        return False
    reads = request.DESCRIPTOR.name.startswith(("Get", "List", "Cancel"))
    return reads or "request_id" in request.DESCRIPTOR.fields_by_name


async def _registry_of(directory: Directory) -> "Peer[RegistryServiceAsyncStub]":
    return directory.registry
