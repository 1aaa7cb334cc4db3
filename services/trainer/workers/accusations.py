"""What comes of the audits that a job's workers make: more audits, a dismissal, or the end of all audits."""

from collections.abc import Sequence

from peerloom.kit.audit_rules import ORDERED_STEPS, Charge, is_unrepeatable, judge
from peerloom.services.trainer.jobs.audit_entries import are_audits_off, charges_of, owners_without_audits
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.nodes.evidence_outbox import Witness
from peerloom.services.trainer.workers.pool import WorkerPool
from peerloom.services.trainer.workers.state import Lost, WorkerState
from peerloom.v1.trainer_pb2 import (
    Accusation,
    AuditsOff,
    GradientsRefused,
    LiarDismissed,
    OrderAudits,
    WatchJobResponse,
    Worker,
    WorkerAccusation,
    WorkerRefusal,
    WorkerSessionRequest,
    WorkerSessionResponse,
    WorkerUnrepeatable,
)

SAYS = ("accusation", "unrepeatable", "refusal")
_NOT_REPEATABLE = "most owners say that what they compute twice differs"


class AuditKeeper:
    """Hears what the workers of one job say of each other's work, and does what is decided of it."""

    def __init__(self, record: JobRecord, pool: WorkerPool, witness: Witness) -> None:
        self._record = record
        self._pool = pool
        self._witness = witness
        self._refused: set[tuple[int, str]] = set()

    def heard(self, state: WorkerState, request: WorkerSessionRequest) -> None:
        """A worker accuses a node, can't repeat its work, or refused what others sent."""
        match request.WhichOneof("message"):
            case "accusation":
                self._accused(state, request.accusation)
            case "unrepeatable":
                self._unrepeatable(state, request.unrepeatable)
            case "refusal":
                self._refusal(state, request.refusal)

    def may_audit(self, worker_ids: Sequence[str]) -> bool:
        """Whether the members of a new generation can compute each other's shares again.

        Not on processors and GPUs: they draw other random numbers from the same seed.
        """
        if self._record.job.spec.robust == "off" or are_audits_off(self._record.job):
            return False
        states = [self._pool.state_of(worker_id) for worker_id in worker_ids]
        kinds = sorted({state.accelerator_kind for state in states if state is not None})
        if len(kinds) > 1:
            self._tell_off(AuditsOff(), f"some workers compute on {kinds[0]}, others on {kinds[1]}")
        return len(kinds) == 1

    def _accused(self, state: WorkerState, said: WorkerAccusation) -> None:
        accused = self._worker_on(said.node_id)
        if accused is None or are_audits_off(self._record.job):
            return
        owner, owners = self._pool.owner_of(state.worker_id), self._owners()
        charge = Charge(owner, said.node_id, self._pool.owner_of(accused.worker_id))
        verdict = judge(charges_of(self._record.job), charge, owners)
        if not verdict.is_new:
            return
        accusation = Accusation(
            worker_id=state.worker_id,
            owner=owner,
            node_id=said.node_id,
            node_name=accused.node_name,
            node_owner=charge.node_owner,
            step=said.step,
            difference=said.difference,
        )
        self._record.audit_entered(WatchJobResponse(accusation=accusation))
        if verdict.is_void:
            self._tell_off(AuditsOff(), verdict.reason)
        elif verdict.dismisses:
            self._dismiss(charge, accused.node_name, verdict.reason)
        else:
            self._order(charge)

    def _dismiss(self, charge: Charge, node_name: str, reason: str) -> None:
        accusations = [one for one in self._record.job.audits.accusations if one.node_id == charge.node_id]
        dismissed = LiarDismissed(
            node_id=charge.node_id,
            node_name=node_name,
            node_owner=charge.node_owner,
            reason=reason,
            accusations=accusations,
        )
        self._record.audit_entered(WatchJobResponse(liar_dismissed=dismissed))
        steps = sorted({one.step for one in accusations})
        self._witness.lied(charge.node_id, f"{reason}, for steps {', '.join(map(str, steps))}")
        self._pool.expel(charge.node_id, f"it lied about its work: {reason}")

    def _order(self, charge: Charge) -> None:
        order = WorkerSessionResponse(order_audits=OrderAudits(node_id=charge.node_id, steps=ORDERED_STEPS))
        for state in self._pool.states():
            if self._pool.owner_of(state.worker_id) != charge.node_owner:
                self._pool.send(state.worker_id, order)

    def _unrepeatable(self, state: WorkerState, said: WorkerUnrepeatable) -> None:
        owner = self._pool.owner_of(state.worker_id)
        if owner in owners_without_audits(self._record.job):
            return
        worker = self._record.worker(state.worker_id)
        node = AuditsOff(node_id=worker.node_id, node_name=worker.node_name, node_owner=owner)
        self._tell_off(node, said.reason)
        if is_unrepeatable(owners_without_audits(self._record.job), self._owners()):
            self._tell_off(AuditsOff(), _NOT_REPEATABLE)

    def _tell_off(self, off: AuditsOff, reason: str) -> None:
        off.reason = reason
        if off not in self._record.job.audits.off:
            self._record.audit_entered(WatchJobResponse(audits_off=off))

    def _refusal(self, state: WorkerState, said: WorkerRefusal) -> None:
        newest = self._record.generation
        for node_id in said.node_ids:
            worker = self._worker_on(node_id)
            known = (said.generation, node_id)
            # One may meet beside the training of the one before.
            if worker is None or known in self._refused or not newest - 1 <= said.generation <= newest:
                continue
            self._refused.add(known)
            refused = GradientsRefused(
                generation=said.generation,
                step=said.step,
                node_id=node_id,
                node_name=worker.node_name,
                worker_id=state.worker_id,
            )
            self._record.audit_entered(WatchJobResponse(gradients_refused=refused))

    def _worker_on(self, node_id: str) -> Worker | None:
        """A worker on the node that can be reached; None if there is none."""
        return next((w for w in self._record.job.workers if w.node_id == node_id and not w.ended), None)

    def _owners(self) -> set[str]:
        """The owners of those who are in the generation."""
        members = [s for s in self._pool.states() if s.is_member and not isinstance(s.phase, Lost)]
        return {self._pool.owner_of(state.worker_id) for state in members}
