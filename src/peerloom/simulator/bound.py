"""What no choice of nodes can exceed: the most finished work a second and a requested slot of one job.

    bound = length * TYPICAL_GFLOPS / fastest
    fastest = min over sets S of at most `budget` nodes of
              max transfer in S + length * slots * TYPICAL_GFLOPS / (min speed in S * min(slots, slots of S))

What it relaxes: every node accepts, has all its slots free, stays to the end, and costs nothing to find. Why
nothing beats it: a gang is at each moment a part of the set that accepted, since members only leave it. Let S
be the part that was fastest while the job ran. The job waited for the transfers of all, among them those of
S, and was never faster than S; so it took at least as long as the formula gives for S, and the bound takes
the best of all such sets. Nodes never become faster. It is of the moment of submission; a job that may wait
for nodes is held to the best of all nodes there are, also those that are away.
"""

import heapq

import numpy as np
import numpy.typing as npt

from peerloom.simulator.hosts import TYPICAL_GFLOPS

Floats = npt.NDArray[np.float64]


def bound_gflops(
    gflops: Floats, slots: Floats, transfer_s: Floats, *, wanted: int, length_s: float, budget: int
) -> float:
    """The bound for a job of `wanted` slots; one entry a node: a slot's speed, slots, seconds for the model.

    In 1e9 operations a second and a requested slot; 0 without nodes that lend slots.
    """
    lends = np.flatnonzero(slots > 0)
    order = lends[np.argsort(-gflops[lends], kind="stable")]
    work, least_s = wanted * length_s * TYPICAL_GFLOPS, np.inf
    most = min(wanted, float(np.sort(slots[lends])[-budget:].sum()))
    for place, node in enumerate(order.tolist()):
        slowest = float(gflops[node])
        if work / (slowest * most) >= least_s:
            break  # also with the most slots and no transfer this and all slower ones take longer
        if place + 1 < len(order) and gflops[order[place + 1]] == slowest:
            continue  # with the next one there are more to choose from, and none is slower
        least_s = min(
            least_s, _least_s(order[: place + 1], slots, transfer_s, work / slowest, wanted, budget)
        )
    return length_s * TYPICAL_GFLOPS / least_s if np.isfinite(least_s) else 0.0


def _least_s(
    nodes: npt.NDArray[np.intp], slots: Floats, transfer_s: Floats, slot_s: float, wanted: int, budget: int
) -> float:
    """The shortest time on these nodes; `slot_s` is what one slot of the slowest takes."""
    kept: list[float] = []
    total, least_s = 0.0, np.inf
    for node in nodes[np.argsort(transfer_s[nodes], kind="stable")].tolist():
        heapq.heappush(kept, float(slots[node]))
        total += float(slots[node])
        if len(kept) > budget:
            total -= heapq.heappop(kept)
        least_s = min(least_s, float(transfer_s[node]) + slot_s / min(wanted, total))
    return least_s
