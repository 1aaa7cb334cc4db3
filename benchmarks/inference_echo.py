"""`python -m benchmarks.inference_echo`: a bare grpc.aio server that answers Infer with its inputs."""

import asyncio
from typing import Any

from grpc import aio

from peerloom.v1.inference_pb2 import InferRequest, InferResponse
from peerloom.v1.inference_pb2_grpc import InferenceServiceServicer, add_InferenceServiceServicer_to_server


class Echo(InferenceServiceServicer):
    """Nothing but the messages."""

    async def Infer(self, request: InferRequest, context: Any) -> InferResponse:  # noqa: N802  # the schema's name
        return InferResponse(outputs=request.inputs)


async def main() -> None:
    """Serves until it is ended."""
    server = aio.server()
    add_InferenceServiceServicer_to_server(Echo(), server)  # type: ignore[abstract]  # in the stubs only; nobody calls the rest
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"address=127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
