"""Which worker has to leave, by hand: asked once, made to once, let stay when nothing speaks against it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.services.node_agent.owner.leaving import (
    DRAINED,
    FORCE_AFTER_S,
    LeaveRequest,
    Reasons,
    Step,
    decide_leave,
)

GRACE_S = 10.0
NO_REASON = Reasons()
OWNER, DRAIN = Reasons(withheld="it is noon"), Reasons(is_draining=True)
TOO_BIG = Reasons(over_memory="it is too big")


def test_nobody_leaves_without_a_reason() -> None:
    assert decide_leave(None, NO_REASON, GRACE_S, 5.0) == (Step.NOTHING, None)


def test_an_owner_waits_for_the_grace_and_a_little_more() -> None:
    step, asked = decide_leave(None, OWNER, GRACE_S, 5.0)
    assert (step, asked) == (Step.ASK_TO_LEAVE, LeaveRequest("it is noon", 35.0, by_owner=True))
    assert decide_leave(asked, OWNER, GRACE_S, 34.9) == (Step.NOTHING, asked)
    step, forced = decide_leave(asked, OWNER, GRACE_S, 35.0)
    assert step == Step.END
    assert decide_leave(forced, OWNER, GRACE_S, 1e9) == (Step.NOTHING, forced), "it is ended once"


def test_a_drain_leaves_a_worker_the_time_it_needs_and_can_be_taken_back() -> None:
    step, asked = decide_leave(None, DRAIN, GRACE_S, 5.0)
    assert (step, asked) == (Step.ASK_TO_LEAVE, LeaveRequest(DRAINED, math.inf, by_owner=False))
    assert decide_leave(asked, DRAIN, GRACE_S, 1e9) == (Step.NOTHING, asked)
    assert decide_leave(asked, NO_REASON, GRACE_S, 1e9) == (Step.LET_STAY, None)


def test_an_owner_hurries_a_worker_that_a_drain_has_asked() -> None:
    _, drained = decide_leave(None, DRAIN, GRACE_S, 5.0)
    both = Reasons(withheld="it is noon", is_draining=True)
    step, asked = decide_leave(drained, both, GRACE_S, 7.0)
    assert (step, asked) == (Step.ASK_TO_LEAVE, LeaveRequest("it is noon", 37.0, by_owner=True))
    assert decide_leave(asked, DRAIN, GRACE_S, 37.0)[0] == Step.END, "it was asked by the owner before"


def test_a_worker_that_is_too_big_leaves_whatever_changes() -> None:
    step, asked = decide_leave(None, TOO_BIG, GRACE_S, 5.0)
    assert step == Step.ASK_TO_LEAVE
    assert asked == LeaveRequest("it is too big", 35.0, by_owner=True, is_final=True)
    assert decide_leave(asked, NO_REASON, GRACE_S, 20.0) == (Step.NOTHING, asked)
    assert decide_leave(asked, NO_REASON, GRACE_S, 35.0)[0] == Step.END


@pytest.mark.parametrize("reasons", [OWNER, TOO_BIG])
def test_the_reason_that_is_told_is_the_one_that_holds(reasons: Reasons) -> None:
    _, asked = decide_leave(None, reasons, GRACE_S, 0.0)
    assert asked is not None
    assert asked.reason == reasons.over_memory or reasons.withheld


@given(
    st.lists(st.tuples(st.floats(0, 20), st.sampled_from([NO_REASON, OWNER, DRAIN, TOO_BIG])), max_size=40)
)
def test_an_owner_has_the_machine_back_in_time_and_nobody_is_ended_unasked(
    looks: list[tuple[float, Reasons]],
) -> None:
    """Looks at most 20 s apart: between being asked by the owner and the end lie grace and a little more."""
    asked, now_s, since_s = None, 0.0, None
    for passed_s, reasons in looks:
        now_s += passed_s
        before = asked
        step, asked = decide_leave(before, reasons, GRACE_S, now_s)
        if asked is None or not asked.by_owner:
            since_s = None
        elif since_s is None:
            since_s = now_s
        if step == Step.END:
            assert before is not None
            assert since_s is not None
            assert now_s - since_s >= GRACE_S + FORCE_AFTER_S
        if asked is not None and asked.by_owner and not asked.is_forced:
            assert since_s is not None
            assert now_s - since_s < GRACE_S + FORCE_AFTER_S
        assert (step == Step.LET_STAY) <= (before is not None and asked is None)
