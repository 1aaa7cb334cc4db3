"""What a job's record keeps of its audits: pure changes of the job, and what they say of nodes and owners."""

from peerloom.kit.audit_rules import Charge
from peerloom.v1.trainer_pb2 import Job, WatchJobResponse

MOST_AUDITS = (
    2**32
)  # of a worker, which says itself how many it made: their sum has to be a number that is kept


def enter(job: Job, event: WatchJobResponse) -> None:
    """Adds what came of an audit; of gradients that aren't finite there is the event alone.

    The accusations of a node that is dismissed are kept with its dismissal.
    """
    audits = job.audits
    match event.WhichOneof("event"):
        case "accusation":
            audits.accusations.append(event.accusation)
        case "audits_off":
            audits.off.append(event.audits_off)
        case "liar_dismissed":
            left = [one for one in audits.accusations if one.node_id != event.liar_dismissed.node_id]
            del audits.accusations[:]
            audits.accusations.extend(left)
            audits.dismissals.append(event.liar_dismissed)


def count_audits(job: Job, worker_id: str, made: int) -> bool:
    """Whether a worker has made more audits than is known; they are added."""
    worker = next(worker for worker in job.workers if worker.worker_id == worker_id)
    made = min(made, MOST_AUDITS)
    if made <= worker.audits:
        return False
    job.audits.made += made - worker.audits
    worker.audits = made
    return True


def charges_of(job: Job) -> list[Charge]:
    """The accusations that stand."""
    return [Charge(one.owner, one.node_id, one.node_owner) for one in job.audits.accusations]


def dismissed_nodes(job: Job) -> set[str]:
    """The nodes that may not work for this job any more."""
    return {one.node_id for one in job.audits.dismissals}


def owners_without_audits(job: Job) -> set[str]:
    """Those on whose nodes work can't be computed again, as these say."""
    return {one.node_owner for one in job.audits.off if one.node_id}


def are_audits_off(job: Job) -> bool:
    """Whether the whole job's work can't be computed again."""
    return any(not one.node_id for one in job.audits.off)
