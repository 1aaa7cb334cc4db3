"""Parameters with versions: what becomes of pushes, and whether histories are as if one after the other."""

import itertools
import threading
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from linearizability import Call, History, is_linearizable, record

from peerloom.kit.federated_rounds import BOUND, WEIGHTED, FederatedRounds
from peerloom.worker.federated.versions import (
    NOT_FINITE,
    OTHER_SHAPES,
    SOUND,
    ClientTotal,
    KeptVersions,
    Push,
    PushVerdict,
    Versions,
    flaw_of,
    judged,
    likeness_of,
    parts,
    pushed,
)

LIMIT_S = 60
STRICT = FederatedRounds()
BOUNDED = FederatedRounds(stale=BOUND, bound=2)
LIKE = FederatedRounds(stale=WEIGHTED)
AT_FIVE = Versions(5)


@pytest.mark.parametrize(
    ("rounds", "push", "word", "weight", "reason"),
    [
        (STRICT, Push(0, 5, 40), "accepted", 40.0, "the newest version, 5"),
        (STRICT, Push(0, 4, 40), "refused", 0.0, "pull, and train again"),
        (BOUNDED, Push(0, 3, 40), "merged", 40.0, "2 of 2 versions old"),
        (BOUNDED, Push(0, 2, 40), "refused", 0.0, "3 versions old, and 2 are allowed"),
        # Half as like, three versions old: 40 * 0.5 / sqrt(1 + 3).
        (LIKE, Push(0, 2, 40, 0.5), "merged", 10.0, "counts 0.25 times"),
        (LIKE, Push(0, 4, 40, -0.1), "refused", 0.0, "against what has changed since"),
        (LIKE, Push(0, 5, 40, -0.1), "accepted", 40.0, "newest"),
        (BOUNDED, Push(0, 6, 40), "refused", 0.0, "began with version 6, and the newest is 5"),
        (BOUNDED, Push(0, 5, 40, flaw=NOT_FINITE), "refused", 0.0, "finite"),
        (BOUNDED, Push(0, 5, 40, flaw=OTHER_SHAPES), "refused", 0.0, "shapes"),
    ],
)
def test_what_becomes_of_a_push(
    rounds: FederatedRounds, push: Push, word: str, weight: float, reason: str
) -> None:
    verdict = judged(AT_FIVE, push, rounds)
    assert (verdict.word, verdict.weight) == (word, pytest.approx(weight))
    assert reason in verdict.reason


def test_pushes_that_count_make_one_version_together() -> None:
    pushes = [Push(0, 5, 30), Push(1, 4, 10), Push(2, 1, 7)]
    after, verdicts = pushed(AT_FIVE, pushes, BOUNDED)
    assert [verdict.word for verdict in verdicts] == ["accepted", "merged", "refused"]
    assert parts(verdicts) == [0.75, 0.25, 0.0]
    assert after.newest == 6
    assert after.totals[0] == ClientTotal(counted=5, updates=1, samples=30)
    assert after.totals[2] == ClientTotal(refused_updates=1, refused_samples=7)
    assert after.samples == 40


def test_where_none_counts_the_newest_version_stays() -> None:
    after, verdicts = pushed(AT_FIVE, [Push(0, 4, 3)], STRICT)
    assert after.newest == 5
    assert parts(verdicts) == [0.0]


def test_an_update_that_is_pushed_again_counts_once() -> None:
    """Its client wasn't told, as its line broke: also where older versions may be merged."""
    after, _ = pushed(AT_FIVE, [Push(0, 5, 30)], BOUNDED)
    again, verdicts = pushed(after, [Push(0, 5, 30)], BOUNDED)
    assert "has counted already" in verdicts[0].reason
    assert again.samples == 30


def test_versions_travel_with_the_state() -> None:
    kept, other = KeptVersions(), KeptVersions()
    kept.now = pushed(AT_FIVE, [Push(3, 5, 30), Push(1, 2, 4)], STRICT)[0]
    other.load_state_dict(kept.state_dict())
    assert other.now == kept.now


def test_flaws_and_likeness_are_those_of_the_values() -> None:
    parameters = [torch.zeros(2), torch.zeros(1, 2)]
    assert flaw_of([torch.ones(2), torch.ones(1, 2)], parameters) == SOUND
    assert flaw_of([torch.ones(2), torch.ones(2)], parameters) == OTHER_SHAPES
    assert flaw_of([torch.ones(2)], parameters) == OTHER_SHAPES
    assert flaw_of([torch.ones(2), torch.tensor([[0.0, torch.inf]])], parameters) == NOT_FINITE
    assert flaw_of([torch.tensor([0.0, torch.nan]), torch.ones(1, 2)], parameters) == NOT_FINITE
    # (3, 0, 4) and (0, 0, 2): 8 / (5 * 2).
    one, other = [torch.tensor([3.0, 0.0]), torch.tensor([4.0])], [torch.zeros(2), torch.tensor([2.0])]
    assert likeness_of(one, other) == pytest.approx(0.8)
    assert likeness_of(one, [torch.zeros(2), torch.zeros(1)]) == 1.0


