"""What a scripted worker gives to its node's agent and takes from it: checkpoints and models."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from peerloom.kit.dialing import Dialer
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind, GetArtifactRequest, PutArtifactRequest

CALL_S = 10.0


@dataclass(frozen=True)
class JobsAgent:
    """The agent at `address`, which keeps artifacts for the job."""

    dialer: Dialer
    address: str
    job_id: str

    async def put(self, data: bytes, kind: "ArtifactKind.ValueType", name: str) -> Artifact:
        """Hands over bytes. Raises a PeerloomError."""
        digest = hashlib.sha256(data).hexdigest()
        header = Artifact(digest=digest, size_bytes=len(data), kind=kind, name=name, job_id=self.job_id)

        async def parts() -> AsyncIterator[PutArtifactRequest]:
            yield PutArtifactRequest(header=header)
            yield PutArtifactRequest(chunk=data)

        async with self.dialer.artifacts(self.address) as agent:
            answer = await agent.send(agent.stub.PutArtifact, parts(), CALL_S)
            return answer.artifact

    async def get(self, digest: str) -> bytes:
        """The bytes behind a digest. Raises a PeerloomError."""
        data = b""
        async with self.dialer.artifacts(self.address) as agent:
            request = GetArtifactRequest(digest=digest)
            async for part in agent.stream(agent.stub.GetArtifact, request, CALL_S):
                data += part.chunk
        return data
