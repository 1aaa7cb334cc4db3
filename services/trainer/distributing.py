"""Artifacts between here and the nodes: each fetches from all who hold it; what was seen is evidence."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from peerloom.errors import NotFoundError, PeerloomError
from peerloom.kit.artifact_store import ArtifactStore
from peerloom.kit.channel import Peer
from peerloom.kit.directory import Directory
from peerloom.kit.exchange.stock import Stock
from peerloom.services.trainer.evidence import Witness
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder, FetchArtifactRequest
from peerloom.v1.artifact_pb2_grpc import ArtifactServiceStub
from peerloom.v1.registry_pb2 import ListNodesRequest, NodeState
from peerloom.v1.selector_pb2 import RankedNode
from peerloom.v1.trainer_pb2 import Job

_LEAST_S = 30.0
_SLOWEST_BYTES_PER_S = 100_000
_CALL_S = 5.0


class Distributor:
    """Sends artifacts out and takes them in. `address` is where nodes reach the trainer."""

    def __init__(
        self,
        store: ArtifactStore,
        stock: Stock,
        directory: Directory,
        tls_ca: str,
        address: Callable[[], str],
    ) -> None:
        self._store, self._stock, self._directory = store, stock, directory
        self._tls_ca, self._address = tls_ca, address

    async def know(self, digest: str) -> Artifact:
        """An artifact that is kept here, or else fetched now. Raises NotFoundError with the nearest."""
        try:
            return await asyncio.to_thread(self._store.describe, digest)
        except NotFoundError as error:
            try:
                return await self._stock.obtain(digest)
            except NotFoundError:
                raise error from None

    async def take(self, digest: str, nodes: Sequence[RankedNode], witness: Witness | None) -> Artifact:
        """Fetches an artifact to here, also from these nodes. Raises a PeerloomError when that fails."""
        holders = [holder_of(node) for node in nodes]
        report = witness.saw_transfer if witness is not None else None
        return await self._stock.obtain(digest, holders, report=report)

    async def give(
        self,
        job: Job,
        node: RankedNode,
        digest: str,
        witness: Witness | None,
        others: Sequence[RankedNode] = (),
    ) -> None:
        """Has a node fetch what is kept here, from here and all others who hold it, and keep it for the job.

        Raises a PeerloomError when that fails.
        """
        header = await self.know(digest)
        holders = [ArtifactHolder(name="trainer", address=self._address()), *map(holder_of, others)]
        request = FetchArtifactRequest(digest=digest, holders=holders, job_id=job.job_id)
        limit_s = _LEAST_S + header.size_bytes / _SLOWEST_BYTES_PER_S
        started_s = time.monotonic()
        self._store.hold(digest, job.job_id)
        try:
            async with Peer(ArtifactServiceStub, "node agent", node.address, self._tls_ca) as agent:
                async for _ in agent.stream("FetchArtifact", request, limit_s):
                    pass
        finally:
            self._store.release(digest, job.job_id)
        if witness is not None:
            delay_s = time.monotonic() - started_s
            witness.transferred(node.node_id, delay_s, header.size_bytes, "got a model")

    async def strangers(self, known: set[str], limit: int) -> list[RankedNode]:
        """At most `limit` living nodes whose ids aren't among the known; none while the registry is away."""
        with suppress(PeerloomError):
            request = ListNodesRequest(states=[NodeState.NODE_STATE_ALIVE], page_size=len(known) + limit)
            answer = await self._directory.registry.call("ListNodes", request, _CALL_S)
            found = [node for node in answer.nodes if node.node_id not in known and not node.draining]
            return [
                RankedNode(node_id=node.node_id, name=node.spec.name, address=node.spec.address)
                for node in found[:limit]
            ]
        return []


def holder_of(node: RankedNode) -> ArtifactHolder:
    """A node as somebody to fetch from."""
    return ArtifactHolder(node_id=node.node_id, name=node.name, address=node.address)
