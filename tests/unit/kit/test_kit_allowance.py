"""Some at once, then so many a second; and no more keys than the limit."""

from peerloom.kit.allowance import Allowances, Rate


def test_some_may_at_once_and_then_one_each_interval() -> None:
    allowances = Allowances[str](Rate(most=2, per_s=0.5), limit=10)
    assert [allowances.take("a", 0.0) for _ in range(3)] == [True, True, False]
    assert [allowances.take("a", now_s) for now_s in (1.0, 2.0, 3.0, 4.0)] == [False, True, False, True]
    assert [allowances.take("a", 1e6) for _ in range(3)] == [True, True, False], "never more than at first"


def test_a_clock_that_goes_back_gives_nothing() -> None:
    allowances = Allowances[str](Rate(most=1, per_s=1.0), limit=10)
    assert allowances.take("a", 10.0)
    assert not allowances.take("a", 5.0)


def test_the_key_used_longest_ago_is_forgotten() -> None:
    allowances = Allowances[int](Rate(most=1, per_s=0.0), limit=2)
    assert [allowances.take(key, 0.0) for key in (1, 2, 3)] == [True, True, True]
    assert [allowances.take(key, 0.0) for key in (3, 2, 1)] == [False, False, True]
