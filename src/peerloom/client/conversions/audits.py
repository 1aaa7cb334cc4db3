"""What came of a job's audits."""

from peerloom.client.types import Accusation, AuditReport, Dismissal
from peerloom.v1 import trainer_pb2


def accusation_of(message: trainer_pb2.Accusation) -> Accusation:
    """An Accusation message as a value."""
    return Accusation(
        message.worker_id,
        message.owner,
        message.node_id,
        message.node_name,
        message.step,
        message.difference,
    )


def dismissal_of(message: trainer_pb2.LiarDismissed) -> Dismissal:
    """A LiarDismissed message as a value."""
    accusations = tuple(accusation_of(each) for each in message.accusations)
    return Dismissal(message.node_id, message.node_name, message.reason, accusations)


def audits_of(message: trainer_pb2.JobAudits) -> AuditReport:
    """A JobAudits message as a value."""
    return AuditReport(
        made=message.made,
        accusations=tuple(accusation_of(each) for each in message.accusations),
        dismissals=tuple(dismissal_of(each) for each in message.dismissals),
        off=tuple(f"{each.node_name or 'the job'}: {each.reason}" for each in message.off),
    )
