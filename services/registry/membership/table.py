"""The membership table: all nodes in memory, which the registry answers from."""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from weakref import WeakValueDictionary

from peerloom.errors import NotFoundError
from peerloom.kit.allowance import Bucket
from peerloom.kit.checks import check_text
from peerloom.kit.clock import Clock
from peerloom.services.registry.membership.decisions import CHANGE_RATE
from peerloom.services.registry.membership.node_records import Moment, NodeRecord, OpenSession, Transition
from peerloom.v1.registry_pb2 import MachineLoad

MAX_NODE_CHARACTERS = 64
NEVER_S = float("-inf")
LOAD_KEPT_S = 30.0  # six times as long as an agent takes between two looks; then it isn't how busy it is
_SIMILAR_NAMES = 200


class HeartbeatStream:
    """One open stream of heartbeats, and the nodes whose newest heartbeats came over it."""

    def __init__(self) -> None:
        self.members: set[Member] = set()


class Member:
    """One node: its committed record, its open session, and what only memory knows of it.

    `heard_s` is monotonic, -inf until the node is heard by this process. `slots_total` and `slots_free`
    are as of the last heartbeat. `withheld` says why the owner lends nothing, as watchers were told; "" while
    the node is lent. `load` is how busy its machine was, as told at `load_heard_s` (monotonic). `is_timed`
    says that the failure detector has a deadline for the node, `changes` how many more it may ask for.
    """

    __slots__ = (
        "changes",
        "heard_s",
        "is_timed",
        "load",
        "load_heard_s",
        "record",
        "session",
        "slots_free",
        "slots_total",
        "stream",
        "withheld",
    )

    def __init__(self, record: NodeRecord, session: OpenSession | None) -> None:
        self.record = record
        self.session = session
        self.heard_s = NEVER_S
        self.slots_total = record.spec.slots
        self.slots_free = record.spec.slots
        self.stream: HeartbeatStream | None = None
        self.is_timed = False
        self.withheld = ""
        self.load: MachineLoad | None = None
        self.load_heard_s = NEVER_S
        self.changes: Bucket | None = None

    def may_change(self, now_s: float) -> bool:
        """Whether one more change that the node or a user asks for may be made now (monotonic seconds)."""
        self.changes, may = CHANGE_RATE.take(self.changes, now_s)
        return may

    def seen_wall_s(self, now: Moment) -> float:
        """When the registry last heard of the node, by the wall clock."""
        if self.heard_s == NEVER_S:
            return self.record.last_seen_s
        return now.wall_s - (now.monotonic_s - self.heard_s)

    def hear(self, stream: HeartbeatStream, now_s: float, slots_total: int, slots_free: int) -> None:
        """Notes a heartbeat that came over `stream` at `now_s` (monotonic seconds)."""
        if self.stream is not stream:
            self.stream = stream
            stream.members.add(self)
        self.heard_s = now_s
        self.slots_total, self.slots_free = slots_total, slots_free

    def note_load(self, load: MachineLoad, now_s: float) -> None:
        """Notes how busy the machine was, as told at `now_s` (monotonic seconds)."""
        self.load, self.load_heard_s = load, now_s

    def load_at(self, now: Moment) -> MachineLoad | None:
        """How busy the machine is; None where that was told too long ago, or never in this session."""
        return self.load if now.monotonic_s - self.load_heard_s <= LOAD_KEPT_S else None

    def adopt(self, incarnation: int) -> None:
        """Takes over a higher incarnation from a heartbeat; the node's next change stores it."""
        self.record = replace(self.record, incarnation=incarnation)

    def online_s(self, now: Moment) -> float:
        """Length of the open session in seconds; 0 without one."""
        return now.monotonic_s - self.session.start_monotonic_s if self.session else 0.0


