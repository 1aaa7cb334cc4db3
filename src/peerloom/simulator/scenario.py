"""What is to be simulated, checked before anything starts."""

from dataclasses import dataclass, field
from pathlib import Path

from peerloom.errors import InvalidArgumentError
from peerloom.services.selector.belief.formula import Weights, check_weights
from peerloom.services.selector.belief.track import HALF_LIFE_S, check_half_life

DAY_S = 86_400.0
MAX_ROUNDS, MAX_SEEDS, MAX_BUDGET, MAX_SLOTS = 1_000_000, 10_000, 1000, 1024
MAX_OBSERVATIONS = 1000.0


@dataclass(frozen=True)
class Scenario:
    """One population under one policy and one budget, for `rounds` jobs, one each `interval_s` seconds.

    `slots` are the sizes of gangs (empty: 1 to 16, as far as the population has as many) and `lengths_s` the
    lengths of jobs on typical nodes; each job draws one of each. Before the first job that counts, hosts come
    and go for `settling_s`; with `given_models` each then receives one model, as in the thesis's network, so
    that all have a belief; with `retry_s` a job that reaches nobody asks again so often, until its deadline;
    and then random selections make `observations` requests a node on average, so that
    policies can be compared with equal knowledge.
    """

    population: str = "volunteers-1000"
    policy: str = "survival"
    budget: int = 4
    rounds: int = 200
    seed: int = 1
    interval_s: float = 600.0
    slots: tuple[int, ...] = ()
    lengths_s: tuple[float, ...] = (300.0, 900.0, 1800.0)
    settling_s: float = DAY_S
    observations: float = 0.0
    given_models: bool = False
    retry_s: float = 0.0
    trace: Path | None = None
    weights: Weights = field(default_factory=Weights)
    half_life_s: float = HALF_LIFE_S

    def check(self) -> None:
        """Raises InvalidArgumentError for what is outside its limits."""
        _check("rounds", self.rounds, 1, MAX_ROUNDS)
        _check("budget", self.budget, 1, MAX_BUDGET)
        _check("seed", self.seed, 0, 2**32)
        _check("interval_s", self.interval_s, 0.001, 1e9)
        _check("settling_s", self.settling_s, 0, 1e9)
        _check("retry_s", self.retry_s, 0, 1e9)
        _check("observations", self.observations, 0, MAX_OBSERVATIONS)
        if not self.lengths_s:
            raise InvalidArgumentError("a scenario needs at least one length of job.")
        for slots in self.slots:
            _check("slots", slots, 1, MAX_SLOTS)
        for length_s in self.lengths_s:
            _check("lengths_s", length_s, 1, 1e9)
        check_weights(self.weights)
        check_half_life(self.half_life_s)


def usual(population: str) -> Scenario:
    """The usual scenario of a population: the thesis's 50 short rounds, or longer jobs after a day.

    In a loaded population a job comes each minute, more than the strongest nodes can take, and queues.
    """
    if population.startswith("loaded"):
        return Scenario(population, interval_s=60.0, retry_s=60.0)
    if not population.startswith("thesis"):
        return Scenario(population)
    return Scenario(
        population, "thesis", 3, 50, interval_s=60, lengths_s=(30.0,), settling_s=3600, given_models=True
    )


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidArgumentError.of_field(name, value, f"{low:,g} to {high:,g}")
