"""Nodes behind two NATs train together and serve, through a node that offers to pass connections on.

Real processes in network namespaces, with a door: registry, selector, trainer, relay and client are outside.
"""

import asyncio
import socket
from pathlib import Path
from typing import Any

import numpy
import pytest
from door_system import DoorSystem
from nat_network import PRIVATE, Home, run, two_homes
from node_agent_parts import StartService
from paced_jobs import next_epoch, put_paced_task

from peerloom.client.async_client import AsyncClient
from peerloom.client.types.nodes import Node
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.v1.registry_pb2 import WatchNodesRequest

LIMIT_S = 300.0
pytestmark = pytest.mark.timeout(700)


async def start_node(
    system: DoorSystem, name: str, host: str, *flags: str, inside: str = "", **environment: str
) -> Any:
    """An agent with a token of its own, in a namespace perhaps."""
    own = ("--name", name, "--threads-per-slot", "1", "--log-level", "info", "--listen", f"{host}:0", *flags)
    token = await system.token("node", name)
    return await asyncio.to_thread(
        lambda: system.start_service("node_agent", token, *own, folder=name, inside=inside, **environment)
    )


async def start_system(system: DoorSystem, homes: tuple[Home, Home], **environment: str) -> dict[str, Any]:
    """Selector, trainer, a relay that lends nothing, and a node of one slot in each home."""
    started = {}
    for name in ("selector", "trainer"):
        started[name] = system.start_service(name, await system.token(name))  # type: ignore[arg-type]
    started["open"] = await start_node(system, "open", homes[0].ours, "--relay", "--slots", "0")
    await reached(system, {"open": ""})
    for name, home in zip(("home-1", "home-2"), homes, strict=True):
        started[name] = await start_node(
            system, name, PRIVATE, "--slots", "1", inside=home.machine, **environment
        )
    await reached(system, {"home-1": "open", "home-2": "open"})
    return started


async def reached(system: DoorSystem, expected: dict[str, str]) -> None:
    """Waits until the registry has these nodes, reached through these others ("": directly)."""
    dialer, seen = Dialer(Identity(system.operator_file)), dict[str, str]()
    async with dialer.registry(system.address) as registry:
        async for event in registry.stream(registry.stub.WatchNodes, WatchNodesRequest()):
            seen[event.node.spec.name] = event.node.spec.via
            if expected.items() <= seen.items():
                return


async def of_names(client: AsyncClient) -> dict[str, Node]:
    return {node.name: node for node in await client.nodes()}


async def test_nodes_behind_two_nats_train_together_and_answer(
    start_service: StartService, tmp_path: Path
) -> None:
    with two_homes() as homes:
        async with asyncio.timeout(LIMIT_S):
            system = DoorSystem(tmp_path, start_service, host=homes[0].ours)
            await start_system(system, homes)
            async with system.client() as client:
                nodes = await of_names(client)
                for name in ("home-1", "home-2"):
                    assert nodes[name].via == "open"
                    assert nodes[name].address.startswith(f"{homes[0].ours}:")
                assert nodes["open"].relay
                job = await client.train("digits", requests=2, min_workers=2, epochs=2)
                result = (await job.result()).raise_for_state()
                assert result.model is not None
                status = await job.status()
                assert {answer.name for answer in status.answers} == {"home-1", "home-2"}
                assert status.ledger is not None
                assert status.ledger.is_exact
                samples = numpy.zeros((4, 1, 8, 8), dtype="float32")
                for mode in ("remote", "split"):
                    answer = await client.infer(result.model.digest, samples, mode=mode)  # type: ignore[arg-type]
                    assert answer.outputs.shape == (4, 10)


async def test_a_job_goes_on_through_another_relay_when_its_own_dies(
    start_service: StartService, tmp_path: Path
) -> None:
    put_paced_task(tmp_path, 0.02)
    with two_homes() as homes:
        async with asyncio.timeout(LIMIT_S):
            system = DoorSystem(tmp_path, start_service, host=homes[0].ours)
            started = await start_system(system, homes, PYTHONPATH=str(tmp_path))
            async with system.client() as client:
                job = await client.train("paced:Paced", requests=2, min_workers=2, epochs=100_000)
                events = job.watch()
                await next_epoch(events)
                await start_node(system, "other", homes[0].ours, "--relay", "--slots", "0")
                await reached(system, {"other": ""})
                assert (await job.status()).generation == 1
                started["open"].kill()
                await reached(system, {"home-1": "other", "home-2": "other"})
                while (await job.status()).generation == 1:
                    await next_epoch(events)
                await next_epoch(events)
                await job.cancel()
                ended = await job.status()
    assert ended.ledger is not None
    assert ended.ledger.is_exact, ended.ledger.verdict
    assert {answer.name for answer in ended.answers} == {"home-1", "home-2"}


def test_the_homes_are_behind_nat() -> None:
    """So the test above can fail: they reach us, from the router's address, and we don't reach them."""
    with two_homes() as (home, other), socket.create_server((home.ours, 0)) as listener:
        port = listener.getsockname()[1]
        for one in (home, other):
            dial = f"import socket; socket.create_connection(('{home.ours}', {port}), 10)"
            run("ip", "netns", "exec", one.machine, "python3", "-c", dial)
            connection, (address, _) = listener.accept()
            connection.close()
            assert address == one.theirs
        with pytest.raises(OSError):  # noqa: PT011  # which one, its routes decide
            socket.create_connection((PRIVATE, port), 0.2)
