"""One scenario, from the first event to its rounds."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.services.selector.policies import POLICIES, find_policy, load_policy
from peerloom.services.selector.policies.interface import Policy
from peerloom.services.selector.policies.random import RandomPolicy
from peerloom.simulator.ablations import ABLATIONS
from peerloom.simulator.baselines import BASELINES
from peerloom.simulator.book import Book
from peerloom.simulator.gang import JobSpec
from peerloom.simulator.oracle import OraclePolicy
from peerloom.simulator.populations import Population, check_not_empty, population, traced
from peerloom.simulator.rounds import Round
from peerloom.simulator.scenario import Scenario
from peerloom.simulator.trace import read_trace
from peerloom.simulator.world import World

ORACLE = "oracle"
_OBSERVING_BUDGET, _OBSERVING_INTERVAL_S = 8, 60.0
_OBSERVING_LENGTH_S = 120.0
USUAL_SLOTS = (1, 2, 4, 8, 16)


def policy_names() -> list[str]:
    """All policies that a simulation knows by name."""
    return sorted([*POLICIES, *BASELINES, *ABLATIONS, ORACLE])


def population_of(scenario: Scenario) -> Population:
    """The hosts. Raises NotFoundError or InvalidArgumentError; more slots asked than exist is one too."""
    if scenario.trace is not None:
        found = traced(scenario.trace.name, read_trace(scenario.trace), scenario.seed)
    else:
        found = population(scenario.population, scenario.seed)
    check_not_empty(found.hosts)
    exist = sum(host.slots for host in found.hosts)
    if max(scenario.slots, default=1) > exist:
        raise InvalidArgumentError(
            f"a gang of {max(scenario.slots, default=1)} slots is asked for, but all {len(found.hosts):,} "
            f"nodes of {found.name} together lend {exist}."
        )
    others = len(found.hosts) - (found.asker is not None)
    if scenario.budget > others:
        limit = f"at most {others:,}, the nodes of {found.name} that can be asked"
        raise InvalidArgumentError.of_field("budget", scenario.budget, limit)
    return found


def policy_of(name: str, world: World) -> Policy:
    """A policy by name, by module:Class, a baseline, or the oracle. Raises what `known_policy` raises."""
    return OraclePolicy(world.truth) if name == ORACLE else known_policy(name)


def known_policy(name: str) -> Policy:
    """A policy other than the oracle. Raises NotFoundError with the nearest names, or ConfigurationError."""
    if ":" in name and name.partition(":")[0] not in POLICIES:
        return load_policy(name)
    of_simulation: dict[str, Policy] = {**BASELINES, **ABLATIONS}
    if name in of_simulation:
        return of_simulation[name]
    if name.partition(":")[0] not in POLICIES:
        # Who mistypes a policy doesn't mean one without a term.
        raise NotFoundError.of_name("policy", name[:80], sorted({*policy_names()} - {*ABLATIONS}))
    return find_policy(name)


def simulate(scenario: Scenario) -> tuple[Population, list[Round]]:
    """The rounds that count, in order of their numbers. The same scenario gives the same rounds.

    Raises InvalidArgumentError, ConfigurationError or NotFoundError before anything starts.
    """
    check(scenario)
    return Beginning.of(scenario).play(scenario)


@contextmanager
def without_collector() -> Iterator[None]:
    """Nobody looks for cycles meanwhile: of a world's millions of values only the world itself is in one."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def check(scenario: Scenario) -> None:
    """Raises InvalidArgumentError, ConfigurationError or NotFoundError for what can't be simulated."""
    scenario.check()
    population_of(scenario)
    if scenario.policy != ORACLE:
        known_policy(scenario.policy)


@dataclass(frozen=True)
class Beginning:
    """The moment before the first job that counts: the same for every policy and every budget.

    `world` stays as it was then, `observed` is how many jobs it has seen.
    """

    hosts: Population
    world: World
    observed: int

    @classmethod
    @without_collector()
    def of(cls, scenario: Scenario) -> "Beginning":
        """Hosts come and go, are given models, and are observed, as the scenario says."""
        hosts = population_of(scenario)
        world = World(hosts, Book(scenario.weights, scenario.half_life_s), scenario.seed)
        world.run_until(scenario.settling_s)
        if scenario.given_models:
            world.give_models()
        observed = _observe(world, scenario)
        return cls(hosts, world, observed)

    @without_collector()
    def play(self, scenario: Scenario) -> tuple[Population, list[Round]]:
        """The scenario's rounds from here; it must be the same but for policy and budget."""
        world = self.world.copy()
        policy = policy_of(scenario.policy, world)
        rng, jobs = np.random.default_rng([scenario.seed, 2]), np.random.default_rng([scenario.seed, 3])
        exist = sum(host.slots for host in self.hosts.hosts)
        slots = scenario.slots or tuple(size for size in USUAL_SLOTS if size <= exist)
        for number in range(self.observed, self.observed + scenario.rounds):
            size, length_s = int(jobs.choice(slots)), float(jobs.choice(scenario.lengths_s))
            world.submit(JobSpec(number, size, length_s, scenario.budget), policy, rng, scenario.retry_s)
            world.run_until(world.now_s + scenario.interval_s)
        world.run_to_end()
        rounds = sorted(world.finished, key=lambda one: one.number)
        return self.hosts, rounds[self.observed :]


def _observe(world: World, scenario: Scenario) -> int:
    """Short jobs by chance until each node was asked `observations` times on average; how many jobs."""
    rng, policy = np.random.default_rng([scenario.seed, 4]), RandomPolicy()
    wanted = scenario.observations * len(world.hosts)
    asked = jobs = 0
    while asked < wanted:
        job = JobSpec(jobs, 1024, _OBSERVING_LENGTH_S, min(_OBSERVING_BUDGET, len(world.hosts)))
        asked += len(world.submit(job, policy, rng, counts=False))
        world.run_until(world.now_s + _OBSERVING_INTERVAL_S)
        jobs += 1
    world.run_until(world.now_s + 4 * _OBSERVING_LENGTH_S)
    return jobs
