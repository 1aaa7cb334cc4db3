"""What the two swarms look for in a node, in one number."""

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.policies.interface import Candidates

Floats = npt.NDArray[np.float64]


def fitness(candidates: Candidates) -> Floats:
    """share of requests met * slots / (1 + mean delay in seconds), from faded counts; 0.5 of nothing is met.

    The thesis names reliability, strength and delay as what to choose by; the swarms it cites leave the
    figure to be optimised open.
    """
    record = candidates.known.record
    met = (record.trainings + 1) / (record.work + record.interruptions + 2)
    delay_s = record.transfer_s / np.maximum(record.transfers, 1e-9)
    values: Floats = met * candidates.slots / (1 + delay_s)
    return values
