"""Registers, drains and dismisses nodes: each act is decided, committed, and only then believed.

A node's changes are made one at a time, under its lock; beats take no lock.
"""

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_text
from peerloom.kit.clock import Clock
from peerloom.kit.ids import new_lease_id, new_node_id
from peerloom.kit.limits import MAX_SLOTS
from peerloom.kit.logs import get_logger
from peerloom.kit.tasks import ShieldedWork
from peerloom.services.registry.events import transitions
from peerloom.services.registry.events.transition_queue import TransitionQueue
from peerloom.services.registry.membership import decisions
from peerloom.services.registry.membership.application import (
    Application,
    another_certificate,
    changes_too_often,
    check_load,
    check_reached_at,
    check_speed,
    name_taken,
    node_limit_reached,
    still_there,
    was_forgotten,
)
from peerloom.services.registry.membership.decisions import Beat, Welcome
from peerloom.services.registry.membership.failure_detector import FailureDetector
from peerloom.services.registry.membership.node_records import OpenSession, SessionRow, Transition
from peerloom.services.registry.membership.node_retention import NodeRetention
from peerloom.services.registry.membership.table import (
    HeartbeatStream,
    Member,
    MembershipTable,
    lease_ended,
    moment_of,
)
from peerloom.services.registry.store import RunSql, Store
from peerloom.v1.common_pb2 import MachineSpeed
from peerloom.v1.registry_pb2 import HeartbeatRequest, MachineLoad

MAX_REASON_CHARACTERS = 256
REMOVED = "Somebody removed it."
_log = get_logger()


