"""The rival of the registry: the bare minimum that speaks the same messages."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server


class EchoServicer(RegistryServiceServicer):
    """Registers nobody and answers each beat the same."""

    async def Register(  # noqa: N802  # the schema's
        self, request: pb.RegisterRequest, context: Any
    ) -> pb.RegisterResponse:
        return pb.RegisterResponse(node_id=request.spec.name, lease_id=request.spec.name, incarnation=1)

    async def Heartbeat(  # noqa: N802  # the schema's
        self, request_iterator: AsyncIterator[pb.HeartbeatRequest], context: Any
    ) -> AsyncIterator[pb.HeartbeatResponse]:
        async for beat in request_iterator:
            yield pb.HeartbeatResponse(state=pb.NODE_STATE_ALIVE, incarnation=beat.incarnation)


async def main() -> None:
    server, stopping = aio.server(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    add_RegistryServiceServicer_to_server(EchoServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"address=127.0.0.1:{port}", flush=True)
    await stopping.wait()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())
