"""A job on its way to nodes: who asks for it, since when, and what is told of it so far."""

from dataclasses import dataclass

import numpy as np

from peerloom.services.selector.policies.interface import Policy
from peerloom.simulator.gang import JobSpec
from peerloom.simulator.rounds import Round


@dataclass(slots=True)
class Waiting:
    """It asks by `policy` each `retry_s` (0: once), and was submitted at `since_s`."""

    job: JobSpec
    policy: Policy
    rng: np.random.Generator
    retry_s: float
    since_s: float
    told: Round
