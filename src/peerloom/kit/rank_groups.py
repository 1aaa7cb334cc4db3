"""Which ranks average with each other within a round of local steps. Pure functions.

Groups of a size meet others each time, so that what one rank learned reaches all in a logarithm of their
number (the grid of Moshpit SGD: Ryabinin et al., NeurIPS 2021). Groups by site are those whose ways are
short (multi-level local SGD: Castiglia et al., ICLR 2021).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from peerloom.errors import InvalidArgumentError
from peerloom.kit.occasions import occasion_after, occasions_in
from peerloom.kit.sync_sites import Sites, site_of_each
from peerloom.kit.whole_numbers import as_whole

BY_SITE = "sites"
GROUPS_CHOICES = {
    "G:E": "within a round, after each E batches, groups of at most G ranks, others each time, average",
    f"{BY_SITE}:E": "likewise, but all ranks of a site are a group",
}
LEAST_SIZE, MOST_SIZE = 2, 64


@dataclass(frozen=True)
class RankGroups:
    """Groups of at most `size` ranks (2 to 64; 0: by site) that average after each `every` batches (1 on)."""

    size: int
    every: int

    def __str__(self) -> str:
        return f"groups={self.size or BY_SITE}:{self.every}"

    def occasion(self, step: int, steps: range, period: int) -> int | None:
        """Which averaging follows the job's `step` in the round of its `steps`, from 0; None: none does."""
        return occasion_after(self.every, step, steps, period)

    def occasions(self, period: int) -> int:
        """How many there are in a round of `period` batches."""
        return occasions_in(self.every, period)

    def divide(
        self, ranks: Sequence[int], nodes: Sequence[str], sites: Sites, occasion: int
    ) -> list[tuple[int, ...]]:
        """The groups of these `ranks`, whose nodes are by rank in `nodes`, on this occasion (from 0)."""
        if self.size:
            return _in_turn(ranks, self.size, occasion)
        found: dict[int | str, list[int]] = defaultdict(list)
        keys = site_of_each(sites, nodes)
        for rank in ranks:
            found[keys[rank]].append(rank)
        return [tuple(group) for group in found.values()]

    def turns(self, ranks: int) -> int:
        """How many occasions it takes, about, until of so many ranks all have heard of all; by site 1."""
        return _turns(ranks, self.size) if self.size else 1


def groups_of(field: str, text: str, given: str, period: int) -> RankGroups:
    """What is `given` as groups in a `text` whose rounds have `period` batches.

    Raises InvalidArgumentError with the limit that was passed.
    """
    name, colon, number = given.partition(":")
    size = 0 if name == BY_SITE else as_whole(name)
    every = as_whole(number)
    if not colon or (name != BY_SITE and not LEAST_SIZE <= size <= MOST_SIZE):
        limit = f"groups=G:E with {LEAST_SIZE} to {MOST_SIZE} ranks in a group, or {BY_SITE}:E"
        raise InvalidArgumentError.of_field(field, text, f"{limit}, as in groups=4:8")
    if not 1 <= every < period:
        limit = f"groups={name}:E with an E of at least 1 and below the period ({period}), as after that all"
        raise InvalidArgumentError.of_field(field, text, f"{limit} exchange")
    return RankGroups(size, every)


def _turns(ranks: int, size: int) -> int:
    """Occasions after which who belongs together has been (and of an equal size comes again): log(ranks)."""
    turns, reached = 1, size
    while reached < ranks:
        turns, reached = turns + 1, reached * size
    return turns


def _in_turn(ranks: Sequence[int], size: int, occasion: int) -> list[tuple[int, ...]]:
    """Neighbours in an order that was dealt out, as often as the occasion says, to as many heaps as groups.

    Of `size` to the power d ranks the groups are the lines of a grid with d sides, one side after the other.
    Where groups can't be of equal size the order turns too, so that nobody is always in the smaller ones.
    """
    order, count = list(ranks), -(-len(ranks) // size)
    if len(order) % count:
        turned = occasion % len(order)
        order = order[turned:] + order[:turned]
    for _ in range(occasion % _turns(len(ranks), size)):
        order = [rank for first in range(count) for rank in order[first::count]]
    bounds = [len(order) * group // count for group in range(count + 1)]
    return [tuple(order[first:end]) for first, end in pairwise(bounds)]
