"""The decisions, by hand-computed examples: suspect after 3 s, dead after 10 s, 5 s of grace."""

import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.services.registry.membership import decisions
from peerloom.services.registry.membership.decisions import Beat, Timing, Welcome
from peerloom.v1.registry_pb2 import (
    NODE_STATE_ALIVE,
    NODE_STATE_DEAD,
    NODE_STATE_LEFT,
    NODE_STATE_SUSPECT,
    NodeState,
)

STATES = (NODE_STATE_ALIVE, NODE_STATE_SUSPECT, NODE_STATE_DEAD, NODE_STATE_LEFT)
TIMING = Timing(heartbeat_interval_s=1.0, suspect_after_s=3.0, dead_after_s=10.0, restart_grace_s=5.0)
NEVER = float("-inf")


@pytest.mark.parametrize(
    ("state", "heard_s", "listening_s", "now_s", "verdict", "next_check_s"),
    [
        (NODE_STATE_ALIVE, 100.0, 0.0, 102.99, NODE_STATE_ALIVE, 103.0),
        (NODE_STATE_ALIVE, 100.0, 0.0, 103.0, NODE_STATE_SUSPECT, 110.0),
        (NODE_STATE_ALIVE, 100.0, 0.0, 500.0, NODE_STATE_SUSPECT, 110.0),
        (NODE_STATE_SUSPECT, 100.0, 0.0, 104.0, NODE_STATE_SUSPECT, 107.0),
        (NODE_STATE_SUSPECT, 100.0, 0.0, 109.99, NODE_STATE_SUSPECT, 110.0),
        (NODE_STATE_SUSPECT, 100.0, 0.0, 110.0, NODE_STATE_DEAD, 110.0),
        (NODE_STATE_ALIVE, NEVER, 105.0, 107.9, NODE_STATE_ALIVE, 108.0),
        (NODE_STATE_ALIVE, NEVER, 105.0, 108.0, NODE_STATE_SUSPECT, 115.0),
        (NODE_STATE_SUSPECT, NEVER, 105.0, 100.0, NODE_STATE_SUSPECT, 103.0),
        (NODE_STATE_SUSPECT, 101.0, 105.0, 114.9, NODE_STATE_SUSPECT, 115.0),
    ],
)
def test_silence_is_judged_from_the_later_of_last_beat_and_listening(
    state: NodeState.ValueType,
    heard_s: float,
    listening_s: float,
    now_s: float,
    verdict: NodeState.ValueType,
    next_check_s: float,
) -> None:
    found = decisions.judge(state, heard_s, listening_s, now_s, TIMING)
    assert (found.state, found.next_check_s) == (verdict, pytest.approx(next_check_s))


def test_a_verdict_tells_how_long_the_silence_was() -> None:
    assert decisions.judge(NODE_STATE_ALIVE, 0.0, 0.0, 4.5, TIMING).reason == (
        "No heartbeat for 4.5 s; suspected after 3 s."
    )


@pytest.mark.parametrize(
    ("state", "known", "incarnation", "meaning"),
    [
        (NODE_STATE_ALIVE, 3, 3, Beat.KEEP),
        (NODE_STATE_ALIVE, 3, 2, Beat.KEEP),
        (NODE_STATE_ALIVE, 3, 4, Beat.ADOPT),
        (NODE_STATE_SUSPECT, 3, 2, Beat.KEEP),
        (NODE_STATE_SUSPECT, 3, 3, Beat.KEEP),
        (NODE_STATE_SUSPECT, 3, 4, Beat.REFUTE),
        (NODE_STATE_SUSPECT, 3, 1003, Beat.REFUTE),
    ],
)
def test_only_a_higher_incarnation_refutes(
    state: NodeState.ValueType, known: int, incarnation: int, meaning: Beat
) -> None:
    assert decisions.judge_beat(state, known, incarnation) is meaning


def test_a_jump_of_the_incarnation_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"incarnation is 1004, but must be at most 1,000 above"):
        decisions.judge_beat(NODE_STATE_ALIVE, 3, 1004)


@pytest.mark.parametrize(
    ("holder_key", "session_is_open", "welcome"),
    [
        (None, False, Welcome.FIRST),
        ("mine", False, Welcome.RETURN),
        ("mine", True, Welcome.RETURN_AFTER_CRASH),
        ("other", False, Welcome.REFUSE),
        ("other", True, Welcome.REFUSE),
    ],
)
def test_the_first_keeps_the_name(holder_key: str | None, session_is_open: bool, welcome: Welcome) -> None:
    assert decisions.judge_registration(holder_key, "mine", session_is_open)[0] is welcome


def test_a_broken_stream_makes_only_the_living_suspect() -> None:
    states = [decisions.judge_broken_stream(state)[0] for state in STATES]
    assert states == [NODE_STATE_SUSPECT, NODE_STATE_SUSPECT, NODE_STATE_DEAD, NODE_STATE_LEFT]


@pytest.mark.parametrize(("awake_s", "since_s"), [(101.5, 50.0), (101.6, 101.6)])
def test_a_pause_of_the_registry_of_over_half_the_limit_forgives_all_silences(
    awake_s: float, since_s: float
) -> None:
    assert decisions.listening_since(50.0, 100.0, awake_s, TIMING) == since_s


def test_a_pause_in_the_grace_does_not_shorten_it() -> None:
    assert decisions.listening_since(200.0, 100.0, 102.0, TIMING) == 200.0


def test_an_interrupted_session_ends_at_its_last_sign_of_life() -> None:
    assert decisions.last_sign_s(30.0, 5.0, -100.0) == 30.0
    assert decisions.last_sign_s(NEVER, 5.0, -100.0) == 5.0
