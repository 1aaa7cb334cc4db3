"""Starts the selector: `python -m peerloom.services.selector`, or `peerloom selector`."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from peerloom.kit.clock import SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.database import SqlThread, open_database
from peerloom.kit.directory import Directory
from peerloom.kit.logs import configure_logs
from peerloom.kit.server import Endpoint, Server, run
from peerloom.services.selector.columns import NodeColumns
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.selector.explanations import Explanations
from peerloom.services.selector.follower import Follower
from peerloom.services.selector.ledger import Ledger
from peerloom.services.selector.policies import find_policy
from peerloom.services.selector.servicer import SelectorServicer
from peerloom.services.selector.store import SelectorStore
from peerloom.v1.registry_pb2 import ServiceKind
from peerloom.v1.selector_pb2 import DESCRIPTOR
from peerloom.v1.selector_pb2_grpc import add_SelectorServiceServicer_to_server

FIRST_LOOK_LIMIT_S = 1.0  # the registry may come later than we do


async def main() -> None:
    """Wires the selector, top to bottom, and serves until it is told to stop."""
    config = load_config(SelectorConfig, "selector", sys.argv[1:])
    configure_logs("selector", config.log_level)
    config.check_addresses()
    weights, half_life_s, policies = config.weights(), config.half_life_s(), config.policies()
    policy = find_policy(config.default_policy, policies)

    engine = open_database(config.database_url(), str(Path(__file__).parent / "migrations"))
    sql, clock, columns = SqlThread(engine, "selector"), SystemClock(), NodeColumns()
    ledger = Ledger(sql, SelectorStore(engine, weights, half_life_s), columns, clock)
    directory = Directory(config.registry, config.tls_ca)
    follower = Follower(directory.registry, ledger, await ledger.load())

    service = DESCRIPTOR.services_by_name["SelectorService"].full_name
    endpoint = Endpoint(config.listen, config.tls_certificate, config.tls_key, config.allow_plain)
    server = Server(endpoint, [service], {"database": sql.probe, "registry": follower.probe})
    servicer = SelectorServicer(
        columns, ledger, Explanations(engine), sql, clock, policy.name, policies, half_life_s
    )
    add_SelectorServiceServicer_to_server(servicer, server.grpc)

    following = asyncio.create_task(follower.follow_forever())
    with suppress(TimeoutError):
        await asyncio.wait_for(follower.caught_up.wait(), FIRST_LOOK_LIMIT_S)
    address = await server.start()
    print(f"address={address}", flush=True)
    announcing = asyncio.create_task(
        directory.announce_forever(ServiceKind.SERVICE_KIND_SELECTOR, config.advertise or address)
    )
    await server.serve_until_stopped()

    for task in (announcing, following):
        task.cancel()
    await asyncio.gather(announcing, following, return_exceptions=True)
    await ledger.close()
    await directory.close()
    sql.close()


if __name__ == "__main__":
    run(main)
