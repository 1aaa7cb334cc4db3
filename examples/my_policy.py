"""A policy of your own, tried on simulated machines before anybody trusts it.

    PYTHONPATH=examples peerloom simulate --policy my_policy:Calm --policy random --policy thesis \\
        --population outages-300 --rounds 60 --seeds 3

It asks the nodes that broke off least, for the time that they were there. Same seeds, same figures.
"""

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest


class Calm:
    """Fewest interruptions an hour first; newcomers count as having had one in their first hour."""

    name = "calm"
    description = "Takes the nodes with the fewest interruptions an hour."
    source = "An example."

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """The best of a shuffled list, so that equals take turns."""
        hazard = self._hazard(candidates)
        order = rng.permutation(len(candidates))
        chosen = order[np.argsort(hazard[order], kind="stable")][: request.budget]
        return Selection(chosen, [f"{hazard[i]:.2f} interruptions an hour" for i in chosen], -hazard)

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """The one figure that decides."""
        hazard = float(self._hazard(candidates)[index])
        return [ScoreTerm("hazard", -hazard, "1/h", f"{hazard:.2f} interruptions an hour")]

    def _hazard(self, candidates: Candidates) -> npt.NDArray[np.float64]:
        past = candidates.known.record
        return (past.interruptions + 1) / (past.exposure_s / 3600 + 1)