class Registrar:
    """The acts that nodes and people ask for, each finished even when its caller gives up."""

    def __init__(
        self,
        table: MembershipTable,
        commits: TransitionQueue,
        detector: FailureDetector,
        work: ShieldedWork,
        store: Store,
        run_sql: RunSql,
        clock: Clock,
        retention: NodeRetention,
        node_limit: int,
    ) -> None:
        self._table = table
        self._commits = commits
        self._detector = detector
        self._work = work
        self._store = store
        self._run_sql = run_sql
        self._clock = clock
        self._retention = retention
        self._node_limit = node_limit
        self.heartbeats = 0  # that were heard since this process began

    async def register(self, application: Application) -> OpenSession | SessionRow:
        """Opens a session, or answers a repeated attempt with the one it opened.

        Raises AlreadyExistsError when another node holds the name, ResourceExhaustedError at the limit
        of nodes or of the disk.
        """
        return await self._work.finish(self._register(application))

    async def deregister(self, lease_id: str, reason: str) -> None:
        """Closes a session politely. Raises NotFoundError when the lease has ended otherwise."""
        check_text("reason", reason, high=MAX_REASON_CHARACTERS)
        await self._work.finish(self._deregister(lease_id, reason or "It said goodbye."))

    async def drain(self, node: str, *, undo: bool) -> Member:
        """Keeps new work from a node, or takes that back.

        Raises NotFoundError for an unknown node, ResourceExhaustedError when it was changed too often.
        """
        member = self._table.find(node)
        await self._work.finish(self._drain(member, draining=not undo))
        return member

    async def remove(self, node: str, *, force: bool) -> Member:
        """Forgets a node with its sessions; returns it as it was.

        Raises NotFoundError for an unknown node, FailedPreconditionError for one with an open session, unless
        `force` closes that.
        """
        member = self._table.find(node)
        if member.session is not None and not force:
            raise still_there(member.record)
        await self._work.finish(self._remove(member))
        return member

    def hear(self, stream: HeartbeatStream, beat: HeartbeatRequest) -> tuple[Member, bool]:
        """Notes one heartbeat, in memory only; returns its node and whether it refutes a suspicion.

        Raises NotFoundError when the lease has ended, InvalidArgumentError for a bad beat.
        """
        member = self._table.of_lease(beat.lease_id)
        record, slots, incarnation = member.record, beat.slots, beat.incarnation
        total, free = slots.total, slots.free
        if not free <= total <= MAX_SLOTS:
            shown = f"{free} free of {total}"
            raise InvalidArgumentError.of_field("slots", shown, f"free <= total <= {MAX_SLOTS}")
        verdict = decisions.judge_beat(record.state, record.incarnation, incarnation)
        member.hear(stream, self._clock.monotonic_s(), total, free)
        self.heartbeats += 1
        if verdict is Beat.ADOPT:
            member.adopt(incarnation)
        return member, verdict is Beat.REFUTE

    async def note_lending(self, member: Member, withheld: str) -> None:
        """Keeps why the node's owner lends nothing ("": it lends); watchers hear when that is news.

        Raises InvalidArgumentError for a reason that is too long.
        """
        if withheld == member.withheld:
            return
        check_text("withheld", withheld, high=MAX_REASON_CHARACTERS)
        if member.may_change(self._clock.monotonic_s()):
            await self._work.finish(self._note_lending(member, withheld))

    async def note_speed(self, member: Member, speed: MachineSpeed) -> None:
        """Stores what the node measured of its machine, and tells watchers, unless it is known.

        Raises InvalidArgumentError for what is no speed.
        """
        if speed == member.record.spec.speed:
            return
        check_speed("speed", speed)
        if member.may_change(self._clock.monotonic_s()):
            await self._work.finish(self._note_speed(member, speed))

    def note_load(self, member: Member, load: MachineLoad) -> None:
        """Notes how busy the machine is, in memory only. Raises InvalidArgumentError for what is no load."""
        check_load("load", load)
        member.note_load(load, self._clock.monotonic_s())

    async def note_address(self, member: Member, address: str, via: str) -> None:
        """Stores where peers reach the node, and tells watchers, unless that is known.

        Raises InvalidArgumentError for what is no address.
        """
        spec = member.record.spec
        if (address, via) == (spec.address, spec.via):
            return
        check_reached_at("", address, via)
        if member.may_change(self._clock.monotonic_s()):
            await self._work.finish(self._note_address(member, address, via))

    async def refute(self, member: Member, incarnation: int) -> None:
        """Clears a node of suspicion, if its incarnation is still above the suspected one.

        One that is cleared all the time has to wait for it, and says so again with its next heartbeat.
        """
        if member.may_change(self._clock.monotonic_s()):
            await self._work.finish(self._refute(member, incarnation))

    async def _register(self, application: Application) -> OpenSession | SessionRow:
        async with self._table.lock(application.spec.name):
            member = self._table.by_name.get(application.spec.name)
            holder_key = member.record.key_sha256 if member else None
            is_open = member is not None and member.session is not None
            welcome, reason = decisions.judge_registration(holder_key, application.key_sha256, is_open)
            if member is None:
                if not await self._retention.make_room():
                    raise node_limit_reached(self._node_limit)
                return await self._admit(application, None, reason)
            if welcome is Welcome.REFUSE:
                raise name_taken(member.record, reason)
            if application.node_id not in ("", member.record.node_id):
                raise another_certificate(member.record, application.node_id)
            request_id = application.request_id
            earlier = await self._run_sql(self._store.find_request, member.record.node_id, request_id)
            if isinstance(earlier, SessionRow):
                return earlier
            self._check_pace(member)
            return await self._admit(application, member, reason)

    async def _admit(self, application: Application, member: Member | None, reason: str) -> OpenSession:
        now = moment_of(self._clock)
        session = OpenSession(
            session_id=new_lease_id(),
            node_id=member.record.node_id if member else application.node_id or new_node_id(),
            request_id=application.request_id,
            incarnation=member.record.incarnation + 1 if member else 1,
            start_wall_s=now.wall_s,
            start_monotonic_s=now.monotonic_s,
        )
        steps: list[Transition] = []
        if member is not None and member.session is not None:
            steps.append(transitions.interrupted(member, reason, self._detector.start_s, now))
        former = member.record if member else None
        steps.append(transitions.admitted(application, session, former, reason, now))

        def believe() -> None:
            admitted = member or self._table.add(steps[-1].record)
            self._table.open_session(admitted, steps[-1].record, session)
            self._detector.watch(admitted)

        await self._commits.commit(steps, believe)
        _log.info("node_registered", node=application.spec.name, node_id=session.node_id, reason=reason)
        return session

    async def _deregister(self, lease_id: str, reason: str) -> None:
        member = self._table.by_lease.get(lease_id)
        if member is not None:
            async with self._table.lock(member.record.name):
                if member.session is not None and member.session.session_id == lease_id:
                    change = transitions.left(member, reason, moment_of(self._clock))
                    await self._commits.commit([change], lambda: self._table.believe(member, change))
                    _log.info("node_left", node=member.record.name, reason=reason)
                    return
        # A repeated goodbye, whose first answer was lost, is no error.
        row = await self._run_sql(self._store.find_session, lease_id)
        if row is None or row.interrupted:
            raise lease_ended(lease_id)

    async def _drain(self, member: Member, *, draining: bool) -> None:
        async with self._table.lock(member.record.name):
            if not self._table.holds(member):
                raise was_forgotten(member.record)
            if member.record.draining == draining:
                return
            self._check_pace(member)
            change = transitions.drain_changed(member, draining, moment_of(self._clock))
            await self._commits.commit([change], lambda: self._table.believe(member, change))
            _log.info("drain_changed", node=member.record.name, draining=draining)

    async def _remove(self, member: Member) -> None:
        async with self._table.lock(member.record.name):
            if member.session is not None:
                now = moment_of(self._clock)
                change = transitions.interrupted(member, REMOVED, self._detector.start_s, now)
                await self._commits.commit([change], lambda: self._table.believe(member, change))
        await self._retention.forget(member, REMOVED)

    def _check_pace(self, member: Member) -> None:
        if not member.may_change(self._clock.monotonic_s()):
            raise changes_too_often(member.record)

    async def _note_lending(self, member: Member, withheld: str) -> None:
        async with self._table.lock(member.record.name):
            if member.session is None or member.withheld == withheld:
                return
            # Another wording of the same reason is kept for those who ask, and is no event.
            is_news = bool(member.withheld) != bool(withheld)
            if is_news:
                change = transitions.lending_changed(member, withheld, moment_of(self._clock))
                await self._commits.commit([change], lambda: self._table.believe(member, change))
                _log.info("lending_changed", node=member.record.name, withheld=withheld)
            member.withheld = withheld

    async def _note_speed(self, member: Member, speed: MachineSpeed) -> None:
        async with self._table.lock(member.record.name):
            if member.session is None or speed == member.record.spec.speed:
                return
            change = transitions.measured(member, speed, moment_of(self._clock))
            await self._commits.commit([change], lambda: self._table.believe(member, change))
            _log.info("node_measured", node=member.record.name, training_gflops=speed.training_gflops)

    async def _note_address(self, member: Member, address: str, via: str) -> None:
        async with self._table.lock(member.record.name):
            if member.session is None:
                return
            change = transitions.moved(member, address, via, moment_of(self._clock))
            await self._commits.commit([change], lambda: self._table.believe(member, change))
            _log.info("node_moved", node=member.record.name, address=address, via=via)

    async def _refute(self, member: Member, incarnation: int) -> None:
        async with self._table.lock(member.record.name):
            record = member.record
            if member.session is None:
                return
            if decisions.judge_beat(record.state, record.incarnation, incarnation) is not Beat.REFUTE:
                return
            change = transitions.refuted(member, incarnation, moment_of(self._clock))
            await self._commits.commit([change], lambda: self._table.believe(member, change))
            _log.info("suspicion_refuted", node=record.name, incarnation=incarnation)
