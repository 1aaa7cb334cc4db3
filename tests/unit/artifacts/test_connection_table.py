"""Connections of one host make room among themselves; those of all are bounded; who is answered stays."""

from peerloom.artifacts.fetch.connection_table import ConnectionTable


def test_a_host_at_its_limit_gives_up_its_own_longest_idle() -> None:
    table = ConnectionTable[str](limit=9, limit_of_host=2)
    for key, host in (("other", "b"), ("first", "a"), ("second", "a")):
        assert table.enter(key, host) == (True, None)
    assert table.enter("third", "a") == (True, "first")
    assert table.enter("fourth", "a") == (True, "second")


def test_where_all_have_too_many_the_longest_idle_of_all_goes() -> None:
    table = ConnectionTable[str](limit=2, limit_of_host=2)
    table.enter("first", "a")
    table.enter("second", "b")
    table.work("first")
    table.wait("first")  # answered meanwhile, so it is idle for a shorter time
    assert table.enter("third", "c") == (True, "second")


def test_who_is_answered_is_not_closed_for_a_newcomer() -> None:
    table = ConnectionTable[str](limit=1, limit_of_host=1)
    table.enter("first", "a")
    table.work("first")
    assert table.enter("second", "a") == (False, None)
    assert table.enter("third", "b") == (False, None)
    table.leave("first")
    assert table.enter("fourth", "b") == (True, None)


def test_a_connection_that_was_displaced_takes_no_place_when_it_hears_of_it_late() -> None:
    table = ConnectionTable[str](limit=1, limit_of_host=1)
    table.enter("first", "a")
    assert table.enter("second", "b") == (True, "first")
    table.wait("first")
    table.leave("first")
    assert table.enter("third", "c") == (True, "second")
