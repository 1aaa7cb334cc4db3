"""Puts the inference server of one node together, over whatever computes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from peerloom.admission.staying import keeping_fresh
from peerloom.artifacts.transfer import get_file
from peerloom.errors import NotFoundError
from peerloom.inference.server.caller_evidence import CallerEvidence
from peerloom.inference.server.computing import Computing
from peerloom.inference.server.config import InferenceConfig
from peerloom.inference.server.model_cache import FetchFile, ModelCache
from peerloom.inference.server.servicer import InferenceServicer
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import ArtifactPeer, Dialer
from peerloom.kit.directory import Directory
from peerloom.kit.server import Server
from peerloom.v1.artifact_pb2 import ArtifactHolder, FetchArtifactRequest
from peerloom.v1.inference_pb2_grpc import add_InferenceServiceServicer_to_server

SERVICES = ("peerloom.v1.InferenceService",)


async def serve(
    config: InferenceConfig, server: Server, dialer: Dialer, clock: Clock, computing: Computing
) -> None:
    """Serves until `server` is asked to stop."""
    async with (
        dialer.artifacts(config.agent) as agent,
        _evidence(config, dialer, clock) as evidence,
        server,
        keeping_fresh(server, dialer, config.registry, clock),
    ):
        models = ModelCache(_fetching(agent), Path(config.folder), config.memory_bytes, computing, clock)
        servicer = InferenceServicer(config, models, evidence, dialer, clock)
        server.add_servicer(add_InferenceServiceServicer_to_server, servicer)
        if evidence is not None:
            server.start_task("evidence", evidence.reporter.report_forever)
        await server.start({})
        await server.serve_until_stopped()
        await servicer.close()


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
