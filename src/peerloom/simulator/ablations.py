"""survival without one of its terms each, to see what the term is worth; in simulation only."""

from dataclasses import dataclass, replace

import numpy as np

from peerloom.services.selector.policies.interface import Candidates, SelectionRequest
from peerloom.services.selector.policies.survival import SurvivalPolicy
from peerloom.services.selector.policies.survival_model import Outlook, Priors, expected_slots

_NEVER_DOUBTED = 500.0


@dataclass(frozen=True)
class WithoutPolicy(SurvivalPolicy):
    """What the term tells is the same for everybody here."""

    term: str = ""

    def _outlook(self, candidates: Candidates, request: SelectionRequest) -> Outlook:
        view = super()._outlook(candidates, request)
        match self.term:
            case "hazard":
                return replace(view, hazard=np.full_like(view.hazard, 1e-12))
            case "acceptance":
                return replace(view, acceptance=np.ones_like(view.acceptance))
            case "speed":
                return replace(view, pace=np.ones_like(view.pace))
            case "occupancy":
                said, record = candidates.slots.astype(np.float64), candidates.known.record
                return replace(view, slots=expected_slots(said, record, self.priors))
            case _:
                return view


def _without(term: str, priors: Priors) -> WithoutPolicy:
    name = f"survival-without-{term}"
    return WithoutPolicy(priors, name=name, description=f"survival, blind to {term}.", term=term)


ABLATIONS = {
    policy.name: policy
    for policy in (
        *(_without(term, Priors()) for term in ("hazard", "acceptance", "speed", "occupancy")),
        _without("change", Priors(doubted=_NEVER_DOUBTED)),
        _without("loss", Priors(loss_s=0.0, loss_share=0.0)),
    )
}
