"""A state machine plays random lives and holds the registry to its promises after every step.

Three nodes register, beat with right, old and higher incarnations, lose their streams, say goodbye and fall
silent, while the registry is killed and started again. Time moves in quarter seconds with a sweep each. The
model beside it knows only what the nodes did and when.
"""

import asyncio
import math
from dataclasses import dataclass, field

from databases import in_memory
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from memory_registry import TIMING, MemoryRegistry

from peerloom.kit.clock import ManualClock
from peerloom.services.registry import tables
from peerloom.services.registry.membership.table import HeartbeatStream
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_LEFT,
    NODE_EVENT_KIND_REGISTERED,
    NODE_STATE_ALIVE,
    NODE_STATE_DEAD,
    NODE_STATE_LEFT,
    NODE_STATE_SUSPECT,
    NodeState,
)

STEP_S = 0.25
NAMES = st.sampled_from(["ada", "bob", "carl"])
OPEN = (NODE_STATE_ALIVE, NODE_STATE_SUSPECT)


@dataclass
class Actor:
    """What the model knows of one node: when it was heard last, and since when it could be."""

    lease_id: str
    heard_s: float
    listening_s: float
    stream: HeartbeatStream = field(default_factory=HeartbeatStream)
    stream_broke: bool = False
    said_goodbye: bool = False


