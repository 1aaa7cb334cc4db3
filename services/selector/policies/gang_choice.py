"""A gang is as slow as its slowest and as fragile as its sum: choosing a set as a set. Pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.policies.survival_model import Outlook

Rows = npt.NDArray[np.intp]
LOOKED_AT = 128  # raising costs its square in time, lowering misses sets of many equals
EXCHANGES = 8  # raising finds little more
LARGEST_EXCHANGED = 64  # members; of more, exchanges would take longer than all else


@dataclass(frozen=True)
class ChosenGang:
    """Positions of the members, most valuable first, and the expected useful work of the set a second."""

    members: Rows
    value: float


def best_gang(outlook: Outlook, may: npt.NDArray[np.bool_], budget: int, slots: int) -> ChosenGang:
    """The best set of up to `budget` among those who `may`; `slots`: how many are of use (0: all).

    For each pace p that might be the slowest: among the candidates that are no slower, those that add most
    for what they risk, as long as they raise p * min(slots, sum of gains) * (1 - product of fails) / (1 + sum
    of losses). The best of all those sets. What adds most is asked twice, with and without the chance that
    the node alone sees the end: in a set others may. Then members are exchanged for others, one at a time, as
    long as the set gets better. Only the max(LOOKED_AT, budget + 64) best single nodes are looked at.
    """
    near = _best_single(outlook.score, may, max(LOOKED_AT, budget + 64))
    if len(near) == 0 or budget == 0:
        return ChosenGang(near[:0], 0.0)
    alone = outlook.score[near] / outlook.pace[near]
    in_set = outlook.gain[near] / (1 + outlook.losses[near])
    orders = [near[np.argsort(-worth, kind="stable")] for worth in (in_set, alone)]
    begun = [_best_in_order(outlook, order, budget, slots) for order in orders]
    found = [_exchanged(outlook, near, gang, budget, slots) for gang in begun]
    return max(found, key=lambda gang: gang.value)


def _exchanged(outlook: Outlook, near: Rows, gang: ChosenGang, budget: int, slots: int) -> ChosenGang:
    """After the best exchanges, each of a member or nobody for another or nobody."""
    for _ in range(EXCHANGES if len(gang.members) <= LARGEST_EXCHANGED else 0):
        others = near[~np.isin(near, gang.members)]
        values = _values_after(outlook, gang.members, others, slots)
        if len(gang.members) == budget:
            values[0, 1:] = -1.0
        leaves, comes = np.unravel_index(int(np.argmax(values)), values.shape)
        if values[leaves, comes] <= gang.value * (1 + 1e-9):
            break
        members = np.delete(gang.members, leaves - 1) if leaves else gang.members
        if comes:
            members = np.append(members, others[comes - 1])
        gang = ChosenGang(members, float(values[leaves, comes]))
    worth = outlook.gain[gang.members] / (1 + outlook.losses[gang.members])
    return ChosenGang(gang.members[np.argsort(-worth, kind="stable")], gang.value)


def _values_after(outlook: Outlook, members: Rows, others: Rows, slots: int) -> npt.NDArray[np.float64]:
    """At [i, j] what the set is worth if member i - 1 leaves and other j - 1 comes; 0 stands for nobody."""

    rows, size, pace = np.concatenate([members, others]), len(members), outlook.pace

    def summed(each: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        leaving, coming = np.append(0.0, each[:size]), np.append(0.0, each[size:])
        after: npt.NDArray[np.float64] = np.add.outer(each[:size].sum() - leaving, coming)
        return after

    gains = summed(outlook.gain[rows])
    slowest, second = np.partition(np.append(pace[members], [np.inf, np.inf]), 1)[:2]
    slowest_left = np.where(np.arange(len(members)) == pace[members].argmin(), second, slowest)
    left, coming = np.append(slowest, slowest_left), np.append(np.inf, pace[others])
    slowest = np.minimum(left[:, None], coming[None, :])
    useful = np.minimum(gains, slots) if slots else gains
    finishes = -np.expm1(summed(_log_fails(outlook, rows)))
    values: npt.NDArray[np.float64] = useful * finishes / (1 + summed(outlook.losses[rows]))
    return values * np.where(np.isinf(slowest), 0.0, slowest)  # infinite where nobody would be left


def _best_in_order(outlook: Outlook, near: Rows, budget: int, slots: int) -> ChosenGang:
    gain, loss, pace = outlook.gain[near], outlook.losses[near], outlook.pace[near]
    fails = _log_fails(outlook, near)
    fast_enough = pace[None, :] >= pace[:, None]
    counts = np.cumsum(fast_enough, axis=1)
    gains = np.cumsum(np.where(fast_enough, gain, 0.0), axis=1)
    losses = np.cumsum(np.where(fast_enough, loss, 0.0), axis=1)
    finishes = -np.expm1(np.cumsum(np.where(fast_enough, fails, 0.0), axis=1))
    useful = np.minimum(gains, slots) if slots else gains
    values = pace[:, None] * useful * finishes / (1 + losses)
    values[~fast_enough | (counts > budget)] = -1.0
    slowest, last = np.unravel_index(int(np.argmax(values)), values.shape)
    members = np.flatnonzero(fast_enough[slowest, : last + 1])
    return ChosenGang(near[members], float(values[slowest, last]))


def _log_fails(outlook: Outlook, rows: Rows) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = np.log(np.maximum(outlook.fails[rows], 1e-12))
    return found


def reserves(outlook: Outlook, may: npt.NDArray[np.bool_], gang: ChosenGang, places: int) -> Rows:
    """Up to `places` others who wouldn't slow the gang, best first: they help when a member refuses."""
    if places <= 0 or len(gang.members) == 0:
        return gang.members[:0]
    free = may & (outlook.pace >= outlook.pace[gang.members].min())
    free[gang.members] = False
    rows = _best_single(outlook.score, free, places)
    return rows[np.argsort(-outlook.score[rows], kind="stable")]


def _best_single(score: npt.NDArray[np.float64], may: npt.NDArray[np.bool_], count: int) -> Rows:
    rows = np.flatnonzero(may & (score > 0))
    if len(rows) <= count:
        return rows
    return rows[np.sort(np.argpartition(-score[rows], count)[:count])]