class MembershipTable:
    """Nodes by id, by name and by lease, and their names in order; `relays` pass connections on.

    `on_session_end` is called with each node whose session has just ended.
    """

    def __init__(
        self,
        records: Iterable[NodeRecord],
        sessions: Iterable[OpenSession],
        on_session_end: Callable[[Member], None],
    ) -> None:
        open_sessions = {session.node_id: session for session in sessions}
        members = [Member(record, open_sessions.get(record.node_id)) for record in records]
        self.by_id = {member.record.node_id: member for member in members}
        self.by_name = {member.record.name: member for member in members}
        self.by_lease = {member.session.session_id: member for member in members if member.session}
        self.relays = {member for member in members if member.session and member.record.spec.relay}
        self._names = sorted(self.by_name)
        # A lock lives while somebody holds or awaits it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._on_session_end = on_session_end

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, record: NodeRecord) -> Member:
        """Takes in a node that was just committed."""
        member = Member(record, None)
        self.by_id[record.node_id] = member
        self.by_name[record.name] = member
        insort(self._names, record.name)
        return member

    def remove(self, member: Member) -> None:
        """Forgets a node whose removal was just committed."""
        self._end_session(member)
        del self.by_id[member.record.node_id]
        del self.by_name[member.record.name]
        del self._names[bisect_left(self._names, member.record.name)]

    def holds(self, member: Member) -> bool:
        """Whether this node is still known: it may have been forgotten while somebody waited for its lock."""
        return self.by_id.get(member.record.node_id) is member

    def lock(self, name: str) -> asyncio.Lock:
        """The lock that a change of the node with this name, known or not, must hold."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    def open_session(self, member: Member, record: NodeRecord, session: OpenSession) -> None:
        """Believes a committed registration; a lease that the node had open before is forgotten."""
        self._end_session(member)
        member.record, member.session, member.stream = record, session, None
        member.heard_s = session.start_monotonic_s
        member.slots_total = member.slots_free = record.spec.slots
        member.withheld = ""
        self.by_lease[session.session_id] = member
        if record.spec.relay:
            self.relays.add(member)

    def believe(self, member: Member, change: Transition) -> None:
        """Believes any committed change but a registration."""
        if change.closed is not None:
            self._end_session(member)
        incarnation = max(member.record.incarnation, change.record.incarnation)
        member.record = replace(change.record, incarnation=incarnation)

    def _end_session(self, member: Member) -> None:
        if member.session is not None:
            del self.by_lease[member.session.session_id]
            member.session = None
            self.relays.discard(member)
            self._on_session_end(member)
            member.withheld, member.load = "", None

    def find(self, node: str) -> Member:
        """The node with this id or name.

        Raises NotFoundError with the nearest names, InvalidArgumentError for what is too long to be one.
        """
        check_text("node", node, high=MAX_NODE_CHARACTERS)
        member = self.by_id.get(node) or self.by_name.get(node)
        if member is None:
            raise NotFoundError.of_name("node", node, self._similar(node))
        return member

    def of_lease(self, lease_id: str) -> Member:
        """The node whose open session this lease names. Raises NotFoundError when the lease has ended."""
        member = self.by_lease.get(lease_id)
        if member is None:
            raise lease_ended(lease_id)
        return member

    def after(self, name: str, limit: int) -> list[Member]:
        """The first `limit` nodes whose names come after `name`, in order."""
        start = bisect_right(self._names, name)
        return [self.by_name[found] for found in self._names[start : start + limit]]

    def _similar(self, node: str) -> list[str]:
        # Comparing with every name would hold up the loop for seconds in a large network; its
        # neighbours in the order share its beginning.
        middle = bisect_left(self._names, node)
        return self._names[max(0, middle - _SIMILAR_NAMES // 2) : middle + _SIMILAR_NAMES // 2]


def lease_ended(lease_id: str) -> NotFoundError:
    """The refusal of a lease that is not open; shows only its beginning, because a lease is a secret."""
    return NotFoundError(
        f"The lease {lease_id[:12]}... has ended or never was: register again.", reason="LEASE_ENDED"
    )


def passes(member: Member, states: frozenset[int], labels: Mapping[str, str]) -> bool:
    """Whether a node is in one of `states` (empty: any) and carries all of `labels`."""
    if states and member.record.state not in states:
        return False
    carried = member.record.spec.labels
    return all(key in carried and carried[key] == value for key, value in labels.items())


def moment_of(clock: Clock) -> Moment:
    """The present moment of both clocks."""
    return Moment(clock.wall_s(), clock.monotonic_s())
