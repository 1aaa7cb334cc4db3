"""The thesis's choice: whoever is believed in most is asked first."""

import numpy as np

from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest
from peerloom.services.selector.policies.ranking import highest, reasons


class ThesisPolicy:
    """Highest belief first; who is believed in equally is ordered by chance."""

    name = "thesis"
    description = "Takes the nodes with the highest belief by the printed formula; ties by chance."
    source = "Section 4.3 of the thesis on P2P distributed inference and training that Peerloom follows."

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """Time grows linearly with the candidates: only the chosen few are sorted."""
        belief = candidates.belief
        indices, tied_at_edge = highest(belief, request.budget, rng)
        return Selection(indices, reasons("belief", belief[indices], tied_at_edge, len(belief)), belief)

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """The belief alone: its own terms, kept with each update, take it apart."""
        value = float(candidates.belief[index])
        return [ScoreTerm("belief", value, "", "formula (4) at its last update, from all evidence so far")]
