"""A slot is never given twice, never lost, and free again when its time has passed."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from peerloom.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from peerloom.kit.clock import ManualClock
from peerloom.services.node_agent.workers.slots import Reservation, SlotTable
from peerloom.worker.assignment import Work

HOLD_S = 30.0
WORK = Work("127.0.0.1:9", "digits")


def reserve(table: SlotTable, count: int, now_s: float = 0.0, request_id: str = "r") -> Reservation:
    return table.reserve("job-1", request_id, WORK, count, 100, now_s, HOLD_S)


def test_a_reservation_holds_until_its_time_and_no_longer() -> None:
    table = SlotTable(3)
    held = reserve(table, 2)
    assert table.free(29.9) == [2]
    assert table.free(30.0) == [0, 1, 2]
    with pytest.raises(NotFoundError, match="time has passed"):
        table.start(held.reservation_id, ["a"], 30.0)


def test_a_repeated_request_finds_its_reservation() -> None:
    table = SlotTable(3)
    held = reserve(table, 1, request_id="same")
    assert table.find_request("same", 29.9) is held
    assert table.find_request("same", 30.0) is None
    assert table.find_request("other", 0.0) is None


def test_starting_uses_a_slot_for_each_worker_and_frees_the_rest() -> None:
    table = SlotTable(3)
    held = reserve(table, 3)
    started, repeated = table.start(held.reservation_id, ["a", "b"], 1.0)
    assert (started.slots, repeated) == ((0, 1), False)
    assert table.free(1000.0) == [2]
    assert (table.waiting_bytes(1.0), table.promised_bytes(1.0)) == (0, 200)


def test_starting_again_is_a_repeat_only_with_the_same_workers() -> None:
    table = SlotTable(2)
    held = reserve(table, 2)
    table.start(held.reservation_id, ["a", "b"], 1.0)
    assert table.start(held.reservation_id, ["a", "b"], 100.0) == (held, True)
    with pytest.raises(FailedPreconditionError):
        table.start(held.reservation_id, ["a", "c"], 1.0)


@pytest.mark.parametrize("worker_ids", [[], ["a", "b", "c"], ["a", "a"]])
def test_wrong_workers_are_refused_and_the_reservation_stays(worker_ids: list[str]) -> None:
    table = SlotTable(2)
    held = reserve(table, 2)
    with pytest.raises(InvalidArgumentError, match="worker_ids"):
        table.start(held.reservation_id, worker_ids, 1.0)
    assert table.start(held.reservation_id, ["a"], 1.0)[1] is False


def test_cancelling_a_job_leaves_running_workers_and_other_jobs_alone() -> None:
    table = SlotTable(4)
    running = reserve(table, 1)
    table.start(running.reservation_id, ["a"], 0.0)
    reserve(table, 1)
    table.reserve("job-2", "x", WORK, 1, 0, 0.0, HOLD_S)
    table.cancel("job-1")
    assert table.free(0.0) == [1, 3]


def test_each_change_is_told() -> None:
    told: list[int] = []
    table = SlotTable(1, lambda: told.append(1))
    held = reserve(table, 1)
    table.start(held.reservation_id, ["a"], 0.0)
    table.end(0)
    assert len(told) == 3


class SlotMachine(RuleBasedStateMachine):
    """Any order of requests, starts, ends and time, against a model of who has which slot."""

    made: Bundle[Reservation] = Bundle("made")

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.table, self.number = ManualClock(), SlotTable(4), 0
        self.held: dict[str, tuple[set[int], float]] = {}
        self.running: set[int] = set()

    def now_s(self) -> float:
        return self.clock.monotonic_s()

    @rule(target=made, wanted=st.integers(1, 4))
    def request(self, wanted: int) -> Reservation:
        self.number += 1
        count = min(wanted, len(self.table.free(self.now_s())))
        made = self.table.reserve("job-1", str(self.number), WORK, count, 0, self.now_s(), HOLD_S)
        self.held[made.reservation_id] = (set(made.slots), self.now_s() + HOLD_S)
        return made

    @rule(reservation=made, count=st.integers(1, 4))
    def start(self, reservation: Reservation, count: int) -> None:
        slots, expires_s = self.held.get(reservation.reservation_id, (set(), 0.0))
        ids = [f"w{number}" for number in range(count)]
        if expires_s > self.now_s() and count <= len(slots):
            started, _ = self.table.start(reservation.reservation_id, ids, self.now_s())
            del self.held[reservation.reservation_id]
            self.running |= set(started.slots)
        elif not reservation.worker_ids:
            with pytest.raises((NotFoundError, InvalidArgumentError)):
                self.table.start(reservation.reservation_id, ids, self.now_s())

    @rule(slot=st.integers(0, 3))
    def end(self, slot: int) -> None:
        if slot in self.running:
            self.running.discard(slot)
            self.table.end(slot)

    @rule()
    def cancel(self) -> None:
        self.table.cancel("job-1")
        self.held.clear()

    @rule(seconds=st.sampled_from([1.0, 29.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def every_slot_is_free_held_or_running_and_only_once(self) -> None:
        standing = [slots for slots, expires_s in self.held.values() if expires_s > self.now_s()]
        held = [slot for slots in standing for slot in slots]
        everything = [*held, *self.running, *self.table.free(self.now_s())]
        assert sorted(everything) == [0, 1, 2, 3]
        assert self.table.running == len(self.running)


TestSlotMachine = SlotMachine.TestCase
TestSlotMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
