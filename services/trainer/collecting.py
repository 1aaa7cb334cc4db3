"""The end of a job: the model comes here, and copies stay with the nodes that made it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from peerloom.errors import DataLossError, PeerloomError
from peerloom.kit.artifact_store import ArtifactStore
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.distributing import Distributor
from peerloom.services.trainer.evidence import Witness
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.selector_pb2 import RankedNode
from peerloom.v1.trainer_pb2 import Checkpoint, Job, JobResult, WorkerFinished

_log = get_logger()
# A model outlives the death of any one machine: the trainer's copy and these.
SEEDED_NODES = 2


class Collector:
    """Fetches models from nodes and seeds them; each transfer is timed and becomes evidence."""

    def __init__(self, store: ArtifactStore, distributor: Distributor, timeout_s: float) -> None:
        self._store = store
        self._distributor = distributor
        self._timeout_s = timeout_s

    async def collect(self, job: Job, worker_id: str, finished: WorkerFinished, witness: Witness) -> None:
        """Fills in the job's result. Raises a PeerloomError when the model can't be fetched."""
        nodes, holder_id = _nodes(job), _node_of(job, worker_id)
        async with asyncio.timeout(self._timeout_s):
            artifact = await self._fetch(nodes[holder_id], finished.model, witness)
        holders = [nodes[holder_id].name]
        stayed = {worker.node_id for worker in job.workers if not worker.ended} | {holder_id}
        others = [node for node_id, node in nodes.items() if node_id in stayed - {holder_id}]
        holders += await self._seed_all(job, others, artifact.digest, witness)
        if len(holders) < SEEDED_NODES:  # a job on one node leaves a copy with another, who bears no blame
            strangers = await self._distributor.strangers(stayed, SEEDED_NODES - len(holders))
            holders += await self._seed_all(job, strangers, artifact.digest, None)
        job.result.CopyFrom(_result(finished, artifact, str(self._store.path(artifact.digest)), holders))

    async def keep_checkpoint(self, job: Job, worker_id: str, checkpoint: Checkpoint) -> None:
        """Copies a checkpoint from its worker's node to here and to a second node, then records it.

        Raises a PeerloomError or TimeoutError when it can't be fetched; the older one then stays.
        """
        nodes, holder_id = _nodes(job), _node_of(job, worker_id)
        async with asyncio.timeout(self._timeout_s):
            artifact = await self._fetch(nodes[holder_id], checkpoint.artifact, None)
        await asyncio.to_thread(self._store.hold, artifact.digest, job.job_id)
        checkpoint.nodes.append(nodes[holder_id].name)
        living = {worker.node_id for worker in job.workers if not worker.ended} - {holder_id}
        for node_id in sorted(living)[:1]:
            if await self._seed(job, nodes[node_id], artifact.digest, None):
                checkpoint.nodes.append(nodes[node_id].name)
        if job.HasField("previous_checkpoint"):
            await asyncio.to_thread(self._store.release, job.previous_checkpoint.artifact.digest, job.job_id)
        if job.HasField("checkpoint"):
            job.previous_checkpoint.CopyFrom(job.checkpoint)
        job.checkpoint.CopyFrom(checkpoint)

    async def distribute_checkpoint(self, job: Job, worker_ids: Sequence[str]) -> dict[str, str]:
        """Gives the newest checkpoint to the nodes of these workers; who couldn't get it, and why.

        Raises DataLossError (reason CHECKPOINT_DAMAGED) when no sound copy is left anywhere.
        """
        await self._secure(job)
        nodes, digest = _nodes(job), job.checkpoint.artifact.digest
        wanted = sorted({_node_of(job, worker_id) for worker_id in worker_ids})
        send = self._distributor.give
        sent = await asyncio.gather(
            *(send(job, nodes[node_id], digest, None) for node_id in wanted), return_exceptions=True
        )
        failed = {node: error for node, error in zip(wanted, sent, strict=True) if error is not None}
        for error in failed.values():
            if not isinstance(error, PeerloomError):
                raise error
        missing = [worker_id for worker_id in worker_ids if _node_of(job, worker_id) in failed]
        return {i: f"it could not be given the checkpoint: {failed[_node_of(job, i)]}" for i in missing}

    async def _secure(self, job: Job) -> None:
        # Our own copy if it is sound, else that of a node which kept one.
        checkpoint = job.checkpoint
        try:
            await asyncio.to_thread(self._store.path, checkpoint.artifact.digest)
            return
        except PeerloomError as error:
            _log.warning("checkpoint_damaged", job=job.job_id, step=checkpoint.step, reason=error.message)
        for node in [node for node in _nodes(job).values() if node.name in checkpoint.nodes]:
            with suppress(PeerloomError, TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._fetch(node, checkpoint.artifact, None)
                return
        raise DataLossError(
            "it is damaged or gone, and no node has a sound copy", reason="CHECKPOINT_DAMAGED"
        )

    async def _fetch(self, node: RankedNode, model: Artifact, witness: Witness | None) -> Artifact:
        return await self._distributor.take(model.digest, [node], witness)

    async def _seed_all(
        self, job: Job, nodes: Sequence[RankedNode], digest: str, witness: Witness | None
    ) -> list[str]:
        """The names of those that have a copy then."""
        copied = await asyncio.gather(*(self._seed(job, node, digest, witness) for node in nodes))
        return [node.name for node, is_there in zip(nodes, copied, strict=True) if is_there]

    async def _seed(self, job: Job, node: RankedNode, digest: str, witness: Witness | None) -> bool:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._distributor.give(job, node, digest, witness)
        except (PeerloomError, TimeoutError) as error:
            _log.warning("seeding_failed", job=job.job_id, node=node.name, reason=str(error))
            if witness is not None:
                witness.unfinished(node.node_id, f"could not take a copy of the model: {error}")
            return False
        return True


def _nodes(job: Job) -> dict[str, RankedNode]:
    return {answer.node.node_id: answer.node for answer in job.answers if answer.accepted_slots}


def _node_of(job: Job, worker_id: str) -> str:
    return next(worker.node_id for worker in job.workers if worker.worker_id == worker_id)


def _result(finished: WorkerFinished, model: Artifact, path: str, holders: list[str]) -> JobResult:
    return JobResult(
        model=model,
        model_path=path,
        model_nodes=holders,
        training_s=finished.training_s,
        samples=finished.samples,
        samples_per_s=finished.samples / finished.training_s if finished.training_s else 0.0,
        compute_s_per_step=finished.compute_s_per_step,
        communication_s_per_step=finished.communication_s_per_step,
        communicated_bytes=finished.communicated_bytes,
    )
