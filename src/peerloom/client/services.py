"""The services behind one address, found when first needed; errors say what to start.

A registry that is away hides no service that was met before: its last address is used then.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from peerloom.client.address import Address
from peerloom.client.types import ServiceName
from peerloom.errors import DeadlineError, FailedPreconditionError, PeerloomError, UnavailableError
from peerloom.kit.channel import Peer
from peerloom.kit.directory import Directory
from peerloom.v1.registry_pb2 import SERVICE_KIND_SELECTOR, SERVICE_KIND_TRAINER
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub
from peerloom.v1.trainer_pb2_grpc import TrainerServiceStub

HEALTH_TIMEOUT_S = 2.0
PAGE_SIZE = 100  # a job with a thousand answers still fits a message, and so do a hundred nodes

_FOUND_AS: dict[str, tuple[Any, type[Any]]] = {
    "selector": (SERVICE_KIND_SELECTOR, SelectorServiceStub),
    "trainer": (SERVICE_KIND_TRAINER, TrainerServiceStub),
}


class Services:
    """Calls to registry, selector and trainer. Belongs to the event loop that uses it first."""

    def __init__(self, address: Address, tls_ca: str, as_node: str = "") -> None:
        self.address = address
        self.as_node = as_node
        self.tls_ca = tls_ca
        self.closed = False
        self._directory: Directory | None = None
        self._met: dict[str, Peer] = {}

    async def peer(self, service: ServiceName) -> Peer:
        """The line to a service. Raises UnavailableError, saying what to start."""
        directory = self._open()
        if service == "registry":
            return directory.registry
        try:
            self._met[service] = await directory.find(*_FOUND_AS[service])
        except (UnavailableError, DeadlineError) as error:
            if service not in self._met:
                raise self._with_hint(error) from None
        return self._met[service]

    async def call(self, service: ServiceName, method: str, request: Any, timeout_s: float = 10.0) -> Any:
        """One unary call. Raises a PeerloomError."""
        peer = await self.peer(service)
        try:
            return await peer.call(method, request, timeout_s)
        except UnavailableError as error:
            raise self._with_hint(error) from None
        except asyncio.CancelledError:
            raise self._unless_asked(service) from None

    async def stream(self, service: ServiceName, method: str, request: Any) -> AsyncGenerator[Any, None]:
        """The messages of a streamed answer. Raises a PeerloomError."""
        peer = await self.peer(service)
        try:
            async with aclosing(peer.stream(method, request)) as messages:
                async for message in messages:
                    yield message
        except UnavailableError as error:
            raise self._with_hint(error) from None
        except asyncio.CancelledError:
            raise self._unless_asked(service) from None

    async def pages(
        self, service: ServiceName, method: str, request: Any, field: str, limit: int | None = None
    ) -> list[Any]:
        """All items of a list, or its first `limit`, page by page. Raises a PeerloomError."""
        items: list[Any] = []
        while limit is None or len(items) < limit:
            request.page_size = PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - len(items))
            answer = await self.call(service, method, request)
            items.extend(getattr(answer, field))
            if not answer.next_page_token:
                break
            request.page_token = answer.next_page_token
        return items[:limit]

    async def health(self, service: str, address: str) -> tuple[bool, str]:
        """Whether the service says that it serves, and if not, why."""
        async with Peer(HealthStub, service, address, self.tls_ca) as peer:
            try:
                answer = await peer.call("Check", HealthCheckRequest(), HEALTH_TIMEOUT_S)
            except PeerloomError as error:
                return False, error.message
        if answer.status == HealthCheckResponse.SERVING:
            return True, ""
        return False, "it runs, but says that it can't serve now; its log tells why"

    async def close(self) -> None:
        """Closes all lines; calls under way end."""
        self.closed = True
        if self._directory is not None:
            await self._directory.close()
        for peer in self._met.values():
            with suppress(Exception):
                await peer.close()

    def _open(self) -> Directory:
        if self.closed:
            raise FailedPreconditionError("this client is closed; make a new one.", reason="CLIENT_CLOSED")
        # Not in the constructor: a channel belongs to the loop it is made in, and there may be none yet.
        if self._directory is None:
            self._directory = Directory(self.address.text, self.tls_ca)
        return self._directory

    def _with_hint(self, error: PeerloomError) -> PeerloomError:
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

    def _unless_asked(self, service: str) -> BaseException:
        """A cancellation of our task stays one; one that came from a closed line is the line's loss."""
        task = asyncio.current_task()
        if task is None or task.cancelling():
            return asyncio.CancelledError()
        if self.closed:
            message = "the client was closed while it waited for an answer."
            return FailedPreconditionError(message, reason="CLIENT_CLOSED")
        return UnavailableError(f"The {service} moved to another address.", reason="LINE_CLOSED")
