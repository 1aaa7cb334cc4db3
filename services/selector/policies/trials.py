"""Trying those of whom nothing is known: at a bounded rate, one turn an owner. Pure.

Every `period`-th selection is a trial: its places go to owners, not to names, so a hundred names of one
owner (kit/ownership.py: by certificate, else by address) wait for one turn. Owners of whom nothing is known
come first, the longest waiting of them first; then whoever was asked longest ago, since what we know fades
and who was bad may have become good. Every second place may go to the stranger of least risk instead, so that
the first ones tried are good ones. The rate grows with the part of the owners that are unknown, from `share`
to `share_of_all`, and it falls to a tenth of `share` when all are known. Since turns go by the selections'
numbers and not by chance, with U unknown owners and a budget of b each is tried within
(2 * U / b + 1) * period selections.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peerloom.errors import ConfigurationError
from peerloom.services.selector.policies.past import Past

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Trials:
    """How often newcomers are tried: `share` of selections when few are unknown, up to `share_of_all`."""

    share: float = 0.05
    share_of_all: float = 0.2

    def check(self) -> None:
        """Raises ConfigurationError for shares that aren't 0 < share <= share_of_all <= 1."""
        if not 0 < self.share <= self.share_of_all <= 1:
            raise ConfigurationError(
                f"the shares of trials are {self.share!r} and {self.share_of_all!r}, but must hold "
                "0 < share <= share_of_all <= 1: with 0 no newcomer would ever be tried, and "
                "period = 1 / share would grow without bound."
            )

    def period(self, past: Past) -> int:
        """Each so manyth selection is a trial."""
        if len(past.rows) == 0 or past.owner_is_known.all():
            return math.ceil(10 / self.share)
        # Each owner counts once, however many names it has.
        weights = 1.0 / past.numbers.names_of_owner[past.owner]
        unknown = float(weights[~past.owner_is_known].sum() / weights.sum())
        return math.ceil(1 / (self.share + (self.share_of_all - self.share) * unknown))

    def is_due(self, past: Past) -> bool:
        """Whether this selection is a trial."""
        return past.selections % self.period(past) == 0


def whose_turn(
    past: Past, may: npt.NDArray[np.bool_], places: int, risk: npt.NDArray[np.float64] | None = None
) -> Rows:
    """Up to `places` candidates among those who `may`, one an owner, longest waiting owner first.

    With a `risk` for each candidate, every second place goes to the owner with the lowest instead.
    """
    waiting = np.flatnonzero(_one_an_owner(past, may))
    if places <= 0 or len(waiting) == 0:
        return waiting[:0]
    # One number for the order: strangers first, then the selection that asked the owner last.
    order = np.where(past.owner_is_known[waiting], 2.0**40, 0.0) + past.owner_asked[waiting]
    if risk is None or places < 2:
        return _first(waiting, order, places)
    steady = _first(waiting, np.where(order < 2.0**40, risk[waiting], np.inf), places // 2)
    left = ~np.isin(waiting, steady)
    return np.concatenate([steady, _first(waiting[left], order[left], places - len(steady))])


def _first(waiting: Rows, order: npt.NDArray[np.float64], places: int) -> Rows:
    if places < len(waiting):
        edge = np.partition(order, places - 1)[places - 1]
        near = np.flatnonzero(order <= edge)
        waiting, order = waiting[near], order[near]
    return waiting[np.argsort(order, kind="stable")][:places]


def _one_an_owner(past: Past, may: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    several = np.flatnonzero(may & past.shares_owner)
    if len(several) == 0:
        return may
    by_owner = several[np.lexsort((past.asked[several], past.owner[several]))]
    _, first = np.unique(past.owner[by_owner], return_index=True)
    alone = may.copy()
    alone[several] = False
    alone[by_owner[first]] = True
    return alone
