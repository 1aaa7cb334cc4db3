"""Who gets which part, what a step takes and refuses: by hand, in random orders, as histories of calls."""

import threading
from collections.abc import Hashable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linearizability import Call, History, is_linearizable, record

from peerloom.kit.handing_out import (
    NOT_BEGUN,
    BatchPart,
    HandOut,
    Row,
    Taken,
    after_step,
    handed_out,
    taken,
    why,
    without_late,
)
from peerloom.kit.stale_steps import StaleSteps

LIMIT_S = 60
SSP, ASP, BACKUP = StaleSteps(1), StaleSteps(None), StaleSteps(0, backup=0.6)


def state(stale: StaleSteps, *rows: tuple[BatchPart, ...], **fields: Any) -> HandOut:
    """Ten parts, two a step, of which those in the rows were handed out."""
    handed = sum(map(len, rows))
    whole = {"total": 10, "per_step": 2, "ends_short": False, "handed": handed, **fields}
    return HandOut(stale=stale, rows=tuple(map(Row, rows)), **whole)


def done(number: int, version: int) -> BatchPart:
    return BatchPart(number, version, is_done=True)


def at_work(number: int, version: int) -> BatchPart:
    return BatchPart(number, version)


def numbers(chosen: list[Taken]) -> list[int]:
    return [each.part.number for each in chosen]


def test_who_has_nothing_to_do_gets_a_part_first_and_then_each_gets_one_ahead() -> None:
    now, given_out = handed_out(state(SSP, (), (at_work(0, 0),)))
    # Two steps of two parts may be under way: three more are.
    assert given_out == [[1, 2], [3]]
    assert (now.handed, [len(row.parts) for row in now.rows]) == (4, [2, 2])
    assert handed_out(now)[1] == [[], []]


def test_without_a_bound_above_0_nobody_gets_one_ahead() -> None:
    assert handed_out(state(StaleSteps(0), (), ()))[1] == [[0], [1]]
    assert handed_out(state(BACKUP, (), (), ()))[1] == [[0], [1], [2]]


def test_who_still_computes_what_was_refused_gets_nothing() -> None:
    now = state(BACKUP, (), ())
    busy = replace(now, rows=(Row(is_busy=True), Row()))
    assert handed_out(busy)[1] == [[], [0]]


def test_what_was_refused_is_handed_out_before_what_is_new() -> None:
    assert handed_out(state(ASP, (), (), handed=6, returned=(2, 4)))[1] == [[2, 6], [4, 7]]


def test_a_step_takes_the_oldest_that_are_done() -> None:
    now = state(ASP, (done(2, 1), done(0, 0)), (done(1, 1),), (at_work(3, 0),))
    assert [(each.part.number, each.age) for each in taken(now, 2)] == [(0, 2), (1, 1)]
    assert taken(state(ASP, (done(0, 0),), (at_work(1, 0),)), 0) == []


def test_a_step_waits_for_who_would_be_too_old_after_it() -> None:
    rows = ((done(0, 0), done(1, 0)), (at_work(2, 0),))
    assert numbers(taken(state(SSP, *rows), 0)) == [0, 1]
    assert taken(state(StaleSteps(0), *rows), 0) == []
    later = ((done(3, 1), done(4, 1)), (at_work(2, 0),))
    assert taken(state(SSP, *later), 1) == [], "part 2 would be 2 steps old"
    assert numbers(taken(state(StaleSteps(1, backup=0.5), *later), 1)) == [3, 4], "it is refused instead"


def test_what_is_beyond_the_bound_is_refused_and_handed_out_again() -> None:
    now = state(BACKUP, (done(0, 4),), (done(1, 4),), (at_work(2, 4),), (BatchPart(3),))
    left, refused = after_step(now, 5, taken(now, 4))
    assert [(each.rank, each.part.number, each.age) for each in refused] == [(2, 2, 1)]
    assert (left.returned, left.counted) == ((2,), 2)
    assert [(len(row.parts), row.is_busy) for row in left.rows] == [
        (0, False),
        (0, False),
        (0, True),
        (1, False),
    ]
    assert why(refused[0], BACKUP, True) == "at work, it is 1 step old, and 0 are allowed: handed out again"


def test_an_epochs_short_part_belongs_to_its_last_step() -> None:
    rows = ((done(9, 0), done(6, 0)), (done(7, 0), done(8, 0)))
    now = state(ASP, *rows, handed=10, counted=6, ends_short=True)
    first = taken(now, 0)
    assert numbers(first) == [6, 7]
    assert numbers(taken(after_step(now, 1, first)[0], 1)) == [8, 9]


def test_the_reason_says_age_and_weight() -> None:
    old, new = Taken(0, done(0, 1), 3), Taken(0, done(0, 4), 0)
    assert why(old, StaleSteps(4), False) == "it is 3 steps old, of 4 that are allowed"
    assert why(old, StaleSteps(None, weighted=True), False) == "it is 3 steps old: counts 0.50 times"
    assert why(new, ASP, False) == "it began with the newest version"


