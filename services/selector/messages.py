"""The selector's values as messages of the schema, and back."""

from peerloom.kit.clock import from_timestamp, to_timestamp
from peerloom.kit.limits import MAX_SPEED_GFLOPS
from peerloom.services.selector.belief.evidence_report import HEARTBEAT_LIMIT_S, Evidence
from peerloom.services.selector.belief.explanations import Explanation
from peerloom.services.selector.belief.formula import Terms
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.entries import CatalogEntry, NodeEvent
from peerloom.services.selector.choosing.choice import Choice, Exclusion
from peerloom.services.selector.choosing.last_choices import LastChoice
from peerloom.services.selector.policies.interface import ScoreTerm
from peerloom.v1 import registry_pb2, selector_pb2
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_LEFT,
    NODE_STATE_ALIVE,
    NODE_STATE_SUSPECT,
)

_OPEN = (NODE_STATE_ALIVE, NODE_STATE_SUSPECT)
_ENDS = (NODE_EVENT_KIND_LEFT, NODE_EVENT_KIND_INTERRUPTED)


def event_from_message(message: registry_pb2.WatchNodesResponse) -> NodeEvent:
    """An event of the registry's log, from its message."""
    node, speed, time_s = message.node, message.node.spec.speed, from_timestamp(message.time)
    is_open = node.state in _OPEN and message.kind not in _ENDS
    entry = CatalogEntry(
        node_id=node.node_id,
        name=node.spec.name,
        address=node.spec.address,
        slots=node.spec.slots,
        state=node.state,
        draining=node.draining,
        labels=dict(node.spec.labels),
        accelerators=tuple(sorted({accelerator.kind for accelerator in node.spec.accelerators})),
        session_start_s=time_s - node.online_s if is_open else None,
        speed_gflops=_said(speed.training_gflops or speed.matmul_gflops, MAX_SPEED_GFLOPS),
        heartbeat_s=_said(speed.heartbeat_s, HEARTBEAT_LIMIT_S),
        owner=node.spec.owner,
    )
    return NodeEvent(
        registry_id=message.registry_id,
        sequence=message.sequence,
        kind=message.kind,
        entry=entry,
        reason=message.reason,
        online_s=message.online_s,
        time_s=time_s,
    )


def _said(value: float, limit: float) -> float:
    """A figure that a node says of itself; 0, as if it had said nothing, when it can't be true."""
    return value if 0 <= value <= limit else 0.0


def evidence_from_message(message: selector_pb2.Evidence, now_s: float, reporter: str) -> Evidence:
    """A fact that `reporter` told of, from its message; without a time it happened at `now_s`."""
    return Evidence(
        evidence_id=message.evidence_id,
        node_id=message.node_id,
        kind=message.kind,
        time_s=from_timestamp(message.time) if message.HasField("time") else now_s,
        delay_s=message.delay_s,
        online_s=message.online_s,
        transfer_bytes=message.transfer_bytes,
        job_id=message.job_id,
        detail=message.detail,
        speed_gflops=message.speed_gflops,
        slots=message.slots,
        reporter=reporter,
    )


def belief_message(explanation: Explanation) -> selector_pb2.Belief:
    """A belief as a message, with terms and evidence if there was an update."""
    message = selector_pb2.Belief(
        node_id=explanation.node_id,
        name=explanation.name,
        belief=explanation.belief,
        updates=explanation.updates,
    )
    if explanation.last is not None:
        message.terms.CopyFrom(_terms_message(explanation.last.terms))
        message.update_time.CopyFrom(to_timestamp(explanation.last.time_s))
        message.evidence.CopyFrom(_evidence_message(explanation.last.evidence))
    return message


def choice_message(choice: Choice, columns: NodeColumns, policy: str) -> selector_pb2.SelectNodesResponse:
    """A choice as the answer to its request, best node first."""
    slots, beliefs = columns.slots[choice.rows].tolist(), columns.belief[choice.rows].tolist()
    nodes = [
        selector_pb2.RankedNode(
            node_id=columns.node_ids[row],
            name=columns.names[row],
            address=columns.addresses[row],
            slots=lent,
            belief=belief,
            reason=reason,
        )
        for row, lent, belief, reason in zip(choice.rows, slots, beliefs, choice.reasons, strict=True)
    ]
    outranked = choice.outranked()
    return selector_pb2.SelectNodesResponse(
        nodes=nodes,
        policy=policy,
        candidates=choice.candidates,
        exclusions=[_exclusion_message(one, columns) for one in choice.exclusions],
        outranked=_exclusion_message(outranked, columns) if outranked else None,
    )


def _exclusion_message(exclusion: Exclusion, columns: NodeColumns) -> selector_pb2.Exclusion:
    names = [columns.names[row] or columns.node_ids[row] for row in exclusion.examples]
    return selector_pb2.Exclusion(reason=exclusion.reason, count=exclusion.count, examples=names)


def explained_message(
    explanation: Explanation, policy: str, terms: list[ScoreTerm], choices: list[LastChoice]
) -> selector_pb2.GetBeliefResponse:
    """A belief, a policy's score of the node, and whether the node was chosen when somebody last asked."""
    return selector_pb2.GetBeliefResponse(
        belief=belief_message(explanation),
        policy=policy,
        score_terms=[
            selector_pb2.ScoreTerm(name=t.name, value=t.value, unit=t.unit, evidence=t.evidence)
            for t in terms
        ],
        choices=[
            selector_pb2.PastChoice(
                time=to_timestamp(c.time_s), policy=c.policy, chosen=c.chosen, reason=c.reason
            )
            for c in choices
        ],
    )


def _terms_message(terms: Terms) -> selector_pb2.BeliefTerms:
    weights = terms.weights
    return selector_pb2.BeliefTerms(
        score_old=terms.score_old,
        transmissions=terms.transmissions,
        trainings=terms.trainings,
        delay_s=terms.delay_s,
        ended_online_log=terms.ended_online_log,
        open_online_s=terms.open_online_s,
        interruptions=terms.interruptions,
        unfinished=terms.unfinished,
        score_new=terms.score_new,
        time_score=terms.time_score,
        score_reduce=terms.score_reduce,
        weights=selector_pb2.BeliefWeights(
            score_old=weights.score_old,
            transmission=weights.transmission,
            train=weights.train,
            delay=weights.delay,
            time_score_cap=weights.time_score_cap,
        ),
        lies=terms.lies,
    )


def _evidence_message(evidence: Evidence) -> selector_pb2.Evidence:
    return selector_pb2.Evidence(
        evidence_id=evidence.evidence_id,
        node_id=evidence.node_id,
        kind=evidence.kind,
        delay_s=evidence.delay_s,
        online_s=evidence.online_s,
        transfer_bytes=evidence.transfer_bytes,
        job_id=evidence.job_id,
        detail=evidence.detail,
        speed_gflops=evidence.speed_gflops,
        slots=evidence.slots,
        reporter=evidence.reporter,
        time=to_timestamp(evidence.time_s),
    )
