"""The registry's values as messages of the schema."""

import hashlib
from functools import lru_cache

from peerloom.kit.clock import to_timestamp
from peerloom.services.registry.discovery.announcements import ServiceAnnouncement
from peerloom.services.registry.membership.node_records import Event, Moment, NodeRecord, SessionRow
from peerloom.services.registry.membership.table import Member
from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.artifact_pb2 import ArtifactHolder
from peerloom.v1.common_pb2 import SlotCount


def node_message(
    record: NodeRecord,
    slots_total: int,
    slots_free: int,
    seen_wall_s: float,
    online_s: float,
    withheld: str = "",
    load: pb.MachineLoad | None = None,
) -> pb.Node:
    """A node whose durable facts are those of `record`; one that is withheld is draining."""
    return pb.Node(
        node_id=record.node_id,
        spec=record.spec,
        state=record.state,
        state_reason=record.state_reason,
        incarnation=record.incarnation,
        draining=record.draining or bool(withheld),
        withheld=withheld,
        slots=SlotCount(total=slots_total, free=slots_free),
        registered_time=to_timestamp(record.registered_s),
        last_seen_time=to_timestamp(seen_wall_s),
        online_s=online_s,
        load=load,
    )


def member_message(member: Member, now: Moment) -> pb.Node:
    """A node with its last sign of life, slots, session length and load as of `now`."""
    seen_s, online_s = member.seen_wall_s(now), member.online_s(now)
    slots_total, slots_free = member.slots_total, member.slots_free
    return node_message(
        member.record, slots_total, slots_free, seen_s, online_s, member.withheld, member.load_at(now)
    )


def beat_message(member: Member, artifact_version: int) -> pb.HeartbeatResponse:
    """The answer to one heartbeat of `member`; not to be changed, as others may get the same one."""
    record = member.record
    return _beat_answer(record.state, record.incarnation, record.draining, artifact_version)


@lru_cache(maxsize=1024)  # nearly all beats are answered as those before them
def _beat_answer(
    state: "pb.NodeState.ValueType", incarnation: int, draining: bool, artifact_version: int
) -> pb.HeartbeatResponse:
    return pb.HeartbeatResponse(
        state=state, incarnation=incarnation, draining=draining, artifact_version=artifact_version
    )


def holder_message(member: Member) -> ArtifactHolder:
    """Where a holder of an artifact is reached."""
    record = member.record
    return ArtifactHolder(node_id=record.node_id, name=record.name, address=record.spec.address)


def session_message(row: SessionRow, member: Member, now: Moment) -> pb.Session:
    """A session of `member`; an open one is as long as it is now."""
    open_s = member.online_s(now) if row.end_s is None else 0.0
    return pb.Session(
        session_id=_public_name(row.session_id),
        node_id=row.node_id,
        node_name=member.record.name,
        start_time=to_timestamp(row.start_s),
        end_time=None if row.end_s is None else to_timestamp(row.end_s),
        online_s=open_s if row.online_s is None else row.online_s,
        interrupted=row.interrupted,
        end_reason=row.end_reason,
    )


def event_message(event: Event, registry_id: str) -> pb.WatchNodesResponse:
    """One event of the log, for a watcher."""
    return pb.WatchNodesResponse(
        sequence=event.sequence,
        registry_id=registry_id,
        kind=event.kind,
        node=pb.Node.FromString(event.snapshot),
        reason=event.reason,
        online_s=event.online_s,
        time=to_timestamp(event.time_s),
    )


def endpoint_message(announcement: ServiceAnnouncement) -> pb.ServiceEndpoint:
    """Where an announced service is."""
    return pb.ServiceEndpoint(
        kind=announcement.kind,
        address=announcement.address,
        announced_time=to_timestamp(announcement.wall_s),
        epoch=announcement.epoch,
        stands_by=announcement.stands_by,
    )


def _public_name(lease_id: str) -> str:
    # Whoever knows a lease can speak for the node, so lists show a name made from it.
    return f"session-{hashlib.sha256(lease_id.encode()).hexdigest()[:12]}"
