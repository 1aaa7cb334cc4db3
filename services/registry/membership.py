"""What nodes and people ask for: each act is decided by the rules, committed, and only then believed.

A node's changes are made one at a time, under its lock; beats take no lock.
"""

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_text
from peerloom.kit.clock import Clock
from peerloom.kit.ids import new_lease_id, new_node_id
from peerloom.kit.logs import get_logger
from peerloom.services.registry import changes, rules
from peerloom.services.registry.application import MAX_SLOTS, Application, check_speed
from peerloom.services.registry.errands import Errands
from peerloom.services.registry.ledger import Ledger
from peerloom.services.registry.records import OpenSession, SessionRow, Transition
from peerloom.services.registry.refusals import lease_ended, name_taken, node_limit_reached
from peerloom.services.registry.roster import HeartbeatStream, Member, Roster, moment_of
from peerloom.services.registry.rules import Beat, Welcome
from peerloom.services.registry.store import RunSql, Store
from peerloom.services.registry.vigil import Vigil
from peerloom.v1.common_pb2 import MachineSpeed
from peerloom.v1.registry_pb2 import HeartbeatRequest

MAX_REASON_CHARACTERS = 256
_log = get_logger()


class Membership:
    """Registers, hears, drains and dismisses nodes."""

    def __init__(
        self,
        roster: Roster,
        ledger: Ledger,
        vigil: Vigil,
        errands: Errands,
        store: Store,
        run_sql: RunSql,
        clock: Clock,
        node_limit: int,
    ) -> None:
        self._roster = roster
        self._ledger = ledger
        self._vigil = vigil
        self._errands = errands
        self._store = store
        self._run_sql = run_sql
        self._clock = clock
        self._node_limit = node_limit

    async def register(self, application: Application) -> OpenSession | SessionRow:
        """Opens a session, or answers a repeated attempt with the one it opened.

        Raises AlreadyExistsError when another node holds the name, ResourceExhaustedError at the limit
        of nodes or of the disk.
        """
        return await self._errands.finish(self._register(application))

    async def deregister(self, lease_id: str, reason: str) -> None:
        """Closes a session politely. Raises NotFoundError when the lease has ended otherwise."""
        check_text("reason", reason, high=MAX_REASON_CHARACTERS)
        await self._errands.finish(self._deregister(lease_id, reason or "It said goodbye."))

    async def drain(self, node: str, *, undo: bool) -> Member:
        """Keeps new work from a node, or takes that back. Raises NotFoundError for an unknown node."""
        member = self._roster.find(node)
        await self._errands.finish(self._drain(member, draining=not undo))
        return member

    def hear(self, stream: HeartbeatStream, beat: HeartbeatRequest) -> tuple[Member, bool]:
        """Notes one beat, in memory only; says whose it is and whether it refutes a suspicion.

        Raises NotFoundError when the lease has ended, InvalidArgumentError for a bad beat.
        """
        member = self._roster.by_lease.get(beat.lease_id)
        if member is None:
            raise lease_ended(beat.lease_id)
        record, slots, incarnation = member.record, beat.slots, beat.incarnation
        if not slots.free <= slots.total <= MAX_SLOTS:
            shown = f"{slots.free} free of {slots.total}"
            raise InvalidArgumentError.of_field("slots", shown, f"free <= total <= {MAX_SLOTS}")
        verdict = rules.judge_beat(record.state, record.incarnation, incarnation)
        if member.stream is not stream:
            member.stream = stream
            stream.members.add(member)
        member.heard_s = self._clock.monotonic_s()
        member.slots_total, member.slots_free = slots.total, slots.free
        if verdict is Beat.ADOPT:
            member.adopt(incarnation)
        return member, verdict is Beat.REFUTE

    async def note_lending(self, member: Member, withheld: str) -> None:
        """A beat says why the owner lends nothing ("": it lends): when that is news, watchers hear of it.

        Raises InvalidArgumentError for a reason that is too long.
        """
        if withheld != member.withheld:
            check_text("withheld", withheld, high=MAX_REASON_CHARACTERS)
            await self._errands.finish(self._note_lending(member, withheld))

    async def note_speed(self, member: Member, speed: MachineSpeed) -> None:
        """A beat brings what the node measured: it is kept, and watchers hear of it, unless it is known.

        Raises InvalidArgumentError for what is no speed.
        """
        if speed != member.record.spec.speed:
            check_speed("speed", speed)
            await self._errands.finish(self._note_speed(member, speed))

    async def refute(self, member: Member, incarnation: int) -> None:
        """Clears a node of suspicion, if its incarnation is still above the suspected one."""
        await self._errands.finish(self._refute(member, incarnation))

    async def _register(self, application: Application) -> OpenSession | SessionRow:
        async with self._roster.lock(application.spec.name):
            member = self._roster.by_name.get(application.spec.name)
            holder_key = member.record.key_sha256 if member else None
            is_open = member is not None and member.session is not None
            welcome, reason = rules.judge_registration(holder_key, application.key_sha256, is_open)
            if member is None:
                if len(self._roster) >= self._node_limit:
                    raise node_limit_reached(self._node_limit)
                return await self._admit(application, None, reason)
            if welcome is Welcome.REFUSE:
                raise name_taken(member.record, reason)
            request_id = application.request_id
            earlier = await self._run_sql(self._store.find_request, member.record.node_id, request_id)
            if isinstance(earlier, SessionRow):
                return earlier
            return await self._admit(application, member, reason)

    async def _admit(self, application: Application, member: Member | None, reason: str) -> OpenSession:
        now = moment_of(self._clock)
        session = OpenSession(
            session_id=new_lease_id(),
            node_id=member.record.node_id if member else new_node_id(),
            request_id=application.request_id,
            incarnation=member.record.incarnation + 1 if member else 1,
            start_wall_s=now.wall_s,
            start_monotonic_s=now.monotonic_s,
        )
        transitions: list[Transition] = []
        if member is not None and member.session is not None:
            transitions.append(changes.interrupted(member, reason, self._vigil.start_s, now))
        former = member.record if member else None
        transitions.append(changes.admitted(application, session, former, reason, now))

        def believe() -> None:
            admitted = member or self._roster.add(transitions[-1].record)
            self._roster.open_session(admitted, transitions[-1].record, session)
            self._vigil.watch(admitted)

        await self._ledger.commit(transitions, believe)
        _log.info("node_registered", node=application.spec.name, node_id=session.node_id, reason=reason)
        return session

    async def _deregister(self, lease_id: str, reason: str) -> None:
        member = self._roster.by_lease.get(lease_id)
        if member is not None:
            async with self._roster.lock(member.record.name):
                if member.session is not None and member.session.session_id == lease_id:
                    change = changes.left(member, reason, moment_of(self._clock))
                    await self._ledger.commit([change], lambda: self._roster.believe(member, change))
                    _log.info("node_left", node=member.record.name, reason=reason)
                    return
        # A repeated goodbye, whose first answer was lost, is no error.
        row = await self._run_sql(self._store.find_session, lease_id)
        if row is None or row.interrupted:
            raise lease_ended(lease_id)

    async def _drain(self, member: Member, *, draining: bool) -> None:
        async with self._roster.lock(member.record.name):
            if member.record.draining == draining:
                return
            change = changes.drain_changed(member, draining, moment_of(self._clock))
            await self._ledger.commit([change], lambda: self._roster.believe(member, change))
            _log.info("drain_changed", node=member.record.name, draining=draining)

    async def _note_lending(self, member: Member, withheld: str) -> None:
        async with self._roster.lock(member.record.name):
            if member.session is None or member.withheld == withheld:
                return
            # Another wording of the same is kept for those who ask, and is no event.
            is_news = bool(member.withheld) != bool(withheld)
            if is_news:
                change = changes.lending_changed(member, withheld, moment_of(self._clock))
                await self._ledger.commit([change], lambda: self._roster.believe(member, change))
                _log.info("lending_changed", node=member.record.name, withheld=withheld)
            member.withheld = withheld

    async def _note_speed(self, member: Member, speed: MachineSpeed) -> None:
        async with self._roster.lock(member.record.name):
            if member.session is None or speed == member.record.spec.speed:
                return
            change = changes.measured(member, speed, moment_of(self._clock))
            await self._ledger.commit([change], lambda: self._roster.believe(member, change))
            _log.info("node_measured", node=member.record.name, training_gflops=speed.training_gflops)

    async def _refute(self, member: Member, incarnation: int) -> None:
        async with self._roster.lock(member.record.name):
            record = member.record
            if member.session is None:
                return
            if rules.judge_beat(record.state, record.incarnation, incarnation) is not Beat.REFUTE:
                return
            change = changes.refuted(member, incarnation, moment_of(self._clock))
            await self._ledger.commit([change], lambda: self._roster.believe(member, change))
            _log.info("suspicion_refuted", node=record.name, incarnation=incarnation)
