"""Artifacts between here and the nodes: each fetches from all who hold it; what was seen is evidence."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from peerloom.artifacts.cache import ArtifactCache
from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import NotFoundError, PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer
from peerloom.kit.directory import Directory
from peerloom.services.trainer.nodes.evidence_outbox import Witness
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder, FetchArtifactRequest
from peerloom.v1.registry_pb2 import ListNodesRequest, NodeState
from peerloom.v1.selector_pb2 import RankedNode

_LEAST_S = 30.0
_SLOWEST_BYTES_PER_S = 100_000
_CALL_S = 5.0


class Distributor:
    """Sends artifacts out and takes them in. `address` is where nodes reach the trainer."""

    def __init__(
        self,
        store: ArtifactStore,
        cache: ArtifactCache,
        directory: Directory,
        dialer: Dialer,
        address: str,
        clock: Clock,
    ) -> None:
        self._store, self._cache, self._directory = store, cache, directory
        self._dialer, self._address, self._clock = dialer, address, clock

    async def know(self, digest: str) -> Artifact:
        """An artifact that is kept here, or else fetched now. Raises NotFoundError."""
        try:
            return await asyncio.to_thread(self._store.describe, digest)
        except NotFoundError as error:
            try:
                return await self._cache.obtain(digest)
            except NotFoundError:
                raise error from None

    async def bring(self, digest: str) -> None:
        """Has the bytes here of what only the object store has; raises as `take`."""
        await self._cache.bring(digest)

    async def take(self, digest: str, nodes: Sequence[RankedNode], witness: Witness | None) -> Artifact:
        """Fetches an artifact to here, also from these nodes. Raises a PeerloomError when that fails."""
        holders = [holder_of(node) for node in nodes]
        report = witness.saw_transfer if witness is not None else None
        return await self._cache.obtain(digest, holders, report=report)

    async def give(
        self,
        job_id: str,
        node: RankedNode,
        digest: str,
        witness: Witness | None,
        others: Sequence[RankedNode] = (),
    ) -> None:
        """Has a node fetch what is kept here, from here and all others who hold it, and keep it for the job.

        Raises a PeerloomError when that fails.
        """
        header = await self.know(digest)
        holders = [ArtifactHolder(name="trainer", address=self._address), *map(holder_of, others)]
        request = FetchArtifactRequest(digest=digest, holders=holders, job_id=job_id)
        limit_s = _LEAST_S + header.size_bytes / _SLOWEST_BYTES_PER_S
        started_s = self._clock.monotonic_s()
        self._store.hold(digest, job_id)
        try:
            await self.bring(digest)
            async with self._dialer.artifacts(node.address) as agent:
                async for _ in agent.stream(agent.stub.FetchArtifact, request, limit_s):
                    pass
        finally:
            self._store.release(digest, job_id)
        if witness is not None:
            delay_s = self._clock.monotonic_s() - started_s
            witness.transferred(node.node_id, delay_s, header.size_bytes, "got a model")

    async def strangers(self, known: set[str], limit: int) -> list[RankedNode]:
        """At most `limit` living nodes whose ids aren't among the known; none while the registry is away."""
        with suppress(PeerloomError):
            request = ListNodesRequest(states=[NodeState.NODE_STATE_ALIVE], page_size=len(known) + limit)
            answer = await self._directory.registry.call(
                self._directory.registry.stub.ListNodes, request, _CALL_S
            )
            found = [node for node in answer.nodes if node.node_id not in known and not node.draining]
            return [
                RankedNode(node_id=node.node_id, name=node.spec.name, address=node.spec.address)
                for node in found[:limit]
            ]
        return []


def holder_of(node: RankedNode) -> ArtifactHolder:
    """A node as somebody to fetch from."""
    return ArtifactHolder(node_id=node.node_id, name=node.name, address=node.address)
