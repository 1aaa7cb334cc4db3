"""First-hand evidence: noted with the job, kept until the selector has acknowledged it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from peerloom.errors import PeerloomError, UnavailableError
from peerloom.kit.clock import Clock, to_timestamp
from peerloom.kit.database import SqlThread
from peerloom.kit.directory import Directory
from peerloom.kit.exchange.outcomes import Gave, Lied
from peerloom.kit.ids import new_request_id
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.store import TrainerStore
from peerloom.v1.registry_pb2 import ServiceKind
from peerloom.v1.selector_pb2 import Evidence, EvidenceKind, ReportEvidenceRequest
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub

_log = get_logger()
BATCH = 200
RETRY_S = 1.0


class Witness:
    """Turns what a job saw of a node into evidence; each fact gets its own id, once."""

    def __init__(self, job_id: str, clock: Clock, keep: Callable[[Evidence], None]) -> None:
        self._job_id = job_id
        self._clock = clock
        self._keep = keep

    def transferred(self, node_id: str, delay_s: float, size_bytes: int, detail: str) -> None:
        """A model moved to or from the node in `delay_s` seconds."""
        kind = EvidenceKind.EVIDENCE_KIND_TRANSFER
        self._note(Evidence(node_id=node_id, kind=kind, delay_s=delay_s, transfer_bytes=size_bytes), detail)

    def saw_transfer(self, report: Gave | Lied) -> None:
        """A peer gave an artifact's bytes to the trainer, or faked them."""
        node_id, digest = report.holder.node_id, report.digest[:12]
        if not node_id:
            return
        if isinstance(report, Gave):
            self.transferred(node_id, report.busy_s, report.size_bytes, f"gave the artifact {digest}")
        else:
            self.unfinished(node_id, f"artifact {digest}: {report.detail}")

    def trained(self, node_id: str, detail: str, speed_gflops: float = 0.0, slots: int = 0) -> None:
        """The node took part to the end, with so many slots, each at this speed (0: it can't be told)."""
        kind = EvidenceKind.EVIDENCE_KIND_TRAINING
        found = Evidence(node_id=node_id, kind=kind, speed_gflops=speed_gflops, slots=slots)
        self._note(found, detail)

    def unfinished(self, node_id: str, detail: str) -> None:
        """The node refused, or did not finish what it took."""
        self._note(Evidence(node_id=node_id, kind=EvidenceKind.EVIDENCE_KIND_UNFINISHED), detail)

    def _note(self, evidence: Evidence, detail: str) -> None:
        evidence.evidence_id = f"{self._job_id}/{new_request_id()}"
        evidence.job_id = self._job_id
        evidence.detail = detail[:512]
        evidence.time.CopyFrom(to_timestamp(self._clock.wall_s()))
        self._keep(evidence)


class EvidenceReporter:
    """Carries evidence from the outbox to the selector; a repeat counts once there."""

    def __init__(self, store: TrainerStore, sql: SqlThread, directory: Directory) -> None:
        self._store = store
        self._sql = sql
        self._directory = directory
        self._wake = asyncio.Event()
        self._wake.set()
        self._reported = asyncio.Event()

    def wake(self) -> None:
        """There may be something new."""
        self._reported.clear()
        self._wake.set()

    async def flush(self, limit_s: float) -> None:
        """Returns when all that is stored was reported, or after `limit_s` seconds."""
        self.wake()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._reported.wait()

    async def report_forever(self) -> None:
        """Reports whatever there is, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while await self.report_once():
                    pass
                self._reported.set()
            except PeerloomError as error:
                level = _log.info if isinstance(error, UnavailableError) else _log.error
                level("evidence_not_reported", reason=error.message)
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def report_once(self) -> int:
        """Reports one batch; returns how many facts it had."""
        batch = await self._sql.run(self._store.pending_evidence, BATCH)
        if batch:
            selector = await self._directory.find(ServiceKind.SERVICE_KIND_SELECTOR, SelectorServiceStub)
            await selector.call("ReportEvidence", ReportEvidenceRequest(evidence=batch), 10.0)
            await self._sql.run(self._store.forget_evidence, [e.evidence_id for e in batch])
        return len(batch)
