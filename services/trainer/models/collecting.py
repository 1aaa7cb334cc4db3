"""The end of a job: the model comes here, and copies stay with the nodes that made it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from peerloom.artifacts.object_transfers import ObjectTransfers
from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import DataLossError, PeerloomError
from peerloom.kit import tracing
from peerloom.kit.logs import get_logger
from peerloom.kit.raw_input import RawInput
from peerloom.kit.safetensors_file import check_parameters
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.models.distributing import Distributor
from peerloom.services.trainer.models.evaluating import ModelExaminer
from peerloom.services.trainer.nodes.evidence_outbox import Witness
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.selector_pb2 import RankedNode
from peerloom.v1.trainer_pb2 import Checkpoint, JobResult, WorkerFinished

_log = get_logger()
# A model outlives the death of any one machine: the trainer's copy and these.
SEEDED_NODES = 2


class Collector:
    """Fetches models from nodes and seeds them; each transfer is timed and becomes evidence.

    What a job names as a checkpoint no more goes from the object store too, where there is one.
    """

    def __init__(
        self,
        store: ArtifactStore,
        distributor: Distributor,
        examiner: ModelExaminer,
        timeout_s: float,
        check_model: Callable[[Path, str], RawInput | None] = check_parameters,
        objects: ObjectTransfers | None = None,
    ) -> None:
        self._store, self._objects = store, objects
        self._check_model = check_model
        self._distributor, self._examiner = distributor, examiner
        self._timeout_s = timeout_s

    async def collect(
        self, record: JobRecord, worker_id: str, finished: WorkerFinished, witness: Witness
    ) -> None:
        """Fetches the model and records the job's result.

        Raises a PeerloomError or TimeoutError; DataLossError, reason MODEL_DIFFERS, for a file with other
        parameters than the workers told of, and with the reason of `ModelExaminer.examine` for a model that
        isn't what they told of.
        """
        nodes, holder_id = record.nodes(), record.worker(worker_id).node_id
        async with asyncio.timeout(self._timeout_s):
            artifact = await self._fetch(nodes[holder_id], finished.model, witness)
        path = self._store.path(artifact.digest)
        raw_input = await asyncio.to_thread(self._check_model, path, finished.parameters_digest)
        with self.holding(record, artifact.digest), tracing.span("evaluate model"):
            await self._examiner.examine(record, path)
        holders = [nodes[holder_id].name]
        stayed = record.living_nodes() | {holder_id}
        others = [node for node_id, node in record.nodes().items() if node_id in stayed - {holder_id}]
        holders += await self._seed_all(record.job_id, others, artifact.digest, witness)
        if len(holders) < SEEDED_NODES:  # a job on one node leaves a copy with another, who bears no blame
            strangers = await self._distributor.strangers(stayed, SEEDED_NODES - len(holders))
            holders += await self._seed_all(record.job_id, strangers, artifact.digest, None)
        record.result_kept(_result(finished, artifact, str(path), holders, raw_input))

    def expect(self, record: JobRecord) -> None:
        """The job works, so its model will come."""
        self._examiner.expect(record.job.spec)

    async def keep_checkpoint(self, record: JobRecord, worker_id: str, offered: Checkpoint) -> None:
        """Copies a checkpoint from its worker's node to here and to a second node, then records it.

        Raises a PeerloomError or TimeoutError when it can't be fetched; the older one then stays.
        """
        nodes, holder_id = record.nodes(), record.worker(worker_id).node_id
        async with asyncio.timeout(self._timeout_s):
            artifact = await self._fetch(nodes[holder_id], offered.artifact, None)
        with self.holding(record, artifact.digest):
            kept = Checkpoint(step=offered.step, epoch=offered.epoch, artifact=offered.artifact)
            kept.nodes.append(nodes[holder_id].name)
            for node_id in sorted(record.living_nodes() - {holder_id})[:1]:
                if await self._seed(record.job_id, record.nodes()[node_id], artifact.digest, None):
                    kept.nodes.append(record.nodes()[node_id].name)
            record.checkpoint_kept(kept)

    def begin_holding(self, record: JobRecord) -> None:
        """From now on the trainer keeps what the record names as checkpoints."""
        self._store.release_all(record.job_id)
        for digest in _checkpoints(record):
            self._store.hold(digest, record.job_id)

    @contextmanager
    def holding(self, record: JobRecord, *more: str) -> Iterator[None]:
        """Keeps `more` inside; afterwards, however that ends, just the checkpoints that the record names."""
        before = [*_checkpoints(record), *more]
        for digest in more:
            self._store.hold(digest, record.job_id)
        try:
            yield
        finally:
            for digest in _checkpoints(record):
                self._store.hold(digest, record.job_id)
            for digest in before:
                self._store.release(digest, record.job_id)
            if self._objects is not None:
                self._objects.supersede(record.job_id, set(before) - set(_checkpoints(record)))

    def end_holding(self, record: JobRecord) -> None:
        """The job needs nothing any more that is kept here."""
        self._store.release_all(record.job_id)

    async def distribute_checkpoint(
        self, record: JobRecord, checkpoint: Checkpoint, worker_ids: Sequence[str]
    ) -> dict[str, str]:
        """Gives a checkpoint to the nodes of these workers; who couldn't get it, and why.

        Raises DataLossError (reason CHECKPOINT_DAMAGED) when no sound copy is left anywhere.
        """
        await self._secure(record, checkpoint)
        nodes, digest = record.nodes(), checkpoint.artifact.digest
        node_of = {worker_id: record.worker(worker_id).node_id for worker_id in worker_ids}
        wanted, give = sorted(set(node_of.values())), self._distributor.give
        given = await asyncio.gather(
            *(give(record.job_id, nodes[node_id], digest, None) for node_id in wanted), return_exceptions=True
        )
        failed = {node: error for node, error in zip(wanted, given, strict=True) if error is not None}
        for error in failed.values():
            if not isinstance(error, PeerloomError):
                raise error
        missing = {i: failed[node_id] for i, node_id in node_of.items() if node_id in failed}
        return {i: f"it could not be given the checkpoint: {error}" for i, error in missing.items()}

    async def _secure(self, record: JobRecord, checkpoint: Checkpoint) -> None:
        # The trainer's own copy if it is sound, else that of a node which kept one.
        try:
            await self._distributor.bring(checkpoint.artifact.digest)
            await asyncio.to_thread(self._store.path, checkpoint.artifact.digest)
            return
        except PeerloomError as error:
            _log.warning("checkpoint_damaged", job=record.job_id, step=checkpoint.step, reason=error.message)
        for node in [node for node in record.nodes().values() if node.name in checkpoint.nodes]:
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
        self, job_id: str, nodes: Sequence[RankedNode], digest: str, witness: Witness | None
    ) -> list[str]:
        """The names of those that have a copy then."""
        copied = await asyncio.gather(*(self._seed(job_id, node, digest, witness) for node in nodes))
        return [node.name for node, is_there in zip(nodes, copied, strict=True) if is_there]

    async def _seed(self, job_id: str, node: RankedNode, digest: str, witness: Witness | None) -> bool:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._distributor.give(job_id, node, digest, witness)
        except (PeerloomError, TimeoutError) as error:
            _log.warning("seeding_failed", job=job_id, node=node.name, reason=str(error))
            if witness is not None:
                witness.unfinished(node.node_id, f"could not take a copy of the model: {error}")
            return False
        return True


def _checkpoints(record: JobRecord) -> list[str]:
    named = (record.job.checkpoint, record.job.previous_checkpoint)
    return [checkpoint.artifact.digest for checkpoint in named if checkpoint.artifact.digest]


def _result(
    finished: WorkerFinished, model: Artifact, path: str, holders: list[str], raw_input: RawInput | None
) -> JobResult:
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
        raw_input=raw_input.to_message() if raw_input else None,
    )
