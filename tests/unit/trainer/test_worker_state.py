"""What becomes of a worker: each thing that happens to it gives its next state."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from peerloom.services.trainer.workers.state import (
    Finished,
    Idle,
    Leaving,
    Lost,
    Meeting,
    Phase,
    Silent,
    Starting,
    WorkerState,
    Working,
)
from peerloom.v1.trainer_pb2 import WorkerFinished


@pytest.mark.parametrize(
    ("phase", "left", "is_idle"),
    [
        (Working(), 3, True),
        # It was announced generation 3 while it still left 2: it enters 3 next.
        (Working(), 2, False),
        (Leaving(0.0), 3, True),
        # One that was frozen wakes and leaves a generation that is long over.
        (Silent(0.0), 1, True),
        (Idle(), 2, True),
    ],
)
def test_leaving_a_generation_leaves_a_worker_idle_unless_it_is_on_its_way_into_the_next(
    phase: Phase, left: int, is_idle: bool
) -> None:
    state = WorkerState("worker-1", phase)
    assert state.is_let_go_by(left, newest=3) is is_idle


def test_a_state_is_void_once_others_have_gone_on_from_before_it() -> None:
    """It had made step 26 when it fell silent; the others had 15, and make 16 to 26 again."""
    silent = WorkerState("worker-1", Silent(0.0), step=26)
    left = silent.left_out(15).left_out(30)
    assert left.connected(26, 0, newest=4).is_void
    assert left.let_go(40).is_void
    assert not left.let_go(15).is_void, "it has nothing that they make again"
    assert not silent.left_out(26).is_void
    assert not left.let_go(15).began(None, None).reached(27).is_void, "it goes with them again"


SAID = WorkerFinished(parameters_digest="d")


class OneWorker(RuleBasedStateMachine):
    """Whatever happens to a worker in whatever order, beside a plain model of what must follow."""

    def __init__(self) -> None:
        super().__init__()
        self.state = WorkerState("worker-1", Starting(heard_s=0.0))
        self.now_s, self.newest, self.has_loaded = 0.0, 0, False

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def it_loads(self) -> None:
        self.state = self.state.loading(self.now_s)
        assert not isinstance(self.state.phase, Starting) or self.state.awaited_since_s == self.now_s

    @rule()
    def it_has_loaded(self) -> None:
        self.state, self.has_loaded = self.state.prepared(), True

    @precondition(lambda self: self.has_loaded)
    @rule(is_connected=st.booleans(), is_beside=st.booleans())
    def a_generation_begins_with_it(self, is_connected: bool, is_beside: bool) -> None:
        self.newest += 1
        meeting = Meeting(self.now_s + 15.0) if is_beside else None
        self.state = self.state.began(None if is_connected else self.now_s, meeting)
        assert self.state.is_member
        assert not self.state.is_ready

    @precondition(lambda self: not isinstance(self.state.phase, Working))
    @rule()
    def a_generation_begins_without_it(self) -> None:
        self.newest += 1
        self.state = self.state.left_out(20)
        assert not self.state.is_member

    @rule(step=st.integers(0, 50), generation=st.integers(0, 5))
    def it_says_hello(self, step: int, generation: int) -> None:
        before = self.state
        self.state = before.connected(step, min(generation, self.newest), self.newest)
        assert self.state.step == max(before.step, step)
        assert self.state.is_member == before.is_member
        if not isinstance(self.state.phase, Starting | Leaving | Silent):
            assert self.state.awaited_since_s is None, "it is there"

    @rule()
    def its_session_breaks(self) -> None:
        self.state = self.state.disconnected(self.now_s)
        if not isinstance(self.state.phase, Finished):
            assert self.state.awaited_since_s is not None, "somebody waits for it"

    @rule(generation=st.integers(1, 5), step=st.integers(0, 50))
    def it_left_a_generation(self, generation: int, step: int) -> None:
        if self.state.is_let_go_by(min(generation, self.newest), self.newest):
            was_member = self.state.is_member
            self.state = self.state.let_go(step)
            self.has_loaded = True
            assert (self.state.phase, self.state.step) == (Idle(is_member=was_member), step)

    @precondition(lambda self: isinstance(self.state.phase, Working))
    @rule(what=st.sampled_from(["met", "ready", "entered"]))
    def it_comes_forward(self, what: str) -> None:
        self.state = getattr(self.state, what)()
        assert isinstance(self.state.phase, Working)

    @precondition(lambda self: isinstance(self.state.phase, Working))
    @rule(is_left_behind=st.booleans(), is_silent=st.booleans())
    def it_is_told_to_leave(self, is_left_behind: bool, is_silent: bool) -> None:
        if is_silent:
            self.state = self.state.fell_silent(self.now_s)
        else:
            self.state = self.state.told_to_leave(self.now_s, is_left_behind)
        assert self.state.awaited_since_s == self.now_s
        assert self.state.is_member == (is_silent or not is_left_behind)

    @precondition(lambda self: isinstance(self.state.phase, Working | Leaving))
    @rule()
    def it_finishes(self) -> None:
        self.state = self.state.finished(SAID, 50)
        assert self.state.awaited_since_s is None

    @rule(grace_s=st.floats(0, 60))
    def its_node_wants_it_to_leave(self, grace_s: float) -> None:
        before = self.state.departure
        self.state = self.state.departing(grace_s, "its owner is back", self.now_s)
        assert self.state.departure is not None
        if before is not None:
            assert self.state.is_due(self.now_s + grace_s) or before.leave_by_s is None
            assert self.state.departure.save_asked_s == before.save_asked_s

    @rule(what=st.sampled_from(["staying", "hurried"]))
    def its_node_changes_its_mind(self, what: str) -> None:
        was_departing = self.state.is_departing
        self.state = getattr(self.state, what)()
        assert self.state.is_departing == (was_departing and what == "hurried")
        assert self.state.is_due(self.now_s) == self.state.is_departing or what == "staying"

    @invariant()
    def it_could_be_lost_now_and_would_stay_so(self) -> None:
        lost = self.state.lost()
        assert isinstance(lost.phase, Lost)
        assert lost.is_member == self.state.is_member
        assert (lost.phase.said is SAID) == isinstance(self.state.phase, Finished)
        assert lost.connected(9, self.newest, self.newest).phase == lost.phase
        assert lost.disconnected(self.now_s).awaited_since_s is None


TestOneWorker = OneWorker.TestCase
