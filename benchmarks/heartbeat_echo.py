"""The rival of the registry: the bare minimum that speaks the same messages.

Arguments, if any, say where, and in how many seconds a beat is asked for.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from peerloom.kit.server_limits import server_options
from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server


class EchoServicer(RegistryServiceServicer):
    """Registers nobody, knows all artifacts that a node tells of, and asks for a beat in so many seconds.

    What it doesn't know agents would tell again with each beat.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s

    async def Register(  # noqa: N802  # the schema's
        self, request: pb.RegisterRequest, context: Any
    ) -> pb.RegisterResponse:
        name = request.spec.name
        return pb.RegisterResponse(
            node_id=name, lease_id=name, incarnation=1, heartbeat_interval_s=self._interval_s
        )

    async def Heartbeat(  # noqa: N802  # the schema's
        self, request_iterator: AsyncIterator[pb.HeartbeatRequest], context: Any
    ) -> AsyncIterator[pb.HeartbeatResponse]:
        async for beat in request_iterator:
            yield pb.HeartbeatResponse(
                state=pb.NODE_STATE_ALIVE,
                incarnation=beat.incarnation,
                artifact_version=beat.artifact_version,
            )

    async def AdvertiseArtifacts(  # noqa: N802  # the schema's
        self, request: pb.AdvertiseArtifactsRequest, context: Any
    ) -> pb.AdvertiseArtifactsResponse:
        return pb.AdvertiseArtifactsResponse(count=len(request.added))


async def main() -> None:
    # Without the limits gRPC ends calls that wait, once thousands do: it would answer nobody in a storm.
    server, stopping = aio.server(options=server_options()), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    interval_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    servicer = EchoServicer(interval_s)  # type: ignore[abstract]  # in the stubs only; nobody calls the rest
    add_RegistryServiceServicer_to_server(servicer, server)
    listen = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:0"
    port = server.add_insecure_port(listen)
    await server.start()
    print(f"address={listen.rpartition(':')[0]}:{port}", flush=True)
    await stopping.wait()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())
