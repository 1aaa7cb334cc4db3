"""The failure detector: suspects silent nodes and declares them dead, on time and in bounded steps."""

import asyncio
import heapq
import itertools
from typing import Generic, TypeVar

from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.kit.tasks import ShieldedWork
from peerloom.services.registry.events import transitions
from peerloom.services.registry.events.transition_queue import TransitionQueue
from peerloom.services.registry.membership import decisions
from peerloom.services.registry.membership.decisions import Timing
from peerloom.services.registry.membership.table import HeartbeatStream, Member, MembershipTable, moment_of
from peerloom.v1.registry_pb2 import NODE_STATE_DEAD, NodeState

SWEEP_INTERVAL_S = 0.1
SWEEP_LIMIT = 256
RETRY_S = 1.0
_log = get_logger()
T = TypeVar("T")


class Deadlines(Generic[T]):
    """Items ordered by due time. A deadline isn't moved when a node beats: it is looked at when it
    comes up and put back later, so a beat costs no heap operation."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order = itertools.count()

    def add(self, due_s: float, item: T) -> None:
        """Brings `item` up at `due_s`."""
        heapq.heappush(self._heap, (due_s, next(self._order), item))

    def take_due(self, now_s: float, limit: int) -> list[T]:
        """Removes and returns what is due at `now_s`, earliest first, at most `limit` items."""
        due: list[T] = []
        while self._heap and self._heap[0][0] <= now_s and len(due) < limit:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def __len__(self) -> int:
        return len(self._heap)


class FailureDetector:
    """Judges each node with an open session when its deadline comes up.

    `start_s` is when this process started to watch (monotonic seconds).
    """

    def __init__(
        self,
        table: MembershipTable,
        commits: TransitionQueue,
        work: ShieldedWork,
        timing: Timing,
        clock: Clock,
    ) -> None:
        self._table = table
        self._commits = commits
        self._work = work
        self._timing = timing
        self._clock = clock
        self._deadlines: Deadlines[Member] = Deadlines()
        self._is_closing = False
        self.start_s = clock.monotonic_s()
        self._listening_s = self.start_s + timing.restart_grace_s
        for member in table.by_lease.values():
            self.watch(member)

    def watch(self, member: Member) -> None:
        """Sets a deadline for a node whose session was opened, unless it has one."""
        if not member.is_timed:
            member.is_timed = True
            self._deadlines.add(self._judge(member).next_check_s, member)

    def stream_ended(self, stream: HeartbeatStream) -> None:
        """Suspects at once the nodes last heard over `stream`, which ended; nobody after `close`."""
        if self._is_closing:
            return
        for member in stream.members:
            if member.stream is stream:
                self._work.start(self._suspect_unheard(member, stream))

    async def sweep(self) -> bool:
        """Judges the nodes that are due, at most 256; True: that was the limit, and more may be due."""
        due = self._deadlines.take_due(self._clock.monotonic_s(), SWEEP_LIMIT)
        late = [member for member in due if self._is_to_change(member)]
        failures = await asyncio.gather(
            *(self._work.finish(self._change(member)) for member in late), return_exceptions=True
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
        listening_s = decisions.listening_since(self._listening_s, asleep_s, awake_s, self._timing)
        if listening_s != self._listening_s:
            self._listening_s = listening_s
            _log.warning("registry_paused", pause_s=round(awake_s - asleep_s, 3))

    def close(self) -> None:
        """Heartbeat streams that end from now on are ended by the registry, and suspect nobody."""
        self._is_closing = True

    def _judge(self, member: Member) -> decisions.NodeVerdict:
        now_s = self._clock.monotonic_s()
        return decisions.judge(member.record.state, member.heard_s, self._listening_s, now_s, self._timing)

    def _is_to_change(self, member: Member) -> bool:
        return member.session is not None and self._judge(member).state != member.record.state

    def _put_back(self, member: Member, *, failed: bool) -> None:
        if member.session is None:
            member.is_timed = False
            return
        due_s = self._clock.monotonic_s() + RETRY_S if failed else self._judge(member).next_check_s
        self._deadlines.add(due_s, member)

    async def _change(self, member: Member) -> None:
        async with self._table.lock(member.record.name):
            if not self._is_to_change(member):
                return  # the node was heard while we waited for its lock
            verdict, now = self._judge(member), moment_of(self._clock)
            if verdict.state == NODE_STATE_DEAD:
                change = transitions.interrupted(member, verdict.reason, self.start_s, now)
            else:
                change = transitions.suspected(member, verdict.reason, now)
            await self._commits.commit([change], lambda: self._table.believe(member, change))
            _log_verdict(member, verdict.state, verdict.reason)

    async def _suspect_unheard(self, member: Member, stream: HeartbeatStream) -> None:
        async with self._table.lock(member.record.name):
            if member.session is None or member.stream is not stream:
                return  # the node said goodbye, or came back on another stream
            member.stream = None
            state, reason = decisions.judge_broken_stream(member.record.state)
            if state == member.record.state:
                return
            change = transitions.suspected(member, reason, moment_of(self._clock))
            await self._commits.commit([change], lambda: self._table.believe(member, change))
            _log_verdict(member, state, reason)


def _log_verdict(member: Member, state: NodeState.ValueType, reason: str) -> None:
    name = NodeState.Name(state).removeprefix("NODE_STATE_")
    _log.info("node_judged", node=member.record.name, state=name, reason=reason)
