"""Starts the registry: `python -m peerloom.services.registry`."""

import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from peerloom.kit.clock import SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.database import Database, SqlThread, connect_database
from peerloom.kit.dialing import Dialer
from peerloom.kit.logs import configure_logs
from peerloom.kit.runtime import Runtime
from peerloom.kit.same_system import note_name, refuse_another_name
from peerloom.kit.server import Endpoint, Server, run
from peerloom.kit.standby import serve_with_lease
from peerloom.kit.state_folder import make_private
from peerloom.kit.tracing_setup import start_tracing
from peerloom.services.registry.admission.admission_store import AdmissionStore
from peerloom.services.registry.admission.authority_folder import OwnIdentities
from peerloom.services.registry.admission.gatekeeper import Gatekeeper
from peerloom.services.registry.admission.opening import open_door, own_identities
from peerloom.services.registry.config import RegistryConfig
from peerloom.services.registry.core import RegistryLimits, load_core
from peerloom.services.registry.registry_metrics import RegistryMetrics
from peerloom.services.registry.servicer import RegistryServicer
from peerloom.services.registry.store import Store
from peerloom.v1.registry_pb2_grpc import add_RegistryServiceServicer_to_server

SERVICES = ("peerloom.v1.RegistryService",)
ADMISSION = "peerloom.v1.AdmissionService"
MIGRATIONS = str(Path(__file__).parent / "migrations")


async def main() -> None:
    """Serves while this process holds its database's lease, until it is told to stop."""
    config = load_config(RegistryConfig, "registry", sys.argv[1:])
    configure_logs("registry", config.log_level)
    start_tracing("registry")
    config.check()
    clock, own = SystemClock(), None
    if not config.database or config.join_listen:
        make_private(Path(config.state))
    if config.join_listen:
        own = own_identities(Path(config.state), config.certificate_hours * 3600, clock)
    runtime = Runtime(clock, Dialer(own.registry if own else None))
    database = connect_database(config.database_url(), "registry")
    endpoint = Endpoint(config.listen, own.registry if own else None, config.allow_plain, config.metrics)
    server = Server(endpoint, (*SERVICES, ADMISSION) if own else SERVICES)
    await serve_with_lease(
        server,
        database,
        clock,
        MIGRATIONS,
        lambda shared: serve(config, server, database, replace(runtime, clock=shared), own),
        partial(refuse_another_name, database, config.system),
    )


async def serve(
    config: RegistryConfig,
    server: Server,
    database: Database,
    runtime: Runtime,
    own: OwnIdentities | None = None,
) -> None:
    """Wires the registry, top to bottom, and serves until `server` is asked to stop.

    `database` has the newest tables, and this process holds its lease. With `own` it has a door.
    """
    limits = RegistryLimits(config.timing(), config.service_lease_s, config.retention())
    with SqlThread(database) as sql:
        await sql.run(partial(note_name, database, config.system))
        core = await load_core(Store(database), sql.run, limits, runtime.clock)
        servicer = RegistryServicer(core, runtime.dialer, runtime.chance)
        server.add_servicer(add_RegistryServiceServicer_to_server, servicer)
        server.observe(RegistryMetrics(core))
        async with AsyncExitStack() as opened, server:
            if own is not None:
                store = AdmissionStore(database)
                door = Gatekeeper(own, store, sql.run, runtime.clock, config.certificate_hours * 3600)
                await opened.enter_async_context(open_door(door, own, config.join_listen, server))
            server.start_task("commit queue", core.commits.write_forever)
            server.start_task("failure detector", core.detector.keep)
            server.start_task("retention", core.retention.keep)
            server.start_task("end of streams", partial(_end_streams, server, servicer))
            await server.start({"database": sql.probe})
            await server.serve_until_stopped()
            await core.work.wait_all()


async def _end_streams(server: Server, servicer: RegistryServicer) -> None:
    await server.stopping.wait()
    servicer.close()


if __name__ == "__main__":
    run(main)
