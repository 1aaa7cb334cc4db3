"""A clock that follows a database's server: what its answers leave possible, and nothing but that."""

from peerloom.kit.clock import ManualClock
from peerloom.kit.database_clock import DatabaseClock, corrected_s


def test_before_the_server_has_answered_it_is_the_machines() -> None:
    own = ManualClock(wall_s=1000.0)
    clock = DatabaseClock(own)
    own.advance(2.0)
    assert (clock.wall_s(), clock.monotonic_s()) == (1002.0, 2.0)


def test_it_is_the_servers_from_its_answer_on_at_the_machines_pace() -> None:
    own = ManualClock(wall_s=1000.0)
    clock = DatabaseClock(own)
    own.advance(4.0)
    clock.follow(700.0, asked_s=2.0, answered_s=4.0)  # read at 3, if both ways took as long
    assert clock.wall_s() == 701.0
    own.advance(60.0)
    assert (clock.wall_s(), clock.monotonic_s()) == (761.0, 64.0)


def test_two_machines_minutes_apart_agree() -> None:
    ahead, behind = ManualClock(wall_s=1300.0), ManualClock(wall_s=760.0)
    clocks = [DatabaseClock(ahead), DatabaseClock(behind)]
    for clock in clocks:
        clock.follow(1000.0, asked_s=0.0, answered_s=0.0)
    assert [clock.wall_s() for clock in clocks] == [1000.0, 1000.0]


def test_an_answer_moves_only_what_it_proves_wrong() -> None:
    assert corrected_s(None, 10.0, 14.0) == 12.0
    assert corrected_s(12.0, 8.0, 13.0) == 12.0, "it may well be so"
    assert corrected_s(12.0, 12.5, 13.0) == 12.5
    assert corrected_s(12.0, 2.0, 3.0) == 3.0, "the server's clock was set back"
