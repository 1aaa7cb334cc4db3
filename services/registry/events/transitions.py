"""What each change of a node's life consists of, as transitions ready to be committed. Pure."""

from dataclasses import replace
from typing import Any

from peerloom.services.registry.answers.node_messages import node_message
from peerloom.services.registry.membership.application import Application
from peerloom.services.registry.membership.decisions import last_sign_s
from peerloom.services.registry.membership.node_records import (
    ClosedSession,
    Moment,
    NodeRecord,
    OpenSession,
    Transition,
)
from peerloom.services.registry.membership.table import Member
from peerloom.v1.common_pb2 import MachineSpeed
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_DRAIN_CHANGED,
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_LEFT,
    NODE_EVENT_KIND_MEASURED,
    NODE_EVENT_KIND_MOVED,
    NODE_EVENT_KIND_REFUTED,
    NODE_EVENT_KIND_REGISTERED,
    NODE_EVENT_KIND_REMOVED,
    NODE_EVENT_KIND_SUSPECTED,
    NODE_STATE_ALIVE,
    NODE_STATE_DEAD,
    NODE_STATE_LEFT,
    NODE_STATE_SUSPECT,
    NodeEventKind,
    NodeSpec,
)


def admitted(
    application: Application, session: OpenSession, former: NodeRecord | None, reason: str, now: Moment
) -> Transition:
    """A node registered and got a session: it is as it says, and drained if it was before."""
    record = NodeRecord(
        node_id=session.node_id,
        name=application.spec.name,
        key_sha256=application.key_sha256,
        spec=application.spec,
        state=NODE_STATE_ALIVE,
        state_reason=reason,
        incarnation=session.incarnation,
        draining=former.draining if former else False,
        registered_s=former.registered_s if former else now.wall_s,
        last_seen_s=now.wall_s,
    )
    slots = application.spec.slots
    snapshot = node_message(record, slots, slots, now.wall_s, 0.0).SerializeToString()
    return Transition(
        record,
        NODE_EVENT_KIND_REGISTERED,
        reason,
        now.wall_s,
        snapshot,
        is_first=former is None,
        opened=session,
    )


def suspected(member: Member, reason: str, now: Moment) -> Transition:
    """A node has been silent for too long, or its stream broke."""
    return _changed(
        member, NODE_EVENT_KIND_SUSPECTED, reason, now, state=NODE_STATE_SUSPECT, state_reason=reason
    )


def refuted(member: Member, incarnation: int, now: Moment) -> Transition:
    """A suspected node spoke up with a higher incarnation."""
    reason = f"It answered the suspicion with incarnation {incarnation}."
    return _changed(
        member,
        NODE_EVENT_KIND_REFUTED,
        reason,
        now,
        state=NODE_STATE_ALIVE,
        state_reason=reason,
        incarnation=incarnation,
    )


def left(member: Member, reason: str, now: Moment) -> Transition:
    """A node said goodbye: the session lasted until now."""
    closed = _closed(member, now.monotonic_s, reason, now, interrupted=False)
    return _changed(
        member, NODE_EVENT_KIND_LEFT, reason, now, closed=closed, state=NODE_STATE_LEFT, state_reason=reason
    )


def interrupted(member: Member, reason: str, run_start_s: float, now: Moment) -> Transition:
    """A node went without notice: the session lasted until its last sign of life."""
    assert member.session is not None, "only an open session can be interrupted"
    end_s = last_sign_s(member.heard_s, run_start_s, member.session.start_monotonic_s)
    closed = _closed(member, end_s, reason, now, interrupted=True)
    return _changed(
        member,
        NODE_EVENT_KIND_INTERRUPTED,
        reason,
        now,
        closed=closed,
        state=NODE_STATE_DEAD,
        state_reason=reason,
    )


def drain_changed(member: Member, draining: bool, now: Moment) -> Transition:
    """A node is to get no new work, or may get work again."""
    reason = "It is to be given no new work." if draining else "It may be given work again."
    return _changed(member, NODE_EVENT_KIND_DRAIN_CHANGED, reason, now, draining=draining)


def lending_changed(member: Member, withheld: str, now: Moment) -> Transition:
    """A node's owner lends nothing just now, or lends again; watchers see it as draining meanwhile."""
    reason = withheld or "Its owner lends it again."
    return _changed(member, NODE_EVENT_KIND_DRAIN_CHANGED, reason, now, withheld=withheld)


def measured(member: Member, speed: MachineSpeed, now: Moment) -> Transition:
    """A node measured its machine anew."""
    spec = NodeSpec()
    spec.CopyFrom(member.record.spec)
    spec.speed.CopyFrom(speed)
    return _changed(member, NODE_EVENT_KIND_MEASURED, "It measured its machine anew.", now, spec=spec)


def moved(member: Member, address: str, via: str, now: Moment) -> Transition:
    """A node is reached at another address, or through another node."""
    spec = NodeSpec()
    spec.CopyFrom(member.record.spec)
    spec.address, spec.via = address, via
    reason = f"It is reached at {address}" + (f" through {via}." if via else ".")
    return _changed(member, NODE_EVENT_KIND_MOVED, reason, now, spec=spec)


def removed(record: NodeRecord, reason: str, now: Moment) -> Transition:
    """The registry forgets a node that has no open session."""
    snapshot = node_message(record, record.spec.slots, 0, record.last_seen_s, 0.0)
    return Transition(
        record, NODE_EVENT_KIND_REMOVED, reason, now.wall_s, snapshot.SerializeToString(), is_last=True
    )


def _closed(
    member: Member, end_monotonic_s: float, reason: str, now: Moment, *, interrupted: bool
) -> ClosedSession:
    session = member.session
    assert session is not None, "only an open session can be closed"
    return ClosedSession(
        session_id=session.session_id,
        end_s=now.wall_s - (now.monotonic_s - end_monotonic_s),
        online_s=end_monotonic_s - session.start_monotonic_s,
        interrupted=interrupted,
        reason=reason,
    )


def _changed(
    member: Member,
    kind: NodeEventKind.ValueType,
    reason: str,
    now: Moment,
    closed: ClosedSession | None = None,
    withheld: str | None = None,
    **changes: Any,
) -> Transition:
    seen_s = member.seen_wall_s(now)
    record = replace(member.record, last_seen_s=seen_s, **changes)
    online_s = 0.0 if closed else member.online_s(now)
    withheld = member.withheld if withheld is None else withheld
    snapshot = node_message(
        record, member.slots_total, member.slots_free, seen_s, online_s, "" if closed else withheld
    )
    return Transition(record, kind, reason, now.wall_s, snapshot.SerializeToString(), closed=closed)
