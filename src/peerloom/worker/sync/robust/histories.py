"""What each owner said for a rank's part of the gradient in the steps before, and whose doesn't fit.

A lie that hides among the votes of one step has to be told in every step to move anything. All votes are
means over samples that were drawn alike, so what differs between honest ones averages out, and a lie doesn't
(Karimireddy, He, Jaggi, ICML 2021: there it is the workers that average). Here the receiver averages: workers
send gradients of the step, which can be computed again, and nothing has to survive a loss or reach a
newcomer, since each generation begins anew.
"""

from collections.abc import Sequence

import torch

from peerloom.worker.sync.robust import vote_rules as rules
from peerloom.worker.sync.robust.votes import Votes

KEPT = 0.95  # of a history in each step: about twenty count, and noise falls to a sixth


class Histories:
    """One rank's averages of the owners' votes, over its parts of all buckets; as large as a gradient."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._means: dict[str, list[torch.Tensor]] = {}
        self._steps: dict[str, int] = {}

    def add(self, found: Sequence[Votes]) -> None:
        """Takes a step's votes, of each bucket; who is refused in one isn't heard in this step.

        All begin anew when an owner is heard for the first time, as short histories differ more than long
        ones, and when DDP has sorted its buckets anew.
        """
        sizes = [votes.values.shape[1] for votes in found]
        heard = [owner for owner in found[0].owners if all(owner in votes.owners for votes in found)]
        if sizes != self._sizes or not set(heard) <= self._means.keys():
            self._sizes, self._means, self._steps = sizes, {}, {}
        for owner in heard:
            self._add(owner, [votes.values[votes.owners.index(owner)] for votes in found])

    def apart(self) -> list[str]:
        """The owners whose histories stand apart from most: less than a third of those that have one."""
        owners = list(self._means)
        if not rules.tolerated(len(owners)):
            return []
        pairs = zip(*(self._means[owner] for owner in owners), strict=True)
        squares = torch.stack([torch.pdist(torch.stack(rows)).double() ** 2 for rows in pairs]).sum(0)
        above = torch.triu_indices(len(owners), len(owners), 1)
        distances = torch.zeros(len(owners), len(owners), dtype=torch.float64)
        distances[above[0], above[1]] = squares.cpu()
        found = rules.apart(distances + distances.t(), rules.tolerated(len(owners)))
        return [owners[place] for place in found]

    def _add(self, owner: str, said: list[torch.Tensor]) -> None:
        steps = self._steps[owner] = self._steps.get(owner, 0) + 1
        if steps == 1:
            self._means[owner] = [part.clone() for part in said]
            return
        for mean, part in zip(self._means[owner], said, strict=True):
            mean.lerp_(part, (1 - KEPT) / (1 - KEPT**steps))  # the first steps count alike
