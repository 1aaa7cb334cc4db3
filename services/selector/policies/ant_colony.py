"""Ant colony: good work leaves a scent that fades, and ants follow it by chance."""

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.policies.fitness import fitness
from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest

Floats = npt.NDArray[np.float64]


class AntColonyPolicy:
    """Chance of a node ~ pheromone^alpha * fitness^beta, drawn without replacement.

    Pheromone = first + trainings finished, which evaporates as all evidence fades: the colony's only state is
    in the columns, explicit and kept over restarts.
    """

    name = "aco"
    description = "Draws nodes by the scent of finished work, which evaporates, and by their fitness."
    source = (
        "M. Dorigo and L. Gambardella, Ant Colony System, IEEE Trans. Evolutionary Computation 1(1), 1997; "
        "cited by the thesis as [5], Ma Lifang et al., Telecommunications Science 32(07), 2016."
    )

    def __init__(self, alpha: float = 1.0, beta: float = 2.0, first: float = 0.1) -> None:
        self._alpha, self._beta, self._first = alpha, beta, first

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """Efraimidis and Spirakis's way to draw by weight without replacement: largest ln(u) / weight."""
        count = min(request.budget, len(candidates))
        if count == 0:
            return Selection(np.empty(0, np.intp), [])
        weights = self._weights(candidates)
        keys = np.log(1.0 - rng.random(len(weights))) / weights
        near = np.argpartition(-keys, count - 1)[:count]
        indices = near[np.argsort(-keys[near], kind="stable")]
        parts = weights[indices] / weights.sum()
        return Selection(
            indices, [f"drawn by scent with chance {part:.2g} a draw" for part in parts], weights
        )

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """Scent, fitness, and the chance of being drawn first."""
        weights = self._weights(candidates)
        scent = float(self._first + candidates.known.record.trainings[index])
        return [
            ScoreTerm("pheromone", scent, "trainings", f"{self._first} + trainings finished, evaporating"),
            ScoreTerm("fitness", float(fitness(candidates)[index]), "", "met * slots / (1 + mean delay)"),
            ScoreTerm("chance", float(weights[index] / weights.sum()), "", "its part of all weights"),
        ]

    def _weights(self, candidates: Candidates) -> Floats:
        scent = self._first + candidates.known.record.trainings
        # Nobody's chance is 0: a key needs a weight.
        weights: Floats = np.maximum(scent**self._alpha * fitness(candidates) ** self._beta, 1e-12)
        return weights
