"""A registry reduced to its log: tells whoever watches of N nodes that have registered."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server

BEGIN_S = 1_700_000_000


def node_at(number: int) -> pb.Node:
    """The node `number`, from 0: alive, with 1 to 4 slots."""
    slots = 1 + number % 4
    node = pb.Node(
        node_id=f"node-{number:012x}",
        spec=pb.NodeSpec(name=f"node-{number}", address=f"10.0.0.1:{1024 + number % 60_000}", slots=slots),
        state=pb.NODE_STATE_ALIVE,
        incarnation=1,
        online_s=1.0,
    )
    node.registered_time.FromSeconds(BEGIN_S)
    return node


class LogServicer(RegistryServiceServicer):
    """One REGISTERED event for each node, then silence."""

    def __init__(self, nodes: int, stopping: asyncio.Event) -> None:
        self._nodes = nodes
        self._stopping = stopping

    async def WatchNodes(  # noqa: N802  # the schema's
        self, request: pb.WatchNodesRequest, context: Any
    ) -> AsyncIterator[pb.WatchNodesResponse]:
        for number in range(request.after_sequence, self._nodes):
            event = pb.WatchNodesResponse(
                sequence=number + 1,
                registry_id="benchmark",
                kind=pb.NODE_EVENT_KIND_REGISTERED,
                node=node_at(number),
            )
            event.time.FromSeconds(BEGIN_S)
            yield event
        if not request.stop_at_present:
            await self._stopping.wait()

    async def AnnounceService(  # noqa: N802  # the schema's
        self, request: pb.AnnounceServiceRequest, context: Any
    ) -> pb.AnnounceServiceResponse:
        return pb.AnnounceServiceResponse(lease_s=3600)


async def main() -> None:
    server, stopping = aio.server(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    servicer = LogServicer(int(sys.argv[1]), stopping)  # type: ignore[abstract]  # in the stubs only; nobody calls the rest
    add_RegistryServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"address=127.0.0.1:{port}", flush=True)
    await stopping.wait()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())
