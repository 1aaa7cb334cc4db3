"""What nobody can know: the policy that sees the hosts as they are. For comparison, in simulation only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.policies.gang_choice import best_gang
from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest
from peerloom.services.selector.policies.survival_model import Outlook
from peerloom.simulator.gang import LOSS_S
from peerloom.simulator.hosts import SimulatedHost

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Truth:
    """Nodes as they are, one entry each: free slots, speed a slot, chance to accept, rate of ending in 1/s,
    seconds to get the model.
    """

    slots: Floats
    gflops: Floats
    accepts: Floats
    hazard: Floats
    transfer_s: Floats

    @classmethod
    def of_hosts(cls, hosts: Sequence[SimulatedHost]) -> "Truth":
        """What never changes of the hosts; the hazard isn't among it."""
        return cls(
            slots=np.array([host.slots for host in hosts], np.float64),
            gflops=np.array([host.gflops for host in hosts]),
            accepts=np.array([host.accepts for host in hosts]),
            hazard=np.empty(0),
            transfer_s=np.array([host.transfer_s for host in hosts]),
        )


class OraclePolicy:
    """Chooses sets by survival's value with true figures. It knows every distribution, and not the future.

    `truth` tells of rows, with the horizon in seconds.
    """

    name = "oracle"
    description = "Knows every node's true speed, acceptance and chance of leaving, but not the future."
    source = "Ours: what regret is measured against, no bound (bound.py); exists in simulation only."

    def __init__(self, truth: Callable[[Rows, float], Truth]) -> None:
        self._truth = truth

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """The set with the highest true value."""
        horizon_s = request.horizon_s or 1800.0
        view = _outlook(self._truth(candidates.known.rows, horizon_s), horizon_s)
        gang = best_gang(view, np.ones(len(candidates), np.bool_), request.budget, request.slots)
        return Selection(gang.members, ["it knows"] * len(gang.members), view.score)

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """Nothing that evidence could stand behind."""
        return []


def _outlook(truth: Truth, horizon_s: float) -> Outlook:
    return Outlook(
        hazard=truth.hazard,
        acceptance=truth.accepts,
        speed=truth.gflops,
        transfer_s=truth.transfer_s,
        delay_s=np.zeros_like(truth.transfer_s),
        pace=truth.gflops * horizon_s / (horizon_s + truth.transfer_s),
        slots=truth.slots,
        lasts_s=np.full_like(truth.transfer_s, horizon_s),
        loss_s=LOSS_S,
    )
