"""What survival has to be better than: choices by speed, in a few lines each; in simulation only."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest
from peerloom.services.selector.policies.ranking import highest, reasons

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class HighestPolicy:
    """Takes the nodes with the highest score of their own among those who lend slots, ties by chance."""

    name: str
    description: str
    score: Callable[[Candidates], Floats]
    source: str = "Ours: what a few lines that know speed are worth; exists in simulation only."

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """One by one: a set is not looked at as a set."""
        scores = np.where(candidates.slots > 0, self.score(candidates), -1.0)
        indices, tied = highest(scores, request.budget, rng)
        return Selection(indices, reasons(self.name, scores[indices], tied, len(scores)), scores)

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """The score alone."""
        return [ScoreTerm(self.name, float(self.score(candidates)[index]), "", self.description)]


def speed(candidates: Candidates) -> Floats:
    """The mean measured speed of a slot; 0 for who was never measured."""
    record = candidates.known.record
    mean: Floats = record.speed_total / np.maximum(record.speeds, 1e-9)
    return mean


def acceptance(candidates: Candidates) -> Floats:
    """The mean of Beta(trainings + 1, refusals + 1)."""
    record = candidates.known.record
    mean: Floats = (record.trainings + 1) / (record.work + 2)
    return mean


BASELINES = {
    one.name: one
    for one in (
        HighestPolicy("speed", "Takes the fastest by measured speed.", speed),
        HighestPolicy(
            "speed-acceptance",
            "Measured speed times the part of requests met.",
            lambda candidates: speed(candidates) * acceptance(candidates),
        ),
        HighestPolicy(
            "thesis-speed",
            "The thesis's belief times measured speed.",
            lambda candidates: np.maximum(candidates.belief, 0.0) * speed(candidates),
        ),
    )
}
