"""A coin of several ranks: the same for all, in nobody's hand, and never a way out of an audit."""

from itertools import count

import torch

from peerloom.kit.audit_rules import is_audited
from peerloom.worker.sync.robust.common_coin import ALWAYS, CommonCoin


def coins(ranks: int) -> list[CommonCoin]:
    return [CommonCoin(1, rank, ranks) for rank in range(ranks)]


def said(group: list[CommonCoin]) -> torch.Tensor:
    return torch.stack([coin.say() for coin in group])


def test_all_throw_the_same_and_another_in_each_step() -> None:
    group = coins(4)
    first = said(group)
    assert {coin.throw(first) for coin in group} == {None}, "nobody was bound yet"
    thrown = []
    for _ in range(3):
        rows = said(group)
        [one] = {coin.throw(rows) for coin in group}
        thrown.append(one)
    assert len(set(thrown)) == 3
    assert all(one is not None and len(one) == 32 for one in thrown)


def test_each_rank_alone_makes_it_another() -> None:
    """The secrets of all but rank 2 are the same twice."""

    def thrown(seed_of_2: int) -> bytes | None:
        def secrets_from(first: int) -> CommonCoin:
            numbers = count(first)
            return CommonCoin(1, len(group), 3, lambda: next(numbers).to_bytes(32, "big"))

        group: list[CommonCoin] = []
        for first in (100, 200, seed_of_2):
            group.append(secrets_from(first))
        for _ in range(2):
            rows = said(group)
            found = group[0].throw(rows)
        return found

    assert thrown(300) == thrown(300)
    assert thrown(300) != thrown(301)


def test_who_changes_its_secret_brings_about_an_audit() -> None:
    group = coins(3)
    rows = said(group)
    assert group[0].throw(rows) is None
    rows = said(group)
    rows[2, 0] ^= 1
    thrown = group[0].throw(rows)
    assert thrown == ALWAYS
    assert is_audited(thrown, 1e-9)
    rows = said(group)
    assert group[0].throw(rows) != ALWAYS, "in the step after it is bound by what it said"


def test_nobody_can_give_the_word_of_another_for_its_own() -> None:
    """Rank 2 repeats what rank 0 says: its digest is that of another rank."""
    group = coins(3)
    for expected in (None, ALWAYS):
        rows = said(group)
        rows[2] = rows[0]
        assert group[1].throw(rows) == expected
