"""Which chunk is asked of whom: by hand, and over invented swarms of peers that are partial or leave."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloom.artifacts.fetch.chunk_schedule import (
    LARGEST_WINDOW,
    AllHere,
    AskPeer,
    FetchState,
    Flight,
    NoPeers,
    PeerPace,
    PeerState,
    WaitLonger,
    begun,
    next_step,
    received,
)


def state_of(chunks: int, **peers: PeerState) -> FetchState:
    return FetchState(chunks, 1000, set(range(chunks)), dict(peers))


def fly(state: FetchState, ask: AskPeer, now_s: float) -> None:
    """As the fetcher does: the one it is taken from is free again."""
    if ask.instead_of in state.peers:
        state.peers[ask.instead_of].in_flight -= 1
        state.peers[ask.instead_of].rest_until_s = now_s + 2
    state.peers[ask.peer].in_flight += 1
    state.flights[ask.index] = Flight(ask.peer, now_s, state.peers[ask.peer].in_flight)


def land(state: FetchState, index: int) -> None:
    peer = state.peers.get(state.flights.pop(index).peer)
    if peer is not None:
        peer.in_flight -= 1
    state.missing.discard(index)


def test_the_rarest_chunk_is_asked_first() -> None:
    state = state_of(
        4, ada=PeerState(), bob=PeerState(held=frozenset({0, 1, 3})), cleo=PeerState(held=frozenset({0}))
    )
    step = next_step(state, 0.0)
    assert isinstance(step, AskPeer)
    assert (step.peer, step.index, step.reason) == ("ada", 2, "1 of 3 peers hold it, the fewest")


def test_among_equals_the_first_and_for_a_swarm_one_at_our_own_place() -> None:
    state = state_of(8, ada=PeerState())
    state.seed = 5
    step = next_step(state, 0.0)
    assert isinstance(step, AskPeer)
    assert step.index == 0
    state.peers["new"] = PeerState(held=frozenset())
    step = next_step(state, 0.0)
    assert isinstance(step, AskPeer)
    assert step.index == 5


def test_a_peer_is_asked_for_no_more_than_its_window_and_all_for_no_more_than_the_limit() -> None:
    state = state_of(9, ada=PeerState(pace=PeerPace(window=2)), bob=PeerState(pace=PeerPace(window=2)))
    state.flight_limit = 3
    for _ in range(3):
        step = next_step(state, 0.0)
        assert isinstance(step, AskPeer)
        fly(state, step, 0.0)
    assert next_step(state, 0.0) == WaitLonger(None, "3 chunks are on their way, the most at once")
    assert {name: peer.in_flight for name, peer in state.peers.items()} in (
        {"ada": 2, "bob": 1},
        {"ada": 1, "bob": 2},
    )


def test_a_late_chunk_is_taken_from_its_sender_once_another_would_have_had_it_twice() -> None:
    """bob brings 1000 bytes in 1 s, so ada's chunk is late after 1 s and twice that."""
    state = state_of(1, ada=PeerState(), bob=PeerState(pace=PeerPace(rate=1000.0)))
    fly(state, AskPeer("ada", 0, ""), 10.0)
    assert next_step(state, 10.5) == WaitLonger(13.0, "all that can be asked for is on its way")
    step = next_step(state, 13.0)
    assert step == AskPeer("bob", 0, "ada has been sending it for 3.0 s", instead_of="ada")


@pytest.mark.parametrize(("rate", "late_s"), [(2000.0, 5.0), (500.0, 2.0)])
def test_a_chunk_stays_with_a_sender_that_is_sooner_done_than_another(rate: float, late_s: float) -> None:
    """Four chunks at once take ada 2 s, one takes bob half a second; from a slow ada he takes them soon."""
    state = state_of(4, ada=PeerState(pace=PeerPace(window=4, rate=rate)))
    for _ in range(4):
        step = next_step(state, 0.0)
        assert isinstance(step, AskPeer)
        fly(state, step, 0.0)
    state.peers["bob"] = PeerState(pace=PeerPace(rate=2000.0))
    assert next_step(state, 1.9) == WaitLonger(late_s, "all that can be asked for is on its way")
    step = next_step(state, late_s)
    assert isinstance(step, AskPeer)
    assert (step.peer, step.instead_of) == ("bob", "ada")


def test_a_peer_that_rests_is_waited_for_and_nobody_is_no_wait() -> None:
    state = state_of(1, ada=PeerState(rest_until_s=7.0))
    assert next_step(state, 5.0) == WaitLonger(7.0, "all that can be asked for is on its way")
    assert isinstance(next_step(state, 7.0), AskPeer)
    state.peers.clear()
    assert isinstance(next_step(state, 7.0), NoPeers)
    state.missing.clear()
    assert next_step(state, 7.0) == AllHere()


@pytest.mark.parametrize(("gain", "window"), [(1.0, 2), (2.0, LARGEST_WINDOW)])
def test_the_window_follows_what_more_of_it_brought(gain: float, window: int) -> None:
    """Each chunk more at once brings `gain` times the rate, or nothing: then it goes back."""
    pace, now_s = begun(PeerPace(), 0.0), 0.0
    for _ in range(200):
        now_s += 0.1 / gain**pace.window
        pace = received(pace, 1000, now_s)
    assert pace.window in ((window, window + 1) if gain == 1.0 else (window,))
    assert pace.rate == pytest.approx(10_000 * gain**pace.window, rel=0.8)


@settings(deadline=None)
@given(chance=st.randoms(use_true_random=False), chunks=st.integers(0, 30))
def test_every_chunk_comes_as_long_as_a_whole_holder_stays(chance: random.Random, chunks: int) -> None:
    """A simulated fetch: it ends, no chunk is on its way twice, nobody is asked for what it lacks."""
    state = state_of(chunks, whole=PeerState())
    for number in range(chance.randint(0, 4)):
        held = frozenset(chance.sample(range(chunks), chance.randint(0, chunks)))
        state.peers[f"part-{number}"] = PeerState(held=held if chance.random() < 0.7 else None)
    state.seed, now_s = chance.randint(0, 99), 0.0
    for _ in range(2000):
        step = next_step(state, now_s)
        if isinstance(step, AllHere):
            break
        if isinstance(step, AskPeer):
            assert step.index in state.missing
            assert state.peers[step.peer].holds(step.index)
            assert state.peers[step.peer].in_flight < state.peers[step.peer].pace.window
            assert (step.index in state.flights) == bool(step.instead_of)
            fly(state, step, now_s)
            continue
        assert isinstance(step, WaitLonger)
        assert state.flights or step.until_s is not None, "it waits for something"
        now_s += 0.5
        flying = sorted(state.flights)
        for index in flying:
            fate = chance.random()
            if fate < 0.6:
                land(state, index)
            elif fate < 0.7 and (leaver := state.flights[index].peer) != "whole":
                for lost in [
                    one for one in flying if one in state.flights and state.flights[one].peer == leaver
                ]:
                    del state.flights[lost]
                state.peers.pop(leaver, None)
                break
    assert not state.missing
