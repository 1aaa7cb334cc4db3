"""Particle swarm: points fly over the ranked nodes, drawn to the best place each and all have seen."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.policies.fitness import fitness
from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest

Floats = npt.NDArray[np.float64]


@dataclass
class Swarm:
    """Positions and velocities, one row a particle, one column a place in the set; and the best ones seen."""

    positions: Floats
    velocities: Floats
    best: Floats
    best_values: Floats

    @property
    def leader(self) -> Floats:
        """The best position that any particle has seen."""
        place: Floats = self.best[int(np.argmax(self.best_values))]
        return place


class ParticleSwarmPolicy:
    """A particle is a set: each coordinate in [0, 1) names a node by its place in the catalog.

    velocity = inertia*velocity + pull*r1*(own best - position) + pull*r2*(all's best - position). The state
    lives for one selection and begins at random places, so nothing but `rng` decides.
    """

    name = "pso"
    description = "Searches for a good set with a particle swarm; fitness: met requests, slots, delay."
    source = (
        "J. Kennedy and R. Eberhart, Particle Swarm Optimization, ICNN 1995, with the inertia of Y. Shi and "
        "R. Eberhart, 1998; cited by the thesis as [4], Chen Xiang, Xihua University, 2015."
    )

    def __init__(
        self, particles: int = 24, steps: int = 30, inertia: float = 0.72, pull: float = 1.49
    ) -> None:
        self._particles, self._steps = particles, steps
        self._inertia, self._pull = inertia, pull

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """particles * steps sets are looked at, however many candidates there are."""
        count = min(request.budget, len(candidates))
        if count == 0:
            return Selection(np.empty(0, np.intp), [])
        values = fitness(candidates)
        swarm = self._begin(values, count, rng)
        for _ in range(self._steps):
            self._fly(swarm, values, rng)
        indices = _filled(_nodes(swarm.leader, len(values)), count, len(values), rng)
        indices = indices[np.argsort(-values[indices], kind="stable")]
        total = f"{values[indices].sum():.3f}"
        return Selection(
            indices,
            [
                f"fitness {value:.3f} in the best set that the swarm found, of {total}"
                for value in values[indices]
            ],
            values,
        )

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """The fitness of the node alone."""
        words = "share of requests met * slots / (1 + mean delay)"
        return [ScoreTerm("fitness", float(fitness(candidates)[index]), "", words)]

    def _begin(self, values: Floats, count: int, rng: np.random.Generator) -> Swarm:
        positions = rng.random((self._particles, count))
        velocities = rng.uniform(-0.1, 0.1, positions.shape)
        return Swarm(positions, velocities, positions.copy(), _worth(positions, values))

    def _fly(self, swarm: Swarm, values: Floats, rng: np.random.Generator) -> None:
        own, social = rng.random(swarm.positions.shape), rng.random(swarm.positions.shape)
        swarm.velocities = (
            self._inertia * swarm.velocities
            + self._pull * own * (swarm.best - swarm.positions)
            + self._pull * social * (swarm.leader - swarm.positions)
        )
        swarm.positions = (swarm.positions + swarm.velocities) % 1.0
        found = _worth(swarm.positions, values)
        better = found > swarm.best_values
        swarm.best[better], swarm.best_values[better] = swarm.positions[better], found[better]


def _nodes(positions: Floats, total: int) -> npt.NDArray[np.intp]:
    return np.minimum((positions * total).astype(np.intp), total - 1)


def _worth(positions: Floats, values: Floats) -> Floats:
    """The sum of the fitness of the nodes in each set; one that is named twice counts once."""
    nodes = np.sort(_nodes(positions, len(values)), axis=1)
    again = np.zeros(nodes.shape, np.bool_)
    again[:, 1:] = nodes[:, 1:] == nodes[:, :-1]
    sums: Floats = np.where(again, 0.0, values[nodes]).sum(axis=1)
    return sums


def _filled(
    nodes: npt.NDArray[np.intp], count: int, total: int, rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Each node once; places that two coordinates shared go to others by chance."""
    once = np.unique(nodes)
    others = np.setdiff1d(np.arange(total), once) if len(once) < count else np.empty(0, np.intp)
    return (
        np.concatenate([once, rng.choice(others, count - len(once), replace=False)]) if len(others) else once
    )
