"""Starts the selector: `python -m peerloom.services.selector`, or `peerloom selector`."""

import asyncio
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from peerloom.admission.joining import enter
from peerloom.admission.staying import keeping_fresh
from peerloom.kit.clock import SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.database import Database, SqlThread, connect_database
from peerloom.kit.dialing import Dialer
from peerloom.kit.directory import Directory
from peerloom.kit.logs import configure_logs
from peerloom.kit.runtime import Runtime
from peerloom.kit.same_system import note_own_system, stand_by_in
from peerloom.kit.server import Endpoint, Server, run
from peerloom.kit.standby import serve_with_lease
from peerloom.kit.state_folder import make_private
from peerloom.kit.tracing_setup import start_tracing
from peerloom.services.selector.belief.explanations import Explanations
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.follower import Follower
from peerloom.services.selector.catalog.writer import CatalogWriter
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.selector.policies import find_policy
from peerloom.services.selector.selector_metrics import SelectorMetrics
from peerloom.services.selector.servicer import SelectorServicer
from peerloom.services.selector.store import SelectorStore
from peerloom.v1.registry_pb2 import ServiceKind
from peerloom.v1.selector_pb2_grpc import add_SelectorServiceServicer_to_server

SERVICES = ("peerloom.v1.SelectorService",)
KIND = ServiceKind.SERVICE_KIND_SELECTOR
MIGRATIONS = str(Path(__file__).parent / "migrations")
FIRST_LOOK_LIMIT_S = 1.0  # the registry may come later than we do


async def main() -> None:
    """Serves while this process holds its database's lease, until it is told to stop."""
    config = load_config(SelectorConfig, "selector", sys.argv[1:])
    configure_logs("selector", config.log_level)
    start_tracing("selector")
    config.check()
    state, clock = Path(config.state), SystemClock()
    if not config.database or config.join:
        make_private(state)
    runtime = Runtime(clock, Dialer(await enter(state, config.join, clock)))
    database = connect_database(config.database_url(), "selector")
    endpoint = Endpoint(config.listen, runtime.dialer.identity, config.allow_plain, config.metrics)
    server = Server(endpoint, SERVICES)

    async def stand_by() -> None:
        async with Directory(runtime.dialer, config.registry) as directory:
            await stand_by_in(directory, database, KIND, config.advertise or server.address)

    await serve_with_lease(
        server,
        database,
        clock,
        MIGRATIONS,
        lambda shared: serve(config, server, database, replace(runtime, clock=shared)),
        stand_by,
    )


async def serve(config: SelectorConfig, server: Server, database: Database, runtime: Runtime) -> None:
    """Wires the selector, top to bottom, and serves until `server` is asked to stop.

    `database` has the newest tables, and this process holds its lease.
    """
    half_life_s, policies, clock = config.half_life_s(), config.policies(), runtime.clock
    policy = find_policy(config.default_policy, policies)
    store = SelectorStore(database, config.weights(), half_life_s)
    with SqlThread(database) as sql:
        columns = NodeColumns()
        writer = CatalogWriter(sql, store, columns, clock)
        cursor = await writer.load()
        explanations = Explanations(database)
        chance = np.random.default_rng(runtime.chance.getrandbits(64))
        async with (
            Directory(runtime.dialer, config.registry) as directory,
            server,
            keeping_fresh(server, runtime.dialer, config.registry, clock),
        ):
            follower = Follower(directory.registry, writer, cursor)
            servicer = SelectorServicer(
                columns,
                writer,
                follower.reach_present,
                explanations,
                sql,
                clock,
                chance,
                policy.name,
                policies,
                half_life_s,
                reporters=config.reporters(),
            )
            server.add_servicer(add_SelectorServiceServicer_to_server, servicer)
            server.observe(SelectorMetrics(columns, writer, follower, servicer.chosen_s))
            server.start_task("follower", follower.follow_forever)
            with suppress(TimeoutError):
                await asyncio.wait_for(follower.caught_up.wait(), FIRST_LOOK_LIMIT_S)
            await server.start({"database": sql.probe, "registry": follower.probe})
            own_system = partial(note_own_system, directory, database, sql)
            server.start_task("own system", own_system, may_return=True)
            place = config.advertise or server.address
            announce = partial(directory.announce_forever, KIND, place, database.epoch)
            server.start_task("announcement", announce)
            await server.serve_until_stopped()
            await writer.close()


if __name__ == "__main__":
    run(main)
