"""Who swaps with whom: after the last round each rank has had each value once."""

import pytest

from peerloom.kit.doubling_partners import DoublingPlace, DoublingRound, doubling_place

LOWER, UPPER = True, False


def test_four_ranks_swap_with_the_next_and_then_with_the_one_after() -> None:
    assert [doubling_place(rank, 4) for rank in range(4)] == [
        DoublingPlace(None, None, (DoublingRound(1, LOWER), DoublingRound(2, LOWER))),
        DoublingPlace(None, None, (DoublingRound(0, UPPER), DoublingRound(3, LOWER))),
        DoublingPlace(None, None, (DoublingRound(3, LOWER), DoublingRound(0, UPPER))),
        DoublingPlace(None, None, (DoublingRound(2, UPPER), DoublingRound(1, UPPER))),
    ]


def test_of_six_ranks_two_are_left_over_and_give_to_a_neighbour() -> None:
    """Ranks 0, 2, 4 and 5 take part; 1 gives to 0, and 3 to 2."""
    assert [doubling_place(rank, 6) for rank in range(6)] == [
        DoublingPlace(None, 1, (DoublingRound(2, LOWER), DoublingRound(4, LOWER))),
        DoublingPlace(0, None, ()),
        DoublingPlace(None, 3, (DoublingRound(0, UPPER), DoublingRound(5, LOWER))),
        DoublingPlace(2, None, ()),
        DoublingPlace(None, None, (DoublingRound(5, LOWER), DoublingRound(0, UPPER))),
        DoublingPlace(None, None, (DoublingRound(4, UPPER), DoublingRound(2, UPPER))),
    ]


@pytest.mark.parametrize("ranks", range(2, 18))
def test_every_value_is_in_every_sum_once(ranks: int) -> None:
    places = [doubling_place(rank, ranks) for rank in range(ranks)]
    had = [[rank] for rank in range(ranks)]
    for rank, place in enumerate(places):
        if place.gives_to is not None:
            assert places[place.gives_to].takes_from == rank
            had[place.gives_to] += had[rank]
    for number in range(max(len(place.rounds) for place in places)):
        swapped = list(had)
        for rank, place in enumerate(places):
            if place.rounds:
                one = place.rounds[number]
                back = places[one.partner].rounds[number]
                assert (back.partner, back.is_lower) == (rank, not one.is_lower)
                swapped[rank] = had[rank] + had[one.partner]
        had = swapped
    for rank, place in enumerate(places):
        assert sorted(had[rank if place.gives_to is None else place.gives_to]) == list(range(ranks))
