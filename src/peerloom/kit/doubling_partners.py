"""Who sends what to whom in recursive doubling: pure functions of a rank and the number of ranks.

In each round all ranks swap their sums with a partner twice as far away, so that log2(n) rounds make the sum
(Thakur, Rabenseifner, Gropp, IJHPCA 2005). Of n ranks as many take part as the largest power of two has; the
others first give their values to a neighbour, and get the sum back.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class DoublingRound:
    """A swap with `partner`; of the two the one that `is_lower` has the sum of the lower ranks."""

    partner: int
    is_lower: bool


@dataclass(frozen=True)
class DoublingPlace:
    """One rank's part: `gives_to` another, or `takes_from` one, or neither, and then its `rounds`."""

    gives_to: int | None
    takes_from: int | None
    rounds: tuple[DoublingRound, ...]


def round_count(ranks: int) -> int:
    """Rounds of swaps among so many ranks (at least 1), but for those with who is left over."""
    return ranks.bit_length() - 1


def doubling_place(rank: int, ranks: int) -> DoublingPlace:
    """What `rank` of so many does. Of the first ones, two by two, the odd give to the even."""
    rounds = round_count(ranks)
    left_over = ranks - (1 << rounds)
    if rank < 2 * left_over:
        if rank % 2:
            return DoublingPlace(rank - 1, None, ())
        return DoublingPlace(None, rank + 1, _rounds(rank // 2, rounds, left_over))
    return DoublingPlace(None, None, _rounds(rank - left_over, rounds, left_over))


def _rounds(place: int, rounds: int, left_over: int) -> tuple[DoublingRound, ...]:
    """Those of the `place`-th of the ranks that take part."""
    partners = [(place ^ (1 << number), not place >> number & 1) for number in range(rounds)]
    return tuple(
        DoublingRound(2 * partner if partner < left_over else partner + left_over, is_lower)
        for partner, is_lower in partners
    )
