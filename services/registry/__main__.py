"""Starts the registry: `python -m peerloom.services.registry`."""

import asyncio
import sys
from pathlib import Path

from peerloom.errors import InternalError
from peerloom.kit.clock import SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.database import SqlThread, open_database
from peerloom.kit.logs import configure_logs
from peerloom.kit.server import Endpoint, Server, run
from peerloom.services.registry.config import RegistryConfig
from peerloom.services.registry.core import Limits, load_core
from peerloom.services.registry.servicer import RegistryServicer
from peerloom.services.registry.store import Store
from peerloom.v1.registry_pb2_grpc import add_RegistryServiceServicer_to_server

SERVICE = "peerloom.v1.RegistryService"
MIGRATIONS = str(Path(__file__).parent / "migrations")


async def main() -> None:
    """Reads the configuration, opens the database, serves until stopped."""
    config = load_config(RegistryConfig, "registry", sys.argv[1:])
    limits = Limits(config.timing(), config.service_lease_s, config.node_limit)
    configure_logs("registry", config.log_level)

    engine = open_database(config.database_url(), MIGRATIONS)
    sql = SqlThread(engine, "registry")
    core = await load_core(Store(engine), sql.run, limits, SystemClock())
    keeping = asyncio.create_task(core.vigil.keep())

    async def probe_vigil() -> None:
        if keeping.done():
            raise InternalError("nobody watches over silence any more; restart the registry.")

    endpoint = Endpoint(config.listen, config.tls_certificate, config.tls_key, config.allow_plain)
    server = Server(endpoint, [SERVICE], {"database": sql.probe, "vigil": probe_vigil})
    servicer = RegistryServicer(core)
    add_RegistryServiceServicer_to_server(servicer, server.grpc)
    closing = asyncio.create_task(_close_when_stopping(servicer, server))
    try:
        print(f"address={await server.start()}", flush=True)
        await server.serve_until_stopped()
    finally:
        closing.cancel()
        keeping.cancel()
        await core.errands.wait_all()
        sql.close()


async def _close_when_stopping(servicer: RegistryServicer, server: Server) -> None:
    await server.stopping.wait()
    servicer.close()


if __name__ == "__main__":
    run(main)
