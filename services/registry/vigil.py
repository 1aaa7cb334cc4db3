"""Watches over silence: suspects and declares dead, at the right time and in bounded steps."""

import asyncio

from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.services.registry import changes, rules
from peerloom.services.registry.deadlines import Deadlines
from peerloom.services.registry.errands import Errands
from peerloom.services.registry.ledger import Ledger
from peerloom.services.registry.roster import HeartbeatStream, Member, Roster, moment_of
from peerloom.services.registry.rules import State, Timing

SWEEP_INTERVAL_S = 0.1
SWEEP_LIMIT = 256
RETRY_S = 1.0
_log = get_logger()


class Vigil:
    """Judges each node with an open session when its deadline comes up.

    `start_s` is when this process started to watch (monotonic seconds).
    """

    def __init__(
        self, roster: Roster, ledger: Ledger, errands: Errands, timing: Timing, clock: Clock
    ) -> None:
        self._roster = roster
        self._ledger = ledger
        self._errands = errands
        self._timing = timing
        self._clock = clock
        self._deadlines: Deadlines[Member] = Deadlines()
        self._is_closing = False
        self.start_s = clock.monotonic_s()
        self._listening_s = self.start_s + timing.restart_grace_s
        for member in roster.by_lease.values():
            self.watch(member)

    def watch(self, member: Member) -> None:
        """Sets a deadline for a node whose session was opened, unless it has one."""
        if not member.is_timed:
            member.is_timed = True
            self._deadlines.add(self._judge(member).next_check_s, member)

    def stream_ended(self, stream: HeartbeatStream) -> None:
        """Suspects at once the nodes whose newest beat came over `stream`; not when we end it ourselves."""
        if self._is_closing:
            return
        for member in stream.members:
            if member.stream is stream:
                self._errands.start(self._suspect_unheard(member, stream))

    async def sweep(self) -> bool:
        """Judges what is due, at most 256 nodes; whether that was the limit, so that more may be due."""
        due = self._deadlines.take_due(self._clock.monotonic_s(), SWEEP_LIMIT)
        late = [member for member in due if self._is_to_change(member)]
        failures = await asyncio.gather(
            *(self._errands.finish(self._change(member)) for member in late), return_exceptions=True
        )
        failed = {member for member, failure in zip(late, failures, strict=True) if failure is not None}
        for member in due:
            self._put_back(member, failed=member in failed)
        if failed:
            first = next(failure for failure in failures if failure is not None)
            _log.warning("verdicts_not_stored", nodes=len(failed), reason=str(first))
        return len(due) == SWEEP_LIMIT

    async def keep(self) -> None:
        """Sweeps until cancelled; after a pause of this whole process all silences begin anew."""
        more = False
        while True:
            asleep_s = self._clock.monotonic_s()
            await asyncio.sleep(0 if more else SWEEP_INTERVAL_S)
            self.note_pause(asleep_s)
            more = await self.sweep()

    def note_pause(self, asleep_s: float) -> None:
        """Forgives all silences if this process stood still from `asleep_s` until now."""
        awake_s = self._clock.monotonic_s()
        listening_s = rules.listening_since(self._listening_s, asleep_s, awake_s, self._timing)
        if listening_s != self._listening_s:
            self._listening_s = listening_s
            _log.warning("registry_paused", pause_s=round(awake_s - asleep_s, 3))

    def close(self) -> None:
        """Streams that end from now on are ended by us and say nothing of their nodes."""
        self._is_closing = True

    def _judge(self, member: Member) -> rules.Verdict:
        now_s = self._clock.monotonic_s()
        return rules.judge(member.record.state, member.heard_s, self._listening_s, now_s, self._timing)

    def _is_to_change(self, member: Member) -> bool:
        return member.session is not None and self._judge(member).state is not member.record.state

    def _put_back(self, member: Member, *, failed: bool) -> None:
        if member.session is None:
            member.is_timed = False
            return
        due_s = self._clock.monotonic_s() + RETRY_S if failed else self._judge(member).next_check_s
        self._deadlines.add(due_s, member)

    async def _change(self, member: Member) -> None:
        async with self._roster.lock(member.record.name):
            if not self._is_to_change(member):
                return  # it spoke while we waited for its lock
            verdict, now = self._judge(member), moment_of(self._clock)
            if verdict.state is State.DEAD:
                change = changes.interrupted(member, verdict.reason, self.start_s, now)
            else:
                change = changes.suspected(member, verdict.reason, now)
            await self._ledger.commit([change], lambda: self._roster.believe(member, change))
            _log.info("node_judged", node=member.record.name, state=verdict.state.name, reason=verdict.reason)

    async def _suspect_unheard(self, member: Member, stream: HeartbeatStream) -> None:
        async with self._roster.lock(member.record.name):
            if member.session is None or member.stream is not stream:
                return  # it said goodbye, or came back on another stream
            member.stream = None
            state, reason = rules.judge_broken_stream(member.record.state)
            if state is member.record.state:
                return
            change = changes.suspected(member, reason, moment_of(self._clock))
            await self._ledger.commit([change], lambda: self._roster.believe(member, change))
            _log.info("node_judged", node=member.record.name, state=state.name, reason=reason)
