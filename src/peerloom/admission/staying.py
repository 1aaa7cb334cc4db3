"""How a service stays who it is: its identity is renewed as one of its server's tasks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from peerloom.admission.renewal import Renewal
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer
from peerloom.kit.logs import get_logger
from peerloom.kit.server import Server

_log = get_logger()


@asynccontextmanager
async def keeping_fresh(server: Server, dialer: Dialer, registry: str, clock: Clock) -> AsyncIterator[None]:
    """Renews the dialer's identity at the registry (host:port), as a task of the server."""
    if dialer.identity is None:
        yield
        return
    async with dialer.admission(registry) as door:
        server.start_task("certificate", Renewal(dialer.identity, door, clock, _log.info).keep)
        yield
