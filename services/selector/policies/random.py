"""Pure chance: what every other policy must beat."""

import numpy as np

from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest


class RandomPolicy:
    """Every set of candidates is equally likely, in every order."""

    name = "random"
    description = "Takes any candidates with equal chance, whatever is believed of them."
    source = "Ours: the baseline that other policies are compared with."

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """Draws without replacement."""
        total = len(candidates)
        count = min(request.budget, total)
        indices = rng.choice(total, count, replace=False).astype(np.intp)
        return Selection(
            indices,
            [f"drawn by chance as number {i + 1} of {count} from {total:,} candidates" for i in range(count)],
        )

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """The chance, the same for all."""
        chance = min(1.0, request.budget / len(candidates))
        return [ScoreTerm("chance", chance, "", f"{request.budget} of {len(candidates):,} candidates")]
