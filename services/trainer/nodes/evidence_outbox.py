"""First-hand evidence: noted with the job, and kept in its outbox until the selector has acknowledged it."""

from collections.abc import Callable, Collection, Sequence

from peerloom.artifacts.fetch.outcomes import Gave, Lied, evidence_of
from peerloom.kit.clock import Clock
from peerloom.kit.database import SqlThread
from peerloom.kit.evidence import detailed, lied, trained, transferred, unfinished
from peerloom.services.trainer.store import TrainerStore
from peerloom.v1.selector_pb2 import Evidence


class Witness:
    """Turns what a job saw of a node into evidence; each fact gets its own id, once, and goes to `keep`."""

    def __init__(self, job_id: str, clock: Clock, keep: Callable[[Evidence], None]) -> None:
        self._job_id = job_id
        self._clock = clock
        self._keep = keep

    def transferred(self, node_id: str, delay_s: float, size_bytes: int, detail: str) -> None:
        """A model moved to or from the node in `delay_s` seconds."""
        self._note(transferred(self._job_id, node_id, self._clock.wall_s(), delay_s, size_bytes), detail)

    def saw_transfer(self, report: Gave | Lied) -> None:
        """A peer gave an artifact's bytes to the trainer, or faked them."""
        fact = evidence_of(report, self._job_id, self._clock.wall_s())
        if fact is not None:
            self._note(fact, fact.detail)

    def trained(self, node_id: str, detail: str, speed_gflops: float, slots: int) -> None:
        """The node took part to the end, with so many slots, each at this speed (0: it can't be told)."""
        self._note(trained(self._job_id, node_id, self._clock.wall_s(), speed_gflops, slots), detail)

    def unfinished(self, node_id: str, detail: str) -> None:
        """The node refused, or did not finish what it took."""
        self._note(unfinished(self._job_id, node_id, self._clock.wall_s()), detail)

    def lied(self, node_id: str, detail: str) -> None:
        """What the node sent isn't what its work gives, as most owners or the trainer itself found."""
        self._note(lied(self._job_id, node_id, self._clock.wall_s()), detail)

    def _note(self, evidence: Evidence, detail: str) -> None:
        evidence.job_id = self._job_id
        self._keep(detailed(evidence, detail))


class EvidenceOutbox:
    """The evidence of all jobs that waits in the trainer's database."""

    def __init__(self, store: TrainerStore, sql: SqlThread) -> None:
        self._store = store
        self._sql = sql

    async def oldest(self, limit: int) -> Sequence[Evidence]:
        """At most `limit` facts that wait."""
        return await self._sql.run(self._store.pending_evidence, limit)

    async def forget(self, evidence_ids: Collection[str]) -> None:
        """These were acknowledged."""
        await self._sql.run(self._store.forget_evidence, list(evidence_ids))
