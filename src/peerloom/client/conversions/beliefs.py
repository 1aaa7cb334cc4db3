"""Beliefs with their terms, evidence and policies."""

from peerloom.client.conversions.words import time_of, word_of
from peerloom.client.types import (
    Belief,
    BeliefTerms,
    BeliefWeights,
    Evidence,
    ExplainedBelief,
    PastChoice,
    Policy,
    ScoreTerm,
)
from peerloom.v1 import selector_pb2

_OF_SESSIONS = (selector_pb2.EVIDENCE_KIND_SESSION_ENDED, selector_pb2.EVIDENCE_KIND_INTERRUPTION)


def belief_of(message: selector_pb2.Belief) -> Belief:
    """A Belief message as a value."""
    return Belief(
        node_id=message.node_id,
        name=message.name,
        belief=message.belief,
        terms=_terms(message.terms) if message.HasField("terms") else None,
        updates=message.updates,
        update_time=time_of(message, "update_time"),
        evidence=_evidence(message.evidence) if message.HasField("evidence") else None,
    )


def explained_of(message: selector_pb2.GetBeliefResponse) -> ExplainedBelief:
    """A GetBeliefResponse message as a value."""
    return ExplainedBelief(
        belief=belief_of(message.belief),
        policy=message.policy,
        score_terms=[ScoreTerm(t.name, t.value, t.unit, t.evidence) for t in message.score_terms],
        choices=[PastChoice(time_of(c, "time"), c.policy, c.chosen, c.reason) for c in message.choices],
    )


def policy_of(message: selector_pb2.Policy) -> Policy:
    """A Policy message as a value."""
    return Policy(message.name, message.description, message.source, message.is_default)


def _terms(message: selector_pb2.BeliefTerms) -> BeliefTerms:
    w = message.weights
    return BeliefTerms(
        score_old=message.score_old,
        transmissions=message.transmissions,
        trainings=message.trainings,
        delay_s=message.delay_s,
        ended_online_log=message.ended_online_log,
        open_online_s=message.open_online_s,
        interruptions=message.interruptions,
        unfinished=message.unfinished,
        score_new=message.score_new,
        time_score=message.time_score,
        score_reduce=message.score_reduce,
        weights=BeliefWeights(w.score_old, w.transmission, w.train, w.delay, w.time_score_cap),
        lies=message.lies,
    )


def _evidence(message: selector_pb2.Evidence) -> Evidence:
    is_transfer = message.kind == selector_pb2.EVIDENCE_KIND_TRANSFER
    return Evidence(
        id=message.evidence_id,
        node_id=message.node_id,
        kind=word_of(selector_pb2.EvidenceKind, message.kind),
        delay_s=message.delay_s if is_transfer else None,
        online_s=message.online_s if message.kind in _OF_SESSIONS else None,
        transfer_bytes=message.transfer_bytes if is_transfer else None,
        job_id=message.job_id or None,
        detail=message.detail,
        time=time_of(message, "time"),
        reporter=message.reporter or None,
    )