class Lives(RuleBasedStateMachine):
    """Promises of the registry, whatever happens in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        database = in_memory("registry", tables.metadata)
        self.clock = ManualClock()
        self.registry = self.runner.run(MemoryRegistry(database, self.clock).start())
        self.listening_s = self.now_s + TIMING.restart_grace_s
        self.actors: dict[str, Actor] = {}

    @property
    def now_s(self) -> float:
        """The time that the model and the registry share."""
        return self.clock.monotonic_s()

    def state_of(self, name: str) -> NodeState.ValueType:
        """What the registry believes of a node."""
        return self.registry.state_of(name)

    def silence_s(self, actor: Actor) -> float:
        """How long the registry, listening, has not heard a node."""
        return self.now_s - max(actor.heard_s, actor.listening_s)

    def is_open(self, name: str) -> bool:
        """Whether a node has an open session."""
        return name in self.actors and self.state_of(name) in OPEN

    @rule(name=NAMES)
    def register(self, name: str) -> None:
        session = self.runner.run(self.registry.register(name))
        self.actors[name] = Actor(session.session_id, self.now_s, self.listening_s)
        assert self.state_of(name) == NODE_STATE_ALIVE

    @rule(name=NAMES, raised_by=st.sampled_from([-1, 0, 0, 0, 1, 2]))
    def beat(self, name: str, raised_by: int) -> None:
        if not self.is_open(name):
            return
        actor, before = self.actors[name], self.state_of(name)
        if actor.stream_broke:
            actor.stream = HeartbeatStream()
        known = self.registry.core.table.find(name).record.incarnation
        incarnation = max(0, known + raised_by)
        self.runner.run(self.registry.beat(actor.lease_id, incarnation, actor.stream))
        actor.heard_s = self.now_s
        after = self.state_of(name)
        refuted = before == NODE_STATE_SUSPECT and after == NODE_STATE_ALIVE
        assert refuted == (before == NODE_STATE_SUSPECT and incarnation > known), "only a higher one refutes"
        actor.stream_broke = actor.stream_broke and after == NODE_STATE_SUSPECT

    @rule(name=NAMES)
    def break_stream(self, name: str) -> None:
        if not self.is_open(name) or not self.actors[name].stream.members:
            return
        self.actors[name].stream_broke = True
        self.runner.run(self.registry.end_stream(self.actors[name].stream))
        assert self.state_of(name) == NODE_STATE_SUSPECT

    @rule(name=NAMES)
    def say_goodbye(self, name: str) -> None:
        if not self.is_open(name):
            return
        self.actors[name].said_goodbye = True
        self.runner.run(self.registry.core.registrar.deregister(self.actors[name].lease_id, ""))

    @rule(seconds=st.sampled_from([STEP_S, 1.0, 2.5, 4.0, 11.0]))
    def let_time_pass(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.runner.run(self.registry.pass_time(STEP_S, STEP_S))
            self.silence_is_judged_rightly()

    @precondition(lambda self: self.actors)
    @rule(downtime_s=st.sampled_from([0.0, 1.0, 100.0]))
    def kill_and_restart(self, downtime_s: float) -> None:
        before = {name: self.state_of(name) for name in self.actors}
        self.runner.run(self.registry.restart(downtime_s))
        self.listening_s = self.now_s + TIMING.restart_grace_s
        for name, actor in self.actors.items():
            if self.is_open(name):  # a closed session is not judged again
                actor.heard_s, actor.listening_s, actor.stream = (
                    -math.inf,
                    self.listening_s,
                    HeartbeatStream(),
                )
            assert self.state_of(name) == before[name], "a restart changes no verdict"

    @invariant()
    def silence_is_judged_rightly(self) -> None:
        for name, actor in self.actors.items():
            state, silence_s = self.state_of(name), self.silence_s(actor)
            if state == NODE_STATE_DEAD:
                assert silence_s >= TIMING.dead_after_s, "nobody is dead before dead_after_s of silence"
            elif state == NODE_STATE_LEFT:
                assert actor.said_goodbye
            elif state == NODE_STATE_SUSPECT:
                assert silence_s < TIMING.dead_after_s + STEP_S, "the dead are found"
            else:
                assert silence_s < TIMING.suspect_after_s + STEP_S, "the late are found"

    @invariant()
    def each_session_is_closed_exactly_once(self) -> None:
        events = self.runner.run(self.registry.events())
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        rows = self.registry.core.store.sessions(None, interrupted_only=False, before=None, limit=1000)
        closed = [row for row in rows if row.end_s is not None]
        told = [event.kind for event in events]
        assert told.count(NODE_EVENT_KIND_REGISTERED) == len(rows)
        assert told.count(NODE_EVENT_KIND_INTERRUPTED) == sum(row.interrupted for row in closed)
        assert told.count(NODE_EVENT_KIND_LEFT) == sum(not row.interrupted for row in closed)
        assert len(rows) - len(closed) == sum(self.is_open(name) for name in self.actors)
        assert all(row.online_s is not None and row.online_s >= 0 for row in closed)

    def teardown(self) -> None:
        self.runner.run(self.registry.stop())
        self.runner.close()
        self.registry.database.close()


class PunctualNode(RuleBasedStateMachine):
    """A node that beats within suspect_after_s is never suspected, whatever others do and however often
    the registry restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        database = in_memory("registry", tables.metadata)
        self.registry = self.runner.run(MemoryRegistry(database, ManualClock()).start())
        self.lease_id = self.runner.run(self.registry.register("ada")).session_id
        self.stream = HeartbeatStream()

    @rule(gap_s=st.floats(0.01, 2.99), others=st.integers(0, 2))
    def beat_in_time(self, gap_s: float, others: int) -> None:
        for number in range(others):
            self.runner.run(self.registry.register(f"other-{number}"))
        self.runner.run(self.registry.pass_time(gap_s, gap_s))
        self.runner.run(self.registry.beat(self.lease_id, 1, self.stream))

    @rule(downtime_s=st.floats(0.0, 1000.0))
    def restart(self, downtime_s: float) -> None:
        self.runner.run(self.registry.restart(downtime_s))
        self.stream = HeartbeatStream()

    @invariant()
    def it_is_alive(self) -> None:
        assert self.registry.state_of("ada") == NODE_STATE_ALIVE

    def teardown(self) -> None:
        self.runner.run(self.registry.stop())
        self.runner.close()
        self.registry.database.close()


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=40, stateful_step_count=40, deadline=None, derandomize=True)
TestPunctualNode = PunctualNode.TestCase
TestPunctualNode.settings = settings(max_examples=30, stateful_step_count=20, deadline=None, derandomize=True)
