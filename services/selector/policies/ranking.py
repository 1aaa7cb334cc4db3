"""The highest of many scores without sorting them all, and how a rank is said."""

from math import isqrt

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
Scores = npt.NDArray[np.float64]


def highest(scores: Scores, count: int, rng: np.random.Generator) -> tuple[Rows, int]:
    """Positions of the `count` highest scores, best first, ties by chance; and how many tie at the edge."""
    count = min(count, len(scores))
    if count == 0:
        return np.empty(0, np.intp), 0
    edge = kth_highest(scores, count)
    above = np.flatnonzero(scores > edge)
    tied = np.flatnonzero(scores == edge)
    lucky = rng.choice(tied, count - len(above), replace=False)
    chosen = np.concatenate([above, lucky])
    return chosen[np.lexsort((rng.random(count), -scores[chosen]))], len(tied)


def kth_highest(scores: Scores, count: int) -> float:
    """The `count`-th highest score; 1 <= count <= len(scores), no NaN.

    numpy's partition takes twenty times as long where most scores are one, as they are while most nodes are
    unproven. So: of blocks of scores the `count`-th highest maximum is a floor, as that many blocks reach it.
    Fewer blocks exceed it, and what exceeds it lies in those.
    """
    size = isqrt(len(scores) // count)  # blocks and what is left of them are then equally many
    whole = len(scores) // size * size
    maxima = np.append(scores[:whole].reshape(-1, size).max(axis=1), scores[whole:])
    floor = np.sort(maxima)[-count]
    above = scores[scores > floor]
    return float(floor if len(above) < count else np.sort(above)[-count])


def reasons(what: str, chosen: npt.NDArray[np.float64], tied_at_edge: int, total: int) -> list[str]:
    """A sentence for each chosen score, in falling order: `what`, its value and its rank."""
    if len(chosen) == 0:
        return []
    # All that have a higher score than a chosen one are chosen too, so ranks follow from the chosen.
    values, first, counts = np.unique(-chosen, return_index=True, return_counts=True)
    times = counts.tolist()
    tied = [*times[:-1], tied_at_edge]
    said = []
    for value, rank, same, here in zip((-values).tolist(), first.tolist(), tied, times, strict=True):
        text = f"{what} {value:.3f} is the {ordinal(rank + 1)}highest of {total:,} candidates"
        if same > 1:
            text += f", shared by {same:,}: their order is chance"
        said += [text] * here
    return said


def ordinal(rank: int) -> str:
    """ "", "2nd ", "3rd " and so on: goes before "highest"."""
    if rank == 1:
        return ""
    suffix = "th" if rank % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{suffix} "
