"""When a lease may be taken: every case of the decision, at invented times."""

from peerloom.kit.lease_rules import (
    LEASE_S,
    LETTING_GO_S,
    TAKE_AFTER_S,
    LeaseRow,
    Sighting,
    judge,
    left_s,
    see,
)

HOLDER = "the registry (process 7 on ada)"


def row(epoch: int = 3, beat: int = 10, *, is_released: bool = False) -> LeaseRow:
    return LeaseRow(epoch, beat, is_released, HOLDER, "")


def verdict_after(unmoved_s: float, *, is_dead: bool = False, is_released: bool = False) -> tuple[bool, str]:
    verdict = judge(row(is_released=is_released), is_dead=is_dead, unmoved_s=unmoved_s)
    return verdict.may_take, verdict.reason


def test_a_lease_that_nobody_ever_held_may_be_taken() -> None:
    assert judge(None, is_dead=False, unmoved_s=0.0).may_take


def test_who_shows_life_keeps_it_and_is_named() -> None:
    assert verdict_after(2.9) == (False, f"{HOLDER} holds the lease")


def test_it_is_free_at_once_when_released_or_its_holder_is_dead() -> None:
    assert verdict_after(0.0, is_released=True) == (True, f"{HOLDER} has released it")
    assert verdict_after(0.0, is_dead=True) == (True, f"{HOLDER} is dead")


def test_it_is_free_when_its_beat_has_not_moved_for_its_time() -> None:
    assert verdict_after(3.0) == (True, f"{HOLDER} has shown no life for 3.0 s")


def test_a_beat_or_another_holder_begins_the_time_anew() -> None:
    first = see(None, row(), 100.0)
    assert first == Sighting(3, 10, 100.0)
    again = see(first, row(), 100.125)
    assert again == Sighting(3, 10, 100.125, 0.125)
    assert see(again, row(), 100.25) == Sighting(3, 10, 100.25, 0.25)
    assert see(again, row(beat=11), 104.0) == Sighting(3, 11, 104.0)
    assert see(again, row(epoch=4), 104.0) == Sighting(4, 10, 104.0)


def test_a_look_that_took_long_is_no_evidence_for_all_of_its_time() -> None:
    """A database that stood still for a minute let nobody show life."""
    assert see(Sighting(3, 10, 100.0, 1.0), row(), 160.0) == Sighting(3, 10, 160.0, 1.25)


def test_a_leader_counts_from_the_begin_of_its_last_renewal() -> None:
    assert left_s(100.0, 100.5) == 1.5
    assert left_s(100.0, 102.0) == 0.0
    assert left_s(100.0, 160.0) == -58.0


def test_a_leader_has_let_go_before_a_standby_may_lead() -> None:
    """Also one that hears of its deadline half a second late."""
    assert LEASE_S + LETTING_GO_S + 0.5 <= TAKE_AFTER_S
