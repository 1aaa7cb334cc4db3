"""`python -m peerloom.inference`: the inference server of one node."""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from peerloom.errors import NotFoundError
from peerloom.inference.computing import Computer
from peerloom.inference.config import InferenceConfig
from peerloom.inference.servicer import InferenceServicer
from peerloom.inference.shelf import Shelf
from peerloom.inference.witness import CallerWitness
from peerloom.kit.artifact_transfer import get_file
from peerloom.kit.channel import Peer
from peerloom.kit.config import load_config
from peerloom.kit.logs import configure_logs
from peerloom.kit.server import Endpoint, Server, run
from peerloom.v1.artifact_pb2 import ArtifactHolder, FetchArtifactRequest
from peerloom.v1.artifact_pb2_grpc import ArtifactServiceStub
from peerloom.v1.inference_pb2_grpc import add_InferenceServiceServicer_to_server


async def main() -> None:
    """Serves until it is asked to stop, or its agent is gone."""
    config = load_config(InferenceConfig, "inference", sys.argv[1:])
    configure_logs("inference", config.log_level)
    torch.set_num_threads(config.threads)
    device, computer = torch.device(config.accelerator), Computer()
    endpoint = Endpoint(config.listen, config.tls_certificate, config.tls_key, config.allow_plain)
    server = Server(endpoint, ("peerloom.v1.InferenceService",), {})
    async with Peer(ArtifactServiceStub, "node agent", config.agent, config.tls_ca) as agent:

        async def fetch(digest: str, path: Path, holders: Sequence[ArtifactHolder]) -> None:
            try:
                await get_file(agent, digest, path)
            except NotFoundError:
                request = FetchArtifactRequest(digest=digest, holders=holders)
                async for _ in agent.stream("FetchArtifact", request):
                    pass
                await get_file(agent, digest, path)

        shelf = Shelf(fetch, Path(config.folder), config.memory_bytes, device, computer)
        witness = CallerWitness(config.registry, config.tls_ca)
        servicer = InferenceServicer(config, shelf, computer, device, witness)
        add_InferenceServiceServicer_to_server(servicer, server.grpc)
        print(f"address={await server.start()}", flush=True)
        await server.serve_until_stopped()
        await servicer.close()
        await witness.close()
        computer.close()


if __name__ == "__main__":
    run(main)
