"""Models and checkpoints between a worker and its own node's agent, which keeps and serves them."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from peerloom.artifacts.transfer import digest_of, get_file, put_file
from peerloom.kit.dialing import ArtifactPeer, Dialer
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder, ArtifactKind, FetchArtifactRequest
from peerloom.worker.assignment import Assignment
from peerloom.worker.own_identity import own_identity

_BRING_S = 120.0


def store_artifact(assignment: Assignment, path: Path, kind: "ArtifactKind.ValueType", name: str) -> Artifact:
    """Gives a file to the agent. Raises ResourceExhaustedError when it has no room."""
    header = Artifact(
        digest=digest_of(path),
        size_bytes=path.stat().st_size,
        kind=kind,
        name=name[:128],
        job_id=assignment.job_id,
    )

    async def put() -> Artifact:
        async with _agent(assignment) as agent:
            return await put_file(agent, path, header)

    return asyncio.run(put())


def fetch_artifact(assignment: Assignment, digest: str) -> bytes:
    """An artifact's bytes from the agent. Raises NotFoundError when the agent doesn't hold it."""
    with TemporaryDirectory(prefix="peerloom-") as folder:
        path = Path(folder) / "artifact.safetensors"
        fetch_file(assignment, digest, path)
        return path.read_bytes()


def fetch_file(assignment: Assignment, digest: str, path: Path) -> None:
    """Writes an artifact of the agent's to `path`. Raises NotFoundError when the agent doesn't hold it."""

    async def get() -> None:
        async with _agent(assignment) as agent:
            await get_file(agent, digest, path)

    asyncio.run(get())


def bring_file(assignment: Assignment, digest: str, holder: ArtifactHolder, path: Path) -> None:
    """Has the agent fetch an artifact that another node holds, and writes it to `path`.

    Raises what the agent raises: NotFoundError when the holder hasn't got it, or isn't known.
    """

    async def bring() -> None:
        async with _agent(assignment) as agent:
            request = FetchArtifactRequest(digest=digest, holders=[holder], job_id=assignment.job_id)
            async for _ in agent.stream(agent.stub.FetchArtifact, request, _BRING_S):
                pass
            await get_file(agent, digest, path)

    asyncio.run(bring())


def _agent(assignment: Assignment) -> ArtifactPeer:
    return Dialer(own_identity(assignment)).artifacts(assignment.agent_address)