@settings(deadline=None)
@given(
    stale=st.one_of(
        st.builds(StaleSteps, st.sampled_from([0, 1, 2, 5, None])),
        st.builds(StaleSteps, st.sampled_from([0, 1, 2]), backup=st.sampled_from([0.3, 0.6, 1.0])),
    ),
    ranks=st.integers(1, 5),
    steps=st.integers(1, 6),
    chance=st.randoms(use_true_random=False),
)
def test_in_any_order_each_part_counts_once_and_none_is_too_old(
    stale: StaleSteps, ranks: int, steps: int, chance: Random
) -> None:
    """Ranks begin and end parts by chance, also between a step's decision and their hearing of it."""
    per_step = stale.parts(12, ranks)
    total = per_step * steps - chance.randrange(per_step)
    now = HandOut(stale, total, per_step, True, tuple(Row() for _ in range(ranks)))
    newest, counted = 0, list[int]()
    for _ in range(5000):
        now, _ = handed_out(now)
        now = worked(now, newest, chance)
        now, _ = without_late(now, newest)
        chosen = taken(now, newest)
        if not chosen:
            continue
        assert all(stale.allows(each.age) for each in chosen)
        assert len(chosen) == min(per_step, total - len(counted))
        counted += numbers(chosen)
        # What begins before the new parameters are there begins with those before.
        now, _ = after_step(now, newest + 1, chosen)
        if stale.bound != 0 or stale.backup:
            now = begun(now, newest, chance)
        newest += 1
        if len(counted) == total:
            break
    assert sorted(counted) == list(range(total))
    assert newest == -(-total // per_step)


def worked(now: HandOut, newest: int, chance: Random) -> HandOut:
    """Some ranks begin the next part, some end one, some end what was refused."""
    rows = []
    for row in begun(now, newest, chance).rows:
        ends = chance.random() < 0.3
        is_busy = row.is_busy and not ends
        parts = tuple(
            replace(part, is_done=True) if ends and not row.is_busy and part.version != NOT_BEGUN else part
            for part in row.parts
        )
        rows.append(replace(row, parts=parts, is_busy=is_busy))
    return replace(now, rows=tuple(rows))


def begun(now: HandOut, version: int, chance: Random) -> HandOut:
    rows = []
    for row in now.rows:
        free = not row.is_busy and all(part.is_done or part.version == NOT_BEGUN for part in row.parts)
        waiting = [part for part in row.parts if part.version == NOT_BEGUN]
        if free and waiting and chance.random() < 0.6:
            parts = tuple(
                replace(part, version=version) if part is waiting[0] else part for part in row.parts
            )
            row = replace(row, parts=parts)
        rows.append(row)
    return replace(now, rows=tuple(rows))


class Server:
    """What the workers decide alike, as a server for threads: each takes parts, and pushes them."""

    def __init__(self, stale: StaleSteps, ranks: int) -> None:
        self.newest = 0
        self._now = HandOut(stale, 1000, 1, False, tuple(Row() for _ in range(ranks)))
        self._lock = threading.Lock()

    def pull(self, rank: int) -> tuple[int, int]:
        """A part's number, and the version that it begins with."""
        with self._lock:
            part = BatchPart(self._now.handed, self.newest)
            self._put(rank, (part,))
            self._now = replace(self._now, handed=self._now.handed + 1)
            return part.number, part.version

    def push(self, rank: int, number: int, version: int) -> bool:
        """Whether the part counted, and made a new version."""
        with self._lock:
            return self._write(rank, self._check(rank, number, version))

    def _put(self, rank: int, parts: tuple[BatchPart, ...]) -> None:
        rows = list(self._now.rows)
        rows[rank] = Row(parts)
        self._now = replace(self._now, rows=tuple(rows))

    def _check(self, rank: int, number: int, version: int) -> list[Taken]:
        if all(part.number != number for part in self._now.rows[rank].parts):
            return []  # refused meanwhile
        self._put(rank, (done(number, version),))
        return [each for each in taken(self._now, self.newest) if each.rank == rank]

    def _write(self, rank: int, chosen: list[Taken]) -> bool:
        if chosen:
            self.newest += 1
            self._now, _ = after_step(self._now, self.newest, chosen)
        return bool(chosen)


class CheckThenWrite(Server):
    """The planted mistake: all have checked before the first one writes."""

    def __init__(self, stale: StaleSteps, ranks: int) -> None:
        super().__init__(stale, ranks)
        self._all_have_pulled = threading.Barrier(ranks, timeout=LIMIT_S)
        self._all_have_checked = threading.Barrier(ranks, timeout=LIMIT_S)

    def push(self, rank: int, number: int, version: int) -> bool:
        self._all_have_pulled.wait()
        with self._lock:
            checked = [Taken(rank, done(number, version), self.newest - version)]
        self._all_have_checked.wait()
        with self._lock:
            return self._write(rank, checked)


def one_by_one(stale: StaleSteps) -> Any:
    """The state machine as the checker wants it: the newest version; each push within the bound raises it."""

    def step(newest: Hashable, asked: Any, answer: Any) -> tuple[bool, Hashable]:
        assert isinstance(newest, int)
        if asked == "pull":
            return answer in (None, newest), newest
        counts = stale.allows(newest - asked)
        return answer in (None, counts), newest + counts

    return step


def pulls_and_pushes(server: Server, threads: int, turns: int) -> list[Call]:
    def work(history: History, rank: int) -> None:
        for _ in range(turns):
            with history.call(rank, "pull") as pull:
                number, version = server.pull(rank)
                pull.answer = version
            with history.call(rank, version) as push:
                push.answer = server.push(rank, number, version)

    return record(threads, LIMIT_S, work)


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("stale", [StaleSteps(0, backup=0.5), StaleSteps(2, backup=0.5), ASP])
def test_histories_of_pushes_look_as_if_one_after_the_other(stale: StaleSteps) -> None:
    calls = pulls_and_pushes(Server(stale, 4), threads=4, turns=5)
    assert len(calls) == 40
    assert is_linearizable(calls, 0, one_by_one(stale))


@pytest.mark.timeout(2 * LIMIT_S)
def test_who_checks_and_then_writes_is_found() -> None:
    calls = pulls_and_pushes(CheckThenWrite(BACKUP, 2), threads=2, turns=1)
    assert [call.answer for call in calls if call.asked != "pull"] == [True, True]
    # Both began with version 0, and one of them would have been refused.
    assert not is_linearizable(calls, 0, one_by_one(BACKUP))
