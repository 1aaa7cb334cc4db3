"""This node's part in the artifact exchange: keeps, fetches, gives, tells of it, and bears witness."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from peerloom.errors import PeerloomError
from peerloom.kit.artifact_store import ArtifactStore
from peerloom.kit.clock import Clock, to_timestamp
from peerloom.kit.directory import Directory
from peerloom.kit.exchange.outcomes import Gave, Lied
from peerloom.kit.exchange.service import Exchange
from peerloom.kit.ids import new_request_id
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.advertising import Advertiser
from peerloom.v1.registry_pb2 import ServiceKind
from peerloom.v1.selector_pb2 import Evidence, EvidenceKind, ReportEvidenceRequest
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub

# How long a job that runs nothing here keeps what was fetched for it: its workers may be about to start.
IDLE_LIMIT_S = 60.0
_RELEASE_INTERVAL_S = 5.0
_REMEMBERED = 1000
_BATCH = 200
_RETRY_S = 2.0
_log = get_logger()


def evidence_of(report: Gave | Lied, evidence_id: str, wall_s: float) -> Evidence | None:
    """What this node saw of a peer, as evidence; None for a peer that is no node."""
    if not report.holder.node_id:
        return None
    evidence = Evidence(evidence_id=evidence_id, node_id=report.holder.node_id, time=to_timestamp(wall_s))
    if isinstance(report, Gave):
        evidence.kind = EvidenceKind.EVIDENCE_KIND_TRANSFER
        evidence.delay_s, evidence.transfer_bytes = report.busy_s, report.size_bytes
        evidence.detail = f"gave {report.size_bytes:,} bytes of the artifact {report.digest[:12]}"
    else:
        evidence.kind = EvidenceKind.EVIDENCE_KIND_UNFINISHED
        evidence.detail = f"artifact {report.digest[:12]}: {report.detail}"[:512]
    return evidence


class ExchangeWitness:
    """Carries what fetches saw of peers to the selector; the oldest is forgotten when that is long away."""

    def __init__(self, directory: Directory, node_id: Callable[[], str], clock: Clock) -> None:
        self._directory, self._node_id, self._clock = directory, node_id, clock
        self._pending: deque[Evidence] = deque(maxlen=_REMEMBERED)
        self._wake = asyncio.Event()

    def note(self, report: Gave | Lied) -> None:
        """Takes what a fetch saw."""
        evidence_id = f"{self._node_id() or 'node'}/{new_request_id()}"
        evidence = evidence_of(report, evidence_id, self._clock.wall_s())
        if evidence is not None:
            self._pending.append(evidence)
            self._wake.set()

    async def keep(self) -> None:
        """Reports until cancelled. A batch that was lost on its way goes again, and counts once."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch = [self._pending.popleft() for _ in range(min(_BATCH, len(self._pending)))]
                try:
                    kind = ServiceKind.SERVICE_KIND_SELECTOR
                    selector = await self._directory.find(kind, SelectorServiceStub)
                    await selector.call("ReportEvidence", ReportEvidenceRequest(evidence=batch), 10.0)
                except PeerloomError as error:
                    _log.info("evidence_not_reported", reason=error.message)
                    self._pending.extendleft(reversed(batch))
                    await asyncio.sleep(_RETRY_S)

    async def close(self) -> None:
        """Closes the lines; what is still pending is lost."""
        await self._directory.close()


class UseKeeper:
    """Lets go what jobs used here that run no longer."""

    def __init__(self, store: ArtifactStore, is_active: Callable[[str], bool], clock: Clock) -> None:
        self._store, self._is_active, self._clock = store, is_active, clock
        self._idle_since_s: dict[str, float] = {}

    async def keep(self) -> None:
        """Looks every 5 s until cancelled."""
        while True:
            await asyncio.sleep(_RELEASE_INTERVAL_S)
            self.release_idle()

    def release_idle(self) -> None:
        """Lets go what belongs to jobs that have had neither worker nor reservation for a minute."""
        now_s, users = self._clock.monotonic_s(), self._store.holders()
        idle = {user for user in users if not self._is_active(user)}
        since = self._idle_since_s
        self._idle_since_s = {user: since.get(user, now_s) for user in idle}
        for user, idle_s in self._idle_since_s.items():
            if now_s - idle_s >= IDLE_LIMIT_S:
                self._store.release_all(user)


@dataclass(frozen=True)
class ExchangePart:
    """All of it, running."""

    exchange: Exchange
    advertiser: Advertiser
    witness: ExchangeWitness
    use: UseKeeper

    def start(self) -> list[asyncio.Task[None]]:
        """What runs until it is cancelled."""
        return [asyncio.create_task(part.keep()) for part in (self.advertiser, self.witness, self.use)]

    async def close(self) -> None:
        """Ends transfers; what has come stays."""
        await self.exchange.close()
        await self.witness.close()