class Server:
    """A parameter server for threads: one number, of which a push subtracts 1; a push is one atomic step."""

    def __init__(self, rounds: FederatedRounds) -> None:
        self._rounds = rounds
        self._state: tuple[Versions, int] = (Versions(), 0)
        self._lock = threading.Lock()

    def pull(self) -> tuple[int, int]:
        versions, value = self._state
        return versions.newest, value

    def push(self, push: Push) -> PushVerdict:
        with self._lock:
            return self._write(*self._check(push))

    def _check(self, push: Push) -> tuple[Versions, PushVerdict]:
        after, (verdict,) = pushed(self._state[0], [push], self._rounds)
        return after, verdict

    def _write(self, after: Versions, verdict: PushVerdict) -> PushVerdict:
        if verdict.word != "refused":
            self._state = (after, self._state[1] - 1)
        return verdict


class CheckThenWrite(Server):
    """The planted mistake: it lets go between the check and the write, where all others check, too."""

    def __init__(self, rounds: FederatedRounds, pushers: int) -> None:
        super().__init__(rounds)
        self._all_have_checked = threading.Barrier(pushers, timeout=LIMIT_S)

    def push(self, push: Push) -> PushVerdict:
        with self._lock:
            checked = self._check(push)
        self._all_have_checked.wait()
        with self._lock:
            return self._write(*checked)


def as_one_by_one(rounds: FederatedRounds) -> Any:
    """The state machine as the checker wants it: states are (newest version, value)."""

    def step(state: Hashable, asked: Any, answer: Any) -> tuple[bool, Hashable]:
        assert isinstance(state, tuple)
        newest, value = state
        if asked == "pull":
            return answer in (None, (newest, value)), state
        # Each push is of a client of its own, so nothing has to be known of totals.
        verdict = judged(Versions(newest), Push(0, asked, 1), rounds)
        counts = verdict.word != "refused"
        return answer in (None, verdict.word), (newest + counts, value - counts)

    return step


def pulls_and_pushes(server: Server, threads: int, turns: int, dies_in: int = -1) -> list[Call]:
    """A history of so many threads, which pull and push in turns; one dies in its push number `dies_in`."""
    clients = itertools.count()

    def work(history: History, number: int) -> None:
        for turn in range(turns):
            with history.call(number, "pull") as pull:
                pull.answer = server.pull()
            version = pull.answer[0]
            try:
                with history.call(number, version) as made:
                    made.answer = server.push(Push(next(clients), version, 1)).word
                    if number == 0 and turn == dies_in:
                        made.answer = None
                        raise ConnectionResetError
            except ConnectionResetError:
                return

    return record(threads, LIMIT_S, work)


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("rounds", [STRICT, BOUNDED])
def test_pushes_and_pulls_of_threads_look_as_if_one_after_the_other(rounds: FederatedRounds) -> None:
    """Also where one dies and doesn't hear whether its push counted."""
    for dies_in in (-1, 1):
        calls = pulls_and_pushes(Server(rounds), threads=4, turns=4, dies_in=dies_in)
        assert len(calls) == 32 if dies_in < 0 else len(calls) < 32
        assert is_linearizable(calls, (0, 0), as_one_by_one(rounds))


@pytest.mark.timeout(2 * LIMIT_S)
def test_a_server_that_checks_and_then_writes_is_found() -> None:
    """Two begin with version 0, and both are told that theirs was the newest: one update is lost."""
    calls = pulls_and_pushes(CheckThenWrite(STRICT, 2), threads=2, turns=1)
    pushes = [call.answer for call in calls if call.asked != "pull"]
    assert pushes == ["accepted", "accepted"]
    assert not is_linearizable(calls, (0, 0), as_one_by_one(STRICT))


def test_the_checker_knows_what_was_before_what() -> None:
    step = as_one_by_one(STRICT)
    push, early, late = (
        Call(0, 0, 0, 1, "accepted"),
        Call(1, "pull", 2, 3, (1, -1)),
        Call(1, "pull", 4, 5, (0, 0)),
    )
    assert is_linearizable([push, early], (0, 0), step)
    assert not is_linearizable([push, early, late], (0, 0), step), "a pull after a push doesn't see before it"
    beside = replace(push, begin=0, end=6)
    assert is_linearizable([beside, replace(late, begin=1, end=2), early], (0, 0), step)
    lost = replace(push, end=None, answer=None)
    assert is_linearizable([lost, early], (0, 0), step), "who died may have been heard"
    assert is_linearizable([lost, late], (0, 0), step), "or not"
    assert not is_linearizable([lost, early, late], (0, 0), step), "but not both"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 9)), max_size=30))
def test_counted_samples_are_those_of_what_was_not_refused(told: list[tuple[int, int, int]]) -> None:
    versions, counted, starts = Versions(), 0, set()
    for client, version, samples in told:
        versions, (verdict,) = pushed(versions, [Push(client, version, samples)], BOUNDED)
        if verdict.word != "refused":
            assert (client, version) not in starts
            starts.add((client, version))
            counted += samples
    assert versions.samples == counted
    assert versions.newest == len(starts)
