"""Reputation as a Beta distribution, with forgetting."""

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest
from peerloom.services.selector.policies.past import FadedSums
from peerloom.services.selector.policies.ranking import highest, reasons


class BetaPolicy:
    """score = (good + 1) / (good + bad + 2): the mean of Beta(good + 1, bad + 1), counts fading with age.

    Good: trainings and transfers; bad: interruptions, and requests refused or not finished.
    """

    name = "beta"
    description = "Takes the nodes whose share of good facts, fading with age, is expected to be highest."
    source = "A. Josang and R. Ismail, The Beta Reputation System, 15th Bled eCommerce Conference, 2002."

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """Ties by chance."""
        good, bad = _counts(candidates.known.record)
        scores = (good + 1) / (good + bad + 2)
        indices, tied_at_edge = highest(scores, request.budget, rng)
        return Selection(indices, reasons("reputation", scores[indices], tied_at_edge, len(scores)), scores)

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """Both counts and the mean."""
        record = candidates.known.record
        good, bad = (float(counts[index]) for counts in _counts(record))
        return [
            ScoreTerm("good", good, "facts", "trainings and transfers, fading"),
            ScoreTerm("bad", bad, "facts", "interruptions, refusals and unfinished requests, fading"),
            ScoreTerm("reputation", (good + 1) / (good + bad + 2), "", "(good + 1) / (good + bad + 2)"),
        ]


def _counts(record: FadedSums) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    return record.trainings + record.transfers, record.interruptions + record.unfinished
