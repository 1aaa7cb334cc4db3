"""`python -m peerloom.inference`: the inference server of one node."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import torch

from peerloom.admission.staying import keeping_fresh
from peerloom.artifacts.transfer import get_file
from peerloom.errors import NotFoundError
from peerloom.inference.server.caller_evidence import CallerEvidence
from peerloom.inference.server.config import InferenceConfig
from peerloom.inference.server.executor import TorchExecutor
from peerloom.inference.server.model_cache import FetchFile, ModelCache
from peerloom.inference.server.servicer import InferenceServicer
from peerloom.kit.clock import Clock, SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.dialing import ArtifactPeer, Dialer
from peerloom.kit.directory import Directory
from peerloom.kit.identity import Identity
from peerloom.kit.logs import configure_logs
from peerloom.kit.server import Endpoint, Server, run
from peerloom.kit.tracing_setup import start_tracing
from peerloom.v1.artifact_pb2 import ArtifactHolder, FetchArtifactRequest
from peerloom.v1.inference_pb2_grpc import add_InferenceServiceServicer_to_server


async def main() -> None:
    """Serves until it is asked to stop, or its agent is gone."""
    config = load_config(InferenceConfig, "inference", sys.argv[1:])
    configure_logs("inference", config.log_level)
    start_tracing("inference")
    torch.set_num_threads(config.threads)
    identity = Identity(Path(config.identity)) if config.identity else None
    dialer, clock = Dialer(identity), SystemClock()
    endpoint = Endpoint(config.listen, identity, config.allow_plain)
    server = Server(endpoint, ("peerloom.v1.InferenceService",))
    async with (
        dialer.artifacts(config.agent) as agent,
        _evidence(config, dialer, clock) as evidence,
        server,
        keeping_fresh(server, dialer, config.registry, clock),
    ):
        device, executor = torch.device(config.accelerator), TorchExecutor()
        folder = Path(config.folder)
        fetch, limit_bytes = _fetching(agent), config.memory_bytes
        models = ModelCache(fetch, folder, limit_bytes, device, executor, clock, config.modules)
        servicer = InferenceServicer(config, models, executor, device, evidence, dialer, clock)
        server.add_servicer(add_InferenceServiceServicer_to_server, servicer)
        if evidence is not None:
            server.start_task("evidence", evidence.reporter.report_forever)
        await server.start({})
        await server.serve_until_stopped()
        await servicer.close()
        executor.close()


def _fetching(agent: ArtifactPeer) -> FetchFile:
    async def fetch(digest: str, path: Path, holders: Sequence[ArtifactHolder]) -> None:
        try:
            await get_file(agent, digest, path)
        except NotFoundError:
            request = FetchArtifactRequest(digest=digest, holders=holders)
            async for _ in agent.stream(agent.stub.FetchArtifact, request):
                pass
            await get_file(agent, digest, path)

    return fetch


@asynccontextmanager
async def _evidence(
    config: InferenceConfig, dialer: Dialer, clock: Clock
) -> AsyncIterator[CallerEvidence | None]:
    """Evidence about callers that are nodes; None without a registry."""
    if not config.registry:
        yield None
        return
    async with Directory(dialer, config.registry) as directory:
        evidence = CallerEvidence(directory, dialer, clock)
        try:
            yield evidence
        finally:
            await evidence.close()


if __name__ == "__main__":
    run(main)
